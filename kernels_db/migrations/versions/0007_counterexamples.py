"""Counterexamples: values on which candidates of an op were wrong, asked of every later candidate.

Revision: 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "counterexamples",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("op_id", sa.String(length=32), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("workload", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=True),
        sa.Column("kernel_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["op_id"], ["ops.id"], name=op.f("fk_counterexamples_op_id_ops")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_counterexamples_node_id_nodes")),
        sa.ForeignKeyConstraint(["kernel_id"], ["kernels.id"], name=op.f("fk_counterexamples_kernel_id_kernels")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_counterexamples")),
        sa.UniqueConstraint("op_id", "device", "digest", name=op.f("uq_counterexamples_op_id_device_digest")),
    )
    op.create_index(op.f("ix_counterexamples_op_id_created_at_id"), "counterexamples", ["op_id", "created_at", "id"])
