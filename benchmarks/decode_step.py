"""Measure a whole decode step in one kernel, beside PyTorch's eager and compiled step, on a GPU.

    python -m benchmarks.decode_step [--candidate FILE] [--no-compile]

The op is `examples/llama_decode_step.yaml`: a Llama-1B's step with its weights stacked. Prints for each bench
workload the microseconds of a call, by events around a burst of calls, the share of the bandwidth that a copy reaches
on the same device, and the relative L2 error of the logits against the reference in float64, by eager's own. It calls
the candidate as an export does, without the judge: what it prints says nothing of whether the judge accepts it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import copy_bandwidth
from benchmarks.showcase import ROOT, columns
from warpsmith import kernels_db
from warpsmith.kernels_db import runtime
from warpsmith.kernels_db.runtime import cuda
from warpsmith.kernels_db.spec.op import Op, Workload, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload

CANDIDATE = ROOT / "benchmarks" / "model_kernels" / "decode_step" / "llama_decode_step.cuda.py"
BURST, BURSTS = 20, 5
HEAD, GROUP = 64, 4
STD = 0.02
"""Of weights, as the spec draws them; norms lie around 1."""

Step = Callable[..., Any]


def load(file: Path) -> Step:
    """Return the function `run` of a candidate, which names its runtime as a candidate does."""
    sys.modules.update({"kernels_db": kernels_db, "kernels_db.runtime": runtime, "kernels_db.runtime.cuda": cuda})
    spec = importlib.util.spec_from_file_location("decode_step_candidate", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"argument --candidate: found {file}, expected a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Step = module.run
    return run


def draw(axes: dict[str, int]) -> list[Any]:
    """Return a call's arguments on the GPU, with values as the spec's distributions have them."""
    batch, layers, hidden, mlp = (axes[name] for name in ("batch", "layers", "hidden", "mlp"))
    kv_heads, vocabulary, cache = (axes[name] for name in ("kv_heads", "vocabulary", "cache"))
    seeded = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int, std: float = STD, mean: float = 0.0) -> torch.Tensor:
        return (torch.randn(*shape, device="cuda", generator=seeded) * std + mean).to(torch.bfloat16)

    def turns() -> torch.Tensor:
        return (torch.rand(HEAD, device="cuda", generator=seeded) * 2 - 1).to(torch.bfloat16)

    q, qkv = kv_heads * GROUP * HEAD, kv_heads * (GROUP + 2) * HEAD
    tokens = torch.randint(0, vocabulary, (batch,), device="cuda", generator=seeded)
    weights = [normal(vocabulary, hidden), normal(layers, hidden, std=0.1, mean=1.0), normal(layers, qkv, hidden)]
    weights += [normal(layers, hidden, q), normal(layers, hidden, std=0.1, mean=1.0), normal(layers, 2 * mlp, hidden)]
    weights += [normal(layers, hidden, mlp), normal(hidden, std=0.1, mean=1.0)]
    past = [normal(layers, batch, kv_heads, cache, HEAD, std=1.0) for _ in range(2)]
    return [tokens, *weights, turns(), turns(), *past, 1e-5]


def call_us(call: Callable[[], Any]) -> float:
    """Return the microseconds of a call: the least of some bursts, by events."""
    times = []
    for _ in range(BURSTS + 1):  # the first warms up
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begun.record()
        for _ in range(BURST):
            call()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended) / BURST * 1e3)
    return float(min(times[1:]))


def rows(op: Op, workload: Workload, candidate: Step, *, compiled: bool, bandwidth: float) -> list[list[str]]:
    """Return the table's lines of a workload: eager, compiled, the candidate."""
    axes, least_bytes = dict(workload.axes), resolve_workload(op, workload)["min_bytes"]
    space: dict[str, Any] = {}
    exec(op.reference, space)  # noqa: S102 - of this repository
    reference: Step = space["run"]
    given = draw(axes)
    exact = reference(*(_changed(value, torch.float64) for value in given))
    eager = reference(*(_changed(value, None) for value in given))
    logits = torch.full_like(eager, float("nan"))
    candidate(*(_changed(value, None) for value in given), logits)
    eager_error, error = (float((found.double() - exact).norm() / exact.norm()) for found in (eager, logits))
    del exact
    calls: dict[str, Callable[[], Any]] = {"eager": lambda: reference(*given)}
    if compiled:
        fast = torch.compile(reference, mode="reduce-overhead")
        calls["reduce-overhead"] = lambda: fast(*given)
    calls["candidate"] = lambda: candidate(*given, logits)
    lines = []
    for name, call in calls.items():
        us = call_us(call)
        share = least_bytes / (us * 1e-6) / bandwidth
        ratio = f"{error / eager_error:.2f}x" if name == "candidate" else "-"
        lines.append([f"batch {axes['batch']}", name, f"{us:.1f}", f"{share:.1%}", ratio])
    return lines


def _changed(value: Any, dtype: torch.dtype | None) -> Any:
    """Return a copy of an argument, since a step writes to the cache; floating ones in `dtype` where one is given."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(dtype) if dtype is not None and value.is_floating_point() else value.clone()


def main() -> int:
    """Print the table; the exit status is 2 where there is no GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decode_step", description="A decode step in one kernel."
    )
    parser.add_argument("--candidate", metavar="FILE", type=Path, default=CANDIDATE, help="default: %(default)s")
    parser.add_argument("--no-compile", action="store_true", help="leave PyTorch's compiled step out")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA GPU; there is none here.", file=sys.stderr)
        return 2
    op = load_op(ROOT / "examples" / "llama_decode_step.yaml")
    candidate = load(arguments.candidate)
    bandwidth = copy_bandwidth(torch.device("cuda"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a copy moves {bandwidth / 1e12:.2f} TB/s\n")
    table = [["workload", "step", "us", "of a copy's bandwidth", "error, of eager's"]]
    with torch.no_grad():
        for workload in op.workloads:
            if workload.role == "bench":
                compiled = not arguments.no_compile
                table += rows(op, workload, candidate, compiled=compiled, bandwidth=bandwidth)
    print(columns(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
