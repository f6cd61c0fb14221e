"""Commands on the database itself, for operators: its schema, and API keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.store import audit, tallies
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, ApiKeyRow
from warpsmith.service.api import auth
from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import CommandError, misuse
from warpsmith.service.local.database_errors import explaining
from warpsmith.service.settings import ServiceSettings

db_app = typer.Typer(no_args_is_help=True, help="The database's schema.")
COMMAND_LINE = "command line"
"""The source of these commands in the audit log."""
EXPECTED = "a database that answers and that `warpsmith db upgrade` has prepared"

keys_app = typer.Typer(no_args_is_help=True, help="API keys; required when the service is bound to more than loopback.")


@contextmanager
def database() -> Iterator[Database]:
    """Open the database of the settings; its errors end the command with a sentence."""
    settings = ServiceSettings()
    try:
        db = Database(settings.database)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    with explaining(db, "WARPSMITH_DATABASE_URL", EXPECTED, CommandError):
        yield db


@db_app.command()
def upgrade(as_json: Json = False) -> None:
    """Upgrade the database's schema and store the shipped kernels; safe to repeat."""
    with database() as db:
        before, _ = db.revision()
        db.upgrade()
        stored = stock(db)
        found, _ = db.revision()
    if as_json:
        print_json({"before": before, "revision": found, "kernels": stored})
    else:
        tell(f"database at revision {found}" + ("" if before != found else " already"))
        if stored:
            tell(f"{stored} kernels from the library stored")


@db_app.command()
def revision(as_json: Json = False) -> None:
    """Show the schema revision found and the one expected; exit code 1 where they differ."""
    with database() as db:
        found, expected = db.revision()
    if as_json:
        print_json({"found": found, "expected": expected})
    else:
        tell(f"found {found or 'an empty database'}, expected {expected}")
    if found != expected:
        raise typer.Exit(1)


@db_app.command()
def recount(as_json: Json = False) -> None:
    """Count the tables anew for `/metrics` and `/v1/system`; needed after a restore of data without its schema alone.

    It reads the tables whole; the service may go on meanwhile.
    """
    with database() as db, db.writing() as session:
        wrong = tallies.recount(session)
    if as_json:
        print_json({"wrong": wrong})
    else:
        tell(f"{wrong} counts were wrong and are right now")


@keys_app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who the key is for.")],
    team: Annotated[str, typer.Option(help="The team that it belongs to.")] = DEFAULT_TEAM,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read, submit, steer or admin; may be given several times. By default read, submit and steer."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key; it is shown this once.

    read: sees what its team may see. submit: ops, pools and searches. steer: its team's searches. admin: all of that,
    of every team, and the audit log.
    """
    with database() as db, audit.acting(audit.Entry(COMMAND_LINE, "keys create")):
        try:
            key = auth.create_key(db, name, team, scope or auth.DEFAULT_SCOPES)
        except ValueError as error:
            raise CommandError(str(error), 2) from None
    if as_json:
        print_json({"name": name, "team": team, "key": key})
    else:
        tell(key)
        say("shown this once; send it as `Authorization: Bearer KEY`, or set WARPSMITH_API_KEY")


@keys_app.command("list")
def list_keys(as_json: Json = False) -> None:
    """List the keys, without their secrets."""
    with database() as db:
        found = auth.list_keys(db)
    if as_json:
        print_json([_key_document(row) for row in found])
        return
    for row in found:
        state = "revoked" if row.revoked_at else "valid"
        tell(f"{row.prefix}  {state:7}  {row.team:16}  {row.scopes:23}  {row.name}")
    if not found:
        say("no keys: warpsmith keys create NAME")


@keys_app.command()
def revoke(
    prefix: Annotated[str, typer.Argument(help="The key's prefix, as `keys list` shows it, or the whole key.")],
    as_json: Json = False,
) -> None:
    """Make a key invalid at once."""
    with database() as db, audit.acting(audit.Entry(COMMAND_LINE, "keys revoke")):
        revoked = auth.revoke_key(db, prefix)
    if not revoked:
        misuse("PREFIX", prefix, "the prefix of a valid key; see `warpsmith keys list`")
    print_json({"prefix": prefix, "revoked": True}) if as_json else tell("revoked")


def _key_document(row: ApiKeyRow) -> dict[str, Any]:
    return {
        "prefix": row.prefix,
        "name": row.name,
        "team": row.team,
        "scopes": row.scopes.split(),
        "created_at": row.created_at,
        "revoked_at": row.revoked_at,
    }
