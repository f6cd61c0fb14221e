"""Names, notes, tags and model names of searches, and when each was archived.

Revision: 0017.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_SEARCHES = sa.table(
    "searches", sa.column("id", sa.String()), sa.column("model", _DOCUMENT), sa.column("model_name", sa.Text())
)
_POOLS = sa.table("pools", sa.column("id", sa.String()), sa.column("header", _DOCUMENT))


def upgrade() -> None:
    """Apply."""
    op.add_column("searches", sa.Column("name", sa.String(length=120), nullable=True))
    op.add_column("searches", sa.Column("notes", sa.Text(), nullable=True))
    op.add_column("searches", sa.Column("model_name", sa.Text(), nullable=True))
    op.add_column("searches", sa.Column("archived_at", sa.Float(), nullable=True))
    op.create_table(
        "search_tags",
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("tag", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f("fk_search_tags_search_id_searches")),
        sa.PrimaryKeyConstraint("search_id", "tag", name=op.f("pk_search_tags")),
    )
    op.create_index(op.f("ix_search_tags_tag"), "search_tags", ["tag"])
    # What deleting a search's attempts and nodes looks for in these tables.
    for table, column in (("model_calls", "attempt_id"), ("asks", "node_id"), ("kernels", "node_id")):
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column])
    op.create_index(op.f("ix_counterexamples_node_id"), "counterexamples", ["node_id"])
    _name_models()


def _name_models() -> None:
    """Write the models' names of older searches; what the settings named then is not known any more."""
    connection = op.get_bind()
    recorded = {row.id: str(row.header.get("answered_by") or "") for row in connection.execute(sa.select(_POOLS))}
    for row in connection.execute(sa.select(_SEARCHES.c.id, _SEARCHES.c.model)).all():
        name = _name(row.model, recorded)
        if name:
            connection.execute(sa.update(_SEARCHES).where(_SEARCHES.c.id == row.id).values(model_name=name))


def _name(model: dict[str, Any], recorded: dict[str, str]) -> str | None:
    if model.get("provider") == "openai":
        named = [entry.get("model") for entry in model.get("models") or [model]]
        return ", ".join(dict.fromkeys(name for name in named if name)) or None
    return recorded.get(model.get("pool") or "") or None
