"""Sums of embedding rows in bfloat16: a block a bag, its warps share the rows, UNROLL 16-byte loads in flight a lane.

A row is LANES lanes of eight columns (4 to 32), so a warp takes 32 / LANES rows at once. Sums are float32, rounded once.
Widths that eight does not divide, or beyond 256, go column by column.
"""

from kernels_db.runtime import cuda

TUNE = {"WARPS": [1, 2, 4], "UNROLL": [4, 8]}
WARPS = 4
UNROLL = 8
kernels = cuda.compile(r"""
#include <cuda_bf16.h>
__device__ __forceinline__ void add(float* total, uint4 v) {
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        total[2 * w] += __uint_as_float(words[w] << 16);
        total[2 * w + 1] += __uint_as_float(words[w] & 0xffff0000u);
    }
}
__device__ __forceinline__ unsigned both(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&two);
}

template <int LANES>
__device__ __forceinline__ void sum_bag(const long long* indices, const uint4* weight, const long long* offsets,
                                        uint4* sums, int vectors) {
    constexpr int AT_ONCE = 32 / LANES, STEP = WARPS * AT_ONCE;
    __shared__ float parts[WARPS][LANES][9];
    const int lane = threadIdx.x & (LANES - 1), sub = (threadIdx.x & 31) / LANES, warp = threadIdx.x / 32;
    const long long bag = blockIdx.x, end = offsets[bag + 1];
    const bool inside = lane < vectors;
    float total[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
    for (long long i = offsets[bag] + warp * AT_ONCE + sub; i < end; i += STEP * UNROLL) {
        long long row[UNROLL];
        uint4 v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) row[k] = i + k * STEP < end ? __ldg(indices + i + k * STEP) : -1;
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            v[k] = row[k] >= 0 && inside ? __ldg(weight + row[k] * vectors + lane) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) add(total, v[k]);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
#pragma unroll
        for (int by = LANES; by < 32; by *= 2) total[c] += __shfl_xor_sync(0xffffffffu, total[c], by);
    }
    if (WARPS > 1) {
        if (sub == 0) {
#pragma unroll
            for (int c = 0; c < 8; ++c) parts[warp][lane][c] = total[c];
        }
        __syncthreads();
    }
    if (warp == 0 && sub == 0 && inside) {
#pragma unroll
        for (int k = 1; k < WARPS; ++k) {
#pragma unroll
            for (int c = 0; c < 8; ++c) total[c] += parts[k][lane][c];
        }
        sums[bag * vectors + lane] = make_uint4(both(total[0], total[1]), both(total[2], total[3]),
                                                both(total[4], total[5]), both(total[6], total[7]));
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
lanes32(const long long* __restrict__ indices, const uint4* __restrict__ weight, const long long* __restrict__ offsets,
    uint4* __restrict__ sums, int vectors) { sum_bag<32>(indices, weight, offsets, sums, vectors); }
extern "C" __global__ void __launch_bounds__(WARPS * 32)
lanes16(const long long* __restrict__ indices, const uint4* __restrict__ weight, const long long* __restrict__ offsets,
    uint4* __restrict__ sums, int vectors) { sum_bag<16>(indices, weight, offsets, sums, vectors); }
extern "C" __global__ void __launch_bounds__(WARPS * 32)
lanes8(const long long* __restrict__ indices, const uint4* __restrict__ weight, const long long* __restrict__ offsets,
    uint4* __restrict__ sums, int vectors) { sum_bag<8>(indices, weight, offsets, sums, vectors); }
extern "C" __global__ void __launch_bounds__(WARPS * 32)
lanes4(const long long* __restrict__ indices, const uint4* __restrict__ weight, const long long* __restrict__ offsets,
    uint4* __restrict__ sums, int vectors) { sum_bag<4>(indices, weight, offsets, sums, vectors); }
extern "C" __global__ void __launch_bounds__(128)
columns(const long long* __restrict__ indices, const __nv_bfloat16* __restrict__ weight,
        const long long* __restrict__ offsets, __nv_bfloat16* __restrict__ sums, int width) {
    const long long bag = blockIdx.x, start = offsets[bag], end = offsets[bag + 1];
    for (int at = threadIdx.x; at < width; at += 128) {
        float total = 0.f;
        for (long long i = start; i < end; ++i)
            total += __bfloat162float(weight[__ldg(indices + i) * width + at]);
        sums[bag * width + at] = __float2bfloat16_rn(total);
    }
}
""", flags=("-DWARPS=4", "-DUNROLL=8"))


def run(indices, weight, offsets, sums):
    bags, width = sums.shape
    if width % 8 or width > 256:
        kernels.columns[bags, 128](indices, weight, offsets, sums, width)
    elif width > 128:
        kernels.lanes32[bags, WARPS * 32](indices, weight, offsets, sums, width // 8)
    elif width > 64:
        kernels.lanes16[bags, WARPS * 32](indices, weight, offsets, sums, width // 8)
    elif width > 32:
        kernels.lanes8[bags, WARPS * 32](indices, weight, offsets, sums, width // 8)
    else:
        kernels.lanes4[bags, WARPS * 32](indices, weight, offsets, sums, width // 8)
