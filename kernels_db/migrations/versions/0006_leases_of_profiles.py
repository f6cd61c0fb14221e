"""Leases of profiles, in the columns that attempts and re-verifications have.

Until now a profile's document told its state: {"state", "sent_at", "until"}. The owner of one that runs, and the times
of start and end, were not stored: these columns stay empty.

Revision: 0006.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
PROFILES = sa.table(
    "profiles",
    sa.column("id", sa.String),
    sa.column("document", DOCUMENT),
    sa.column("state", sa.String),
    sa.column("lease_expires_at", sa.Float),
    sa.column("tries", sa.Integer),
    sa.column("sent_at", sa.Float),
)
STEP = 500
"""Rows that are read at once."""


def upgrade() -> None:
    """Apply."""
    for column in (
        sa.Column("state", sa.String(length=16), server_default="pending", nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("lease_expires_at", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
    ):
        op.add_column("profiles", column)
    connection, last = op.get_bind(), ""
    while True:
        query = sa.select(PROFILES.c.id, PROFILES.c.document).where(PROFILES.c.id > last)
        rows = connection.execute(query.order_by(PROFILES.c.id).limit(STEP)).all()
        for row_id, document in rows:
            change = sa.update(PROFILES).where(PROFILES.c.id == row_id)
            connection.execute(change.values(**_columns(document)))
            last = row_id
        if len(rows) < STEP:
            break
    with op.batch_alter_table("profiles") as profiles:
        profiles.alter_column("state", existing_type=sa.String(length=16), server_default=None)
        profiles.alter_column("tries", existing_type=sa.Integer(), server_default=None)


def _columns(document: dict[str, Any]) -> dict[str, Any]:
    """What the columns say of a profile with this document, and what is left of it."""
    told = dict(document)
    state, sent_at, until = told.pop("state"), told.pop("sent_at", None), told.pop("until", None)
    return {
        "document": told,
        "state": state,
        "lease_expires_at": until,
        "tries": 0 if state == "pending" else 1,
        "sent_at": sent_at,
    }
