"""The memory probe: how fast bytes move under the protocol that times candidates.

A kernel of ours runs in a runner of its own, on buffers that the referee has just filled, between the same two readings
of the clock. So the limit includes threads woken for the call, caches in the state that the protocol leaves them in,
and the exchange itself: a share of it is a share of what is possible.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.runner.digest import NO_SEAL
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

_CPU_SOURCE = '''
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void update(float* __restrict x, const float* __restrict y, int64_t n) {
    #pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

extern "C" void copy(float* __restrict x, const float* __restrict y, int64_t n) {
    #pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) x[i] = y[i];
}

extern "C" void update_alone(float* __restrict x, const float* __restrict y, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

extern "C" void copy_alone(float* __restrict x, const float* __restrict y, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = y[i];
}
""")


def run(x, y, pattern):
    if pattern == 0:
        kernels.update(x, y, x.numel())
    elif pattern == 1:
        kernels.copy(x, y, x.numel())
    elif pattern == 2:
        kernels.update_alone(x, y, x.numel())
    else:
        kernels.copy_alone(x, y, x.numel())
'''

_GPU_SOURCE = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
constexpr int THREADS = 256, VECTORS = 4;

__device__ float4 sum(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <int PATTERN> __device__ void move(float4* x, const float4* y, long long n) {
    float4 a[VECTORS], b[VECTORS];
    const long long start = (long long)blockIdx.x * THREADS * VECTORS + threadIdx.x;
    #pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const long long i = start + v * THREADS;
        if (i < n) { b[v] = __ldcs(y + i); if (PATTERN != 1) a[v] = __ldcs(x + i); }
    }
    #pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const long long i = start + v * THREADS;
        if (i >= n) continue;
        if (PATTERN == 0) __stcs(x + i, sum(a[v], b[v]));
        if (PATTERN == 1) __stcs(x + i, b[v]);
        if (PATTERN == 2 && a[v].x + b[v].y == 1e30f) x[i] = a[v];  // never: the values are standard normal
    }
}

extern "C" __global__ void __launch_bounds__(256) update(float* x, const float* y, long long n) {
    move<0>((float4*)x, (const float4*)y, n);
}
extern "C" __global__ void __launch_bounds__(256) copy(float* x, const float* y, long long n) {
    move<1>((float4*)x, (const float4*)y, n);
}
extern "C" __global__ void __launch_bounds__(256) read(float* x, const float* y, long long n) {
    move<2>((float4*)x, (const float4*)y, n);
}
""")


def run(x, y, pattern):
    n = x.numel() // 4
    blocks = (n + 1023) // 1024
    if pattern == 0:
        kernels.update[blocks, 256](x, y, n)
    elif pattern == 1:
        kernels.copy[blocks, 256](x, y, n)
    else:
        kernels.read[blocks, 256](x, y, n)
'''

_PATTERNS = {"cpu": ((0, 3), (1, 2), (2, 3), (3, 2)), "cuda": ((0, 3), (1, 2), (2, 2))}
"""The patterns that the probe runs, and how many buffers each moves.

They are update in place and copy; on a CPU also both by one core, which is faster where waking the others takes longer
than the work; on a GPU also reading only, which is fastest where the cores are not the limit.
"""

SLOTS = 3
CALLS = 12
LONGEST_CALL_S = 30.0

StartProbe = Callable[[str, str], RunnerHandle]
"""Starts a runner with a candidate's source in a language."""


def memory_rate(footprint: int, start: StartProbe, device: torch.device) -> float:
    """Measure the GB/s of each pattern's best of CALLS calls over `footprint` bytes.

    An update reads two buffers and writes one, a copy reads one and writes one; bytes are counted as a limit counts
    them, each buffer once for each direction. Raises RunnerFault.
    """
    elements = footprint // 8 // 4 * 4
    stock = torch.randn(elements + 4 * CALLS, device=device)
    tensors = [TensorSpec(name, (elements,), (1,), torch.float32) for name in ("x", "y")]
    on_gpu = device.type == "cuda"
    probe = start(_GPU_SOURCE, "cuda") if on_gpu else start(_CPU_SOURCE, "cpp")
    best = 0.0
    try:
        for pattern, buffers_moved in _PATTERNS[device.type]:
            probe.bind([*tensors, TensorSpec("pattern", None, (), torch.int64, pattern)], [], SLOTS)
            for call in range(CALLS):
                slot = call % SLOTS
                probe.fill(slot, [stock[4 * call : 4 * call + elements], stock[:elements], None])
                if on_gpu:
                    nanoseconds = probe.burst([slot], NO_SEAL, LONGEST_CALL_S).calls_us[0] * 1e3
                else:
                    nanoseconds = probe.call(slot, LONGEST_CALL_S)
                if call >= SLOTS:  # the first use of a slot maps its pages
                    best = max(best, buffers_moved * elements * 4 / nanoseconds)
    finally:
        probe.close()
    return best
