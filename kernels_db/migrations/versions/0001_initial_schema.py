"""The first schema.

Revision: 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

document = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "api_keys",
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("body_digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", document, nullable=False),
        sa.Column("response", document, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", "path", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "ops",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("spec", document, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ops")),
        sa.UniqueConstraint("digest", name=op.f("uq_ops_digest")),
    )
    op.create_index(op.f("ix_ops_name"), "ops", ["name"])

    op.create_table(
        "pools",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("header", document, nullable=False),
        sa.Column("replies", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("digest", name=op.f("uq_pools_digest")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=True),
        sa.Column("facts", document, nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "pool_replies",
        sa.Column("pool_id", sa.String(length=32), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("reply", document, nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_replies_pool_id_pools")),
        sa.PrimaryKeyConstraint("pool_id", "request", "ordinal", name=op.f("pk_pool_replies")),
    )
    op.create_table(
        "searches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("op_id", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("language", sa.String(length=16), nullable=False),
        sa.Column("policy", document, nullable=False),
        sa.Column("budget", document, nullable=False),
        sa.Column("model", document, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("problem", document, nullable=True),
        sa.Column("best_node_id", sa.String(length=32), nullable=True),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("next_seq", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("model_calls", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("active_s", sa.Float(), nullable=False),
        sa.Column("running_since", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["op_id"], ["ops.id"], name=op.f("fk_searches_op_id_ops")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_searches")),
    )
    op.create_index(op.f("ix_searches_created_at_id"), "searches", ["created_at", "id"])
    op.create_index(op.f("ix_searches_op_id"), "searches", ["op_id"])
    op.create_index(op.f("ix_searches_state"), "searches", ["state"])

    op.create_table(
        "workloads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("op_id", sa.String(length=32), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("axes", document, nullable=False),
        sa.ForeignKeyConstraint(["op_id"], ["ops.id"], name=op.f("fk_workloads_op_id_ops")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
        sa.UniqueConstraint("op_id", "device", "name", name=op.f("uq_workloads_op_id_device_name")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=True),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("payload", document, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_events_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_search_id_id"), "events", ["search_id", "id"])

    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("parent_id", sa.String(length=32), nullable=True),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("technique", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("repairs", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("gate", sa.String(length=16), nullable=True),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("ci_low", sa.Float(), nullable=True),
        sa.Column("ci_high", sa.Float(), nullable=True),
        sa.Column("limit_fraction", sa.Float(), nullable=True),
        sa.Column("ideation", sa.String(length=16), nullable=False),
        sa.Column("ideated", sa.Integer(), nullable=False),
        sa.Column("verification", sa.String(length=16), nullable=False),
        sa.Column("variant", sa.Integer(), nullable=False),
        sa.Column("language", sa.String(length=16), nullable=True),
        sa.Column("source_digest", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("idea", document, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_nodes_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("search_id", "seq", name=op.f("uq_nodes_search_id_seq")),
    )
    op.create_index(op.f("ix_nodes_search_id_source_digest"), "nodes", ["search_id", "source_digest"])

    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("params", document, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("lease_expires_at", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("deferrals", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_attempts_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_attempts_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("node_id", "kind", "ordinal", name=op.f("uq_attempts_node_id_kind_ordinal")),
    )
    op.create_index(op.f("ix_attempts_search_id_state"), "attempts", ["search_id", "state"])
    op.create_index(op.f("ix_attempts_state_lease_expires_at"), "attempts", ["state", "lease_expires_at"])

    op.create_table(
        "kernels",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("op_id", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=True),
        sa.Column("node_id", sa.String(length=32), nullable=True),
        sa.Column("language", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_digest", sa.String(length=64), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("ci_low", sa.Float(), nullable=False),
        sa.Column("ci_high", sa.Float(), nullable=False),
        sa.Column("limit_fraction", sa.Float(), nullable=True),
        sa.Column("envelope", document, nullable=False),
        sa.Column("evidence", document, nullable=False),
        sa.Column("lineage", document, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_kernels_node_id_nodes")),
        sa.ForeignKeyConstraint(["op_id"], ["ops.id"], name=op.f("fk_kernels_op_id_ops")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_kernels_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernels")),
        sa.UniqueConstraint("op_id", "target", "source_digest", name=op.f("uq_kernels_op_id_target_source_digest")),
    )
    op.create_index(op.f("ix_kernels_created_at_id"), "kernels", ["created_at", "id"])

    op.create_table(
        "asks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("messages", document, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("answered_by", sa.String(length=128), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("answered_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_asks_attempt_id_attempts")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_asks_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_asks_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asks")),
        sa.UniqueConstraint("attempt_id", "request", "ordinal", name=op.f("uq_asks_attempt_id_request_ordinal")),
    )
    op.create_index(op.f("ix_asks_search_id"), "asks", ["search_id"])

    op.create_table(
        "model_calls",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=16), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=True),
        sa.Column("messages", document, nullable=False),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("latency_s", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_model_calls_attempt_id_attempts")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_model_calls_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_model_calls_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_calls")),
    )
    op.create_index(op.f("ix_model_calls_node_id"), "model_calls", ["node_id"])
    op.create_index(op.f("ix_model_calls_search_id"), "model_calls", ["search_id"])

    op.create_table(
        "verdicts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("gate", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("document", document, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_verdicts_attempt_id_attempts")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_verdicts_node_id_nodes")),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_verdicts_search_id_searches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_verdicts_attempt_id")),
    )
    op.create_index(op.f("ix_verdicts_node_id"), "verdicts", ["node_id"])


def downgrade() -> None:
    """Undo."""
    op.drop_index(op.f("ix_verdicts_node_id"), table_name="verdicts")

    op.drop_table("verdicts")
    op.drop_index(op.f("ix_model_calls_search_id"), table_name="model_calls")
    op.drop_index(op.f("ix_model_calls_node_id"), table_name="model_calls")

    op.drop_table("model_calls")
    op.drop_index(op.f("ix_asks_search_id"), table_name="asks")

    op.drop_table("asks")
    op.drop_index(op.f("ix_kernels_created_at_id"), table_name="kernels")

    op.drop_table("kernels")
    op.drop_index(op.f("ix_attempts_state_lease_expires_at"), table_name="attempts")
    op.drop_index(op.f("ix_attempts_search_id_state"), table_name="attempts")

    op.drop_table("attempts")
    op.drop_index(op.f("ix_nodes_search_id_source_digest"), table_name="nodes")

    op.drop_table("nodes")
    op.drop_index(op.f("ix_events_search_id_id"), table_name="events")

    op.drop_table("events")
    op.drop_table("workloads")
    op.drop_index(op.f("ix_searches_state"), table_name="searches")
    op.drop_index(op.f("ix_searches_op_id"), table_name="searches")
    op.drop_index(op.f("ix_searches_created_at_id"), table_name="searches")

    op.drop_table("searches")
    op.drop_table("pool_replies")
    op.drop_table("workers")
    op.drop_table("pools")
    op.drop_index(op.f("ix_ops_name"), table_name="ops")

    op.drop_table("ops")
    op.drop_table("idempotency_keys")
    op.drop_table("api_keys")
