"""Kernels: the winners that were kept, and their packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.archive import ArchiveError, unpack
from service.cli.connection import connected
from service.cli.options import Json, Key, Url
from service.cli.output import CommandError, misuse, print_json, say, tell
from service.client import Client
from service.progress import ratio, share
from service.schemas import KernelSummary


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
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL|OP", help="A kernel's id, or an op's name for its best kernel.")
    ],
    output: Annotated[Path, typer.Option(help="Directory that receives the package.")] = Path("exports"),
    target: Annotated[str | None, typer.Option(help="With an op's name: only kernels for this target.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist with another content.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write a kernel as a Python package: a PyTorch op with its guards, fallback and evidence."""
    with connected(url, key) as client:
        chosen = kernel if kernel.startswith("kn_") else best_kernel(client, kernel, target).id
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


def best_kernel(client: Client, op: str, target: str | None) -> KernelSummary:
    """The kernel of an op with the highest score."""
    found = client.kernels(op=op, target=target)
    if not found:
        there = sorted({item.op_name for item in client.kernels()})
        misuse(
            "KERNEL|OP", op, f"a kernel's id (kn_...) or an op with a kernel: {', '.join(there) or 'there is none yet'}"
        )
    return max(found, key=lambda item: item.score)
