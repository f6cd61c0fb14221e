"""The memory probe: how fast bytes move under the very protocol that candidates are timed by.

A kernel of ours runs in a runner of its own, on buffers that the referee has just filled, between the same two readings
of the clock. So the limit that follows holds threads woken for the call, caches in the state that the protocol leaves
them in and the exchange itself, and a share of it is a share of what could be had.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from workers.judge.buffers import TensorSpec
from workers.judge.contender import Contender

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
""")


def run(x, y, copies):
    if copies:
        kernels.copy(x, y, x.numel())
    else:
        kernels.update(x, y, x.numel())
'''

_GPU_SOURCE = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void update(float* __restrict__ x, const float* __restrict__ y, long long n) {
    long long at = blockIdx.x * 1024ll + threadIdx.x * 4ll;
    for (long long i = at; i < n; i += gridDim.x * 1024ll) {
        float4 a = *reinterpret_cast<float4*>(x + i);
        const float4 b = __ldcs(reinterpret_cast<const float4*>(y + i));
        a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w;
        *reinterpret_cast<float4*>(x + i) = a;
    }
}

extern "C" __global__ void copy(float* __restrict__ x, const float* __restrict__ y, long long n) {
    long long at = blockIdx.x * 1024ll + threadIdx.x * 4ll;
    for (long long i = at; i < n; i += gridDim.x * 1024ll)
        *reinterpret_cast<float4*>(x + i) = __ldcs(reinterpret_cast<const float4*>(y + i));
}
""")


def run(x, y, copies):
    n = x.numel()
    blocks = min((n + 1023) // 1024, 1 << 22)
    if copies:
        kernels.copy[blocks, 256](x, y, n)
    else:
        kernels.update[blocks, 256](x, y, n)
'''

SLOTS = 3
CALLS = 12
LONGEST_CALL_S = 30.0

StartProbe = Callable[[str, str], Contender]
"""Starts a runner with a candidate's source in a language."""


def memory_rate(footprint: int, start: StartProbe, device: torch.device) -> float:
    """GB/s of the best of CALLS updates in place and CALLS copies over `footprint` bytes of buffers.

    An update reads two buffers and writes one, a copy reads one and writes one; bytes are counted as a limit counts
    them, each buffer once for each direction. Raises ContenderFault.
    """
    elements = footprint // 8 // 4 * 4
    stock = torch.randn(elements + 4 * CALLS, device=device)
    tensors = [TensorSpec(name, (elements,), (1,), torch.float32) for name in ("x", "y")]
    on_gpu = device.type == "cuda"
    probe = start(_GPU_SOURCE, "cuda") if on_gpu else start(_CPU_SOURCE, "cpp")
    best = 0.0
    try:
        for copies, buffers_moved in ((False, 3), (True, 2)):
            probe.bind([*tensors, TensorSpec("copies", None, (), torch.bool, copies)], [], SLOTS)
            for call in range(CALLS):
                slot = call % SLOTS
                probe.fill(slot, [stock[4 * call : 4 * call + elements], stock[:elements], None])
                if on_gpu:
                    nanoseconds = probe.burst([slot], LONGEST_CALL_S).calls_us[0] * 1e3
                else:
                    nanoseconds = probe.call(slot, LONGEST_CALL_S)
                if call >= SLOTS:  # the first use of a slot maps its pages
                    best = max(best, buffers_moved * elements * 4 / nanoseconds)
    finally:
        probe.close()
    return best
