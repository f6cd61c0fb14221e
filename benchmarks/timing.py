"""How far the judge's timing on a GPU can be believed.

`python -m benchmarks.timing [--equal 200] [--planted 100] [--json FILE]`

A/A trials time a kernel against itself, in two runners, under the plan of a verification: an interval that leaves out
1.0 calls equal kernels different. Planted trials time a kernel against itself with 2 % more work: an interval that
contains 1.0 has not found it. Last, the medians stand beside those of triton.testing.do_bench in this process.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import statistics
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.memory import count_slots
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.clock.burst_clock import BurstClock, Call
from warpsmith.workers.judge.gates.runner_factory import RunnerFactory
from warpsmith.workers.judge.machine.buffers import TensorSpec, layout_bytes
from warpsmith.workers.judge.machine.device import Gpu, open_gpu
from warpsmith.workers.judge.machine.host import cores_available
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

SOURCE = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void __launch_bounds__(256) stream(const float4* x, float4* y, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) { float4 v = x[i]; v.x += 1; v.y += 1; v.z += 1; v.w += 1; y[i] = v; }
}
extern "C" __global__ void __launch_bounds__(256) grind(const float* x, float* y, long long rounds) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    float a = x[i], b = a + 1;
    for (long long r = 0; r < rounds; r++) { a = a * 0.999f + b; b = b * 0.998f + a; }
    y[i] = a + b;
}
""")


def run(x, work, grinds, y):
    if grinds:
        kernels.grind[x.numel() // 256, 256](x, y, work)
    else:
        kernels.stream[(work + 255) // 256, 256](x, y, work)
'''

PLANTED = 0.02
"""Share of its work by which a planted kernel does more."""

TRIALS_PER_RUNNER = 10
LEAST_COVERED, WIDEST, LEAST_FOUND, DO_BENCH = 0.95, 0.01, 0.90, 0.03
"""The goals of the measurement.

Share of A/A intervals that contain 1.0, their half-width, share of planted differences found, and distance
from do_bench.
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel of SOURCE.

    The elements of its buffers, and how much it does (vectors of 16 bytes, or rounds).
    """

    name: str
    elements: int
    work: int
    grinds: bool

    def specs(self, work: int) -> list[TensorSpec]:
        """Return its arguments; the buffers have room for a planted kernel's work."""
        return [
            TensorSpec("x", (self.elements,), (1,), torch.float32),
            TensorSpec("work", None, (), torch.int64, work),
            TensorSpec("grinds", None, (), torch.bool, self.grinds),
        ]

    @property
    def planted(self) -> int:
        """The work of the planted kernel."""
        return round(self.work * (1 + PLANTED))


KERNELS = [
    Kernel("stream, 0.3 GB", 40_000_000, 9_600_000, False),
    Kernel("stream, 1.3 GB", 168_000_000, 40_000_000, False),
    Kernel("stream, 0.03 GB", 4_000_000, 960_000, False),
    Kernel("arithmetic, short", 132 * 2048, 6_000, True),
    Kernel("arithmetic, long", 132 * 2048, 24_000, True),
]


class Judge:
    """The parts of the judge that time: a fork server and its runners on this machine's GPU."""

    def __init__(self, gpu: Gpu, place: Path) -> None:
        (place / "triton").mkdir()
        (place / "runners").mkdir()
        self.server = ForkServer(cores_available(), place / "runners")
        self.server.preload(("cuda.core",), (place / "triton", gpu.capability))
        self.factory = RunnerFactory(self.server, place / "runners", place / "cache", cores_available(), gpu)
        op = {"math": "ieee", "library_calls": []}
        self.job = cast(
            "Job", {"op": op, "target": f"cuda:{gpu.arch}", "limits": {"compile_s": 120.0}, "candidate": None}
        )

    def pair(self) -> tuple[RunnerHandle, RunnerHandle]:
        """Return two runners of SOURCE."""
        one, other = (self.factory.probe(SOURCE, "cuda", self.job) for _ in range(2))
        return one, other

    def close(self) -> None:
        """End every process."""
        self.server.close()


def trial(
    kernel: Kernel, pair: tuple[RunnerHandle, RunnerHandle], works: tuple[int, int], rng: random.Random
) -> dict[str, Any]:
    """Compare two kernels as a verification does, with fresh buffers and values for every call."""
    contenders = dict(zip(("baseline", "candidate"), pair, strict=True))
    outputs = [TensorSpec("y", (kernel.elements,), (1,), torch.float32)]
    stock = torch.randn(kernel.elements + (1 << 14), device="cuda")
    slots = count_slots(layout_bytes([*kernel.specs(0), *outputs]), "cuda")
    pair[0].bind(kernel.specs(works[0]), outputs, slots)
    pair[1].bind(kernel.specs(works[1]), outputs, slots, beside=pair[0])

    def draw() -> list[torch.Tensor | None]:
        start = rng.randrange(1 << 14)
        return [stock[start : start + kernel.elements], None, None]

    clock = BurstClock(contenders, 10.0, draw, rng, [3])
    clock.calibrate("baseline")
    late = 0

    def look(name: str, call: Call) -> None:
        nonlocal late
        late += not call.kept

    samples = timing.interleave(
        list(contenders), lambda name: clock.block(name, partial(look, name)),
        plan=timing.plan_for(True, "cuda", 3.0), candidate="candidate", rng=rng,
    )  # fmt: skip
    deferred = clock.ledger.deferred_us(samples, "candidate", "cuda")
    samples = clock.corrected(samples, {"candidate"})
    ratio, (low, high) = timing.ratio_with_interval(
        samples["baseline"], samples["candidate"], rng.getrandbits(62), timing.OFFSET_US["cuda"]
    )
    for contender in pair:
        contender.unbind()
    return {
        "kernel": kernel.name, "ratio": ratio, "low": low, "high": high, "rounds": len(samples["baseline"]),
        "us": statistics.median(samples["candidate"]), "clocks": clock.clocks(), "deferred": deferred, "late": late,
    }  # fmt: skip


def trials(judge: Judge, count: int, planted: bool) -> list[dict[str, Any]]:
    """Run `count` trials, over the kernels in turn, with new runners every TRIALS_PER_RUNNER."""
    rng = random.Random(secrets.randbits(64))  # noqa: S311 - order and offsets, no secret
    done: list[dict[str, Any]] = []
    while len(done) < count:
        pair = judge.pair()
        try:
            for _ in range(min(TRIALS_PER_RUNNER, count - len(done))):
                kernel = KERNELS[len(done) % len(KERNELS)]
                done.append(trial(kernel, pair, (kernel.work, kernel.planted if planted else kernel.work), rng))
        finally:
            for contender in pair:
                contender.close()
    return done


def by_do_bench(kernel: Kernel) -> float:
    """Return the median of triton.testing.do_bench in this process, in microseconds."""
    from triton.testing import do_bench  # noqa: PLC0415 - Triton's import takes a second

    space: dict[str, Any] = {}
    exec(SOURCE, space)  # noqa: S102 - our own text, above
    x, y = (torch.randn(kernel.elements, device="cuda") for _ in range(2))
    return 1e3 * float(
        do_bench(lambda: space["run"](x, kernel.work, kernel.grinds, y), warmup=50, rep=200, return_mode="median")
    )


def report(equal: list[dict[str, Any]], planted: list[dict[str, Any]], benched: dict[str, float]) -> None:
    """Print the table."""
    print(
        f"{'kernel':20} {'us':>8} {'do_bench':>9} {'apart':>7} {'A/A':>9} {'half-width':>11} {'rounds':>7} {'found':>9}"
    )
    for kernel in KERNELS:
        same = [one for one in equal if one["kernel"] == kernel.name]
        more = [one for one in planted if one["kernel"] == kernel.name]
        us, rounds = (statistics.median(one[key] for one in same) for key in ("us", "rounds"))
        found = sum(not _holds(one) for one in more)
        print(
            f"{kernel.name:20} {us:8.1f} {benched[kernel.name]:9.1f} {us / benched[kernel.name] - 1:+7.1%} "
            f"{sum(map(_holds, same)):4}/{len(same):<4} {statistics.median(map(_half, same)):11.3%} "
            f"{rounds:7.0f} {found:4}/{len(more):<4}"
        )
    long = [one for one in equal if one["us"] > 50]
    apart = max(
        abs(statistics.median(o["us"] for o in equal if o["kernel"] == k.name) / benched[k.name] - 1)
        for k in KERNELS
        if benched[k.name] > 50
    )
    print()
    _line("A/A intervals that contain 1.0", sum(map(_holds, equal)) / len(equal), LEAST_COVERED, True)
    _line("half-width, median, kernels over 50 us", statistics.median(map(_half, long)), WIDEST, False)
    _line("half-width, 95th percentile, the same", statistics.quantiles(map(_half, long), n=20)[-1], WIDEST, False)
    for what, some in ((", kernels over 50 us", [o for o in planted if o["us"] > 50]), (", all", planted)):
        _line(f"planted {PLANTED:.0%} found{what}", sum(not _holds(one) for one in some) / len(some), LEAST_FOUND, True)
    for what in ("deferred", "late"):
        _line(
            f"trials that found work {what}",
            sum(one[what] > 0 for one in equal + planted) / len(equal + planted),
            0,
            False,
        )
    _line("from do_bench, largest, kernels over 50 us", apart, DO_BENCH, False)


def _line(what: str, found: float, aim: float, above: bool) -> None:
    word = "reached" if (found >= aim if above else found <= aim) else "NOT REACHED"
    print(f"{what:45} {found:8.2%}   aim: {'at least' if above else 'at most'} {aim:.0%}   {word}")


def _holds(one: dict[str, Any]) -> bool:
    return bool(one["low"] <= 1.0 <= one["high"])


def _half(one: dict[str, Any]) -> float:
    return float((one["high"] - one["low"]) / 2 / one["ratio"])


def main() -> int:
    """Run and print; the exit status is 2 where there is no GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.timing", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--equal", type=int, default=200, help="A/A trials")
    parser.add_argument("--planted", type=int, default=100, help="trials with a planted difference")
    parser.add_argument("--json", type=Path, help="write every trial here")
    arguments = parser.parse_args()
    gpu = open_gpu()
    if gpu is None:
        print("This benchmark needs a CUDA GPU; there is none here.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="warpsmith-timing-") as name:
        judge = Judge(gpu, Path(name))
        try:
            equal, planted = trials(judge, arguments.equal, False), trials(judge, arguments.planted, True)
        finally:
            judge.close()
    benched = {kernel.name: by_do_bench(kernel) for kernel in KERNELS}
    print(f"{gpu.name}, {gpu.versions()}\n")
    report(equal, planted, benched)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"equal": equal, "planted": planted, "do_bench": benched, "versions": gpu.versions()})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
