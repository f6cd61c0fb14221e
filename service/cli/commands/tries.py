"""Commands for one node: judge a candidate before the node is answered, and show the node's history."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.cli.commands.steer import resolve_node_id
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import read_text
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import DONE, FAILED, CommandError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.client.progress import describe_outcome, describe_times
from warpsmith.service.client.trying import (
    ENDS,
    await_try,
    describe_compiled,
    describe_try,
    find_search_of_op,
    read_candidate_text,
)
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_ratio
from warpsmith.service.documents.nodes import NodeDocument
from warpsmith.service.documents.tries import TryDocument
from warpsmith.service.documents.workloads import read_workload_times
from warpsmith.service.local.named_ops import EXPECTED, find_op, read_op_file
from warpsmith.workers.llm.reply.parsing import Unreadable

LEVELS = ("compile", "screen", "profile")
LONGEST = 160
LONGEST_COMPILED = 1000
LONGEST_TIMES = 400
"""Characters of a line with a workload's times, those of an op's experts among them."""


def try_file(
    where: Annotated[
        str,
        typer.Argument(
            metavar="ASK|NODE|OP",
            help="The ask to be answered, or a node (nd_... or SEARCH#7); or an op (a file, an id or a name), for its "
            "newest open search.",
        ),
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The candidate, or a reply with one code block; - for standard input.")
    ],
    level: Annotated[
        str,
        typer.Option(
            help="compile: gate and compilers, which take no device seconds. screen: bench workloads, a short timing. "
            "profile: where the time goes."
        ),
    ] = "screen",
    by: Annotated[str | None, typer.Option("--by", help="Who tries; kept with the try.")] = None,
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the verdict.")] = 600.0,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Judge a candidate on a device of the service, before the node is answered with it.

    As often as the search's device seconds for tries allow. The try stays with its node. Exit code 0: accepted, or at
    level compile and profile: it compiles; 1: not; 2: misuse.
    """
    if level not in LEVELS:
        misuse("--level", level, one_of(level, LEVELS))
    text = sys.stdin.read() if file == "-" else read_text("FILE", Path(file))
    try:
        source = read_candidate_text(text)
    except Unreadable as unreadable:
        misuse("FILE", file, f"a candidate, or a reply with one: {unreadable.problem}")
    with connected(url, key) as client:
        asked = client.create_try(_find_node(client, where), source, level, by)
        found = await_try(client, asked.id, wait)
    if as_json:
        print_json(found)
    else:
        print_try(found)
    if found.state not in ENDS:
        away = f"A bundle takes it to a GPU elsewhere: warpsmith bundle {found.search_id} -o DIR. "
        travels = "" if level == "compile" else away
        raise CommandError(
            f"the try {found.id} is {found.state} after {wait:g} s: is a judge worker up? warpsmith workers says. "
            f"{travels}warpsmith node {found.node_id} shows it later"
        )
    good = {"screen": found.verdict == "accepted", "compile": found.compiled, "profile": bool(found.profile)}[level]
    raise typer.Exit(DONE if good else FAILED)


def print_try(found: TryDocument) -> None:
    """Print a try: its verdict as a model would be told it, its times or its table, and what is left of the seconds."""
    if (compiled := describe_compiled(found)) is not None:
        tell(clean_line(compiled, LONGEST_COMPILED))
    tell(f"try {found.id}: {describe_try(found)}")
    if found.feedback is not None:
        tell(found.feedback)
    for row in found.profile[:LONGEST]:
        tell(f"  {row.kind:8} {row.mean_us:10.2f} us  x{row.count}  {clean_line(row.name, LONGEST)}")
    if found.seconds:
        took = ", ".join(f"{gate} {seconds:.1f} s" for gate, seconds in found.seconds.items() if gate != "exclusive")
        say(f"took {took}")
    if found.level != "compile":
        say(f"tries of this search held the device for {found.spent_s:.1f} of {found.limit_s:g} s")


def node(
    which: Annotated[str, typer.Argument(metavar="NODE", help="A node's id, or SEARCH#7 for number 7 of its tree.")],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show a node: its idea, its verdicts with the times of each workload, what was tried for it, and its code."""
    with connected(url, key) as client:
        found = client.node(resolve_node_id(client, which))
    if as_json:
        print_json(found)
        return
    print_node(found)


def print_node(found: NodeDocument) -> None:
    """Print a node's history and code."""
    technique = "" if found.technique is None else f" ({clean_line(found.technique, LONGEST)})"
    tell(f"#{found.seq} {clean_line(found.title or '', LONGEST)}{technique}: {describe_outcome(found)}")
    for record in found.verdicts:
        reason = clean_line(str(record.document.get("reason") or ""), LONGEST)
        score = record.document.get("score")
        timed = "" if score is None else f" {format_ratio(score, record.document.get('score_ci95'))}"
        tell(f"  verdict  {record.level} {record.verdict} at {record.gate}{timed}: {reason}")
        for line in describe_times(read_workload_times(record.document.get("workloads"))):
            tell(f"    {clean_line(line, LONGEST_TIMES)}")
    for each in found.tries:
        who = "" if each.asked_by is None else f", by {clean_line(each.asked_by, LONGEST)}"
        tell(f"  try      {each.id} {describe_try(each)}{who}")
    if found.source is not None:
        tell("")
        tell(found.source.rstrip("\n"))


def _find_node(client: Client, where: str) -> str:
    """Return the node that a try is for: of an ask, itself, or the root of the newest open search of an op."""
    if where.startswith("ak_"):
        return client.ask(where).node_id
    if where.startswith("nd_") or "#" in where:
        return resolve_node_id(client, where)
    field, expected = "ASK|NODE|OP", f"an ask (ak_...), a node (nd_... or SEARCH#7), or {EXPECTED}"
    spec = read_op_file(where, field, expected) or find_op(client, where, field, expected).op
    search_id = find_search_of_op(client, spec)
    say(f"trying for search {search_id}, at its root")
    return resolve_node_id(client, f"{search_id}#0")
