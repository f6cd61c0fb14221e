"""Revisions of nodes on PostgreSQL: `advance` reads what changed of a large tree; an index of a node's children.

Revision: 0014.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("nodes", sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(op.f("ix_nodes_search_id_parent_id"), "nodes", ["search_id", "parent_id"])
    op.create_index(op.f("ix_nodes_search_id_revision"), "nodes", ["search_id", "revision"])
    if op.get_bind().dialect.name == "sqlite":
        return
    op.execute("CREATE SEQUENCE node_revisions OWNED BY nodes.revision")
    op.execute(
        "CREATE FUNCTION revise_node() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.revision := nextval('node_revisions'); RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER revise_node BEFORE INSERT OR UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION revise_node()"
    )
