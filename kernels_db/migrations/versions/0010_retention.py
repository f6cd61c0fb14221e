"""When a search was pruned (`warpsmith prune`), and indices without which whole tables were read.

Revision: 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("searches", sa.Column("pruned_at", sa.Float(), nullable=True))
    op.create_index(op.f("ix_searches_pruned_at_updated_at"), "searches", ["pruned_at", "updated_at"])
    op.create_index(op.f("ix_searches_target"), "searches", ["target"])
    op.create_index(op.f("ix_verdicts_search_id_id"), "verdicts", ["search_id", "id"])
    op.create_index(op.f("ix_kernels_search_id"), "kernels", ["search_id"])
