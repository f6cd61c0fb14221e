"""Op specs: check one before it is submitted, see those that ship with Warpsmith."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernels_db.op import Target, load_op
from service.cli.connection import connected
from service.cli.options import Json, Key, OpFile, Url
from service.cli.output import CommandError, print_json, say, tell

app = typer.Typer(no_args_is_help=True, help="Op specs: what is to be computed, and for which shapes.")
EXAMPLES = Path(__file__).parents[2] / "examples"


@app.command()
def validate(
    op: OpFile,
    target: Annotated[str, typer.Option(help="The target whose workloads are shown.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Check a spec without running anything; every bad field is named."""
    spec = load_op(op)
    workloads = spec.workloads_for(Target.parse(target))
    if as_json:
        shown = [{"id": item.id, "role": item.role, "axes": dict(item.axes)} for item in workloads]
        print_json({"name": spec.name, "digest": spec.digest, "valid": True, "workloads": shown})
        return
    tell(f"{spec.name} is valid ({spec.digest[:12]})")
    for item in workloads:
        tell(f"  {item.role:8} {item.id:16} {', '.join(f'{name}={value}' for name, value in item.axes.items())}")


@app.command()
def examples(as_json: Json = False) -> None:
    """List the specs that ship with Warpsmith's source."""
    if not EXAMPLES.is_dir():
        raise CommandError(f"examples: found no {EXAMPLES}, expected a checkout or source distribution of Warpsmith")
    found = [(path, load_op(path)) for path in sorted(EXAMPLES.glob("*.yaml"))]
    if as_json:
        print_json([{"name": op.name, "path": str(path), "description": op.description} for path, op in found])
        return
    for path, op in found:
        tell(f"{op.name:24} {path}  {op.description or ''}".rstrip())


@app.command("list")
def list_ops(url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List the ops that a service knows, newest first."""
    with connected(url, key) as client:
        found = client.ops()
    if as_json:
        print_json(found)
        return
    for item in found:
        tell(f"{item.id}  {item.name:24} {item.digest[:12]}")
    if not found:
        say("no ops yet: a search stores its op")
