"""Sums of bfloat16 embedding rows: a block a bag; each lane copies its 16 bytes of a row by cp.async into a slot of its own.

Two stages of SLOTS slots: twice as many rows a lane are on the way, without a register and without a barrier, for a lane
reads only what it copied. A row beyond the bag is a copy of no bytes, which fills zeros. A row is LANES lanes of eight columns, so
a warp takes 32 / LANES rows at once; indices of both stages are asked for first, sums are float32. How many warps share a bag
follows from the number of bags. Widths that eight does not divide, or beyond 128, go column by column.
"""

import torch

from kernels_db.runtime import cuda

TUNE = {"SLOTS": [2, 4, 8], "MID": [8, 16], "MANY": [1, 2]}
SLOTS = 4
FEW = 16
MID = 8
MANY = 2
kernels = cuda.compile(r"""
#include <cuda_bf16.h>
extern __shared__ float4 slots[];

template <int LANES>
struct Bag {
    static constexpr int AT_ONCE = 32 / LANES;
    const long long* indices;
    const uint4* weight;
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
            const uint4* from = here ? weight + row[k] * vectors + lane : weight;
            asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                         :: "r"(base + (stage * SLOTS + k) * pitch), "l"(from), "r"(here ? 16 : 0) : "memory");
        }
    }
};
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ __forceinline__ void add(float (&total)[8], unsigned word, int at) {
    total[at] += __uint_as_float(word << 16);
    total[at + 1] += __uint_as_float(word & 0xffff0000u);
}
__device__ __forceinline__ unsigned pack(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&two);
}

template <int LANES>
__device__ __forceinline__ void sum_bag(const long long* indices, const uint4* weight, const long long* offsets,
                                        uint4* sums, int vectors) {
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
    float total[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
    int stage = 0;
    for (long long done = begin; done < of.end; done += chunk) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            const uint4 v = reinterpret_cast<const uint4*>(slots)[(stage * SLOTS + k) * blockDim.x + threadIdx.x];
            add(total, v.x, 0); add(total, v.y, 2); add(total, v.z, 4); add(total, v.w, 6);
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
#pragma unroll
        for (int c = 0; c < 8; ++c) total[c] += __shfl_xor_sync(0xffffffffu, total[c], by);
    }
    __syncthreads();
    if (sub == 0) {
        slots[(warp * 2) * LANES + of.lane] = make_float4(total[0], total[1], total[2], total[3]);
        slots[(warp * 2 + 1) * LANES + of.lane] = make_float4(total[4], total[5], total[6], total[7]);
    }
    __syncthreads();
    if (warp == 0 && sub == 0 && of.lane < vectors) {
        for (int k = 1; k < warps; ++k) {
            const float4 a = slots[(k * 2) * LANES + of.lane], b = slots[(k * 2 + 1) * LANES + of.lane];
            total[0] += a.x; total[1] += a.y; total[2] += a.z; total[3] += a.w;
            total[4] += b.x; total[5] += b.y; total[6] += b.z; total[7] += b.w;
        }
        sums[bag * vectors + of.lane] = make_uint4(pack(total[0], total[1]), pack(total[2], total[3]),
                                                   pack(total[4], total[5]), pack(total[6], total[7]));
    }
}

extern "C" __global__ void __launch_bounds__(512)
wide(const long long* __restrict__ indices, const void* __restrict__ weight, const long long* __restrict__ offsets,
     void* __restrict__ sums, int vectors) { sum_bag<16>(indices, (const uint4*)weight, offsets, (uint4*)sums, vectors); }
extern "C" __global__ void __launch_bounds__(512)
half_wide(const long long* __restrict__ indices, const void* __restrict__ weight,
          const long long* __restrict__ offsets, void* __restrict__ sums, int vectors) {
    sum_bag<8>(indices, (const uint4*)weight, offsets, (uint4*)sums, vectors);
}
extern "C" __global__ void __launch_bounds__(512)
narrow(const long long* __restrict__ indices, const void* __restrict__ weight,
       const long long* __restrict__ offsets, void* __restrict__ sums, int vectors) {
    sum_bag<4>(indices, (const uint4*)weight, offsets, (uint4*)sums, vectors);
}
extern "C" __global__ void __launch_bounds__(128)
columns(const long long* __restrict__ indices, const __nv_bfloat16* __restrict__ weight,
        const long long* __restrict__ offsets, __nv_bfloat16* __restrict__ sums, int width) {
    const long long bag = blockIdx.x, start = offsets[bag], end = offsets[bag + 1];
    for (int at = threadIdx.x; at < width; at += 128) {
        float total = 0.f;
        long long i = start;
        for (; i + 4 <= end; i += 4) {
            float v[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) v[k] = __bfloat162float(weight[__ldg(indices + i + k) * width + at]);
            total += (v[0] + v[1]) + (v[2] + v[3]);
        }
        for (; i < end; ++i) total += __bfloat162float(weight[__ldg(indices + i) * width + at]);
        sums[bag * width + at] = __float2bfloat16_rn(total);
    }
}
""", flags=("-DSLOTS=4",))


def run(indices, weight, offsets, sums):
    bags, width = sums.shape
    sms = torch.cuda.get_device_properties(sums.device).multi_processor_count
    threads = 32 * (FEW if bags <= 8 * sms else MID if bags <= 32 * sms else MANY)
    if width % 8 or width > 128:
        kernels.columns[bags, 128](indices, weight, offsets, sums, width)
    elif width > 64:
        kernels.wide.launch(bags, threads, indices, weight, offsets, sums, width // 8, shared_bytes=threads * SLOTS * 32)
    elif width > 32:
        kernels.half_wide.launch(bags, threads, indices, weight, offsets, sums, width // 8, shared_bytes=threads * SLOTS * 32)
    else:
        kernels.narrow.launch(bags, threads, indices, weight, offsets, sums, width // 8, shared_bytes=threads * SLOTS * 32)
