"""The device seconds that the sweeps of a search held.

Revision: 0020.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("searches", sa.Column("sweep_seconds", sa.Float(), server_default="0", nullable=False))
