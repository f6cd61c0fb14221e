"""Commands for recorded calls: `workloads` makes an op's workloads of them, `calls` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.table import Table

from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.service.cli.op_argument import load_named_op
from warpsmith.service.cli.options import Json, Key, OpArgument, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.client.errors import misuse
from warpsmith.service.documents.escaping import clean_line
from warpsmith.workers.recording.calls import BadCalls, Calls, read_calls
from warpsmith.workers.recording.fitting import MOST_WORKLOADS, Fitted, fit, with_workloads

DEVICES = ("cpu", "cuda")
MOST_NAMES = 12
MOST_REASONS = 6
LONGEST = 300

Recorded = Annotated[
    list[Path],
    typer.Argument(
        metavar="CALLS.json...",
        help="Recordings; the files that processes wrote beside each count too.",
        show_default=False,
    ),
]


def workloads(
    op: OpArgument,
    calls: Recorded,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The new spec, YAML; standard output where not given.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="cpu or cuda: whose bench workloads are replaced. Default: where most of the calls ran."),
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option("--call", help="A function or class whose calls are this op, beside those in the spec's `calls`."),
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, max=256, help="Workloads that are made, the most frequent.")
    ] = MOST_WORKLOADS,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Make an op's bench workloads of recorded calls, each with its frequency as weight.

    Exit code 0: done; 2: misuse, and a recording without any call of the op.
    """
    spec = load_named_op(op, url, key)
    if target is not None and target.partition(":")[0] not in DEVICES:
        misuse("--target", target, one_of(target, DEVICES))
    found = _read(calls)
    names = call or []
    if not spec.calls and not names:
        misuse("calls", None, f"names in the spec's `calls`, or --call; recorded are {_list_names(found)}")
    fitted = fit(spec, found, names)
    if not fitted.counts:
        _refuse(spec, names, fitted, found)
    device = target.partition(":")[0] if target else fitted.device() or "cpu"
    document, left = with_workloads(spec, fitted, device if device in DEVICES else "cuda", most)
    made = parse_op(document)
    text = as_yaml(made.document())
    for line in _describe(fitted, found, left, most):
        say(line)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"op": made.document(), "calls": fitted.total, "left_out": left, "refused": fitted.refused})
    elif output is None:
        tell(text.rstrip("\n"))
    else:
        tell(f"{output}: {spec.name} with {min(most, len(fitted.counts))} recorded workloads")


def calls(calls: Recorded, as_json: Json = False) -> None:
    """List what was recorded: functions and modules, and how often each was called."""
    found = _read(calls)
    if as_json:
        print_json(found.document())
        return
    kinds: dict[str, int] = {}
    for one in found.counts:
        kinds[one.name] = kinds.get(one.name, 0) + 1
    table = Table("calls", "kinds", "function or module", box=None)
    for name, count in found.by_name().items():
        table.add_row(str(count), str(kinds[name]), clean_line(name, LONGEST))
    print_wide(table)
    _say_losses(found)


def _read(paths: list[Path]) -> Calls:
    try:
        found = read_calls(paths)
    except BadCalls as error:
        misuse(error.place, error.found, error.expected)
    say(f"read {', '.join(str(file) for file in found.files)}")
    return found


def _list_names(found: Calls) -> str:
    names = list(found.by_name())
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(clean_line(name, LONGEST) for name in names[:MOST_NAMES])}{more}" if names else "none"


def _refuse(spec: Op, names: list[str], fitted: Fitted, found: Calls) -> NoReturn:
    if fitted.refused:
        reasons = "; ".join(clean_line(reason, LONGEST) for reason in list(fitted.refused)[:MOST_REASONS])
        misuse(
            "calls", f"{sum(fitted.refused.values())} calls that are none of {spec.name} ({reasons})", "some that are"
        )
    misuse("calls", f"none of {', '.join([*spec.calls, *names])}", f"one of those recorded: {_list_names(found)}")


def _describe(fitted: Fitted, found: Calls, left: int, most: int) -> list[str]:
    shapes = len(fitted.counts)
    lines = [f"{fitted.total} calls of {shapes} shape{'s' * (shapes != 1)}"]
    if left:
        lines.append(f"left out: {shapes - most} shapes, {left / fitted.total:.1%} of the calls (--most)")
    ordered = sorted(fitted.refused.items(), key=lambda item: -item[1])
    for reason, count in ordered[:MOST_REASONS]:
        lines.append(f"not of this op: {count} calls of {clean_line(reason, LONGEST)}")
    if len(ordered) > MOST_REASONS:
        lines.append(f"not of this op: {sum(count for _, count in ordered[MOST_REASONS:])} further calls")
    _say_losses(found)
    return lines


def _say_losses(found: Calls) -> None:
    if found.dropped:
        total = sum(found.dropped.values())
        say(f"the recording has no shapes of {total} calls: there were too many kinds")
    for note, count in found.notes.items():
        say(f"note of the recording: {clean_line(note, LONGEST)}, {count} times")
