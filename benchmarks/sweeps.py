"""What sweeps compile and time within their device seconds, on this machine's CPU or for recorded candidates.

    python -m benchmarks.sweeps [--sweep-s S...]
    python -m benchmarks.sweeps --pool POOL [--candidates N] [--sweep-s S...]

The first screens a C++ candidate with 64 configurations on this CPU, the second those of a recorded pool that leave
configurations open on the GPU here, each at every number of device seconds, with an empty cache of kernels. A line is a
screening: how many configurations are declared, were compiled and timed, the device seconds of the sweep, the seconds
of compilations added up and the wall clock that passed in the gate `compile`, and what was chosen. Without a GPU the
second compiles as many configurations as such a sweep may begin with, and then all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import jobs
from benchmarks.rescreen import recorded
from benchmarks.showcase import ROOT, ask, columns, gpu_target
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS, build_job
from warpsmith.kernels_db.store.pool_file import parse_pool
from warpsmith.workers.gate.tunables import describe, has_configurations
from warpsmith.workers.judge.gates.candidates import prepare
from warpsmith.workers.judge.gates.configurations import Variant
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.protocol.client import JudgeClient

SWEEP_S = (0.1, 0.5, 2.0)
GPU_SWEEP_S = (7.0, 20.0)
HEAD = [
    "candidate",
    "limit s",
    "declared",
    "compiled",
    "timed",
    "failed",
    "device s",
    "compilers s",
    "gate s",
    "chosen",
]

REFERENCE = """
import torch

def run(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)
"""
SOURCE = '''
from kernels_db.runtime import cpp

TUNE = {"LANES": [1, 2, 4, 8, 16, 32, 64, 128], "ROWS": [1, 2, 4, 8, 16, 32, 64, 128]}
kernels = cpp.compile(r"""
extern "C" void norm(const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n) {
    #pragma omp parallel for schedule(static, ROWS)
    for (int64_t r = 0; r < rows; r++) {
        const float* in = x + r * n;
        double sums[LANES] = {}, squares[LANES] = {};
        for (int64_t i = 0; i + LANES <= n; i += LANES)
            for (int64_t l = 0; l < LANES; l++) sums[l] += in[i + l];
        double sum = 0, square = 0;
        for (int64_t l = 0; l < LANES; l++) sum += sums[l];
        for (int64_t i = n / LANES * LANES; i < n; i++) sum += in[i];
        const double mean = sum / n;
        for (int64_t i = 0; i + LANES <= n; i += LANES)
            for (int64_t l = 0; l < LANES; l++) squares[l] += (in[i + l] - mean) * (in[i + l] - mean);
        for (int64_t l = 0; l < LANES; l++) square += squares[l];
        for (int64_t i = n / LANES * LANES; i < n; i++) square += (in[i] - mean) * (in[i] - mean);
        const double scale = 1.0 / std::sqrt(square / n + 1e-5);
        for (int64_t i = 0; i < n; i++) y[r * n + i] = (float)((in[i] - mean) * scale * w[i] + b[i]);
    }
}
""", flags=("-DLANES=1", "-DROWS=1"))


def run(x, weight, bias, y):
    n = weight.numel()
    kernels.norm(x, weight, bias, y, x.numel() // n, n)
'''


def cpu_screening(sweep_s: float) -> Job:
    """Return the job that screens the C++ candidate on this CPU: 512 rows of 1,024 float32."""
    inputs = [jobs.tensor("x", (512, 1024)), jobs.tensor("weight", (1024,)), jobs.tensor("bias", (1024,))]
    rows = jobs.workload("rows", "bench", inputs, [jobs.output("y", (512, 1024))])
    job = jobs.job(REFERENCE, [rows], SOURCE)
    job["limits"]["sweep_s"] = sweep_s
    return job


def screening(op: Op, target: str, language: str, source: str, sweep_s: float) -> Job:
    """Return the job that screens a candidate, sweeping for `sweep_s` device seconds."""
    limits = DEFAULT_LIMITS.copy()
    limits["sweep_s"] = sweep_s
    candidate = {"language": language, "source": source}
    return build_job(op, Target.parse(target), level="screen", candidate=candidate, limits=limits)  # type: ignore[arg-type]  # its keys


def swept(title: str, job: Job) -> list[str]:
    """Screen a candidate by a judge of its own; returns its line."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-sweeps-") as cache, JudgeClient(cache=Path(cache)) as client:
        shown = ask(client, job)
    limit = f"{job['limits']['sweep_s']:g}"
    if shown.verdict is None or "sweep" not in shown.verdict:
        return [title, limit, *["-"] * (len(HEAD) - 3), shown.error or str(shown.verdict and shown.verdict["reason"])]
    sweep = shown.verdict["sweep"]
    failed = sum("failure" in each for each in sweep["configurations"])
    known, left_out = len(sweep["configurations"]), sweep.get("left_out", 0)
    counts = [known + left_out, known + left_out - sweep.get("not_compiled", 0), known - failed, failed]
    seconds = [shown.verdict["sweep_seconds"], sweep.get("compile_s", 0.0), shown.verdict["seconds"]["compile"]]
    return [title, limit, *map(str, counts), *(f"{each:.2f}" for each in seconds), describe(sweep["chosen"])]


def compiled(title: str, job: Job) -> Iterator[list[str]]:
    """Compile what a sweep may begin with, then every configuration, without a device; yields a line for each."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-sweeps-") as cache:
        began = time.monotonic()
        try:
            prepared = prepare(job, Report(job), Path(cache), interpreted=False)
        except Stopped as stopped:
            yield [title, "-", *["-"] * (len(HEAD) - 3), str(stopped)]
            return
        assert prepared is not None
        assert prepared.configurations is not None
        found, taken = prepared.configurations, list[Variant]()
        for name, wanted in (("begins with", found.compiled), ("whole", found.declared)):
            while len(taken) < wanted and (one := found.take(wanted - len(taken))) is not None:
                taken.append(one)
            failed = sum(one.refused is not None for one in taken)
            seconds = [f"{found.seconds:.2f}", f"{time.monotonic() - began:.2f}"]
            yield [f"{title}: {name}", "-", *map(str, (found.declared, len(taken), 0, failed)), "-", *seconds, "-"]


def lines(pool: Path | None, most: int, limits: Sequence[float]) -> Iterator[list[str]]:
    """Screen, or compile where the device is not here; yields each line as it is had."""
    if pool is None:
        for sweep_s in limits or SWEEP_S:
            yield swept("layer norm", cpu_screening(sweep_s))
        return
    header, here = parse_pool(pool.read_text("utf-8")).header, gpu_target()
    op = load_op(ROOT / "examples" / f"{header.op}.yaml")
    open_ones = [each for each in recorded({"judged": []}, pool) if has_configurations(each.source)]
    for each in open_ones[:most]:
        for sweep_s in limits or GPU_SWEEP_S:
            job = screening(op, header.target if here is None else here, header.language, each.source, sweep_s)
            if here is not None:
                yield swept(each.title[:40], job)
            else:
                yield from compiled(each.title[:40], job)


def main() -> int:
    """Print the lines; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description="What sweeps compile and time.")
    parser.add_argument("--pool", type=Path, help="a recorded pool for a GPU; default: a C++ candidate on this CPU")
    parser.add_argument("--candidates", type=int, default=2, help="of the pool, at most; default 2")
    parser.add_argument("--sweep-s", type=float, nargs="+", default=[], help="limits.sweep_s, one screening each")
    arguments = parser.parse_args()
    rows = [HEAD]
    for row in lines(arguments.pool, arguments.candidates, arguments.sweep_s):
        print("\t".join(row), file=sys.stderr, flush=True)
        rows.append(row)
    print(columns(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
