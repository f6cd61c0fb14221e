"""Candidates that are put together from others, and the speed-ups by workload that say which.

Nodes that were judged before have none, so they are joined once they are judged again.

Revision: 0019.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("nodes", sa.Column("joins", sa.String(length=64), nullable=True))
    op.add_column("nodes", sa.Column("speedups", sa.Text(), nullable=True))


def downgrade() -> None:
    """Revert."""
    op.drop_column("nodes", "speedups")
    op.drop_column("nodes", "joins")
