"""`warpsmith imports`: uploads that workers read, and what became of them."""

from __future__ import annotations

from typing import Annotated

import typer

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.import_progress import describe_state
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import describe_problem
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.imports import ImportDocument

LONGEST_PROBLEM = 300
"""Characters of a failed import's errors; `--json` has all of them."""


def imports(
    import_id: Annotated[
        str | None, typer.Argument(metavar="IMPORT", help="One import by its id; without it, the latest.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state: pending, running, done, failed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show imports of pools and of files, newest first: how far they came, what they stored, why they failed."""
    with connected(url, key) as client:
        found = [client.get_import(import_id)] if import_id else client.imports(limit, state=state)
    if as_json:
        print_json(found[0] if import_id else found)
        return
    for each in found:
        tell(_format_line(each))
    if not found:
        say("no imports: one that ended is listed for a week")


def _format_line(found: ImportDocument) -> str:
    line = f"{found.id}  {found.kind:4}  {found.size:>10} bytes  {describe_state(found)}"
    if found.result is not None:
        stored = found.result.pool_id or found.result.op_id
        line += f"  {stored}" + ("" if found.result.created else " (was there before)")
    if found.problem is not None:
        told = describe_problem(found.problem.status, found.problem.model_dump(exclude_none=True))
        line += "  " + clean_line(told, LONGEST_PROBLEM)
    return line
