"""Commands for op specs: check one before submission, list those that ship and those stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.service.cli.commands import imports
from warpsmith.service.cli.commands.judge import at_gate, describe_failure
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.judge_progress import show_progress
from warpsmith.service.cli.op_argument import load_named_op
from warpsmith.service.cli.options import Json, Key, OpArgument, Url
from warpsmith.service.cli.output import fit, print_json, print_wide, say, tell
from warpsmith.service.client.errors import DONE, FAILED, CommandError
from warpsmith.service.local.examples import list_examples
from warpsmith.service.local.judging import judge_once
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.reference.refusals import grouped
from warpsmith.workers.judging import machine
from warpsmith.workers.judging.judgement import is_admitted
from warpsmith.workers.judging.submission import op_job

app = typer.Typer(no_args_is_help=True, help="Op specs: the computation, and its shapes.")
app.command("origin")(imports.give_back)


@app.command()
def validate(
    op: OpArgument,
    target: Annotated[str, typer.Option(help="The target whose workloads are shown.")] = "cpu",
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Check a spec without running anything; names every bad field."""
    spec = load_named_op(op, url, key)
    workloads = spec.workloads_for(Target.parse(target))
    if as_json:
        shown = [
            {"id": item.id, "role": item.role, "axes": dict(item.axes), "weight": item.weight}
            | ({"dtypes": dict(item.dtypes)} if item.dtypes else {})
            for item in workloads
        ]
        digests = {"digest": spec.digest, "semantic_digest": spec.semantic_digest}
        print_json({"name": spec.name, **digests, "valid": True, "workloads": shown})
        return
    tell(f"{spec.name} is valid (digest {spec.digest[:12]}; in pools {spec.semantic_digest[:12]})")
    for item in workloads:
        weight = "" if item.weight == 1.0 else f"  weight {item.weight:g}"
        axes = ", ".join(f"{name}={value}" for name, value in {**item.axes, **item.dtypes}.items())
        tell(f"  {item.role:8} {item.id:16} {axes}{weight}")


@app.command()
def check(
    op: OpArgument,
    target: Annotated[str, typer.Option(help="cpu, cpu:x86_64, cuda:sm_90 ...")] = "cpu",
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Judge a spec: its reference must run, wrong answers must fail, PyTorch must be right.

    Exit code 0: admitted; 1: not; 2: misuse.
    """
    spec = load_named_op(op, url, key)
    machine.require_judge()
    job = op_job(spec, target, limits_with(ServiceSettings().sandbox_minimum))
    say(f"checking {spec.name} on {job['target']} ({len(job['workloads'])} workloads)")
    with show_progress() as progress:
        verdict = judge_once(job, progress)
    admitted = is_admitted(verdict)
    if as_json:
        kept = ("op", "target", "verdict", "gate", "reason", "failure", "device")
        answers = verdict.get("admission", [])
        print_json({**{name: verdict[name] for name in kept}, "admitted": admitted, "answers": answers})  # type: ignore[literal-required]
    else:
        show_admission(verdict, admitted=admitted)
    raise typer.Exit(DONE if admitted else FAILED)


def show_admission(verdict: Verdict, *, admitted: bool) -> None:
    """Print the admission for people: each wrong answer with its failing check, or a remedy."""
    tell(f"{verdict['op']} on {verdict['target']}: {'admitted' if admitted else 'not admitted'}")
    caught = [check for check in verdict.get("admission", []) if check["caught"]]
    checks = [check for check in verdict.get("admission", []) if not check["caught"]]
    if caught:
        table = Table("wrong answer", "found out on", "inputs", "error", "limit", box=None)
        for check in caught:
            numbers = ("-" if size is None else f"{float(size):.3g}" for size in (check["error"], check["limit"]))
            table.add_row(
                check["answer"], f"{check['workload']}: {check['tensor']}", check["family"] or "declared", *numbers
            )
        print_wide(table)
    for needed, word in ((True, "not told from a right answer"), (False, "warning, not told from a right answer")):
        for field, remedy, answers in grouped([check for check in checks if check["needed"] is needed]):
            tell(f"{word}: {', '.join(answers)}\n  {field}: expected {remedy}")
    if verdict["failure"] is None or verdict["failure"]["kind"] != "admission":
        tell(at_gate(verdict))
    if verdict["failure"] is not None and verdict["failure"]["kind"] != "admission":
        for line in describe_failure(verdict["failure"], verdict["reason"]):
            tell(f"  {line}")


@app.command()
def examples(as_json: Json = False) -> None:
    """List the specs that ship with Warpsmith's source."""
    shipped = list_examples()
    if not shipped:
        raise CommandError("examples: found none, expected a package that was built with them, or a checkout")
    found = [(path, load_op(path)) for path in shipped.values()]
    if as_json:
        print_json([{"name": op.name, "path": str(path), "description": op.description} for path, op in found])
        return
    shown = [(op.name, _from_here(path), _first_sentence(op.description or "")) for path, op in found]
    names, paths = (max(len(row[column]) for row in shown) for column in (0, 1))
    for name, place, summary in shown:
        tell(fit(f"{name:{names}}  {place:{paths}}  {summary}".rstrip()))


def _from_here(path: Path) -> str:
    """Return the path as it is typed in this directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(".:")


@app.command("list")
def list_ops(url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List the ops that a service knows, newest first."""
    with connected(url, key) as client:
        found = client.ops()
    if as_json:
        print_json(found)
        return
    names = max((len(item.name) for item in found), default=0)
    for item in found:
        tell(f"{item.id}  {item.name:{names}}  {item.digest[:12]}")
    if not found:
        say("no ops yet: a search stores its op")
