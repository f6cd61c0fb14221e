"""Verifications that a bundle carries for the best of its screenings.

Revision: 0021.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("bundle_jobs", sa.Column("screening", sa.String(32), nullable=True))
