"""Commands for kernels: list the kept winners, export them and recorded pools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.cli.commands.exports import show, verify_where_possible
from warpsmith.service.cli.commands.pools import export_pool
from warpsmith.service.cli.connection import connected_or_embedded
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.archive import ArchiveError, unpack
from warpsmith.service.client.errors import FAILED, CommandError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.client.kernels import choose_best_kernel, describe_drift, has_drifted
from warpsmith.service.documents.figures import format_ratio, format_share
from warpsmith.service.local.named_ops import require_op

VERIFIED = registry.FORMATS[0].name
"""The format that `verify-export` reads."""
FORMATS = (*(each.name for each in registry.FORMATS), "pool")


def kernels(
    op: Annotated[str | None, typer.Option(help="Only those of this op, by name or id.")] = None,
    target: Annotated[str | None, typer.Option(help="Only those for this target.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the kernels that searches kept and those that ship, newest first.

    Starts a service for itself where none runs.
    """
    with connected_or_embedded(url, key, must_work=False) as (client, _):
        found = client.kernels(op=op, target=target)
        if op is not None and not found:
            require_op(client, op, "--op")
    if as_json:
        print_json(found)
        return
    for item in found:
        share = format_share(item.limit_fraction)
        gained = f"{format_ratio(item.score, item.ci95)} over the fastest baseline, {share} of the limit"
        if item.host_us is not None:
            gained += f", host {item.host_us.run if item.host_us.plan is None else item.host_us.plan:.1f} us"
        state = f"  drifted: {item.reverification.state}" if item.reverification and has_drifted(item) else ""
        if item.verification and item.verification.outdated_protocol:
            state += f"  judged under protocol {item.verification.protocol}: warpsmith reverify"
        tell(f"{item.id}  {item.op_name:24} {item.target:12} {item.language:7} {gained}{state}")
    if not found:
        say("no kernels yet: a search keeps its best verified candidate")


def export(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KERNEL|OP|SEARCH",
            help="A kernel's id, or an op's name or id for its best kernel; several kernels of one op for one export. "
            "With --format pool a search's id.",
        ),
    ],
    format_name: Annotated[
        str,
        typer.Option(
            "--format", help=f"Of a kernel: {', '.join(FORMATS[:-1])}; pool: the recorded replies of a search."
        ),
    ] = "package",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Directory below which the export's own is made, by default exports; file that receives the pool, by "
            "default SEARCH.jsonl.",
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="With an op's name: only kernels for this target.")] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Import name in place of one with a hash, such as warpsmith_gelu_tanh: a later kernel is a later "
            "version of it."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist with another content.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify a package once it is written, as verify-export does.")
    ] = True,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write a kernel as a Python package or in another format, or a search's replies as a pool.

    The package holds a PyTorch op with its guards, fallback and evidence. Several kernels of one op become one package,
    whose op picks one at each call. A pool replays its search. For kernels a service is started where none runs.
    """
    if format_name not in FORMATS:
        misuse("--format", format_name, one_of(format_name, FORMATS))
    if format_name == "pool":
        _check_for_pool(what, target, name)
        export_pool(what[0], output, force, url, key, as_json)
        return
    output = output or Path("exports")
    with connected_or_embedded(url, key, must_work=False) as (client, _):
        chosen = [each if each.startswith("kn_") else choose_best_kernel(client, each, target).id for each in what]
        for each in chosen:
            warn_if_drifted(client, each)
        content = client.export(chosen[0], format_name, chosen[1:], name)
    try:
        written = unpack(content, output, replace=force, told=say)
    except ArchiveError as error:
        raise CommandError(str(error)) from None
    if not as_json:
        tell(f"{'kernel' if len(chosen) == 1 else 'kernels'} {', '.join(chosen)} as {format_name} in {output}:")
        for path in written:
            tell(f"  {path.relative_to(output)}")
    report = None
    if verify and format_name == VERIFIED:
        report = verify_where_possible(output / written[0].relative_to(output).parts[0])
    if as_json:
        found = None if report is None else report.document()
        files = [str(path) for path in written]
        print_json(
            {
                "kernel": chosen[0],
                "kernels": chosen,
                "output": str(output),
                "files": files,
                "verification": found,
            }
        )
    elif report is not None:
        show(report)
    if report is not None and not report.passed:
        raise typer.Exit(FAILED)


def _check_for_pool(what: list[str], target: str | None, name: str | None) -> None:
    """End with misuse for what is said of kernels alone."""
    if target is not None:
        misuse("--target", target, "no target with --format pool: a search has one")
    if name is not None:
        misuse("--name", name, "no name with --format pool: nothing imports it")
    if len(what) > 1:
        misuse("KERNEL|OP|SEARCH", " ".join(what), "one search with --format pool")


def warn_if_drifted(client: Client, kernel_id: str) -> None:
    """Print a warning on standard error where the kernel has drifted."""
    found = describe_drift(client, kernel_id)
    if found is not None:
        say(f"warning: {found}")
