"""Candidates that are tried for a node before it is answered, and the device seconds that a search spent on them.

Revision: 0018.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.add_column("searches", sa.Column("try_seconds", sa.Float(), server_default="0", nullable=False))
    op.create_table(
        "candidate_tries",
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("language", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.String(length=128), nullable=True),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("gate", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("device_s", sa.Float(), nullable=False),
        sa.Column("document", DOCUMENT, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("lease_expires_at", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_candidate_tries_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_candidate_tries_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidate_tries")),
    )
    op.create_index(op.f("ix_candidate_tries_search_id"), "candidate_tries", ["search_id"])
    op.create_index(op.f("ix_candidate_tries_node_id"), "candidate_tries", ["node_id"])
    op.create_index(op.f("ix_candidate_tries_state"), "candidate_tries", ["state"])
