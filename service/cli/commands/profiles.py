"""`warpsmith profile`: the kernels or functions of a candidate's calls, with their times."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table
from rich.text import Text

from warpsmith.kernels_db.job import nsight_metrics
from warpsmith.kernels_db.job.documents import NsightKernel
from warpsmith.service.cli.commands.models import profile_model
from warpsmith.service.cli.commands.steer import resolve_node_id
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, print_wide, say
from warpsmith.service.client.errors import CommandError
from warpsmith.service.client.http import Client
from warpsmith.service.client.trying import ENDS
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.profiles import ProfileDocument

POLL_S = 0.5
LONGEST_NAME = 300


def profile(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NODE|MODEL.py",
            help="A node's id, or SEARCH#7 for number 7 of its tree; or a file with model() and example_inputs().",
        ),
    ],
    trace: Annotated[Path | None, typer.Option(help="File that receives a Chrome trace.")] = None,
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for a judge worker to make it.")] = 600.0,
    last: Annotated[
        bool, typer.Option("--last", help="Of a node: show the latest profile that was asked for, and ask for none.")
    ] = False,
    device: Annotated[str, typer.Option(help="Of a model: where it runs, cpu or cuda.")] = "cpu",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Of a model: directory that receives the op specs.")
    ] = Path("specs"),
    top: Annotated[int, typer.Option(min=0, help="Of a model: how many op specs to write, the best first.")] = 8,
    force: Annotated[
        bool, typer.Option("--force", help="Of a model: replace specs that exist with another content.")
    ] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Profile a node's candidate, or a model of your own.

    Of a candidate: its kernels or functions, how often they run and for how long. Of a model: which of its parts cost
    most, the time that a kernel at the physical limit would save, and their op specs.
    """
    if what.endswith(".py"):
        profile_model(Path(what), device, output, top, force, as_json)
        return
    with connected(url, key) as client:
        chosen = resolve_node_id(client, what)
        if last:
            found = client.profile(chosen, trace=trace is not None)
        else:
            found = _await_profile(client, chosen, wait, trace=trace is not None)
    if found.state not in ENDS:
        raise CommandError(
            f"the profile of {chosen} is {found.state}: is a judge worker up? warpsmith doctor says. A bundle takes it "
            f"to a GPU elsewhere: warpsmith bundle {found.search_id} -o DIR; then: warpsmith profile {what} --last"
        )
    if found.state == "failed":
        raise CommandError(f"no profile of {chosen}: {found.reason}")
    if trace is not None:
        trace.write_text(json.dumps(found.trace), encoding="utf-8")
        found.trace = None
    if as_json:
        print_json(found)
        return
    print_profile(found)


def print_profile(found: ProfileDocument) -> None:
    """Print a finished profile: the table on standard output, notes on standard error."""
    print_wide(_build_table(found))
    if found.nsight is not None:
        kernels = [cast("NsightKernel", kernel.model_dump()) for kernel in found.nsight.kernels]
        say("\n  ".join([f"Nsight Compute: {found.nsight.reason or ''}".rstrip(" "), *nsight_metrics.lines(kernels)]))
    say("as the candidate reports it: a profile decides nothing")


def _await_profile(client: Client, chosen: str, wait_s: float, *, trace: bool) -> ProfileDocument:
    """Request a profile and wait until it has ended, or no longer; a request replaces one that was lost."""
    deadline = time.monotonic() + wait_s
    asked = client.request_profile(chosen)
    while True:
        found = client.profile(chosen, trace=trace)
        if (found.id == asked.id and found.state in ENDS) or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_S)


def _build_table(found: ProfileDocument) -> Table:
    table = Table(
        title=_escape(f"{found.calls} calls on {found.workload}, {found.device or 'a device without a name'}")
    )
    for heading in ("kind", "name"):
        table.add_column(heading)
    for heading in ("count", "mean us", "total us"):
        table.add_column(heading, justify="right")
    table.add_column("launch")
    for row in found.rows:
        launch = ", ".join(f"{name} {value}" for name, value in (row.launch or {}).items())
        numbers = (str(row.count), f"{row.mean_us:.2f}", f"{row.total_us:.2f}")
        table.add_row(_escape(row.kind), _escape(row.name), *numbers, _escape(launch))
    return table


def _escape(text: str) -> Text:
    """Make a candidate's names safe for a table: no markup, no control characters."""
    return Text(clean_line(text, LONGEST_NAME))
