"""Sums of embedding rows: a block a bag; each lane copies its 16 bytes of a row by cp.async into a slot of its own.

Two stages of SLOTS slots: twice as many rows a lane are on the way, without a register and without a barrier, for a lane
reads only what it copied. A row beyond the bag is a copy of no bytes, which fills zeros. A row is LANES lanes of float4, so
a warp takes 32 / LANES rows at once; indices of both stages are asked for first. How many warps share a bag
follows from the number of bags. Widths that four does not divide, or beyond 128, go column by column.
"""

import torch

from kernels_db.runtime import cuda

TUNE = {"SLOTS": [2, 4, 8], "MID": [8, 16], "MANY": [2, 4]}
SLOTS = 4
FEW = 16
MID = 16
MANY = 4
kernels = cuda.compile(r"""
extern __shared__ float4 slots[];

template <int LANES>
struct Bag {
    static constexpr int AT_ONCE = 32 / LANES;
    const long long* indices;
    const float4* weight;
    long long end;
    unsigned base, pitch;
    int step, vectors, lane;

    __device__ __forceinline__ void fetch(long long (&row)[SLOTS], long long i) const {
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) row[k] = i + k * step < end ? __ldg(indices + i + k * step) : -1;
    }
    __device__ __forceinline__ void send(int stage, const long long (&row)[SLOTS]) const {
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            const bool here = row[k] >= 0 && lane < vectors;
            const float4* from = here ? weight + row[k] * vectors + lane : weight;
            asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                         :: "r"(base + (stage * SLOTS + k) * pitch), "l"(from), "r"(here ? 16 : 0) : "memory");
        }
    }
};
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LANES>
__device__ __forceinline__ void sum_bag(const long long* indices, const float4* weight, const long long* offsets,
                                        float4* sums, int vectors) {
    const int sub = (threadIdx.x & 31) / LANES, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const long long bag = blockIdx.x, begin = offsets[bag];
    Bag<LANES> of;
    of.indices = indices;
    of.weight = weight;
    of.end = offsets[bag + 1];
    of.base = (unsigned)__cvta_generic_to_shared(slots + threadIdx.x);
    of.pitch = blockDim.x * 16;
    of.step = warps * of.AT_ONCE;
    of.vectors = vectors;
    of.lane = threadIdx.x & (LANES - 1);
    const int chunk = of.step * SLOTS;
    long long i = begin + warp * of.AT_ONCE + sub;
    long long first[SLOTS], row[SLOTS];
    of.fetch(first, i);
    of.fetch(row, i += chunk);
    of.send(0, first);
    commit();
    if (begin + chunk < of.end) of.send(1, row);
    commit();
    of.fetch(row, i += chunk);
    float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
    int stage = 0;
    for (long long done = begin; done < of.end; done += chunk) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            const float4 v = slots[(stage * SLOTS + k) * blockDim.x + threadIdx.x];
            total.x += v.x; total.y += v.y; total.z += v.z; total.w += v.w;
        }
        if (done + 2 * chunk < of.end) {
            of.send(stage, row);
            of.fetch(row, i += chunk);
        }
        commit();
        stage ^= 1;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
#pragma unroll
    for (int by = LANES; by < 32; by *= 2) {
        total.x += __shfl_xor_sync(0xffffffffu, total.x, by);
        total.y += __shfl_xor_sync(0xffffffffu, total.y, by);
        total.z += __shfl_xor_sync(0xffffffffu, total.z, by);
        total.w += __shfl_xor_sync(0xffffffffu, total.w, by);
    }
    __syncthreads();
    if (sub == 0) slots[warp * LANES + of.lane] = total;
    __syncthreads();
    if (warp == 0 && sub == 0 && of.lane < vectors) {
        for (int k = 1; k < warps; ++k) {
            const float4 v = slots[k * LANES + of.lane];
            total.x += v.x; total.y += v.y; total.z += v.z; total.w += v.w;
        }
        sums[bag * vectors + of.lane] = total;
    }
}

extern "C" __global__ void __launch_bounds__(512)
wide(const long long* __restrict__ indices, const float4* __restrict__ weight, const long long* __restrict__ offsets,
     float4* __restrict__ sums, int vectors) { sum_bag<32>(indices, weight, offsets, sums, vectors); }
extern "C" __global__ void __launch_bounds__(512)
half_wide(const long long* __restrict__ indices, const float4* __restrict__ weight,
          const long long* __restrict__ offsets, float4* __restrict__ sums, int vectors) {
    sum_bag<16>(indices, weight, offsets, sums, vectors);
}
extern "C" __global__ void __launch_bounds__(512)
narrow(const long long* __restrict__ indices, const float4* __restrict__ weight,
       const long long* __restrict__ offsets, float4* __restrict__ sums, int vectors) {
    sum_bag<8>(indices, weight, offsets, sums, vectors);
}
extern "C" __global__ void __launch_bounds__(128)
columns(const long long* __restrict__ indices, const float* __restrict__ weight,
        const long long* __restrict__ offsets, float* __restrict__ sums, int width) {
    const long long bag = blockIdx.x, start = offsets[bag], end = offsets[bag + 1];
    for (int at = threadIdx.x; at < width; at += 128) {
        float total = 0.f;
        long long i = start;
        for (; i + 4 <= end; i += 4) {
            float v[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) v[k] = __ldg(weight + __ldg(indices + i + k) * width + at);
            total += (v[0] + v[1]) + (v[2] + v[3]);
        }
        for (; i < end; ++i) total += __ldg(weight + __ldg(indices + i) * width + at);
        sums[bag * width + at] = total;
    }
}
""", flags=("-DSLOTS=4",))


def run(indices, weight, offsets, sums):
    bags, width = sums.shape
    sms = torch.cuda.get_device_properties(sums.device).multi_processor_count
    threads = 32 * (FEW if bags <= 8 * sms else MID if bags <= 32 * sms else MANY)
    if width % 4 or width > 128:
        kernels.columns[bags, 128](indices, weight, offsets, sums, width)
    elif width > 64:
        kernels.wide.launch(bags, threads, indices, weight, offsets, sums, width // 4, shared_bytes=threads * SLOTS * 32)
    elif width > 32:
        kernels.half_wide.launch(bags, threads, indices, weight, offsets, sums, width // 4, shared_bytes=threads * SLOTS * 32)
    else:
        kernels.narrow.launch(bags, threads, indices, weight, offsets, sums, width // 4, shared_bytes=threads * SLOTS * 32)
