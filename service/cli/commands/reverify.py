"""`warpsmith reverify`: has stored kernels judged again, waits, and prints the outcomes."""

from __future__ import annotations

import time
from collections import deque
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, print_wide, say
from warpsmith.service.client.errors import DONE, FAILED, CommandError, ProblemError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_ratio
from warpsmith.service.documents.reverifications import ReverificationDocument, ReverificationSummary

POLL_S = 0.5
POLLED = 10
"""Pending re-verifications that one round looks at, each in its turn."""

LONGEST_REASON = 200
NOT_FOUND = 404
DRIFTED = "has drifted"
WORDS = {
    "holds": "holds",
    "wrong": f"{DRIFTED}: wrong",
    "slower": f"{DRIFTED}: slower than its fastest baseline",
    "uncompilable": f"{DRIFTED}: no longer compiles",
    "unknown": "unknown: could not be decided",
}


def reverify(
    kernels: Annotated[
        list[str] | None, typer.Argument(metavar="KERNEL", help="Kernels' ids; without any, all that match.")
    ] = None,
    op: Annotated[str | None, typer.Option(help="Only kernels of this op, by name or id.")] = None,
    target: Annotated[str | None, typer.Option(help="Only kernels for this target.")] = None,
    due: Annotated[
        bool,
        typer.Option(
            "--due",
            help="Only kernels not yet judged under the present versions and device of their target, or not for long "
            "(WARPSMITH_REVERIFY_PERIOD_DAYS).",
        ),
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for the judges; 0 asks and does not wait.")
    ] = 3600.0,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Have stored kernels judged again under the present versions and device.

    Exit code 0: all hold; 1: a kernel has drifted, or could not be decided.
    """
    if kernels and (op is not None or target is not None or due):
        given = next(name for name, value in (("--op", op), ("--target", target), ("--due", due)) if value)
        misuse(given, " ".join(kernels), "either kernels' ids or filters")
    with connected(url, key) as client:
        if kernels:
            asked: list[ReverificationSummary] = [_request(client, each) for each in dict.fromkeys(kernels)]
        else:
            batch = client.reverify_all(op=op, target=target, due=due)
            asked = batch.items
            if batch.left:
                say(f"{batch.left} more kernels match: ask again when these are done")
        if not asked:
            say("no stored kernel matches")
        if wait == 0:
            _print_outcomes(list(asked), as_json)
            return
        found = _await_all(client, asked, wait)
    _print_outcomes(list(found), as_json)
    missing = [each for each in found if each.state != "done"]
    if missing:
        raise CommandError(
            f"{len(missing)} of {len(found)} are not done after {wait:g} s: is a judge worker up? "
            "warpsmith doctor says; the requests stay in the queue"
        )
    raise typer.Exit(DONE if all(each.outcome == "holds" for each in found) else FAILED)


def _request(client: Client, kernel_id: str) -> ReverificationSummary:
    try:
        return client.reverify(kernel_id)
    except ProblemError as error:
        if error.status != NOT_FOUND:
            raise
        misuse("KERNEL", kernel_id, "the id of a stored kernel (warpsmith kernels lists them)")


def _await_all(client: Client, asked: list[ReverificationSummary], wait_s: float) -> list[ReverificationSummary]:
    """Wait until all re-verifications are done or the time is up; return each as last read."""
    deadline = time.monotonic() + wait_s
    found = {each.id: each for each in asked}
    waiting = deque(each.id for each in asked if each.state != "done")
    while waiting:
        over = time.monotonic() >= deadline
        for _ in range(len(waiting) if over else min(POLLED, len(waiting))):
            each = waiting.popleft()
            now: ReverificationDocument = client.reverification(each)
            found[each] = now
            if now.state == "done":
                say(f"{now.kernel_id}  {now.op_name}: {WORDS[now.outcome or 'unknown']}")
            else:
                waiting.append(each)
        if over:
            break
        if waiting:
            time.sleep(max(0.0, min(POLL_S, deadline - time.monotonic())))
    return list(found.values())


def _print_outcomes(found: list[ReverificationSummary], as_json: bool) -> None:
    summaries = [each.model_dump(mode="json", include=set(ReverificationSummary.model_fields)) for each in found]
    if as_json:
        print_json(summaries)
    elif found:
        print_wide(_build_table(found))


def _build_table(found: list[ReverificationSummary]) -> Table:
    table = Table(title="Speed-ups over the fastest baseline, when kept and now")
    for heading in ("kernel", "op", "target", "result"):
        table.add_column(heading)
    for heading in ("then", "now"):
        table.add_column(heading, justify="right")
    table.add_column("why")
    for each in found:
        result = each.state if each.outcome is None else each.outcome
        speeds = [
            "-" if measured is None or measured.score is None else format_ratio(measured.score, measured.ci95)
            for measured in (each.before, each.now)
        ]
        cells = (each.kernel_id, each.op_name, each.target, result, *speeds, each.reason or "")
        table.add_row(*(Text(clean_line(cell, LONGEST_REASON)) for cell in cells))
    return table
