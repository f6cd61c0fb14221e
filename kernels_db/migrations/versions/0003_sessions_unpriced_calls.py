"""Sessions of browsers, and a count of the model calls whose price nobody knows.

Revision: 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("key_prefix", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["key_prefix"], ["api_keys.prefix"], name=op.f("fk_sessions_key_prefix_api_keys")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
    )
    op.add_column("searches", sa.Column("unpriced_calls", sa.Integer(), server_default="0", nullable=False))
    op.execute(
        "UPDATE searches SET unpriced_calls = (SELECT count(*) FROM model_calls"
        " WHERE model_calls.search_id = searches.id AND model_calls.provider = 'openai'"
        " AND model_calls.reply IS NOT NULL AND model_calls.cost_usd IS NULL)"
    )
