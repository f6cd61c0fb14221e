"""Teams with quotas, scopes of keys, turns between teams, and the audit log.

What was stored before belongs to the team `default`, whose work every team may read; keys from before keep what they
could do: read, submit and steer. Shipped kernels, and ops that came with them, are everyone's.

Revision: 0009.
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TEAM = sa.String(length=64)
REFUSE = "the audit log is append-only"


def upgrade() -> None:
    """Apply."""
    _create_tables()
    op.execute(
        sa.text("INSERT INTO teams (name, visibility, created_at) VALUES ('default', 'shared', :now)").bindparams(
            now=time.time()
        )
    )
    op.add_column("searches", sa.Column("team", TEAM, server_default="default", nullable=False))
    op.add_column("campaigns", sa.Column("team", TEAM, server_default="default", nullable=False))
    op.create_index(op.f("ix_searches_state_team"), "searches", ["state", "team"])
    op.drop_index(op.f("ix_searches_state"), "searches")
    op.add_column("api_keys", sa.Column("team", TEAM, server_default="default", nullable=False))
    scopes = sa.Column("scopes", sa.String(length=64), server_default="read submit steer", nullable=False)
    op.add_column("api_keys", scopes)
    with op.batch_alter_table("kernels") as kernels:
        kernels.add_column(sa.Column("team", TEAM, server_default="default", nullable=False))
        kernels.drop_constraint("uq_kernels_op_id_target_source_digest", type_="unique")
        kernels.create_unique_constraint(
            "uq_kernels_op_id_target_source_digest_team", ["op_id", "target", "source_digest", "team"]
        )
    op.execute("UPDATE kernels SET team = '' WHERE search_id IS NULL")
    op.execute(
        "INSERT INTO holdings (object_id, team) SELECT id, 'default' FROM ops WHERE NOT EXISTS"
        " (SELECT 1 FROM kernels WHERE kernels.op_id = ops.id AND kernels.team = '')"
    )
    op.execute("INSERT INTO holdings (object_id, team) SELECT id, 'default' FROM pools")
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.add_column(sa.Column("team", TEAM, server_default="default", nullable=False))
        keys.drop_constraint("pk_idempotency_keys", type_="primary")
        keys.create_primary_key("pk_idempotency_keys", ["team", "key", "path"])
    _refuse_updates()


def _create_tables() -> None:
    op.create_table(
        "teams",
        sa.Column("name", TEAM, nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("open_searches", sa.Integer(), nullable=True),
        sa.Column("candidates_a_day", sa.Integer(), nullable=True),
        sa.Column("cost_usd_a_day", sa.Float(), nullable=True),
        sa.Column("device_seconds_a_day", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_teams")),
    )
    op.create_table(
        "team_days",
        sa.Column("team", TEAM, nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("device_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("team", "day", name=op.f("pk_team_days")),
    )
    op.create_table(
        "turns",
        sa.Column("queue", sa.String(length=80), nullable=False),
        sa.Column("team", TEAM, nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "team", name=op.f("pk_turns")),
    )
    op.create_table(
        "holdings",
        sa.Column("object_id", sa.String(length=32), nullable=False),
        sa.Column("team", TEAM, nullable=False),
        sa.PrimaryKeyConstraint("object_id", "team", name=op.f("pk_holdings")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("team", TEAM, nullable=True),
        sa.Column("key_prefix", sa.String(length=16), nullable=True),
        sa.Column("key_name", sa.String(length=128), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=True),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_created_at"), "audit", ["created_at"])


def _refuse_updates() -> None:
    if op.get_bind().dialect.name == "sqlite":
        refusal = f"SELECT RAISE(ABORT, '{REFUSE}')"
        op.execute(f"CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit BEGIN {refusal}; END")
        return
    op.execute(
        "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{REFUSE}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_append_only()"
    )
