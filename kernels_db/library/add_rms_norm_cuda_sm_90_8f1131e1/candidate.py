"""One block per row in registers; inputs evict-first in L2 so that the written lines stay there."""

from kernels_db.runtime import cuda

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
__device__ __forceinline__ float sq2(u32 a, u32 b, float s) {
    const float p = lo(a) + lo(b), q = hi(a) + hi(b);
    return fmaf(q, q, fmaf(p, p, s));
}
__device__ __forceinline__ float sq8(const uint4& a, const uint4& b) {
    return sq2(a.w, b.w, sq2(a.z, b.z, sq2(a.y, b.y, sq2(a.x, b.x, 0.f))));
}
__device__ __forceinline__ u32 sc2(u32 a, u32 b, u32 w, float k) {
    return pack((lo(a) + lo(b)) * k * lo(w), (hi(a) + hi(b)) * k * hi(w));
}
__device__ __forceinline__ uint4 sc8(const uint4& a, const uint4& b, const uint4& w, float k) {
    return make_uint4(sc2(a.x, b.x, w.x, k), sc2(a.y, b.y, w.y, k), sc2(a.z, b.z, w.z, k), sc2(a.w, b.w, w.w, k));
}
__device__ __forceinline__ u64 first_policy() {
    u64 p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ __forceinline__ uint4 ld_first(const uint4* p, u64 pol) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(pol));
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
__device__ __forceinline__ float block_sum(float v, float* part) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    const float4* p4 = reinterpret_cast<const float4*>(part);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < W / 4; i++) { const float4 p = p4[i]; s += (p.x + p.y) + (p.z + p.w); }
    return s;
}
__device__ __forceinline__ bool aligned16(const void* a, const void* b, const void* c) {
    return (((u64)a | (u64)b | (u64)c) & 15) == 0;
}

// any hidden, any alignment: one block per row, two passes; W warps
template <int W>
__device__ __forceinline__ void generic_row(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ res,
    const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, long long row, int H, float* part) {
    const long long base = row * H;
    const int T = W * 32;
    const bool vec = (H & 7) == 0 && aligned16(x, w, y) && aligned16(res, res, res);
    float s = 0.f;
    if (vec) {
        const uint4* x4 = reinterpret_cast<const uint4*>(x + base);
        const uint4* r4 = reinterpret_cast<const uint4*>(res + base);
        const uint4* w4 = reinterpret_cast<const uint4*>(w);
        uint4* y4 = reinterpret_cast<uint4*>(y + base);
        const int n = H >> 3;
        for (int i = threadIdx.x; i < n; i += T) s += sq8(x4[i], r4[i]);
        const float k = rsqrtf(block_sum<W>(s, part) / (float)H + 1e-6f);
        for (int i = threadIdx.x; i < n; i += T) y4[i] = sc8(x4[i], r4[i], w4[i], k);
    } else {
        for (int i = threadIdx.x; i < H; i += T) {
            const float v = __bfloat162float(x[base + i]) + __bfloat162float(res[base + i]);
            s = fmaf(v, v, s);
        }
        const float k = rsqrtf(block_sum<W>(s, part) / (float)H + 1e-6f);
        for (int i = threadIdx.x; i < H; i += T) {
            const float v = __bfloat162float(x[base + i]) + __bfloat162float(res[base + i]);
            y[base + i] = __float2bfloat16(v * k * __bfloat162float(w[i]));
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
norm_any(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ res,
    const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, int H) {
    __shared__ __align__(16) float part[8];
    generic_row<8>(x, res, w, y, blockIdx.x, H, part);
}

// one block per row of 8192, everything in registers
extern "C" __global__ void __launch_bounds__(256, 4)
norm_row(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ res,
    const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y) {
    __shared__ __align__(16) float part[8];
    const bool ok = aligned16(x, w, y) && aligned16(res, res, res);
    if (!ok) { generic_row<8>(x, res, w, y, blockIdx.x, 8192, part); return; }
    const size_t base = (size_t)blockIdx.x * 1024 + threadIdx.x;
    const uint4* x4 = reinterpret_cast<const uint4*>(x) + base;
    const uint4* r4 = reinterpret_cast<const uint4*>(res) + base;
    const uint4* w4 = reinterpret_cast<const uint4*>(w) + threadIdx.x;
    uint4* y4 = reinterpret_cast<uint4*>(y) + base;
    const u64 pol = first_policy();
    uint4 a[4], c[4];
    uint4 b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = ld_first(x4 + i * 256, pol);
#pragma unroll
    for (int i = 0; i < 4; i++) b[i] = ld_first(r4 + i * 256, pol);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = ld_keep(w4 + i * 256);
    const float s = (sq8(a[0], b[0]) + sq8(a[1], b[1])) + (sq8(a[2], b[2]) + sq8(a[3], b[3]));
    const float k = rsqrtf(fmaf(block_sum<8>(s, part), 1.f / 8192.f, 1e-6f));
#pragma unroll
    for (int i = 0; i < 4; i++) y4[i * 256] = sc8(a[i], b[i], c[i], k);
}
""")


def run(x, residual, weight, y):
    tokens, hidden = x.shape
    if tokens == 0 or hidden == 0:
        return
    if hidden != 8192:
        kernels.norm_any[tokens, 256](x, residual, weight, y, hidden)
    else:
        kernels.norm_row[tokens, 256](x, residual, weight, y)
