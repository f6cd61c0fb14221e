"""The database of a process: engines, transactions and migrations.

SQLite runs in WAL mode; a writing transaction begins with BEGIN IMMEDIATE, so two writers queue instead of failing
half-way (a deferred transaction that turns into a writer cannot wait: SQLite answers it "database is locked" at once).
PostgreSQL writes under READ COMMITTED and callers lock the row of the search that they change.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.pq import Format
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import InvalidatePoolError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.database_url import failover_options, move_password

BUSY_TIMEOUT_S = 15.0
"""How long a SQLite connection waits for another writer.

A writing transaction here takes milliseconds.
"""

PING_AFTER_S = 0.2
"""Rest of a pooled connection to PostgreSQL after which it is asked whether it still holds, before it is used.

A step takes several connections within milliseconds: to ask each time was a tenth of its statements.
"""

MOST_CONNECTIONS = 15
"""Connections of one process to PostgreSQL, all of which stay open once they were needed.

SQLAlchemy's pool keeps five of fifteen: 200 submissions at once opened two dozen, each of which prepares its
statements anew.
"""

CLOCK_AGE_S = 10.0
"""Seconds for which a process goes by what the database's clock said, before it asks again."""

_NOTICES_A_CUT = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""libpq's parameters for a connection whose network is cut: it ends within half a minute instead of hours.

A URL that names one of them has its own way.
"""

_ADVISORY_LOCK = 0x7761727073  # "warps": one migration at a time on a PostgreSQL database
_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_SQLITE_FULL = 13
_POSTGRESQL_DISK_FULL = "53100"
_POSTGRESQL_READ_ONLY = "25006"


class StorageFull(Exception):  # noqa: N818 - a state of the world, like the model's errors
    """The database cannot grow: its disk or quota is full.

    The transaction was rolled back whole; it may be tried again once there is room.
    """


class NewerSchema(Exception):  # noqa: N818 - named for what was found
    """The database has the schema of a newer program."""


class Database:
    """One process's access to the database. Thread-safe; make one per process, after any fork.

    `url` is an SQLAlchemy URL: `sqlite:///path/to/file.db` (its directory is created) or `postgresql+psycopg://...`.
    Another kind, or an in-memory SQLite database (each thread would see its own), is a ValueError.
    """

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        self.engine = _sqlite_engine(self.url) if self.is_sqlite else _postgresql_engine(self.url)
        self._writer = self.engine.execution_options(warpsmith_writing=True)
        self._reader = (
            self.engine
            if self.is_sqlite
            else self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        )
        self._clock: tuple[float, float] | None = None  # what the database's clock said, and the monotonic time then

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite; otherwise it is PostgreSQL."""
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a read transaction: every query in it sees one state of the database.

        Rows stay readable after it ends, and statements prepared.
        """
        with Session(self._reader, expire_on_commit=False, autoflush=False) as session:
            yield session
            # Here and below a rollback would do as well, but at each one psycopg forgets every statement that it has
            # prepared, and the server plans it anew.
            if session.in_transaction():  # else nothing was read
                session.commit()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a write transaction: it commits at the end and rolls back whole on any error.

        The audit entry of the caller who is acted for is written with it. Raises StorageFull where there is no room
        left.
        """
        try:
            with Session(self._writer, expire_on_commit=False) as session, session.begin():
                yield session
                entry = audit.write_due(session)
            if entry is not None:
                entry.written = True
        except OperationalError as error:
            if _is_full(error):
                raise StorageFull(f"the database {self.url.render_as_string()} is full") from error
            raise

    def now(self) -> float:
        """Return the time by the database's clock, seconds since the epoch.

        It decides leases: processes on hosts whose clocks differ, or jump, agree on when one ends. PostgreSQL is asked
        at most every CLOCK_AGE_S, and the time since is this process's monotonic one. SQLite has the clock of its host,
        which is that of every process.
        """
        if self.is_sqlite:
            return time.time()
        known, monotonic = self._clock, time.monotonic()
        if known is None or monotonic - known[1] > CLOCK_AGE_S:
            with self.engine.begin() as connection:
                said = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
            known = self._clock = float(said or 0.0), time.monotonic()
            return known[0]
        return known[0] + monotonic - known[1]

    def upgrade(self, revision: str = "head") -> None:
        """Bring the schema to `revision` (alembic upgrade).

        Many processes may call it at once. Raises NewerSchema.
        """
        found, expected = self.revision()
        if is_newer(found, expected):
            raise NewerSchema(describe_mismatch(found, expected))
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        # One migrates, the others wait for it and find nothing to do: BEGIN IMMEDIATE is that lock on SQLite.
        with self._unreferenced() as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if self.is_sqlite and (broken := connection.execute(text("PRAGMA foreign_key_check")).fetchall()):
                raise RuntimeError(f"the migration breaks references of {sorted({str(row[0]) for row in broken})}")

    @contextmanager
    def _unreferenced(self) -> Iterator[Connection]:
        """Open a connection for writing on which SQLite does not enforce foreign keys.

        There a table can be dropped to which others refer: a migration may copy one. No transaction can switch that,
        so it is switched around them.
        """
        with self._writer.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            if self.is_sqlite:
                driver.execute("PRAGMA foreign_keys = OFF")
            try:
                yield connection
            finally:
                if self.is_sqlite:
                    driver.execute("PRAGMA foreign_keys = ON")

    def revision(self) -> tuple[str | None, str]:
        """Return the (found, expected) schema revisions; they differ until `upgrade` ran.

        `found` is None on an empty database.
        """
        with self._reader.begin() as connection:
            return MigrationContext.configure(connection).get_current_revision(), expected_revision()

    def dispose(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


def is_newer(found: str | None, expected: str) -> bool:
    """Whether a schema's revision is that of a newer program: revisions are numbered."""
    return found is not None and found > expected


def describe_mismatch(found: str | None, expected: str) -> str | None:
    """Say what is wrong with a schema's revision and what to do; None where it is the expected one."""
    if found == expected:
        return None
    remedy = "upgrade this program" if is_newer(found, expected) else "run `warpsmith db upgrade`"
    return f"database schema: found revision {found or 'none'}, expected {expected}: {remedy}"


@cache
def expected_revision() -> str:
    """Return the schema revision that this program is made for."""
    head = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    if head is None:
        raise RuntimeError(f"no migrations in {_MIGRATIONS}")
    return head


def _checked(url: str) -> URL:
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in {None, "", ":memory:"} or "mode=memory" in str(parsed.database):
            raise ValueError(f"database_url: found {url!r}, expected a SQLite file such as sqlite:///path.db")
        return parsed
    if backend == "postgresql":
        return move_password(parsed.set(drivername="postgresql+psycopg"))
    raise ValueError(f"database_url: found {backend!r}, expected sqlite or postgresql")


def _sqlite_engine(url: URL) -> Engine:
    path = Path(str(url.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The driver must not open transactions of its own: `begin` below says which kind.
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            # The switch needs the file alone and does not wait for it.
            with _file_lock(url):
                connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        # In WAL mode NORMAL survives the death of any process; a power cut may undo the last transactions, whole.
        connection.execute("PRAGMA synchronous = NORMAL")
        # Reads through the page cache of the system, without a copy: half the time of a large tree's rows.
        connection.execute("PRAGMA mmap_size = 268435456")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("warpsmith_writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    wanted = _NOTICES_A_CUT | failover_options(url)
    known = {name: value for name, value in wanted.items() if name not in url.query}
    # The connection that was used last has its statements prepared, and remembers large trees (`steps.tree_reading`).
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        connect_args=known,
        pool_use_lifo=True,
        pool_size=MOST_CONNECTIONS,
        max_overflow=0,
    )

    @event.listens_for(engine, "before_cursor_execute")
    def ask_for_binary(
        _connection: Connection, cursor: Any, _sql: str, _values: Any, context: Any, _many: bool
    ) -> None:
        """Take many narrow rows as the server has them: half the time of reading them as text."""
        if context is not None and context.execution_options.get("warpsmith_binary", False):
            cursor.format = Format.BINARY

    @event.listens_for(engine, "handle_error", retval=True)
    def leave_read_only(context: ExceptionContext) -> BaseException | None:
        """Close every pooled connection where the server takes no writes any more: another may be the primary now."""
        writing = context.connection is not None and context.connection.get_execution_options().get("warpsmith_writing")
        if not writing or getattr(context.original_exception, "sqlstate", None) != _POSTGRESQL_READ_ONLY:
            return None
        context.is_disconnect = True
        refused = OperationalError(context.statement, context.parameters, context.original_exception)
        refused.connection_invalidated = True
        return refused

    @event.listens_for(engine, "checkin")
    def note_rest(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ping_rested(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        """Replace every pooled connection where this one rested for long and the server closed it meanwhile."""
        since = record.info.pop("rests_since", None)
        if since is None or time.monotonic() - since < PING_AFTER_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError("the connection was closed") from error

    return engine


@contextmanager
def _file_lock(url: URL) -> Iterator[None]:
    """Hold an exclusive lock beside the database file.

    The kernel releases it when the process dies.
    """
    with Path(f"{url.database}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_full(error: BaseException | None) -> bool:
    """Check whether `error` or one of its causes says that the storage is full.

    A full SQLite ends the transaction, and a savepoint fails in turn.
    """
    while error is not None:
        full = getattr(error, "sqlite_errorcode", None) == _SQLITE_FULL
        if full or getattr(error, "sqlstate", None) == _POSTGRESQL_DISK_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
