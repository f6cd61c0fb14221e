"""A block of FEW threads a row where they are few, everything in registers; many rows: rows that L2 fetches one wave ahead, or a block a row as well.

How many threads share a row is left to a measurement: fewer threads need fewer warps to start and to meet, more have shorter chains.
An infinite element makes its row NaN, as eager does; finite values whose squares overflow are scaled by zero.
"""

import torch

from kernels_db.runtime import cuda

TUNE = {"FEW": [256, 512, 1024], "MANY": [0, 256, 512, 1024]}
TUNE_WHERE = ("MANY == FEW or MANY == 0 and FEW == 512",)
FEW = 256
MANY = 256

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}
__device__ __forceinline__ float sq2(u32 a, float s) { return fmaf(hi(a), hi(a), fmaf(lo(a), lo(a), s)); }
__device__ __forceinline__ float sq8(const uint4& a) { return sq2(a.w, sq2(a.z, sq2(a.y, sq2(a.x, 0.f)))); }
__device__ __forceinline__ u32 sc2(u32 a, u32 w, float k) { return pack(lo(a) * k * lo(w), hi(a) * k * hi(w)); }
__device__ __forceinline__ uint4 sc8(const uint4& a, const uint4& w, float k) {
    return make_uint4(sc2(a.x, w.x, k), sc2(a.y, w.y, k), sc2(a.z, w.z, k), sc2(a.w, w.w, k));
}
__device__ __forceinline__ uint4 ld_once(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ uint4 ld_keep(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::evict_last.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
// keeps the packed form in registers: what was unpacked before is unpacked again
__device__ __forceinline__ void packed(uint4& a) { asm volatile("" : "+r"(a.x), "+r"(a.y), "+r"(a.z), "+r"(a.w)); }
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
template <int W>
__device__ __forceinline__ float add_parts(const float* part) {
    const float4* p4 = reinterpret_cast<const float4*>(part);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < W / 4; i++) { const float4 p = p4[i]; s += (p.x + p.y) + (p.z + p.w); }
    return s;
}
template <int W>
__device__ __forceinline__ float block_sum(float v, float* part) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    return add_parts<W>(part);
}
// An infinite element makes its row NaN, as eager does; finite values whose squares overflow are scaled by zero.
__device__ __forceinline__ bool inf2(u32 a) { return (a & 0x7fffu) == 0x7f80u || (a & 0x7fff0000u) == 0x7f800000u; }
__device__ __forceinline__ bool inf8(const uint4& a) { return inf2(a.x) || inf2(a.y) || inf2(a.z) || inf2(a.w); }
__device__ __forceinline__ float nan_beside(bool infinite, float k) {  // by all threads of the block
    return __syncthreads_or(infinite) ? __uint_as_float(0x7fffffffu) : k;
}
__device__ __forceinline__ float scale_of(float sum) { return rsqrtf(fmaf(sum, 1.f / 8192.f, 1e-6f)); }

// any hidden, any alignment: one block per row, two passes
extern "C" __global__ void __launch_bounds__(256)
norm_any(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, int H) {
    __shared__ __align__(16) float part[8];
    const long long base = (long long)blockIdx.x * H;
    const bool vec = (H & 7) == 0 && (((u64)x | (u64)w | (u64)y) & 15) == 0;
    float s = 0.f;
    if (vec) {
        const uint4* x4 = reinterpret_cast<const uint4*>(x + base);
        const uint4* w4 = reinterpret_cast<const uint4*>(w);
        uint4* y4 = reinterpret_cast<uint4*>(y + base);
        const int n = H >> 3;
        for (int i = threadIdx.x; i < n; i += 256) s += sq8(x4[i]);
        float k = rsqrtf(block_sum<8>(s, part) / (float)H + 1e-6f);
        if (k == 0.f) {
            bool infinite = false;
            for (int i = threadIdx.x; i < n; i += 256) infinite |= inf8(x4[i]);
            k = nan_beside(infinite, k);
        }
        for (int i = threadIdx.x; i < n; i += 256) y4[i] = sc8(x4[i], w4[i], k);
    } else {
        for (long long i = threadIdx.x; i < H; i += 256) {
            const float v = __bfloat162float(x[base + i]);
            s = fmaf(v, v, s);
        }
        float k = rsqrtf(block_sum<8>(s, part) / (float)H + 1e-6f);
        if (k == 0.f) {
            bool infinite = false;
            for (long long i = threadIdx.x; i < H; i += 256) infinite |= isinf(__bfloat162float(x[base + i]));
            k = nan_beside(infinite, k);
        }
        for (long long i = threadIdx.x; i < H; i += 256) {
            const float v = __bfloat162float(x[base + i]);
            y[base + i] = __float2bfloat16(v * k * __bfloat162float(w[i]));
        }
    }
}

// one block of T threads per row of 1024 vectors, everything in registers, all loads before the first use
template <int T>
__device__ __forceinline__ void row_of(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y) {
    constexpr int V = 1024 / T;
    __shared__ float part[T / 32];
    const u32 base = blockIdx.x * 1024 + threadIdx.x;
    uint4 a[V], c[V];
#pragma unroll
    for (int i = 0; i < V; i++) a[i] = ld_once(x + base + i * T);
#pragma unroll
    for (int i = 0; i < V; i++) c[i] = ld_keep(w + threadIdx.x + i * T);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < V; i++) s += sq8(a[i]);
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    float k = scale_of(warp_sum((threadIdx.x & 31) < T / 32 ? part[threadIdx.x & 31] : 0.f));
    if (k == 0.f) {
        bool infinite = false;
#pragma unroll
        for (int i = 0; i < V; i++) infinite |= inf8(a[i]);
        k = nan_beside(infinite, k);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        packed(a[i]);
        y[base + i * T] = sc8(a[i], c[i], k);
    }
}
extern "C" __global__ void __launch_bounds__(256, 4)
norm_row256(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y) { row_of<256>(x, w, y); }
extern "C" __global__ void __launch_bounds__(512, 3)
norm_row512(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y) { row_of<512>(x, w, y); }
extern "C" __global__ void __launch_bounds__(1024, 2)
norm_row1024(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y) { row_of<1024>(x, w, y); }

// many rows: a plain stream at full occupancy; each block has L2 fetch the row of a block one wave later
extern "C" __global__ void __launch_bounds__(512, 4)
norm_ahead(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y, int tokens, int ahead) {
    __shared__ __align__(16) float part[16];
    const size_t base = (size_t)blockIdx.x * 1024 + threadIdx.x;
    uint4 a = ld_once(x + base), b = ld_once(x + base + 512);
    if (threadIdx.x == 0) {
        const long long next = (long long)blockIdx.x + ahead;
        if (next < tokens)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(x + next * 1024), "r"(16384) : "memory");
    }
    float k = scale_of(block_sum<16>(sq8(a) + sq8(b), part));
    packed(a); packed(b);
    if (k == 0.f) k = nan_beside(inf8(x[base]) || inf8(x[base + 512]), k);  // read again: registers are scarce
    const uint4 c = ld_keep(w + threadIdx.x), d = ld_keep(w + threadIdx.x + 512);
    y[base] = sc8(a, c, k);
    y[base + 512] = sc8(b, d, k);
}
""")


def run(x, weight, y):
    tokens, hidden = x.shape
    if tokens == 0 or hidden == 0:
        return
    if hidden != 8192 or (x.data_ptr() | weight.data_ptr() | y.data_ptr()) % 16 != 0:
        kernels.norm_any[tokens, 256](x, weight, y, hidden)
    elif (tokens < 1056 and FEW == 256) or (tokens >= 1056 and MANY == 256):
        kernels.norm_row256[tokens, 256](x, weight, y)
    elif (tokens < 1056 and FEW == 512) or (tokens >= 1056 and MANY == 512):
        kernels.norm_row512[tokens, 512](x, weight, y)
    elif tokens < 1056 or MANY == 1024:
        kernels.norm_row1024[tokens, 1024](x, weight, y)
    else:
        wave = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count
        kernels.norm_ahead[tokens, 512](x, weight, y, tokens, wave)
