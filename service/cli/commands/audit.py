"""The command that shows the audit log."""

from __future__ import annotations

import time
from typing import Annotated, get_args

import typer

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.documents.audit import AuditResult


def audit(
    team: Annotated[str | None, typer.Option(help="Only of callers of this team.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Only of the API key with this prefix.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as cancel_search.")] = None,
    about: Annotated[str | None, typer.Option("--object", help="Only what was about this row, by its id.")] = None,
    result: Annotated[
        str | None, typer.Option(help=f"Only with this result: {', '.join(get_args(AuditResult))}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show who changed what, and what was refused, newest first; needs a key with the scope admin."""
    wanted = {"team": team, "key": prefix, "action": action, "object": about, "result": result}
    with connected(url, key) as client:
        found = client.audit(limit, **wanted)
    if as_json:
        print_json(found)
        return
    for entry in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.created_at))
        who = f"{entry.key_prefix or '-':12}  {entry.team or '-':16}"
        tell(f"{when}  {who}  {entry.result:9}  {entry.action:16}  {entry.object_id or '-':29}  {entry.source}")
    if not found:
        say("nothing that matches")
