"""Small jobs for the judge, C++ candidates for them, and looks at its processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from benchmarks.jobs import CPU, Role, job, output, scalar, tensor, workload  # noqa: F401 - tests say judging.job
from benchmarks.redteam_catalogue.text import cpp
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.machine.process_control import children

LAYER_NORM = """
import torch

def run(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)
"""
FUSED = """
import torch

def run(x, y, bias, m):
    x.add_(y, alpha=m).add_(bias).relu_()
"""


def layer_norm_workload(name: str, role: Role, rows: int, columns: int) -> ResolvedWorkload:
    """Layer normalisation of rows."""
    inputs = [tensor("x", (rows, columns)), tensor("weight", (columns,)), tensor("bias", (columns,))]
    return workload(name, role, inputs, [output("y", (rows, columns))])


LAYER_NORMS = [
    layer_norm_workload("bench", "bench", 64, 128),
    layer_norm_workload("ragged", "test", 3, 17),
    layer_norm_workload("odd", "holdout", 5, 33),
]


def fused_workload(name: str, role: Role, rows: int, columns: int) -> ResolvedWorkload:
    """max(x + m * y + bias, 0), in place."""
    inputs = [
        tensor("x", (rows, columns), mutated=True, kind="normal"),
        tensor("y", (rows, columns)),
        tensor("bias", (columns,)),
        scalar("m", 0.75),
    ]
    return workload(name, role, inputs, [])


FUSED_WORKLOADS = [fused_workload("bench", "bench", 32, 256), fused_workload("ragged", "test", 7, 51)]

NORM_SIGNATURE = "const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n"
NORM_ROW = """
static void row(const float* in, const float* w, const float* b, float* out, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += in[i];
    const double mean = sum / n;
    for (int64_t i = 0; i < n; i++) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1 / std::sqrt(squares / n + 1e-5);
    for (int64_t i = 0; i < n; i++) out[i] = float((in[i] - mean) * scale * w[i] + b[i]);
}
"""
NORM_RUN = """def run(x, weight, bias, y):
    n = weight.numel()
    kernels.norm(x, weight, bias, y, x.numel() // n, n)
"""


def norm_candidate(body: str, before: str = "", run: str = NORM_RUN) -> str:
    """A layer norm candidate whose kernel has this body; `row(in, w, b, out, n)` does one row right."""
    return cpp(f'{before}\n{NORM_ROW}\nextern "C" void norm({NORM_SIGNATURE}) {{\n{body}\n}}\n', run)


ALL_ROWS = "for (int64_t r = 0; r < rows; r++) row(x + r * n, w, b, y + r * n, n);"
GOOD_NORM = norm_candidate("#pragma omp parallel for\n" + ALL_ROWS)

GOOD_FUSED = cpp(
    """
extern "C" void fused(float* x, const float* y, const float* bias, float m, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const float sum = x[r * n + i] + m * y[r * n + i] + bias[i];
            x[r * n + i] = sum > 0 ? sum : 0;
        }
}
""",
    "def run(x, y, bias, m):\n    n = bias.numel()\n    kernels.fused(x, y, bias, m, x.numel() // n, n)\n",
)


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def fork_server_of(judge: int) -> int | None:
    """Pid of a judge's fork server."""
    for pid in children(judge):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"warpsmith.workers.judge.runner.fork_server" in file.read():
                return pid
    return None


def runners_of(judge: int) -> list[int]:
    """Pids of a judge's runners."""
    server = fork_server_of(judge)
    return children(server) if server is not None else []


def named(comm: str) -> list[int]:
    """Living processes that call themselves `comm`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/comm") as file:
                if file.read().strip() == comm and alive(int(entry)):
                    found.append(int(entry))
    return found


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a thread beside the block; its exception is raised at the end."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]
