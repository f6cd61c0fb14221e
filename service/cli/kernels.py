"""Kernels: the winners that were kept, and their packages; `export` of anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.archive import ArchiveError, unpack
from service.cli.connection import connected
from service.cli.options import Json, Key, Url
from service.cli.output import CommandError, misuse, print_json, say, tell
from service.cli.pools import export_pool
from service.client import Client
from service.progress import ratio, share
from service.schemas import KernelSummary

FORMATS = ("package", "pool")


def kernels(
    op: Annotated[str | None, typer.Option(help="Only those of this op, by name.")] = None,
    target: Annotated[str | None, typer.Option(help="Only those for this target.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the kernels that searches kept, newest first."""
    with connected(url, key) as client:
        found = client.kernels(op=op, target=target)
    if as_json:
        print_json(found)
        return
    for item in found:
        gained = f"{ratio(item.score, item.ci95)} over the fastest baseline, {share(item.limit_fraction)} of the limit"
        tell(f"{item.id}  {item.op_name:24} {item.target:12} {item.language:7} {gained}")
    if not found:
        say("no kernels yet: a search keeps its best verified candidate")


def export(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL|OP|SEARCH",
            help="A kernel's id, or an op's name for its best kernel; with --format pool a search's id.",
        ),
    ],
    format_name: Annotated[
        str, typer.Option("--format", help="package: of a kernel; pool: the recorded replies of a search.")
    ] = "package",
    output: Annotated[
        Path | None,
        typer.Option(
            help="Directory that receives the package, by default exports; file that receives the pool, by default "
            "SEARCH.jsonl."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="With an op's name: only kernels for this target.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist with another content.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write a kernel as a Python package: a PyTorch op with its guards, fallback and evidence; or a search's replies as
    a pool, from which it can be replayed."""
    if format_name not in FORMATS:
        misuse("--format", format_name, f"one of {', '.join(FORMATS)}")
    if format_name == "pool":
        if target is not None:
            misuse("--target", target, "no target with --format pool: a search has one")
        export_pool(what, output, force, url, key, as_json)
        return
    output = output or Path("exports")
    with connected(url, key) as client:
        chosen = what if what.startswith("kn_") else best_kernel(client, what, target).id
        content = client.export(chosen)
    try:
        written = unpack(content, output, replace=force)
    except ArchiveError as error:
        raise CommandError(str(error)) from None
    if as_json:
        print_json({"kernel": chosen, "output": str(output), "files": [str(path) for path in written]})
        return
    tell(f"kernel {chosen} as a package in {output}:")
    for path in written:
        tell(f"  {path.relative_to(output)}")


def best_kernel(client: Client, op: str, target: str | None, field: str = "KERNEL|OP") -> KernelSummary:
    """The kernel of an op with the highest score; `field` is the argument that names the op."""
    found = client.kernels(op=op, target=target)
    if not found:
        there = sorted({item.op_name for item in client.kernels()})
        hint = "; a search is exported with --format pool" if op.startswith("sr_") and field == "KERNEL|OP" else ""
        misuse(
            field, op, f"a kernel's id (kn_...) or an op with a kernel: {', '.join(there) or 'there is none yet'}{hint}"
        )
    return max(found, key=lambda item: item.score)
