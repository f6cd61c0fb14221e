"""Alembic's entry: run the migrations on the caller's connection.

The caller puts the connection into the configuration's attributes.
"""

from alembic import context
from sqlalchemy import Connection

from warpsmith.kernels_db.store.tables import METADATA


def run() -> None:
    """Migrate within the caller's transaction.

    On either database a migration happens completely or not at all.
    """
    connection = context.config.attributes.get("connection")
    if not isinstance(connection, Connection):
        raise RuntimeError(
            "migrations run through `warpsmith db upgrade` (warpsmith.kernels_db.store.db.Database.upgrade)"
        )
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


run()
