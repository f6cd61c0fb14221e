"""Commands for teams: create, change, list with what each has used of its quotas."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from sqlalchemy import select

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.quotas import QUOTAS, Usage, describe_usage, measure_usage
from warpsmith.kernels_db.store.tables import TeamRow
from warpsmith.service.cli.commands.admin import COMMAND_LINE, database
from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import misuse

teams_app = typer.Typer(no_args_is_help=True, help="Teams of API keys, and their quotas.")

Name = Annotated[str, typer.Argument(metavar="TEAM", help="1 to 64 of a-z, 0-9, - and _.")]
Shared = Annotated[bool | None, typer.Option("--shared/--private", help="Whether other teams may read its work.")]
OpenSearches = Annotated[str | None, typer.Option(metavar="N", help="Searches that have not ended, at most; or none.")]
Candidates = Annotated[str | None, typer.Option(metavar="N", help="Candidates judged a day, at most; or none.")]
Cost = Annotated[str | None, typer.Option(metavar="USD", help="Model money a day, at most; or none.")]
DeviceSeconds = Annotated[str | None, typer.Option(metavar="S", help="Seconds of judges' devices a day; or none.")]


@teams_app.command()
def create(
    name: Name,
    shared: Shared = False,
    open_searches: OpenSearches = None,
    candidates: Candidates = None,
    cost: Cost = None,
    device_seconds: DeviceSeconds = None,
    as_json: Json = False,
) -> None:
    """Create a team; it is private and has no quotas unless an option says so."""
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", name):
        misuse("TEAM", name, "1 to 64 of a-z, 0-9, - and _")
    quotas = _parse_quotas(open_searches, candidates, cost, device_seconds)
    entry = audit.Entry(COMMAND_LINE, "teams create", name)
    with database() as db, audit.acting(entry), db.writing() as session:
        if session.get(TeamRow, name) is not None:
            misuse("TEAM", name, "a name that no team has (warpsmith teams list)")
        row = TeamRow(name=name, visibility="shared" if shared else "private", created_at=time.time(), **quotas)
        session.add(row)
        document = _team_document(row, measure_usage(session, row, time.time()))
    _print_team(document, as_json)


@teams_app.command("set")
def set_team(
    name: Name,
    shared: Shared = None,
    open_searches: OpenSearches = None,
    candidates: Candidates = None,
    cost: Cost = None,
    device_seconds: DeviceSeconds = None,
    as_json: Json = False,
) -> None:
    """Change a team's visibility and quotas; options left out change nothing, `none` lifts a quota."""
    quotas = _parse_quotas(open_searches, candidates, cost, device_seconds)
    entry = audit.Entry(COMMAND_LINE, "teams set", name)
    with database() as db, audit.acting(entry), db.writing() as session:
        row = session.get(TeamRow, name)
        if row is None:
            misuse("TEAM", name, "a team that there is (warpsmith teams list)")
        if shared is not None:
            row.visibility = "shared" if shared else "private"
        for quota, limit in quotas.items():
            setattr(row, quota, limit)
        document = _team_document(row, measure_usage(session, row, time.time()))
    _print_team(document, as_json)


@teams_app.command("list")
def list_teams(as_json: Json = False) -> None:
    """List teams, with what each has used of its quotas today (UTC)."""
    now = time.time()
    with database() as db, db.reading() as session:
        rows = session.scalars(select(TeamRow).order_by(TeamRow.name)).all()
        found = [_team_document(row, measure_usage(session, row, now)) for row in rows]
    if as_json:
        print_json(found)
        return
    for document in found:
        _print_team(document, as_json=False)
    say("a team more: warpsmith teams create TEAM; a key of it: warpsmith keys create NAME --team TEAM")


def _parse_quotas(*texts: str | None) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for quota, text in zip(QUOTAS, texts, strict=True):
        if text is not None:
            found[quota] = None if text == "none" else _parse_limit(quota, text)
    return found


def _parse_limit(quota: str, text: str) -> float:
    whole = quota in ("open_searches", "candidates_a_day")
    option = "--" + quota.removesuffix("_a_day").removesuffix("_usd").replace("_", "-")
    expected = "a whole number from 0 to 1000000000, or none" if whole else "a number from 0 to 1e9, or none"
    try:
        limit = int(text) if whole else float(text)
    except ValueError:
        misuse(option, text, expected)
    if not math.isfinite(limit) or not 0 <= limit <= 10**9:
        misuse(option, text, expected)
    return limit


def _team_document(row: TeamRow, usage: list[Usage]) -> dict[str, Any]:
    used = [
        {"quota": each.quota, "used": each.used, "limit": each.limit, "resets_at": each.resets_at} for each in usage
    ]
    return {"name": row.name, "visibility": row.visibility, "created_at": row.created_at, "quotas": used}


def _print_team(document: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    used = ", ".join(describe_usage(each["quota"], each["used"], each["limit"]) for each in document["quotas"])
    tell(f"{document['name']:16}  {document['visibility']:7}  {used}")
