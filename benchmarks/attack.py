"""Ask which wrong kernels the input families find, and which the counterexample search.

    python -m benchmarks.attack [--device cpu|cuda] [--only OP] [--seconds S] [--honest N] [--json FILE]

For each example op a kernel that is wrong on values that few ask for (C++ on a CPU, Triton on a GPU) is judged twice at
level verify, without a search and with one. Prints who found it, how many questions and seconds that took, and the
counterexample. Honest kernels are judged with a search too, N times each (1 unless said otherwise), under new secret
seeds, and must not be rejected. Each is judged on the op's three smallest workloads that give no scalar another value.
Exits with 1 where the search misses a wrong kernel, or an honest one is rejected.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch

from benchmarks import attack_kernels, attack_products
from benchmarks.attack_kernels import Kernel
from benchmarks.attack_rare import rare
from benchmarks.attack_triton import on_gpu
from benchmarks.jobs import CPU
from benchmarks.showcase import ROOT, gpu_target
from warpsmith.kernels_db.job.documents import Job, JobCandidate, Verdict
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import ATTACK_S, build_job
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError
from warpsmith.workers.judge.values.families import elements

WORKLOADS = 3
LEAST_ELEMENTS = 1000
"""Workloads with fewer elements, single rows mostly, are left out where there are others."""
TIME_S, TIMEOUT_S = 0.05, 300.0


def on_cpu() -> list[Kernel]:
    """Return the C++ kernels."""
    rows = [*attack_kernels.elementwise(), *attack_kernels.rows()]
    products = [*attack_products.products(), *attack_products.attention(), *attack_products.convolutions()]
    return [*rows, *rare(), *products]


@dataclass(frozen=True)
class Tried:
    """What the judge made of one kernel. `by`: families, search, nobody; "" for an honest one that was accepted."""

    op: str
    language: str
    does: str
    by: str
    tries: int
    seconds: float
    ratio: float | None
    said: str

    @property
    def good(self) -> bool:
        """Whether a wrong kernel was found by the families or the search, or an honest one accepted."""
        return self.by in ("families", "search") if self.does else self.by == ""


def small_job(kernel: Kernel, target: str, attack_s: float) -> Job:
    """Return the job that judges a kernel on the smallest workloads of its op."""
    candidate = cast("JobCandidate", {"language": kernel.language, "source": kernel.source})
    limits = {"compile_s": 120.0, "call_s": 10.0, "time_s": TIME_S, "memory_bytes": None, "attack_s": attack_s}
    op = load_op(ROOT / "examples" / f"{kernel.op}.yaml")
    job = build_job(op, Target.parse(target), level="verify", candidate=candidate, limits=limits)  # type: ignore[arg-type]
    plain = {item["name"]: item["value"] for item in job["workloads"][0]["inputs"]}
    able = [
        one
        for one in sorted(job["workloads"], key=elements)
        if not one.get("derived") and all(item["value"] == plain[item["name"]] for item in one["inputs"])
    ]
    able = [one for one in able if elements(one) >= LEAST_ELEMENTS] or able
    job["workloads"] = [{**one, "role": "test" if number else "bench"} for number, one in enumerate(able[:WORKLOADS])]
    job["op"]["baselines"] = ["eager"]
    return job


def judge(client: JudgeClient, kernel: Kernel, target: str, attack_s: float) -> Verdict:
    """Judge a kernel. Raises JudgeError."""
    return client.judge(small_job(kernel, target, attack_s), TIMEOUT_S)


def tried(kernel: Kernel, alone: Verdict | None, verdict: Verdict, seconds: float) -> Tried:
    """Return what two verdicts on a kernel say: without a search, if it was asked so, and with one."""
    attack = verdict.get("attack")
    failure = verdict["failure"]
    by = ""
    if alone is not None and alone["verdict"] == "rejected":
        by = "families"
    elif verdict["verdict"] == "rejected":
        by = "search" if failure is not None and "recipe" in failure else str(verdict["gate"])
    elif kernel.does:
        by = "nobody"
    ratios = [one["ratio"] for one in attack["workloads"] if one["ratio"] is not None] if attack else []
    said = failure.get("description", "") if failure is not None else ""
    return Tried(
        kernel.op,
        kernel.language,
        kernel.does,
        by,
        attack["tries"] if attack else 0,
        attack["seconds"] if attack else round(seconds, 1),
        max((float(ratio) for ratio in ratios), default=None),
        "; ".join(said.splitlines()) or (verdict["reason"] if by else ""),
    )


def line(one: Tried) -> str:
    """Return one row of the table."""
    ratio = "" if one.ratio is None else f"{one.ratio:.3g}"
    what = one.does or "honest"
    found = one.by or "accepted"
    head = f"{one.op:20} {one.language:7} {what:56.56} {found:9}"
    return f"{head} {one.tries:6} {one.seconds:7.2f} {ratio:>9}  {one.said:.150}"


def main() -> int:
    """Judge the kernels and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description="Wrong kernels: who finds them?")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU where there is one")
    parser.add_argument("--only", action="append", metavar="OP", help="this op alone; may be given again")
    parser.add_argument("--seconds", type=float, help="limits.attack_s; default 5 on a CPU and 2 on a GPU")
    parser.add_argument("--honest", type=int, default=1, metavar="N", help="runs of each honest kernel")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row here")
    arguments = parser.parse_args()
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    target = CPU if device == "cpu" else gpu_target() or "cuda:sm_90"
    seconds = ATTACK_S[device] if arguments.seconds is None else arguments.seconds
    kernels = [one for one in (on_cpu() if device == "cpu" else on_gpu()) if one.op in (arguments.only or [one.op])]
    found: list[Tried] = []
    print(f"{'op':20} {'in':7} {'kernel':56} {'found by':9} {'tries':>6} {'seconds':>7} {'ratio':>9}  values")
    with tempfile.TemporaryDirectory(prefix="warpsmith-attack-") as cache, JudgeClient(cache=Path(cache)) as client:
        for kernel in kernels:
            for _ in range(1 if kernel.does else arguments.honest):
                start = time.monotonic()
                try:
                    alone = judge(client, kernel, target, 0.0) if kernel.does else None
                    verdict = alone
                    if alone is None or alone["verdict"] != "rejected":
                        verdict = judge(client, kernel, target, seconds)
                except JudgeError as error:
                    found.append(
                        Tried(kernel.op, kernel.language, kernel.does, "error", 0, 0.0, None, str(error)[-200:])
                    )
                else:
                    assert verdict is not None
                    found.append(tried(kernel, alone, verdict, time.monotonic() - start))
                print(line(found[-1]), flush=True)
    summarise(found)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0 if all(one.good for one in found) else 1


def summarise(found: list[Tried]) -> None:
    """Print how many of the wrong kernels were found by whom, and how many honest runs were accepted."""
    wrong = [one for one in found if one.does]
    honest = [one for one in found if not one.does]
    by = {name: sum(one.by == name for one in wrong) for name in ("families", "search", "nobody")}
    counts = f"families found {by['families']}, the search {by['search']} more, nobody {by['nobody']}"
    print(f"\nwrong kernels: {len(wrong)}; {counts}")
    print(f"honest runs: {len(honest)}; accepted {sum(one.good for one in honest)}")


if __name__ == "__main__":
    sys.exit(main())
