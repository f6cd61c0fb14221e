"""Which workloads a bundle's job has, so that a verification without one of them is refused.

Revision: 0015.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.add_column("bundle_jobs", sa.Column("workloads", DOCUMENT, nullable=True))
