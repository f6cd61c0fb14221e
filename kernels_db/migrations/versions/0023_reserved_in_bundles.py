"""Sweep seconds that a bundle's verifications reserve.

Revision: 0023.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("bundle_jobs", sa.Column("sweep_s", sa.Float(), nullable=True))
