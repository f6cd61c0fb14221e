"""Stages of shared memory that bulk copies fill again and again: released when they are read, and before.

A copy into a stage goes by the asynchronous proxy behind an mbarrier on which the readers arrive. Who arrives for whom
is what racecheck judges: an arrival of every reader, and one of a lane for its warp behind `__syncwarp`, are honest.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, MEMORY, SANITIZED, WRONG, Cheat, Control
from benchmarks.redteam_catalogue.text import ADD, cuda, run

OP = ops.add([(20000,), (257,), (9001,)])

BARRIERS = """
#define STAGES 2
#define TILE 256
#define READERS 4
__device__ uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void start(void* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void arrive(void* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(barrier)) : "memory");
}
__device__ void expect(void* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ bool ended(void* barrier, int parity) {
    uint32_t yes;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(yes) : "r"(at(barrier)), "r"(parity) : "memory");
    return yes;
}
__device__ void wait(void* barrier, int parity) { while (!ended(barrier, parity)) {} }
__device__ void copy(void* to, const void* from, int bytes, void* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at(to)), "l"(from), "r"(bytes), "r"(at(barrier)) : "memory");
}
"""
KERNEL = """
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {
    __shared__ alignas(128) float ring[STAGES][2][TILE];
    __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long tiles = n / TILE;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) { start(full + s, 1); start(empty + s, ARRIVALS); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int turn = 0;
    if (warp == READERS) {
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x, turn++) {
            const int s = turn % STAGES;
            if (turn >= STAGES) wait(empty + s, turn / STAGES - 1 & 1);
            if (lane == 0) expect(full + s, 2 * TILE * 4);
            __SYNC_COPIES__
            if (lane < 2) copy(ring[s][lane], (lane ? y : x) + t * TILE, TILE * 4, full + s);
        }
    } else {
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x, turn++) {
            const int s = turn % STAGES;
            wait(full + s, turn / STAGES & 1);
            for (int i = threadIdx.x; i < TILE; i += 32 * READERS) out[t * TILE + i] = ring[s][0][i] + ring[s][1][i];
            RELEASE
        }
    }
    for (long long i = tiles * TILE + blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[i] + y[i];
}
"""
ELECTED = "__syncwarp(); if (lane == 0) arrive(empty + s);"
EVERY = "arrive(empty + s);"
HASTY = "if (lane == 0) arrive(empty + s);"
ALONE = "__syncwarp(); if (threadIdx.x == 0) arrive(empty + s);"


@dataclass(frozen=True)
class Ring:
    """One way to release a stage: the code of a reader, and the arrivals that the barrier waits for."""

    release: str
    arrivals: int
    copies: str = "__syncwarp();"

    @property
    def source(self) -> str:
        """The candidate."""
        text = KERNEL.replace("RELEASE", self.release).replace("ARRIVALS", str(self.arrivals))
        text = text.replace("__SYNC_COPIES__", self.copies)
        return cuda(BARRIERS + text, run(ADD, "kernels.add[2, 160](x, y, out, out.numel())"))


def controls() -> list[Control]:
    """All of them."""
    return [
        Control("one lane releases a stage for its warp", "cuda", OP, Ring(ELECTED, 4).source, "as CUTLASS does"),
        Control("every reader releases a stage", "cuda", OP, Ring(EVERY, 128).source, "an arrival of each thread"),
    ]


def cheats() -> list[Cheat]:
    """All of them: each may be right by luck, and is not by its code."""
    kinds = WRONG | MEMORY | ENDED | SANITIZED
    # The copying warp would have the `__syncwarp` that the readers lack: it is the first lane's arrival that it orders.
    hasty = Ring(HASTY, 4, copies="__shfl_sync(0xffffffffu, s, 0);")
    return [
        Cheat("releases what other lanes still read", (15,), "cuda", OP, hasty.source, "no barrier of its warp", CHECKED, kinds, level="verify"),
        Cheat("releases what other warps still read", (15,), "cuda", OP, Ring(ALONE, 1).source, "one warp of four", CHECKED, kinds, level="verify"),
    ]  # fmt: skip
