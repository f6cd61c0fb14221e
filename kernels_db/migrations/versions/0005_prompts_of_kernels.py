"""The prompts behind a kernel that came without its search.

Revision: 0005.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    op.add_column("kernels", sa.Column("prompts", DOCUMENT, nullable=True))
