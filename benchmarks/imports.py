"""Import the problems of others: how many become an op, run, and are admitted, by set.

    python -m benchmarks.imports DIRECTORY [--only TEXT] [--at-most N] [--seed S] [--no-check] [--limit S]
        [--axes NAME=SIZE,...] [--most-bytes N] [--json FILE]

DIRECTORY holds sets of problems as their projects publish them, one below each of its directories: KernelBench problems
(`*.py` with `get_inputs`), tasks of robust-kbench (the same, with their configurations), GPU MODE tasks (`task.yml`),
FlashInfer-Bench Definitions (`definitions/**/*.json`, with their workloads) and problems of SOL-ExecBench
(`definition.json`). Nothing of them is part of Warpsmith. `--at-most` takes so many of each set, drawn by `--seed`.
`--axes` makes the Workload of each Definition, with these sizes as far as it has them: without, one that comes without
Workloads, or whose tensors lie elsewhere, is not imported.

imported    a spec was made of it; for KernelBench, whose reference was seen to compute what the file computes
runs        the judge ran the spec's reference on every workload, in float64 and in float32, and found it sound
admitted    deliberately wrong answers were told from right ones, too (`warpsmith ops check`, beside eager alone)

`runs` and `admitted` are asked on a CPU, for at most `--limit` seconds a problem. One process imports all of them and
one judge checks them. Nothing is timed, so that no other judge of this machine is waited for. A problem of KernelBench
is checked at the small sizes with which the import compared it, because many need more memory than a host has. Of an
op with several workloads those of at most `--most-bytes` are checked, or else its smallest.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.showcase import columns
from warpsmith.kernels_db.formats.flashinfer.made_workload import made_workload
from warpsmith.kernels_db.formats.flashinfer.objects import objects, undeclared
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.spec.resolve import limits_with, resolve_workload
from warpsmith.service.cli.arguments import parse_sizes
from warpsmith.service.cli.commands.imports import collect
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judging.judge import Judge
from warpsmith.workers.judging.judgement import Judgement, is_admitted
from warpsmith.workers.judging.submission import op_job

BEFORE_ADMISSION = ("gate", "sandbox", "memory", "compile", "reference")
"""Gates of a check in which a reference has not run yet, or did not run well."""


AFFORDABLE_BYTES = 1 << 24
"""Inputs and outputs of a workload that is checked, where its op has smaller ones and larger ones."""


@dataclass(frozen=True)
class Row:
    """One problem. `sizes`: those that it was checked with, where they are not its own. `error`: of the first step that
    failed, or a note on an op that was not admitted."""

    set: str
    problem: str
    imported: bool = False
    runs: bool | None = None
    admitted: bool | None = None
    sizes: str = ""
    error: str = ""
    seconds: float = 0.0


def problems(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the set and the path of each problem below a directory."""
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if path.is_file() and _is_problem(path, parts):
            yield (parts[0] if len(parts) > 1 else "."), path


def _is_problem(path: Path, parts: Sequence[str]) -> bool:
    if path.suffix == ".py":
        return "def get_inputs" in path.read_text(errors="replace")
    return path.name in ("task.yml", "definition.json") or (path.suffix == ".json" and "definitions" in parts)


def drawn(found: Sequence[tuple[str, Path]], at_most: int | None, seed: int) -> list[tuple[str, Path]]:
    """Return at most so many problems of each set, in order."""
    if at_most is None:
        return list(found)
    rng = random.Random(seed)  # noqa: S311 - which are taken is no secret
    chosen = set()
    for name in dict.fromkeys(name for name, _ in found):
        of_set = [path for other, path in found if other == name]
        chosen |= set(rng.sample(of_set, min(at_most, len(of_set))))
    return [(name, path) for name, path in found if path in chosen]


def measure(
    name: str,
    path: Path,
    analyse: Analyse,
    check: Callable[[Job], Judgement] | None,
    axes: Mapping[str, int | float] | None = None,
    most_bytes: int = AFFORDABLE_BYTES,
) -> Row:
    """Import a problem, and have its op checked on workloads of at most `most_bytes`.

    `axes`: sizes of a Workload to make for a Definition.
    """
    own = path.suffix == ".py" and not path.stem.startswith("func_")
    row, start = Row(name, path.stem if own else f"{path.parent.name}/{path.stem}"), time.monotonic()
    try:
        made = axes is not None and path.suffix == ".json"
        files = collect([path], None, along=not made)
        if made:
            files = [*files, _made_workload(files, axes or {})]
        found = import_op(files, None, analyse)
        row = replace(row, imported=True)
        if check is not None:
            row = _checked(row, *_small(found, most_bytes), check)
    except SpecErrors as error:
        row = replace(row, error=str(error))
    except Exception as error:  # noqa: BLE001 - files of others: whatever it is, it is this problem's row
        row = replace(row, error=f"{type(error).__name__}: {error}")
    return replace(row, error=" ".join(row.error.split())[:300], seconds=time.monotonic() - start)


def _made_workload(files: Sequence[RawFile], axes: Mapping[str, int | float]) -> RawFile:
    """Return a file with a Workload of the sizes in `axes` that the Definition has."""
    (definition,) = (item for file in files for item in objects(file) if item.kind == "Definition")
    free = {name for name, axis in definition.members("axes").items() if axis.get("type") == "var"}
    free |= set(undeclared(definition))
    scalars = {name for name, item in definition.members("inputs").items() if item.get("shape") is None}
    return made_workload(files, {name: axes[name] for name in axes if name in free | scalars}).file


def _small(found: ImportedOp, most_bytes: int) -> tuple[Op, str]:
    """Return the op at the sizes with which it was compared, and how these are said."""
    if found.small is None:
        return _affordable(found.op, most_bytes)
    return found.small, ", ".join(f"{name} {size}" for name, size in found.sizes.items())


def _affordable(op: Op, most_bytes: int) -> tuple[Op, str]:
    """Return the op with those of its workloads that are checked, and how these are said."""
    weights = [resolve_workload(op, workload)["min_bytes"] for workload in op.workloads]
    limit = max(most_bytes, min(weights))
    document = op.document()
    kept = [each for each, weight in zip(document["workloads"], weights, strict=True) if weight <= limit]
    if len(kept) == len(weights):
        return op, ""
    if not any(each.get("role") == "bench" for each in kept):
        kept[-1] = {**kept[-1], "role": "bench"}
    return parse_op(document | {"workloads": kept}), f"{len(kept)} of {len(weights)} workloads"


def _checked(row: Row, op: Op, sizes: str, check: Callable[[Job], Judgement]) -> Row:
    eager = parse_op(op.document() | {"objective": {"baselines": ["eager"]}})
    job = op_job(eager, "cpu", limits_with(None))
    for workload in job["workloads"]:
        workload["role"] = "test"  # which is examined and not timed
    found = check(job)
    verdict = found.document
    if verdict is None:
        return replace(row, runs=False, admitted=False, sizes=sizes, error=f"no verdict: {found.reason}")
    runs, admitted = verdict["gate"] not in BEFORE_ADMISSION, is_admitted(verdict)
    error = "" if admitted else f"{verdict['gate']}: {verdict['reason']}"
    return replace(row, runs=runs, admitted=admitted, sizes=sizes, error=error)


def table(rows: Sequence[Row]) -> str:
    """Return the counts by set, and what failed."""
    shown = [["set", "problems", "imported", "runs", "admitted"]]
    for name in [*dict.fromkeys(row.set for row in rows), None]:
        of_set = [row for row in rows if name in (None, row.set)]
        checked = any(row.runs is not None for row in of_set)
        counts = [sum(row.imported for row in of_set)]
        counts += [sum(bool(row.runs) for row in of_set), sum(bool(row.admitted) for row in of_set)] if checked else []
        shown.append([name or "all", str(len(of_set)), *(f"{count}" for count in counts), *[""] * (3 - len(counts))])
    small = sum(bool(row.sizes) for row in rows)
    lines = [columns(shown)]
    if any(row.runs is not None for row in rows):
        smaller = f"{small} of {len(rows)} at smaller sizes than the file's, or at some of its workloads"
        lines.append(f"runs and admitted: on a CPU; {smaller}")
    failed = [row for row in rows if row.error]
    lines += [f"{row.set}/{row.problem}: {_step(row)}: {row.error}" for row in failed]
    return "\n".join(lines)


def _step(row: Row) -> str:
    if not row.imported:
        return "not imported"
    return "not admitted" if row.runs else "does not run"


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="sets of problems, one below each of its directories")
    parser.add_argument("--only", default="", help="problems whose path has this text")
    parser.add_argument("--at-most", type=int, help="so many of each set")
    parser.add_argument("--seed", type=int, default=0, help="which they are")
    parser.add_argument("--no-check", action="store_true", help="import only")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the check of a problem, default 300")
    parser.add_argument("--axes", help="sizes of a Workload to make for each Definition, as batch_size=64,eps=1e-6")
    parser.add_argument(
        "--most-bytes", type=int, default=AFFORDABLE_BYTES, help="of a workload that is checked; 0: the smallest alone"
    )
    parser.add_argument("--json", type=Path, help="where the rows are written, too")
    given = parser.parse_args()
    found = [(name, path) for name, path in problems(given.directory) if given.only in str(path)]
    axes = None if given.axes is None else parse_sizes("--axes", given.axes)
    rows = []
    with Analyser(None) as analyse, Judge() as judge:
        check = None if given.no_check else partial(judge.submit, timeout=given.limit)
        for name, path in drawn(found, given.at_most, given.seed):
            rows.append(measure(name, path, analyse, check, axes, given.most_bytes))
            print(f"{name}/{rows[-1].problem}: {rows[-1].seconds:.1f} s", file=sys.stderr, flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(table(rows))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
