"""Steering by a person, asks that expire, GPU seconds, profiles and bundles.

Revision: 0002.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

document = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.add_column("searches", sa.Column("gpu_seconds", sa.Float(), server_default="0", nullable=False))
    op.add_column("searches", sa.Column("branched_from", sa.String(length=32), nullable=True))
    # The table is copied on SQLite, so that the narrow columns stand before the wide ones: see `NodeRow`.
    copied = op.get_bind().dialect.name == "sqlite"
    mark = sa.Column("mark", sa.String(length=16), nullable=True)
    origin = sa.Column("origin", sa.String(length=16), server_default="model", nullable=False)
    with op.batch_alter_table("nodes", recreate="always" if copied else "never") as nodes:
        nodes.add_column(mark, insert_after="variant" if copied else None)
        nodes.add_column(origin, insert_after="mark" if copied else None)
    with op.batch_alter_table("asks") as asks:
        asks.add_column(sa.Column("issue", sa.Integer(), server_default="0", nullable=False))
        asks.add_column(sa.Column("expires_at", sa.Float(), nullable=True))
        asks.drop_constraint("uq_asks_attempt_id_request_ordinal", type_="unique")
        asks.create_unique_constraint(
            "uq_asks_attempt_id_request_ordinal_issue", ["attempt_id", "request", "ordinal", "issue"]
        )
    op.create_table(
        "profiles",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("document", document, nullable=False),
        sa.Column("trace", document, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_profiles_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_profiles_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
    )
    op.create_index(op.f("ix_profiles_node_id"), "profiles", ["node_id"])
    op.create_table(
        "bundle_jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("bundle_id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("job_digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("merged_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_bundle_jobs_attempt_id_attempts")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_bundle_jobs_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bundle_jobs")),
    )
    op.create_index(op.f("ix_bundle_jobs_attempt_id"), "bundle_jobs", ["attempt_id"])
    op.create_index(op.f("ix_bundle_jobs_bundle_id"), "bundle_jobs", ["bundle_id"])
