"""Put new verdicts of the kernels that ship in place of the evidence that they ship with.

    python -m benchmarks.library --json VERDICTS     # on a machine with the GPU of their target
    python -m benchmarks.library_refresh VERDICTS

Takes the accepted verdicts, of level verify, in which every baseline of the op was timed, and writes those entries of
the library anew: evidence, envelope, LINEAGE.md; code, ideas and ids stay. The file's own time is that of the
verification. What is left out is named with the reason, and the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from benchmarks.showcase import read_verdicts
from warpsmith.kernels_db.export import library
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.library import SHIPPED, Entry, entries
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.resolve import resolve_workload


def refusal(entry: Entry, verdict: Verdict) -> str | None:
    """Say why a verdict cannot be an entry's evidence; None where it can."""
    if (verdict["level"], verdict["verdict"]) != ("verify", "accepted"):
        return f"found {verdict['verdict']} at level {verdict['level']}, expected accepted at verify"
    found = {workload["id"] for workload in verdict["workloads"]}
    if lost := {workload["id"] for workload in entry.evidence["workloads"]} - found:
        return f"found no workload {', '.join(sorted(lost))}, expected all that it was verified on"
    for workload in verdict["workloads"]:
        lost = set(entry.op.objective.baselines) - set(workload["time_us"])
        if workload["role"] == "bench" and lost:
            return f"found no time of {', '.join(sorted(lost))} at {workload['id']}, expected every baseline's"
    return None


def refresh(entry: Entry, verdict: Verdict, verified_at: str, shipped: Path) -> Path:
    """Write an entry anew with `verdict` as its evidence, in place of what it was; returns its directory."""
    op, judged = entry.op, {workload["id"] for workload in verdict["workloads"]}
    workloads = [
        resolve_workload(op, each) for each in op.workloads_for(Target.parse(entry.target)) if each.id in judged
    ]
    kernel = ExportedKernel(
        id=entry.document["id"],
        spec=op.document(),
        target=entry.target,
        language=entry.language,
        source=entry.source,
        source_digest=entry.document["source_digest"],
        envelope=build_envelope(op.digest, entry.target, workloads, verdict["versions"]),
        evidence=cast("dict[str, Any]", verdict),
        lineage=entry.document["lineage"],
        verified_at=verified_at,
        prompts=entry.document["prompts"],
    )
    with tempfile.TemporaryDirectory(prefix="warpsmith-library-") as scratch:
        built = library.build(kernel, Path(scratch))
        shutil.rmtree(entry.directory)
        return Path(shutil.copytree(built, shipped / built.name))


def main(arguments: Sequence[str] | None = None, shipped: Path = SHIPPED) -> int:
    """Refresh what can be; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library_refresh", description="Newer evidence.")
    parser.add_argument("verdicts", type=Path, help="what `python -m benchmarks.library --json` wrote")
    file = parser.parse_args(arguments).verdicts
    at = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    known = {(entry.op.name, entry.target, entry.language): entry for entry in entries(shipped)}
    left = 0
    for shown in read_verdicts(file):
        verdict = shown.verdict
        if verdict is None:
            print(f"{shown.op} {shown.language}: left as it is: no verdict: {shown.error}", file=sys.stderr)
            left += 1
            continue
        name = (verdict["op"], verdict["target"], shown.language)
        entry = known.get(name)
        why = refusal(entry, verdict) if entry else "no such kernel ships"
        if entry is None or why is not None:
            print(f"{' '.join(name)}: left as it is: {why}", file=sys.stderr)
            left += 1
            continue
        print(f"{' '.join(name)}: {refresh(entry, verdict, at, shipped).name}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
