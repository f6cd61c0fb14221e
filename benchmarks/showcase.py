"""Judge eight candidates in full on this GPU: one in Triton and one in CUDA for four ops.

    python -m benchmarks.showcase [--only OP] [--baselines eager,compile] [--time-s S] [--json FILE]

They are judged at level verify. Prints for every bench workload the times of candidate and baselines in
microseconds, the speed-up over the fastest baseline with its 95 % interval, and the share of the physical
limit; for every candidate the verdict, the sandbox and the seconds spent. Exits with 1 unless every candidate
was accepted. The two candidates of an op are asked for together, so that they share its reference and
baselines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from warpsmith.kernels_db.job.baselines import PYTORCH_BASELINES, experts_among
from warpsmith.kernels_db.job.documents import Job, JobCandidate, Level, Verdict, WorkloadVerdict
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError

ROOT = Path(__file__).resolve().parents[1]
OPS = ("softmax", "layer_norm", "matmul", "conv2d")
LANGUAGES: tuple[Literal["triton", "cuda"], ...] = ("triton", "cuda")
BASELINES = PYTORCH_BASELINES
TIMEOUT_S = 600.0
TIME_S = 1.0
COMPILE_S, CALL_S = 120.0, 10.0

NO_GPU = """no CUDA GPU: these candidates cannot be timed here. What works without one:
  warpsmith judge examples/softmax.yaml tests/candidates/softmax_triton.py --target cuda:sm_90
      compiles for sm_90 and checks the small workloads under Triton's interpreter
  warpsmith judge examples/softmax.yaml tests/candidates/softmax_cuda.py --target cuda:sm_90
      compiles for sm_90 and reports registers, spills and shared memory
  warpsmith judge examples/layer_norm.yaml tests/candidates/layer_norm_cpp_good.py
      the whole protocol on this machine's CPU"""


@dataclass(frozen=True)
class Shown:
    """A judged candidate: `verdict` is None where there was none, and `error` then says why."""

    op: str
    language: str
    seconds: float
    verdict: Verdict | None
    error: str = ""


def candidate_file(op: str, language: str) -> Path:
    """Return the path of a candidate."""
    return ROOT / "tests" / "candidates" / f"{op}_{language}.py"


def candidate_job(
    op: str,
    language: Literal["triton", "cuda"],
    target: str,
    *,
    baselines: Sequence[str] = BASELINES,
    time_s: float = TIME_S,
) -> Job:
    """Return the job that judges one candidate, with every workload of its op."""
    source = candidate_file(op, language).read_text()
    job = judge_job(load_op(ROOT / "examples" / f"{op}.yaml"), target, language, source, time_s)
    job["op"]["baselines"] = list(baselines)
    return job


def judge_job(op: Op, target: str, language: str, source: str, time_s: float, level: Level = "verify") -> Job:
    """Return the job that judges a candidate, in full by default, timing each workload for `time_s` s."""
    return build_job(
        op,
        Target.parse(target),
        level=level,
        candidate=cast("JobCandidate", {"language": language, "source": source}),
        limits={"compile_s": COMPILE_S, "call_s": CALL_S, "time_s": time_s, "memory_bytes": None},
    )


def gpu_target() -> str | None:
    """Return the first GPU as a target; None where there is none."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"cuda:sm_{major}{minor}"


def main() -> int:
    """Judge the candidates; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.showcase", description="Eight candidates, judged.")
    parser.add_argument("--only", action="append", choices=OPS, help="this op alone; may be given again")
    parser.add_argument("--baselines", default=",".join(BASELINES), help="some of eager,compile,max_autotune")
    parser.add_argument("--time-s", type=float, default=TIME_S, help="limits.time_s: seconds of timing a workload")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the verdicts here")
    arguments = parser.parse_args()
    baselines = arguments.baselines.split(",")
    if unknown := sorted(set(baselines) - set(BASELINES)):
        parser.error(f"--baselines: found {', '.join(unknown)}, expected some of {', '.join(BASELINES)}")
    target = gpu_target()
    if target is None:
        print(NO_GPU, file=sys.stderr)
        return 1
    shown: list[Shown] = []
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-showcase-") as cache,
        JudgeClient(cache=Path(cache)) as client,
        ThreadPoolExecutor(len(LANGUAGES)) as pool,
    ):
        for op in arguments.only or OPS:
            jobs = [
                candidate_job(op, language, target, baselines=baselines, time_s=arguments.time_s)
                for language in LANGUAGES
            ]
            for one in pool.map(lambda job: ask(client, job), jobs):
                shown.append(one)
                print("\n".join(lines(one)), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in shown], indent=1))
    print("\n" + table(shown))
    good = sum(one.verdict is not None and one.verdict["verdict"] == "accepted" for one in shown)
    print(f"\n{good} of {len(shown)} accepted in {time.monotonic() - start:.0f} s on {target}")
    return 0 if good == len(shown) else 1


def ask(client: JudgeClient, job: Job) -> Shown:
    """Send one job to the judge and return its result."""
    candidate = job["candidate"]
    assert candidate is not None
    start = time.monotonic()
    verdict, error = None, ""
    try:
        verdict = client.judge(job, TIMEOUT_S)
    except JudgeError as failed:
        error = f"{type(failed).__name__}: {failed}"
    return Shown(job["op"]["name"], candidate["language"], time.monotonic() - start, verdict, error)


def write_verdicts(file: Path, shown: Sequence[Shown]) -> None:
    """Write the verdicts; in place of one that there is not, why: op, language, seconds, error, and a null verdict."""
    file.write_text(json.dumps([asdict(one) if one.verdict is None else one.verdict for one in shown], indent=1))


def read_verdicts(file: Path) -> list[Shown]:
    """Read what `write_verdicts` wrote. A null, as earlier versions wrote, is a kernel without a name or verdict."""
    found = []
    for each in json.loads(file.read_text("utf-8")):
        if each is None:
            found.append(Shown("?", "?", 0.0, None, "the file does not say why"))
        elif each["verdict"] is None:
            found.append(Shown(**each))
        else:
            verdict = cast("Verdict", each)
            found.append(Shown(each["op"], str(each["language"]), sum(each["seconds"].values()), verdict))
    return found


def lines(one: Shown) -> list[str]:
    """Describe one candidate for people: the verdict, its error per workload, and its kernels."""
    verdict = one.verdict
    if verdict is None:
        return [f"{one.op} {one.language}: no verdict: {one.error}"]
    found = [f"{one.op} {one.language}: {verdict['verdict']} at {verdict['gate']}: {verdict['reason']}"]
    for item in verdict["workloads"]:
        errors = ", ".join(
            f"{name} {value:.2g}" for name, value in item["error"].items() if isinstance(value, int | float)
        )
        kernels = ", ".join(item.get("kernels", [])) or "-"
        found.append(f"    {item['id']:10} relative L2 error: {errors}; kernels: {kernels}")
    for kernel in (verdict["compile"] or {}).get("kernels", []):
        uses = ", ".join(f"{kernel[name]} {name}" for name in ("registers", "spills", "shared"))
        found.append(f"    compiled   {kernel['name']}: {uses}")
    found.append("    seconds    " + ", ".join(f"{name} {value:.1f}" for name, value in verdict["seconds"].items()))
    return found


def table(shown: Sequence[Shown]) -> str:
    """Return a table with every bench workload in a row, and a column for each baseline, experts last."""
    timed_ones = [item["time_us"] for one in shown if one.verdict for item in one.verdict["workloads"]]
    experts = experts_among(dict.fromkeys(name for times in timed_ones for name in times if name != "candidate"))
    names = [*BASELINES, *experts]
    none = ["-"] * (5 + len(names))
    head = ["op", "language", "workload", "candidate us", *(f"{name} us" for name in names)]
    rows = [[*head, "speed-up over the fastest", "of the limit", "host us", "verdict", "sandbox", "seconds"]]
    for one in shown:
        verdict = one.verdict
        if verdict is None:
            rows.append([one.op, one.language, *none, "none", "-", f"{one.seconds:.1f}"])
            continue
        level, spent = str(verdict["sandbox"].get("level", "none")), f"{_spent(verdict):.1f}"
        host = host_cost(verdict)
        timed = [item for item in verdict["workloads"] if "candidate" in item["time_us"]]
        rows += [[one.op, one.language, *_times(item, names), host, verdict["verdict"], level, spent] for item in timed]
        if not timed:
            rows.append([one.op, one.language, *none[1:], host, verdict["verdict"], level, spent])
    return columns(rows)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align the cells of the rows below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _times(item: WorkloadVerdict, names: Sequence[str]) -> list[str]:
    """Return workload, times of the candidate and of the named baselines, speed-up and share of the limit."""
    fastest = min(item["speedup"], key=lambda name: item["speedup"][name], default=None)
    gain = "-"
    if fastest is not None:
        low, high = item["ci95"][fastest]
        gain = f"{item['speedup'][fastest]:.3f} [{low:.3f}, {high:.3f}] {fastest}"
    share = "-" if item["limit_fraction"] is None else f"{item['limit_fraction']:.0%}"
    times = [f"{item['time_us'][name]:.1f}" if name in item["time_us"] else "-" for name in ("candidate", *names)]
    return [item["id"], *times, gain, share]


def host_cost(verdict: Verdict) -> str:
    """Return what a call costs the host at the smallest shape, and eager's; a dash where it was not measured."""
    host = verdict.get("host_us")
    return "-" if host is None else f"{host.get('plan', host['run']):.1f} (eager {host['eager']:.1f})"


def _spent(verdict: Verdict) -> float:
    """Return the seconds in all gates; the lease's are among them."""
    return sum(value for name, value in verdict["seconds"].items() if name != "exclusive")


if __name__ == "__main__":
    sys.exit(main())
