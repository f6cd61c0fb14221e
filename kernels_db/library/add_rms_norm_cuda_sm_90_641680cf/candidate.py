"""Each size by what its sweep led with: 1024 threads a row where each has a multiprocessor, 256 a row, bulk slices by warp.

An infinite element makes its row NaN, as eager does; finite values whose squares overflow are scaled by zero.
"""

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
// eight sums x + residual, kept as floats
struct f8 { float v[8]; };
__device__ __forceinline__ f8 add8(const uint4& a, const uint4& b) {
    f8 s;
    s.v[0] = lo(a.x) + lo(b.x); s.v[1] = hi(a.x) + hi(b.x);
    s.v[2] = lo(a.y) + lo(b.y); s.v[3] = hi(a.y) + hi(b.y);
    s.v[4] = lo(a.z) + lo(b.z); s.v[5] = hi(a.z) + hi(b.z);
    s.v[6] = lo(a.w) + lo(b.w); s.v[7] = hi(a.w) + hi(b.w);
    return s;
}
__device__ __forceinline__ float sqf(const f8& s) {
    float p = 0.f, q = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i += 2) { p = fmaf(s.v[i], s.v[i], p); q = fmaf(s.v[i + 1], s.v[i + 1], q); }
    return p + q;
}
__device__ __forceinline__ uint4 scf(const f8& s, const uint4& w, float k) {
    return make_uint4(pack(s.v[0] * k * lo(w.x), s.v[1] * k * hi(w.x)), pack(s.v[2] * k * lo(w.y), s.v[3] * k * hi(w.y)),
                      pack(s.v[4] * k * lo(w.z), s.v[5] * k * hi(w.z)), pack(s.v[6] * k * lo(w.w), s.v[7] * k * hi(w.w)));
}
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
// An infinite sum makes its row NaN, as eager does, which rounds sums to bfloat16; finite ones whose squares overflow are
// scaled by zero.
__device__ __forceinline__ bool inf1(float s) { return (__float_as_uint(s) & 0x7fffffffu) >= 0x7f7f8000u; }
__device__ __forceinline__ bool inf2(u32 a, u32 b) { return inf1(lo(a) + lo(b)) || inf1(hi(a) + hi(b)); }
__device__ __forceinline__ bool inf8(const uint4& a, const uint4& b) {
    return inf2(a.x, b.x) || inf2(a.y, b.y) || inf2(a.z, b.z) || inf2(a.w, b.w);
}
__device__ __forceinline__ float nan_beside(bool infinite, float k) {  // by all threads of the block
    return __syncthreads_or(infinite) ? __uint_as_float(0x7fffffffu) : k;
}
__device__ __forceinline__ float scale_of(float sum) { return rsqrtf(fmaf(sum, 1.f / 8192.f, 1e-6f)); }

// any hidden, any alignment: one block per row, two passes
extern "C" __global__ void __launch_bounds__(256)
norm_any(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ res, const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, int H) {
    __shared__ __align__(16) float part[8];
    const long long base = (long long)blockIdx.x * H;
    const bool vec = (H & 7) == 0 && (((u64)x | (u64)w | (u64)y | (u64)res) & 15) == 0;
    float s = 0.f;
    if (vec) {
        const uint4* x4 = reinterpret_cast<const uint4*>(x + base);
        const uint4* r4 = reinterpret_cast<const uint4*>(res + base);
        const uint4* w4 = reinterpret_cast<const uint4*>(w);
        uint4* y4 = reinterpret_cast<uint4*>(y + base);
        const int n = H >> 3;
        for (int i = threadIdx.x; i < n; i += 256) s += sq8(x4[i], r4[i]);
        float k = rsqrtf(block_sum<8>(s, part) / (float)H + 1e-6f);
        if (k == 0.f) {
            bool infinite = false;
            for (int i = threadIdx.x; i < n; i += 256) infinite |= inf8(x4[i], r4[i]);
            k = nan_beside(infinite, k);
        }
        for (int i = threadIdx.x; i < n; i += 256) y4[i] = sc8(x4[i], r4[i], w4[i], k);
    } else {
        for (long long i = threadIdx.x; i < H; i += 256) {
            const float v = __bfloat162float(x[base + i]) + __bfloat162float(res[base + i]);
            s = fmaf(v, v, s);
        }
        float k = rsqrtf(block_sum<8>(s, part) / (float)H + 1e-6f);
        if (k == 0.f) {
            bool infinite = false;
            for (long long i = threadIdx.x; i < H; i += 256) {
                infinite |= inf1(__bfloat162float(x[base + i]) + __bfloat162float(res[base + i]));
            }
            k = nan_beside(infinite, k);
        }
        for (long long i = threadIdx.x; i < H; i += 256) {
            const float v = __bfloat162float(x[base + i]) + __bfloat162float(res[base + i]);
            y[base + i] = __float2bfloat16(v * k * __bfloat162float(w[i]));
        }
    }
}

// one block of T threads per row of 1024 vectors, everything in registers, all loads before the first use
template <int T>
__device__ __forceinline__ void row_of(const uint4* __restrict__ x, const uint4* __restrict__ res, const uint4* __restrict__ w, uint4* __restrict__ y) {
    constexpr int V = 1024 / T;
    __shared__ float part[T / 32];
    const u32 base = blockIdx.x * 1024 + threadIdx.x;
    uint4 a[V], b[V], c[V];
#pragma unroll
    for (int i = 0; i < V; i++) a[i] = ld_once(x + base + i * T);
#pragma unroll
    for (int i = 0; i < V; i++) b[i] = ld_once(res + base + i * T);
#pragma unroll
    for (int i = 0; i < V; i++) c[i] = ld_keep(w + threadIdx.x + i * T);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < V; i++) s += sq8(a[i], b[i]);
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    float k = scale_of(warp_sum((threadIdx.x & 31) < T / 32 ? part[threadIdx.x & 31] : 0.f));
    if (k == 0.f) {
        bool infinite = false;
#pragma unroll
        for (int i = 0; i < V; i++) infinite |= inf8(a[i], b[i]);
        k = nan_beside(infinite, k);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        packed(a[i]); packed(b[i]);
        y[base + i * T] = sc8(a[i], b[i], c[i], k);
    }
}
extern "C" __global__ void __launch_bounds__(256, 4)
norm_row256(const uint4* __restrict__ x, const uint4* __restrict__ res, const uint4* __restrict__ w, uint4* __restrict__ y) { row_of<256>(x, res, w, y); }
extern "C" __global__ void __launch_bounds__(1024, 1)
norm_row1024(const uint4* __restrict__ x, const uint4* __restrict__ res, const uint4* __restrict__ w, uint4* __restrict__ y) { row_of<1024>(x, res, w, y); }

__device__ __forceinline__ u32 smem(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bar_arm(u32 bar, u32 bytes) {        // by the one thread that then copies
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_in(u32 dst, const void* src, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void bulk_out(void* dst, u32 src, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(dst), "r"(src), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait0(u32 bar) {
    u32 ok;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ok) : "r"(bar) : "memory");
    } while (!ok);
}

// many rows: one short block per row; each warp owns 2 KiB of x and of the residual, a barrier, and its copy out
extern "C" __global__ void __launch_bounds__(256, 3)
norm_slices(const uint4* __restrict__ x, const uint4* __restrict__ res, const uint4* __restrict__ w, uint4* __restrict__ y) {
    extern __shared__ __align__(128) uint4 buf[];               // x, then the residual
    __shared__ __align__(16) float part[8];
    __shared__ __align__(8) u64 full[8];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const size_t slice = (size_t)blockIdx.x * 1024 + warp * 128;
    const u32 bar = smem(&full[warp]);
    if (lane == 0) {
        bar_arm(bar, 4096);
        bulk_in(smem(buf + warp * 128), x + slice, 2048, bar);
        bulk_in(smem(buf + 1024 + warp * 128), res + slice, 2048, bar);
    }
    __syncwarp();                                              // the barrier is there
    uint4* mine = buf + warp * 128 + lane;
    const uint4* w4 = w + warp * 128 + lane;
    wait0(bar);
    f8 s[4];
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] = add8(mine[i * 32], mine[1024 + i * 32]);
    float k = scale_of(block_sum<8>((sqf(s[0]) + sqf(s[1])) + (sqf(s[2]) + sqf(s[3])), part));
    if (k == 0.f) {
        bool infinite = false;
#pragma unroll
        for (int i = 0; i < 32; i++) infinite |= inf1(s[i / 8].v[i % 8]);
        k = nan_beside(infinite, k);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) mine[i * 32] = scf(s[i], ld_keep(w4 + i * 32), k);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) bulk_out(y + slice, smem(buf + warp * 128), 2048);
}
""")


def run(x, residual, weight, y):
    tokens, hidden = x.shape
    if tokens == 0 or hidden == 0:
        return
    if hidden != 8192 or (x.data_ptr() | residual.data_ptr() | weight.data_ptr() | y.data_ptr()) % 16 != 0:
        kernels.norm_any[tokens, 256](x, residual, weight, y, hidden)
    elif tokens <= 132:
        kernels.norm_row1024[tokens, 1024](x, residual, weight, y)
    elif tokens < 1056:
        kernels.norm_row256[tokens, 256](x, residual, weight, y)
    else:
        # so much shared memory that 3 rows are resident (96 KiB in flight on a multiprocessor)
        kernels.norm_slices.launch(tokens, 256, x, residual, weight, y, shared_bytes=69632)
