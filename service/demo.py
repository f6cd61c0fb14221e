"""`make run`: first searches from end to end, on recorded replies and this machine's times.

Starts the service, submits two ops over REST, shows their trees grow, prints the speed-ups of the winners, exports
them, checks the exports against PyTorch in a process that cannot import Warpsmith, and stays up.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.spec.op import SpecErrors, Target, load_op
from warpsmith.service.cli.commands.search import model_document
from warpsmith.service.cli.connection import connected_or_embedded
from warpsmith.service.cli.follow import watch
from warpsmith.service.cli.output import print_wide, say, tell
from warpsmith.service.client.archive import ArchiveError, unpack
from warpsmith.service.client.errors import DONE, FAILED, CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.client.http import Client
from warpsmith.service.client.progress import (
    build_result_rows,
    build_result_table,
    build_tree,
    describe_best,
    describe_untimed,
)
from warpsmith.service.documents.figures import format_duration, format_ratio
from warpsmith.service.documents.kernels import KernelDocument
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.workers.judging import machine

REPOSITORY = Path(__file__).resolve().parents[1]
OPS = ("fused_add_mul_relu", "layer_norm")
SELFCHECK_TIMEOUT_S = 300
LOOK_EVERY_S = 5.0
BLOCKED = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"warpsmith", "kernels_db"}:
            raise ImportError(f"{name} is Warpsmith's: an export must do without it")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
module = sys.argv[2]
sys.argv[1:] = ["--json"]
runpy.run_module(f"{module}.selfcheck", run_name="__main__")
"""


@dataclass(frozen=True)
class Recording:
    """An op with its spec and its recorded pool."""

    op: str
    spec: Path
    pool: Path


@dataclass(frozen=True)
class Plan:
    """The target of the demonstration, why it was chosen, and the recordings to search with."""

    target: str
    why: str
    recordings: list[Recording]


def main() -> int:
    """Run the demonstration; exit code 1 when any part of it failed."""
    parser = argparse.ArgumentParser(prog="make run ARGS=...", description=__doc__)
    parser.add_argument("--exit", action="store_true", help="end when done, instead of staying up")
    parser.add_argument("--op", action="append", help=f"op to search kernels for; again for another ({', '.join(OPS)})")
    parser.add_argument("--examples", type=Path, default=REPOSITORY / "examples", help="directory of specs and pools")
    parser.add_argument("--output", type=Path, default=Path("exports"), help="directory that receives the packages")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan = make_plan(options.examples, options.op or OPS, machine.gpus())
        missing = machine.missing_for_judge()
        if missing:
            raise CommandError("this machine cannot judge:\n" + "\n".join(missing))
        tell(f"Target {plan.target}: {plan.why}")
        with connected_or_embedded(os.environ.get("WARPSMITH_URL"), os.environ.get("WARPSMITH_API_KEY")) as (client, _):
            good = demonstrate(client, plan, options.output)
            tell(f"\nThe service is at {client.url}")
            if not options.exit:
                tell(f"It stays up; Ctrl-C stops it. Meanwhile: {Path(sys.executable).parent / 'warpsmith'} searches")
                stay(client)
    except (CommandError, SpecErrors, ProblemError, ServiceUnreachableError, ArchiveError) as error:
        say(f"error: {error}")
        return FAILED
    except KeyboardInterrupt:
        say("stopped")
        return FAILED
    return DONE if good else FAILED


def make_plan(examples: Path, ops: Sequence[str], gpus: list[machine.Gpu]) -> Plan:
    """Choose the GPU where there is one with recorded pools, else the CPU.

    Raises `CommandError` that names missing pools.
    """
    why = "this machine has no CUDA GPU"
    if gpus:
        recorded = list_recordings(examples, ops, "cuda")
        missing = [item.pool for item in recorded if not item.pool.is_file()]
        if not missing:
            return Plan(gpus[0].target, f"this machine has a {gpus[0].name}, and there are pools for it", recorded)
        why = f"there is a {gpus[0].name}, but no recorded pool for it ({missing[0].name})"
    recorded = list_recordings(examples, ops, "cpu")
    missing = [path for item in recorded for path in (item.spec, item.pool) if not path.is_file()]
    if missing:
        raise CommandError(
            f"pool: found no {', '.join(map(str, missing))}, expected specs and recorded model replies; record them: "
            "`warpsmith search examples/OP.yaml --model agent`, answer with `warpsmith ask` and `warpsmith tell`, "
            "then `warpsmith export SEARCH --format pool`"
        )
    return Plan(machine.cpu_target(), why, recorded)


def list_recordings(examples: Path, ops: Sequence[str], device: str) -> list[Recording]:
    """List the specs and recorded pools for a device type."""
    return [Recording(op, examples / f"{op}.yaml", examples / "pools" / f"{op}.{device}.jsonl") for op in ops]


def demonstrate(client: Client, plan: Plan, output: Path) -> bool:
    """Search every op, show the results, export and check the winners; False on any failure."""
    rows: list[list[str]] = []
    timed: list[WorkloadTimes] = []
    winners: list[KernelDocument] = []
    good = True
    for recording in plan.recordings:
        winner = search_one(client, plan.target, recording)
        if winner is None:
            good = False
        else:
            winners.append(winner)
            timed += read_timed_workloads(winner)
            rows += build_result_rows(recording.op, read_timed_workloads(winner))
    if rows:
        tell("")
        print_wide(build_result_table(rows))
    for line in describe_untimed(timed):
        tell(line)
    for winner in winners:
        tell(describe_winner(winner))
    for winner in winners:
        good = export_one(client, winner, output, Target.parse(plan.target)) and good
    return good


def search_one(client: Client, target: str, recording: Recording) -> KernelDocument | None:
    """Run one search over REST and show its tree; None when it kept no kernel."""
    begun = time.monotonic()
    body: dict[str, Any] = {"op": load_op(recording.spec).document(), "target": target}
    body["model"] = model_document(client, {"provider": "replay", "file": str(recording.pool)})
    search = client.create_search(body)
    tell(f"\nSearch {search.id}: {recording.op} on {target}, replayed from {recording.pool.name}")
    final = watch(client, search, lambda _, line: tell(line) if line else None)
    print_wide(build_tree(final, client.tree(final.id)))
    tell(f"{final.state} after {format_duration(time.monotonic() - begun)}: {final.reason or 'no reason given'}")
    tell(f"best {describe_best(final.best)}")
    if final.problem is not None:
        tell(f"  {final.problem.field}: found {final.problem.found!r}, expected {final.problem.expected}")
    if final.state != "finished" or not final.kernels:
        say(f"error: the search for {recording.op} kept no kernel")
        return None
    return max((client.kernel(kernel) for kernel in final.kernels), key=lambda kernel: kernel.score)


def read_timed_workloads(kernel: KernelDocument) -> list[WorkloadTimes]:
    """Read the workloads of the verdict that admitted the kernel."""
    return [WorkloadTimes.model_validate(item) for item in kernel.evidence["workloads"]]


def describe_winner(kernel: KernelDocument) -> str:
    """Say whether the winner beats every baseline on every bench workload, or where not."""
    behind = [
        f"{workload.id} against {baseline} ({format_ratio(value, workload.ci95.get(baseline))})"
        for workload in read_timed_workloads(kernel)
        if workload.role == "bench"
        for baseline, value in workload.speedup.items()
        if workload.ci95.get(baseline, [value])[0] <= 1
    ]
    if not behind:
        return f"{kernel.op_name}: faster than every baseline on every bench workload, beyond the noise"
    return f"{kernel.op_name}: NOT faster beyond the noise on {'; '.join(behind)}"


def export_one(client: Client, kernel: KernelDocument, output: Path, target: Target) -> bool:
    """Write a winner's package and check it in a fresh process without Warpsmith."""
    written = unpack(client.export(kernel.id), output, replace=True)
    name = written[0].relative_to(output).parts[0]
    result = subprocess.run(
        [sys.executable, "-P", "-c", BLOCKED, str((output / name).resolve()), name],
        check=False,
        capture_output=True,
        text=True,
        timeout=SELFCHECK_TIMEOUT_S,
        cwd=output,
        env={name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "CXX") if name in os.environ},
    )
    if not result.stdout.strip():
        say(f"error: the export of {kernel.op_name} could not be used:\n{result.stderr[-2000:]}")
        return False
    report = json.loads(result.stdout)
    worst = max(report["workloads"], key=lambda row: row["error"] / row["limit"])
    word = "agrees" if report["agrees"] and result.returncode == 0 else "does NOT agree"
    tell(
        f"exported {output / name}: imported in a fresh process on {target}, it {word} with PyTorch on "
        f"{len(report['workloads'])} workloads (worst error {worst['error']:.1e}, limit {worst['limit']:.1e})"
    )
    return word == "agrees"


def stay(client: Client) -> None:
    """Wait for Ctrl-C.

    Raises `ServiceUnreachableError` when the service goes away; waits for one that recovers.
    """
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(LOOK_EVERY_S)
            with suppress(ProblemError):
                client.ready()


if __name__ == "__main__":
    sys.exit(main())
