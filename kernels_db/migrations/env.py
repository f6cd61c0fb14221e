"""Alembic's entry: runs the migrations on the connection that the caller put into the configuration's attributes."""

from alembic import context
from sqlalchemy import Connection

from warpsmith.kernels_db.store.tables import Base


def run() -> None:
    """Migrate within the caller's transaction: on either database a migration happens whole or not at all."""
    connection = context.config.attributes.get("connection")
    if not isinstance(connection, Connection):
        raise RuntimeError(
            "migrations run through `warpsmith db upgrade` (warpsmith.kernels_db.store.db.Database.upgrade)"
        )
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


run()
