"""Judge kernels that were written outside of a search, and ship those that are accepted.

    python -m benchmarks.library_add OP.yaml FILE.LANGUAGE.py [OP.yaml FILE.LANGUAGE.py ...]
                                     [--target cuda:sm_90] [--into DIR] [--time-s S] [--json FILE]

LANGUAGE is triton, cuda or cpp. Each kernel is judged in full on this machine, beside every baseline of its op; where
it is accepted, its entry is written: op, code, verdict, LINEAGE.md. Entries go into the library of this checkout, where
`warpsmith.optimize` and `python -m benchmarks.models` find them in the next process, or below --into. Of several
accepted kernels of one op all are written: `optimize` times each in its place.

Exits with 1 where one is not accepted, or has an entry already.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.applied_models import Candidate, kernel
from benchmarks.showcase import Shown, ask, gpu_target, judge_job, lines, table, write_verdicts
from warpsmith.kernels_db.export import library
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.library import SHIPPED, read_entry
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.workers.judge.protocol.client import JudgeClient

KEPT = "found an entry of this kernel, expected none: it stays; benchmarks.library_refresh takes new verdicts"


def judged(
    client: JudgeClient, spec: Path, file: Path, target: str, time_s: float
) -> tuple[Shown, ExportedKernel | None]:
    """Judge one kernel; returns it as exporters take it where it is accepted."""
    op, source = load_op(spec), file.read_text("utf-8")
    candidate = Candidate("", op.name, language_of(file), file)
    shown = ask(client, judge_job(op, target, candidate.language, source, time_s))
    if shown.verdict is None or shown.verdict["verdict"] != "accepted":
        return shown, None
    made = kernel(candidate, op, shown.verdict["target"], source, shown.verdict)
    return shown, dataclasses.replace(made, id=new_id("kn"))


def language_of(file: Path) -> str:
    """Return the language that a file's name says. Raises ValueError."""
    language = file.name.removesuffix(".py").rpartition(".")[2]
    if language not in ("triton", "cuda", "cpp"):
        raise ValueError(f"found the file {file.name}, expected NAME.triton.py, NAME.cuda.py or NAME.cpp.py")
    return language


def main(argv: Sequence[str] | None = None) -> int:
    """Print the verdicts and the entries; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library_add", description="Kernels to ship, judged.")
    parser.add_argument("files", nargs="+", type=Path, metavar="OP.yaml FILE.LANGUAGE.py", help="pairs")
    parser.add_argument("--target", default=gpu_target(), help="default: this GPU's; cpu for C++")
    parser.add_argument("--into", type=Path, default=SHIPPED, help="a directory; default: the library that ships")
    parser.add_argument("--time-s", type=float, default=1.0, help="limits.time_s: seconds of timing a workload")
    parser.add_argument("--cache", type=Path, help="the judge's cache directory; by default one for this run alone")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the verdicts here")
    arguments = parser.parse_args(argv)
    if len(arguments.files) % 2:
        parser.error(f"found {len(arguments.files)} files, expected pairs of a spec and a kernel")
    if arguments.target is None:
        parser.error("argument --target: found no GPU here, expected one, or --target cpu for kernels in C++")
    found: list[Shown] = []
    written: list[Path] = []
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-library-") as scratch,
        JudgeClient(cache=arguments.cache or Path(scratch)) as client,
    ):
        for spec, file in zip(arguments.files[::2], arguments.files[1::2], strict=True):
            shown, accepted = judged(client, spec, file, arguments.target, arguments.time_s)
            found.append(shown)
            print("\n".join(lines(shown)), file=sys.stderr, flush=True)
            if accepted is not None:
                try:
                    written.append(library.build(accepted, arguments.into))
                except FileExistsError as error:
                    print(f"{error.filename}: {KEPT}", file=sys.stderr, flush=True)
                    continue
                read_entry(written[-1])
    if arguments.json:
        write_verdicts(arguments.json, found)
    print(table(found))
    print("\n".join(f"written: {directory}" for directory in written) or "nothing written")
    return 0 if len(written) == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
