"""`warpsmith import`: rewrites problems of other formats as op specs, and stores pools."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from warpsmith.kernels_db.formats import op_import
from warpsmith.kernels_db.formats.flashinfer.made_workload import made_workload
from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, MOST_FILES, RawFile, raw_files
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.store import pool_file
from warpsmith.service.cli.arguments import parse_sizes
from warpsmith.service.cli.commands.candidates import import_candidate
from warpsmith.service.cli.commands.pools import import_pool
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import make_directory
from warpsmith.service.cli.op_argument import load_named_op
from warpsmith.service.cli.options import Json, Key, OpArgument, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import CommandError, misuse
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judging import machine

POOL = "pool"
FORMATS = (*op_import.FORMATS, POOL)
NAMED_ENDINGS = (".py", ".json", ".jsonl", ".safetensors")
"""Endings of files that may be read because another file, perhaps a stranger's, names them."""

LEVELS_UP = 3
"""Directory levels above a given file within which files that it names may lie."""


def import_file(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="A problem and what belongs to it, or a pool.", show_default=False),
    ],
    format_name: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; recognised where not given.")
    ] = None,
    op: Annotated[
        str | None,
        typer.Option("--op", help="FILE is a ModelNew, a Solution or a submission for this op: file, id or name."),
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            help="For a FlashInfer-Bench Definition without workloads: the sizes of one, as batch_size=64,eps=1e-6; "
            "what it leaves open is chosen, and told."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The op spec to write, by default NAME.json here; with --op the candidate.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists with another content.")] = False,
    store: Annotated[bool, typer.Option("--store", help="Store the op in the service, too.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Import a problem as an op spec, with --op a kernel as a candidate, or a pool of replies.

    Problems of KernelBench, robust-kbench, FlashInfer-Bench, SOL-ExecBench and GPU MODE are known, and kernels of
    KernelBench, FlashInfer-Bench and GPU MODE. A problem's files are read here and kept in the spec. Facts that only
    its code can give are found by running it in the judge's sandbox. A kernel is only rewritten: free Python, which the
    judge takes in its sandbox tier.
    """
    if format_name is not None and format_name not in FORMATS:
        misuse("--format", format_name, one_of(format_name, FORMATS))
    for file in files:
        if not file.is_file():
            misuse("FILE", str(file), "a file that exists")
    if op is not None:
        _check_for_candidate(store, axes)
        import_candidate(files, op, format_name, output, force, url, key, as_json)
        return
    if format_name == POOL or (format_name is None and len(files) == 1 and _is_pool(files[0])):
        if len(files) != 1 or output is not None:
            misuse("FILE", ", ".join(map(str, files)), "one pool, and no --output: a pool is stored in the service")
        import_pool(files[0], url, key, as_json)
        return
    collected = collect(files, format_name, along=axes is None)  # made Workloads stand in for those beside it
    if axes is not None:
        made = made_workload(collected, parse_sizes("--axes", axes))
        collected = [*collected, made.file]
        if made.chosen:
            chosen = ", ".join(f"{name}={value}" for name, value in made.chosen.items())
            say(f"note: --axes leaves open, and so chosen: {chosen}")
    with Analyser(ServiceSettings().sandbox_minimum) as analyser:
        found = op_import.import_op(collected, format_name, analyser if machine.installed("torch") else None)
    path = output or Path(f"{found.op.name}.json")
    text = json.dumps(found.op.document(), indent=2, ensure_ascii=False) + "\n"
    if path.exists() and not force and (not path.is_file() or path.read_bytes() != text.encode("utf-8")):
        raise CommandError(f"--output: found {path} with another content, expected a new file; --force replaces it")
    make_directory("--output", path.parent)
    path.write_bytes(text.encode("utf-8"))
    stored = None
    if store:
        with connected(url, key) as client:
            stored = client.create_op(found.op.document()).id
    for note in found.notes:
        say(f"note: {note}")
    if as_json:
        said = {"name": found.op.name, "format": found.format, "digest": found.op.digest, "output": str(path)}
        print_json(said | {"op_id": stored, "notes": found.notes, "sandbox": found.sandbox})
        return
    ran = "nothing was run" if found.sandbox is None else f"run in the sandbox, level {found.sandbox}"
    tell(
        f"{found.op.name} from {found.format} ({len(collected)} files, {ran}) in {path}"
        + (f", {stored}" if stored else "")
    )
    say(f"next: warpsmith ops check {path}")


def _check_for_candidate(store: bool, axes: str | None) -> None:
    if axes is not None:
        misuse("--axes", axes, "no --op beside it: a candidate has no workloads")
    if store:
        misuse("--store", True, "no --op beside it: a candidate is not stored, but judged (warpsmith judge)")


def give_back(
    op: OpArgument,
    output: Annotated[Path, typer.Option(help="Directory that receives the files.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist with another content.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write the files that a spec was imported from, byte for byte."""
    spec = load_named_op(op, url, key)
    if spec.origin is None or not spec.origin.files:
        misuse("OP", op, "a spec that was imported, and so has an origin with files")
    files = raw_files(spec.origin)
    paths = [output / PurePosixPath(file.path) for file in files]
    for file, path in zip(files, paths, strict=True):
        if path.exists() and not force and (not path.is_file() or path.read_bytes() != file.data):
            raise CommandError(
                f"--output: found {path} with another content, expected no such file; --force replaces it"
            )
    for file, path in zip(files, paths, strict=True):
        make_directory("--output", path.parent)
        path.write_bytes(file.data)
    if as_json:
        print_json({"name": spec.name, "format": spec.origin.format, "files": [str(path) for path in paths]})
        return
    for path in paths:
        tell(str(path))


def collect(paths: Sequence[Path], format_name: str | None, *, along: bool = True) -> list[RawFile]:
    """Read the given files and, where `along`, the existing ones that they name.

    The names of the latter are printed on standard error. Raises SpecErrors where they are no import.
    """
    given = [Path(os.path.abspath(path)) for path in paths]
    top = root = Path(os.path.commonpath([path.parent for path in given]))
    for _ in range(LEVELS_UP):
        root = root.parent
    found = {path: RawFile(path.relative_to(root).as_posix(), _read_content(path)) for path in given}
    if format_name is None:
        # Their names in errors are those below the directory that they share, as the caller knows them.
        shown = [RawFile(path.relative_to(top).as_posix(), file.data) for path, file in found.items()]
        format_name = op_import.recognise(shown)
    while along and format_name != POOL:
        wanted = op_import.wanted(list(found.values()), format_name)
        named = [Path(os.path.normpath(root / name)) for name in wanted if not os.path.isabs(name)]
        fresh = [path for path in named if path not in found and _may_be_read(path, root, given)]
        if not fresh or len(found) > MOST_FILES:
            break
        for path in fresh:
            say(f"read along: {path}")
        found |= {path: RawFile(path.relative_to(root).as_posix(), _read_content(path)) for path in fresh}
    top = Path(os.path.commonpath([path.parent for path in found]))
    return [RawFile(path.relative_to(top).as_posix(), file.data) for path, file in found.items()]


def _may_be_read(path: Path, root: Path, given: Sequence[Path]) -> bool:
    """Check whether a file that another one names may be read.

    It must exist and not be private to the user. `path` is absolute and without `..`. It lies below `root`, as named
    and where its links lead; nothing between it and the given files' own directories is hidden; its name, and that of
    its link's target, end as a problem's files do.
    """
    own = {parent for file in given for parent in (*file.parents, *Path(os.path.realpath(file)).parents)}
    places = [(path, root), (Path(os.path.realpath(path)), Path(os.path.realpath(root)))]
    return (
        os.path.isfile(path)
        and os.access(path, os.R_OK)
        and all(place.is_relative_to(top) for place, top in places)
        and not any(
            part.name.startswith(".") for place, _ in places for part in (place, *place.parents) if part not in own
        )
        and all(place.suffix == path.suffix and place.suffix in NAMED_ENDINGS for place, _ in places)
    )


def _read_content(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        misuse("FILE", f"{path} of {path.stat().st_size} bytes", f"files of at most {MOST_BYTES} bytes in all")
    return path.read_bytes()


def _is_pool(path: Path) -> bool:
    """Check whether the first line is a pool's header."""
    with path.open("rb") as stream:
        line = stream.readline(1 << 16)
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("format") == pool_file.FORMAT
