"""Layer norm of long rows, x read once: a grid-wide pipeline in which each block owns 32768 columns of every row.

28 slots of 8 KiB hold the current row's slice and the look-ahead; statistics run 22 chunks ahead of the normalisation, so that
the exchange between the blocks of a row is hidden. The weight slice stays in registers, the bias comes from L2.
Other shapes: one block per row, scalar.
"""

import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cooperative_groups.h>
typedef unsigned long long u64;
typedef unsigned int u32;

#define SLOTS 28
#define AHEAD 22
#define CHUNK_BYTES 8192
#define SENTINEL 0xFFFFFFFFFFFFFFFFull

__device__ __forceinline__ u32 s2u(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bar_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_arrive(u32 bar) {
    asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared::cta.b64 s, [%0];\n}" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void bar_expect(u32 bar, u32 bytes) {
    asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;\n}" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "WL%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra WD%=;\n"
        "bra WL%=;\n"
        "WD%=:\n"
        "}" :: "r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        :: "r"(dst), "l"(src), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}
__device__ __forceinline__ float4 load_keep(const float* p, u64 policy) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ float4 load_once(const float* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
__device__ __forceinline__ float4 finish(double S, double Q, double n) {
    const double mean = S / n;
    double var = Q / n - mean * mean;
    if (var < 0.0) var = 0.0;
    const float rstd = (float)(1.0 / sqrt(var + 1e-5));
    const float mh = (float)mean;
    const float ml = (float)(mean - (double)mh);
    return make_float4(mh, rstd, -ml * rstd, 0.f);
}

extern "C" __global__ void __launch_bounds__(576, 1)
ln_ring(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y,
        void* scratch_, int rows, int G, int groups) {
    u64* scratch = reinterpret_cast<u64*>(scratch_);
    extern __shared__ __align__(1024) unsigned char smem[];
    u64* bars = reinterpret_cast<u64*>(smem + SLOTS * CHUNK_BYTES);
    double2* part = reinterpret_cast<double2*>(smem + SLOTS * CHUNK_BYTES + 512);
    float4* stat = reinterpret_cast<float4*>(smem + SLOTS * CHUNK_BYTES + 768);
    const u32 ring = s2u(smem), full = s2u(bars), empty = s2u(bars + SLOTS);
    const u32 pfull = s2u(bars + 2 * SLOTS), sready = s2u(bars + 2 * SLOTS + 1);
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int group = blockIdx.x / G, j = blockIdx.x % G;
    const int nrows = (rows - group + groups - 1) / groups;
    const int total = nrows * 16;
    const long long D = (long long)G * 32768;
    const long long col0 = (long long)j * 32768;
    const float* xs = x + (long long)group * D + col0;
    const long long rstep = (long long)groups * D;

    u64 p_first, p_last;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p_first));
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p_last));

    if (tid == 512) {
        for (int i = 0; i < SLOTS; ++i) { bar_init(full + 8 * i, 1); bar_init(empty + 8 * i, 16); }
        bar_init(pfull, 16);
        bar_init(sready, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        const int first = total < SLOTS ? total : SLOTS;
        for (int i = 0; i < first; ++i) {
            bar_expect(full + 8 * i, CHUNK_BYTES);
            bulk_load(ring + i * CHUNK_BYTES, xs + (long long)(i >> 4) * rstep + (i & 15) * 2048, CHUNK_BYTES, full + 8 * i, p_first);
        }
    }
    for (int r = tid; r < nrows; r += 576) {
        u64* s = scratch + (((long long)group + (long long)r * groups) * G + j) * 2;
        s[0] = SENTINEL;
        s[1] = SENTINEL;
    }
    cooperative_groups::this_grid().sync();

    if (warp == 16) {
        if (lane == 0) {
            int slot = 0;
            u32 parity = 0;
            for (int i = SLOTS; i < total; ++i) {
                bar_wait(empty + 8 * slot, parity);
                bar_expect(full + 8 * slot, CHUNK_BYTES);
                bulk_load(ring + slot * CHUNK_BYTES, xs + (long long)(i >> 4) * rstep + (i & 15) * 2048, CHUNK_BYTES, full + 8 * slot, p_first);
                if (++slot == SLOTS) { slot = 0; parity ^= 1; }
            }
        }
        return;
    }
    if (warp == 17) {
        const double n = (double)D;
        for (int r = 0; r < nrows; ++r) {
            u64* base = scratch + ((long long)group + (long long)r * groups) * G * 2;
            bar_wait(pfull, r & 1);
            double S = 0.0, Q = 0.0;
            if (lane < 16) { const double2 v = part[lane]; S = v.x; Q = v.y; }
            S = warp_sum(S);
            Q = warp_sum(Q);
            if (lane == 0) {
                u64 a = (u64)__double_as_longlong(S), q = (u64)__double_as_longlong(Q);
                if (a == SENTINEL) a = 0x7FF8000000000000ull;
                if (q == SENTINEL) q = 0x7FF8000000000000ull;
                asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" :: "l"(base + 2 * j), "l"(a), "l"(q) : "memory");
            }
            u64 a[5], q[5];
            bool done;
            do {
                done = true;
#pragma unroll
                for (int k = 0; k < 5; ++k) {
                    a[k] = 0; q[k] = 0;
                    const int i = lane + 32 * k;
                    if (i < G) asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(a[k]), "=l"(q[k]) : "l"(base + 2 * i) : "memory");
                }
#pragma unroll
                for (int k = 0; k < 5; ++k) done = done && a[k] != SENTINEL && q[k] != SENTINEL;
            } while (!__all_sync(0xffffffffu, done));
            S = 0.0; Q = 0.0;
#pragma unroll
            for (int k = 0; k < 5; ++k) { S += __longlong_as_double((long long)a[k]); Q += __longlong_as_double((long long)q[k]); }
            S = warp_sum(S);
            Q = warp_sum(Q);
            if (lane == 0) {
                stat[r & 1] = finish(S, Q, n);
                bar_arrive(sready);
            }
            __syncwarp();
        }
        return;
    }

    // 16 consumer warps: thread t owns float4 t of every chunk
    const float4* chunk = reinterpret_cast<const float4*>(smem);
    const float* wp = w + col0 + tid * 4;
    const float* bp = b + col0 + tid * 4;
    float4 wr[16], br[2];
#pragma unroll
    for (int c = 0; c < 16; ++c) wr[c] = load_once(wp + c * 2048);
#pragma unroll
    for (int c = 0; c < 2; ++c) br[c] = load_keep(bp + c * 2048, p_last);

    int sslot = 0;
    u32 spar = 0;
    float pivot = 0.f, s1 = 0.f, s2 = 0.f;
    auto stats = [&](int cin, bool active) {
        if (active) {
            bar_wait(full + 8 * sslot, spar);
            const float4 v = chunk[sslot * 512 + tid];
            if (cin == 0) { pivot = v.x; s1 = 0.f; s2 = 0.f; }
            const float d0 = v.x - pivot, d1 = v.y - pivot, d2 = v.z - pivot, d3 = v.w - pivot;
            s1 += (d0 + d1) + (d2 + d3);
            s2 += fmaf(d0, d0, d1 * d1) + fmaf(d2, d2, d3 * d3);
            if (cin == 15) {
                const double p = pivot, t1 = s1;
                const double S = warp_sum(t1 + 64.0 * p);
                const double Q = warp_sum((double)s2 + 2.0 * p * t1 + 64.0 * p * p);
                if (lane == 0) {
                    part[warp] = make_double2(S, Q);
                    bar_arrive(pfull);
                }
            }
        }
        if (++sslot == SLOTS) { sslot = 0; spar ^= 1; }
    };
#pragma unroll 1
    for (int i = 0; i < AHEAD; ++i) stats(i & 15, (i >> 4) < nrows);

    float* yp = y + (long long)group * D + col0 + tid * 4;
#pragma unroll 1
    for (int r = 0; r < nrows; ++r, yp += rstep) {
        bar_wait(sready, r & 1);
#pragma unroll
        for (int c = 0; c < 16; ++c) {
            const int nslot = sslot + (SLOTS - AHEAD) - (sslot >= AHEAD ? SLOTS : 0);
            const float4 v = chunk[nslot * 512 + tid];
            const float4 st = stat[r & 1];
            __syncwarp();
            if (lane == 0) bar_arrive(empty + 8 * nslot);
            const float4 bb = br[c & 1];
            br[c & 1] = load_keep(bp + ((c + 2) & 15) * 2048, p_last);
            float4 o;
            o.x = fmaf(fmaf(v.x - st.x, st.y, st.z), wr[c].x, bb.x);
            o.y = fmaf(fmaf(v.y - st.x, st.y, st.z), wr[c].y, bb.y);
            o.z = fmaf(fmaf(v.z - st.x, st.y, st.z), wr[c].z, bb.z);
            o.w = fmaf(fmaf(v.w - st.x, st.y, st.z), wr[c].w, bb.w);
            __stcs(reinterpret_cast<float4*>(yp + c * 2048), o);
            stats((c + AHEAD) & 15, r + (c + AHEAD) / 16 < nrows);
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024)
ln_row(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y, long long D) {
    __shared__ double2 part[32];
    __shared__ float4 stat;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const float* xr = x + (long long)blockIdx.x * D;
    float* yr = y + (long long)blockIdx.x * D;
    double S = 0.0, Q = 0.0;
    long long i = tid;
    while (i < D) {
        const float pivot = xr[i];
        float s1 = 0.f, s2 = 0.f;
        int n = 0;
        for (int k = 0; k < 32 && i < D; ++k, i += 1024) {
            const float d = xr[i] - pivot;
            s1 += d;
            s2 = fmaf(d, d, s2);
            ++n;
        }
        const double p = pivot, t1 = s1, m = n;
        S += t1 + m * p;
        Q += (double)s2 + 2.0 * p * t1 + m * p * p;
    }
    S = warp_sum(S);
    Q = warp_sum(Q);
    if (lane == 0) part[warp] = make_double2(S, Q);
    __syncthreads();
    if (warp == 0) {
        const double2 v = part[lane];
        S = warp_sum(v.x);
        Q = warp_sum(v.y);
        if (lane == 0) stat = finish(S, Q, (double)D);
    }
    __syncthreads();
    const float4 st = stat;
    for (long long k = tid; k < D; k += 1024) yr[k] = fmaf(fmaf(xr[k] - st.x, st.y, st.z), w[k], b[k]);
}
""")

SLICE = 32768
SHARED = 28 * 8192 + 1024


def run(x, weight, bias, y):
    rows = x.shape[0]
    d = weight.numel()
    if rows == 0 or d == 0:
        return
    if d % SLICE == 0:
        per_row = d // SLICE
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        if per_row <= min(sms, 160):
            groups = min(sms // per_row, rows)
            turns = (rows + groups - 1) // groups
            groups = (rows + turns - 1) // turns
            scratch = torch.empty(rows * per_row * 2, device=x.device, dtype=torch.int64)
            kernels.ln_ring.launch(groups * per_row, 576, x, weight, bias, y, scratch, rows, per_row, groups,
                                   shared_bytes=SHARED, cooperative=True)
            return
    kernels.ln_row[rows, 1024](x, weight, bias, y, d)
