"""Measure the cost of an exported op beside its kernel.

    python -m benchmarks.dispatch [PROJECT ...] [--graphs] [--json]

Each project is a package as `warpsmith export` writes it; without any, packages of this benchmark's own op are made in
every language that runs here. Microseconds of the host for one call at the smallest verified shape (a package's
`overhead.py` says how they are measured):

planned    launches of the plan that is replayed, a dash where there is none
graphs     whether they are one CUDA graph, a dash where that is switched off
raw        the kernel's own `run`, into outputs that are there
op         the op without gradients: guard, allocation of outputs, launch
unwatched  the op with its watch off
no plan    the op with launch plans off: its guard, its `run` and the launcher are Python
gradients  the op where an input needs gradients
add        `torch.add` on two tensors like the op's output, PyTorch's own cost of a call
ratio      op by add
overhead   op less raw

A second table has the same for calls that are timed one by one: the 10th, 50th, 90th and 99th percentile of some 2,000
on a GPU, and more on a CPU. What one call waits for, a full queue or a lock, shows there.

With `--graphs` each package is measured twice, in processes of their own: with WARPSMITH_PLAN_GRAPHS=0, and as it is.

This benchmark's own packages launch one kernel, and three that hand scratch memory on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.op import CANDIDATE, OP
from benchmarks.showcase import columns
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.exports import open_project
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.judging import machine

TIMEOUT_S = 300.0
TRITON = """import triton
import triton.language as tl


@triton.jit
def scale_shift(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0 + 1.0, mask=i < n)


def run(x, y):
    n = x.numel()
    scale_shift[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
"""
GLUON = """import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LAYOUT = gl.constexpr(gl.BlockedLayout([4], [32], [4], [0]))


@gluon.jit
def scale_shift(x, y, n, BLOCK: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LAYOUT)
    gl.store(y + i, gl.load(x + i, mask=i < n) * 2.0 + 1.0, mask=i < n)


def run(x, y):
    n = x.numel()
    scale_shift[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
"""
CUTE = """import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl


@cute.kernel
def scale_shift(x: cute.Tensor, y: cute.Tensor, n: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < n:
        y[i] = x[i] * 2.0 + 1.0


@cute.jit
def launch_scale_shift(x: cute.Tensor, y: cute.Tensor, n: cutlass.Constexpr):
    flat = cute.make_layout(n)
    x, y = cute.make_tensor(x.iterator, flat), cute.make_tensor(y.iterator, flat)
    scale_shift(x, y, n).launch(grid=[cute.ceil_div(n, 256), 1, 1], block=[256, 1, 1])


launch = cutedsl.compile(launch_scale_shift)


def run(x, y):
    launch(x, y, x.numel())
"""
TILELANG = """import tilelang.language as T
from kernels_db.runtime import tilelang

N = T.dynamic("n")


@T.prim_func
def scale_shift(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, 256), threads=256) as block:
        for i in T.Parallel(256):
            if block * 256 + i < N:
                y[block * 256 + i] = x[block * 256 + i] * 2.0 + 1.0


launch = tilelang.compile(scale_shift)


def run(x, y):
    launch(x, y)
"""
CUDA = '''from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void scale_shift(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
""")


def run(x, y):
    n = x.numel()
    kernels.scale_shift[(n + 255) // 256, 256](x, y, n)
'''


CPP_THREE = '''import torch
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scale(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f;
}
extern "C" void shift(const float* x, float* y, float by, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] + by;
}
""")


def run(x, y):
    n = x.numel()
    scaled = torch.empty(n, dtype=torch.float32, device=x.device)
    halfway = torch.empty_like(scaled)
    kernels.scale(x, scaled, n)
    kernels.shift(scaled, halfway, 0.5, n)
    kernels.shift(halfway, y, 0.5, n)
'''
TRITON_THREE = """import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.jit
def shift(x, y, n, by: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + by, mask=i < n)


def run(x, y):
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    scaled = torch.empty(n, dtype=torch.float32, device=x.device)
    halfway = torch.empty_like(scaled)
    scale[grid](x, scaled, n, BLOCK=1024)
    shift[grid](scaled, halfway, n, by=0.5, BLOCK=1024)
    shift[grid](halfway, y, n, by=0.5, BLOCK=1024)
"""
CUDA_THREE = '''import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void scale(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void shift(const float* x, float* y, float by, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + by;
}
""")


def run(x, y):
    n = x.numel()
    blocks = (n + 255) // 256
    scaled = torch.empty(n, dtype=torch.float32, device=x.device)
    halfway = torch.empty_like(scaled)
    kernels.scale[blocks, 256](x, scaled, n)
    kernels.shift[blocks, 256](scaled, halfway, 0.5, n)
    kernels.shift[blocks, 256](halfway, y, 0.5, n)
'''


def main() -> int:
    """Print the table, or one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatch", description=__doc__)
    parser.add_argument("projects", nargs="*", type=Path, metavar="PROJECT", help="project directory of an export")
    parser.add_argument("--graphs", action="store_true", help="measure plans of several launches one by one, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warpsmith-dispatch-") as scratch:
        projects = options.projects or own_packages(Path(scratch))
        asked = (False, True) if options.graphs else (True,)
        rows = [measured(project, graphs=graphs) for project in projects for graphs in asked]
    if options.json:
        print(json.dumps(rows))
    else:
        print("microseconds of the host for one call\n\n" + columns(table(rows)))
        print("\nof calls timed one by one, percentiles\n\n" + columns(spread(rows)))
    return 0


def own_packages(directory: Path) -> list[Path]:
    """Build packages of this benchmark's op, of one launch and of three, for each language that runs here."""
    chosen = [("cpp", machine.cpu_target(), source) for source in (CANDIDATE, CPP_THREE)]
    for gpu in machine.gpus()[:1]:
        chosen += [("triton", gpu.target, source) for source in (TRITON, TRITON_THREE)]
        chosen += [("cuda", gpu.target, source) for source in (CUDA, CUDA_THREE)]
    return [build(kernel(*each), directory) for each in chosen]


def kernel(language: str, target: str, source: str) -> ExportedKernel:
    """Return the op in one language, as the store would hand it to an exporter.

    It has no figures, since none are read.
    """
    workloads = [resolve_workload(OP, workload) for workload in OP.workloads_for(Target.parse(target))]
    return ExportedKernel(
        id=f"kn_{language}",
        spec=OP.document(),
        target=target,
        language=language,
        source=source,
        source_digest=normalised_digest(source),
        envelope=build_envelope(OP.digest, target, workloads, {}),
        evidence={"workloads": [_unmeasured(each) for each in workloads], "device": {"name": "this machine"}},
        lineage=[],
    )


def _unmeasured(workload: ResolvedWorkload) -> dict[str, Any]:
    empty: dict[str, Any] = {"error": {}, "time_us": {}, "speedup": {}, "ci95": {}}
    return {"id": workload["id"], "role": "test", **empty}


def measured(project: Path, *, graphs: bool = True) -> dict[str, Any]:
    """Measure one package in a process of its own and return its figures; `graphs`: plans may be CUDA graphs.

    The directory may have been renamed.
    """
    opened = open_project(project)
    done = subprocess.run(
        [sys.executable, "-m", f"{opened.module}.overhead", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(project.resolve()), "WARPSMITH_PLAN_GRAPHS": str(int(graphs))},
    )
    if done.returncode != 0:
        raise SystemExit(f"{project}: {done.stderr.strip()[-2000:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    languages, targets = ([getattr(each, name) for each in opened.kernels] for name in ("language", "target"))
    return document | {
        "graphs_asked": graphs,
        "language": ", ".join(languages),
        "target": ", ".join(dict.fromkeys(targets)),
    }


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of several packages' figures, under those that name them."""
    names = ("raw", "op", "op_unwatched", "op_without_plan", "op_with_gradients", "add", "ratio", "overhead")
    head = "op language target planned graphs raw op unwatched no-plan gradients add ratio overhead"
    made = [[name.replace("-", " ") for name in head.split()]]
    for row in rows:
        found = [row["microseconds"].get(name) for name in names]
        figures = ["-" if each is None else f"{each:.1f}" for each in found]
        made.append([*_named(row), *figures])
    return made


def spread(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the percentiles of several packages' single calls, under those that name them."""
    made = [["op", "language", "target", "planned", "graphs", "of", "p10", "p50", "p90", "p99"]]
    for row in rows:
        for name, found in row["singly"].items():
            made.append(
                [*_named(row), name.removeprefix("op_").replace("_", " "), *(f"{us:.1f}" for us in found.values())]
            )
    return made


def _named(row: dict[str, Any]) -> list[str]:
    """What tells one row from another."""
    return [
        *(row[name] for name in ("op", "language", "target")),
        str(row["planned"] or "-"),
        "-" if not row["graphs_asked"] else "yes" if row["graphs"] else "no",
    ]


if __name__ == "__main__":
    sys.exit(main())
