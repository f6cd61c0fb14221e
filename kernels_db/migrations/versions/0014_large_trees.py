"""Reading large trees and long lists.

Revision: 0014.

Revisions of nodes on PostgreSQL, by which `advance` reads what changed of a tree. An index of a node's children. The
score and the share of the limit of a search's best node in the search's own row, by which searches are sorted. The team
whose device seconds a re-verification spends.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_BEST = ", ".join(
    f"{column} = coalesce((SELECT {of_node} FROM nodes WHERE nodes.id = {{best}}), -1)"
    for column, of_node in (("best_score", "score"), ("best_limit", "limit_fraction"))
)
_OF_NODE = (
    "UPDATE searches SET best_score = coalesce(NEW.score, -1), best_limit = coalesce(NEW.limit_fraction, -1)"
    " WHERE id = NEW.search_id AND best_node_id = NEW.id"
)
_OF_SEARCH = f"UPDATE searches SET {_BEST.format(best='NEW.best_node_id')} WHERE id = NEW.id"
_SCORED = "AFTER INSERT ON nodes FOR EACH ROW WHEN (NEW.score IS NOT NULL)"
_RESCORED = (
    "AFTER UPDATE OF score, limit_fraction ON nodes FOR EACH ROW"
    " WHEN (coalesce(OLD.score, -1) <> coalesce(NEW.score, -1)"
    " OR coalesce(OLD.limit_fraction, -1) <> coalesce(NEW.limit_fraction, -1))"
)
_LED = (
    "AFTER UPDATE OF best_node_id ON searches FOR EACH ROW"
    " WHEN (coalesce(OLD.best_node_id, '') <> coalesce(NEW.best_node_id, ''))"
)
_TRIGGERS = (
    ("search_best_of_new_node", _SCORED, _OF_NODE),
    ("search_best_of_node", _RESCORED, _OF_NODE),
    ("search_best", _LED, _OF_SEARCH),
)


def upgrade() -> None:
    """Apply."""
    op.add_column("nodes", sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(op.f("ix_nodes_search_id_parent_id"), "nodes", ["search_id", "parent_id"])
    op.create_index(op.f("ix_nodes_search_id_revision"), "nodes", ["search_id", "revision"])
    for name in ("best_score", "best_limit"):
        op.add_column("searches", sa.Column(name, sa.Float(), server_default="-1", nullable=False))
        op.create_index(op.f(f"ix_searches_{name}_id"), "searches", [name, "id"])
    op.execute(f"UPDATE searches SET {_BEST.format(best='best_node_id')} WHERE best_node_id IS NOT NULL")
    op.add_column("reverifications", sa.Column("team", sa.String(length=64), nullable=True))
    if op.get_bind().dialect.name == "sqlite":
        _add_on_sqlite()
    else:
        _add_on_postgresql()


def _add_on_sqlite() -> None:
    for name, when, change in _TRIGGERS:
        op.execute(f"CREATE TRIGGER {name} {when} BEGIN {change}; END")


def _add_on_postgresql() -> None:
    for name, when, change in _TRIGGERS:
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {change}; RETURN NULL; END $$"
        )
        op.execute(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {name}()")
    op.execute("CREATE SEQUENCE node_revisions OWNED BY nodes.revision")
    op.execute(
        "CREATE FUNCTION revise_node() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.revision := nextval('node_revisions'); RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER revise_node BEFORE INSERT OR UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION revise_node()"
    )
