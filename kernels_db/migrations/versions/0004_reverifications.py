"""Re-verifications of stored kernels, and what the latest says of each.

Revision: 0004.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "reverifications",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kernel_id", sa.String(length=32), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.Column("cause", sa.String(length=16), nullable=False),
        sa.Column("asked_by", sa.String(length=128), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("lease_expires_at", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=True),
        sa.Column("verdict", DOCUMENT, nullable=True),
        sa.Column("before", DOCUMENT, nullable=True),
        sa.ForeignKeyConstraint(["kernel_id"], ["kernels.id"], name=op.f("fk_reverifications_kernel_id_kernels")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reverifications")),
        sa.UniqueConstraint("kernel_id", "ordinal", name=op.f("uq_reverifications_kernel_id_ordinal")),
    )
    for columns in (("created_at", "id"), ("state", "lease_expires_at"), ("target", "finished_at")):
        op.create_index(op.f(f"ix_reverifications_{'_'.join(columns)}"), "reverifications", list(columns))
    op.add_column("kernels", sa.Column("verified_at", sa.Float(), server_default="0", nullable=False))
    op.add_column("kernels", sa.Column("standing", sa.String(length=16), server_default="verified", nullable=False))
    op.add_column("kernels", sa.Column("reverified_at", sa.Float(), nullable=True))
    op.execute("UPDATE kernels SET verified_at = created_at")
