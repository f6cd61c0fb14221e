"""A whole decode step in one cooperative kernel: weights stream through shared memory across all phases and layers.

One warp of each block copies the weights of the whole step, in the order in which they are used, into a ring of shared
memory. It never waits for a result, so the memory is busy while the other warps wait at a barrier or look at the cache.
Sixteen warps share the depth of eight rows of a weight and multiply on the tensor cores, with the batch beside.
"""

import torch
from kernels_db.runtime import cuda

MOST_ROWS = 8  # of the batch, in one launch
DEPTH = 2048  # of a weight's row, in a stage
STAGES = 4
STAGE = 8 * (DEPTH * 2 + 64)
SHARED = STAGES * STAGE + 128 + 512 + 32768

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __nv_bfloat16 bf16;

constexpr int WARPS = 16, WORKERS = WARPS * 32;
constexpr int DEPTH = 2048, STRIDE = DEPTH * 2 + 64, STAGE = 8 * STRIDE, STAGES = 4, UNDER_WAY = 2, BUFFERS = 8;
constexpr int HEAD = 64, GROUP = 4;
#define NEG_INF __int_as_float(0xff800000)

__device__ __forceinline__ u32 saddr(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ float value(bf16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float rounded(float v) { return __bfloat162float(__float2bfloat16_rn(v)); }
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
// what other blocks wrote is read from L2
__device__ __forceinline__ float fresh(const bf16* p) {
    unsigned short v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return __uint_as_float((u32)v << 16);
}
__device__ __forceinline__ float fresh(const float* p) {
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ uint4 fresh4(const void* p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// eight numbers of a row of `depth`, those beyond its end as zeros
template <bool ALIGNED>
__device__ __forceinline__ uint4 eight(const bf16* row, int k, int depth) {
    uint4 v = make_uint4(0u, 0u, 0u, 0u);
    if (ALIGNED) {
        if (k < depth) v = fresh4(row + k);
    } else {
        u32 parts[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float a = k + 2 * i < depth ? fresh(row + k + 2 * i) : 0.f;
            const float b = k + 2 * i + 1 < depth ? fresh(row + k + 2 * i + 1) : 0.f;
            parts[i] = (__float_as_uint(a) >> 16) | (__float_as_uint(b) & 0xffff0000u);
        }
        v = make_uint4(parts[0], parts[1], parts[2], parts[3]);
    }
    return v;
}
__device__ __forceinline__ float4 shared4(const float* p) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(saddr(p)));
    return v;
}
__device__ __forceinline__ void together() { asm volatile("bar.sync 1, 512;" ::: "memory"); }

__device__ __forceinline__ void wait(u32 bar, u32 parity) {
    asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}"
                 :: "r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

// Shared memory: the ring's stages, its barriers in 128 bytes, squares by warp and row, sums of BUFFERS groups by warp.
extern __shared__ __align__(128) unsigned char memory[];
#define FULL (saddr(memory) + STAGES * STAGE)
#define EMPTY (FULL + STAGES * 8)
#define SQUARES ((float*)(memory + STAGES * STAGE + 128))
#define SUMS (SQUARES + WARPS * 8)

struct Ring {
    int at;
    u32 turn;
    int under_way, oldest;
    u32 oldest_turn;
    __device__ __forceinline__ void next() {
        if (++at == STAGES) { at = 0; turn ^= 1; }
    }
};

// The rows of group `t`: eight of a weight, or four of the gate and the four of up beside them.
__device__ __forceinline__ long long row_of(int t, int i, int rows, bool gated) {
    if (!gated) return min(t * 8 + i, rows - 1);
    return i < 4 ? min(t * 4 + i, rows - 1) : rows + min(t * 4 + i - 4, rows - 1);
}
__device__ __forceinline__ int groups_of(int rows, bool gated) { return gated ? (rows + 3) / 4 : (rows + 7) / 8; }
// Groups are dealt to blocks in turns that go on from weight to weight.
__device__ __forceinline__ int first_of(int dealt) {
    const int t = (int)blockIdx.x - dealt;
    return t < 0 ? t + (int)gridDim.x : t;
}

template <bool ALIGNED>
__device__ __forceinline__ void stream(Ring& ring, const bf16* weight, int rows, int depth, bool gated, int& dealt, u64 policy) {
    const int lane = threadIdx.x & 31, groups = groups_of(rows, gated), parts = (depth + DEPTH - 1) / DEPTH;
    for (int t = first_of(dealt); t < groups; t += gridDim.x) {
        for (int part = 0; part < parts; part++) {
            const u32 full = FULL + ring.at * 8, stage = saddr(memory) + ring.at * STAGE;
            const int length = min(DEPTH, depth - part * DEPTH);
            wait(EMPTY + ring.at * 8, ring.turn ^ 1);
            // More under way fills no buffer sooner, and what others ask of the caches waits behind it.
            if (ring.under_way == UNDER_WAY) {
                wait(FULL + ring.oldest * 8, ring.oldest_turn);
                if (++ring.oldest == STAGES) { ring.oldest = 0; ring.oldest_turn ^= 1; }
            } else {
                ring.under_way++;
            }
            if (ALIGNED) {
                if (lane == 0)
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(full), "r"(length * 16) : "memory");
                __syncwarp();
                if (lane < 8) {
                    const bf16* src = weight + row_of(t, lane, rows, gated) * depth + part * DEPTH;
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                                 :: "r"(stage + lane * STRIDE), "l"(src), "r"(length * 2), "r"(full), "l"(policy) : "memory");
                }
            } else {
                const int whole = (length + 31) / 32 * 32;
                for (int i = 0; i < 8; i++) {
                    const bf16* src = weight + row_of(t, i, rows, gated) * depth + part * DEPTH;
                    for (int k = lane; k < whole; k += 32) {
                        const unsigned short v = k < length ? __bfloat16_as_ushort(src[k]) : (unsigned short)0;
                        asm volatile("st.shared.u16 [%0], %1;" :: "r"(stage + i * STRIDE + k * 2), "h"(v) : "memory");
                    }
                }
                __syncwarp();
                if (lane == 0) arrive(full);
            }
            ring.next();
        }
    }
    dealt = (dealt + groups) % (int)gridDim.x;
}

// What a phase begins with; by value, so that it stays in registers.
struct Work {
    int at;           // stage of the ring
    u32 turn;         // of the ring
    int dealt;        // groups
    u32 rung;         // the bell of the grid's barrier
    u32* bell;
    int batch;
};
__device__ __forceinline__ void everyone(const Work& work) {
    together();
    if (threadIdx.x == 0) {
        u32 seen;
        __threadfence();
        atomicAdd(work.bell, 1u);
        do {
            asm volatile("ld.global.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(work.bell) : "memory");
        } while (seen < work.rung + gridDim.x);
    }
    together();
}

// Where this lane's numbers of a row begin, in a part of the depth.
__device__ __forceinline__ int begin_of(int part, int block) {
    return part * DEPTH + (threadIdx.x >> 5) * 128 + block * 32 + (threadIdx.x & 3) * 8;
}

// A lane's numbers of one part of the depth, in a row of the batch or of a norm's weight.
template <bool ALIGNED>
__device__ __forceinline__ void load(u32 (&v)[4][4], const bf16* row, int part, int depth, bool wanted) {
#pragma unroll
    for (int block = 0; block < 4; block++) {
        uint4 four = make_uint4(0u, 0u, 0u, 0u);
        if (wanted) four = eight<ALIGNED>(row, begin_of(part, block), depth);
        v[block][0] = four.x; v[block][1] = four.y; v[block][2] = four.z; v[block][3] = four.w;
    }
}
__device__ __forceinline__ float squared(const u32 (&v)[4][4]) {
    float total = 0.f;
#pragma unroll
    for (int block = 0; block < 4; block++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float p = low(v[block][i]), q = high(v[block][i]);
            total += p * p + q * q;
        }
    return total;
}
// Rounded before and after the weight. Beyond the end of a row both are zeros.
__device__ __forceinline__ void normalise(u32 (&v)[4][4], const u32 (&g)[4][4], float scale) {
#pragma unroll
    for (int block = 0; block < 4; block++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 scaled = __floats2bfloat162_rn(low(v[block][i]) * scale, high(v[block][i]) * scale);
            const __nv_bfloat162 found = __hmul2_rn(scaled, *(const __nv_bfloat162*)&g[block][i]);
            v[block][i] = *(const u32*)&found;
        }
}

__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a2, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(0u), "r"(a2), "r"(0u), "r"(b0), "r"(b1));
}

enum { STORE, ADD, GATED };

// y = x weight^T, with a norm before it where `norm` is given: stored, added to what y holds, or silu(gate) * up.
// Other blocks write x: what they do not write is asked for before all have come so far.
template <bool ALIGNED, int MODE, bool NORM, bool ONE>
__device__ __noinline__ void product(Work work, const bf16* x, const bf16* norm, float eps, int rows, int depth, bf16* y) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, parts = ONE ? 1 : (depth + DEPTH - 1) / DEPTH;
    const bool gated = MODE == GATED, here = (lane >> 2) < work.batch;
    const bf16* mine_of_x = x + (long long)(lane >> 2) * depth;
    u32 a[4][4], g[4][4];
    if (NORM) load<ALIGNED>(g, norm, 0, depth, here);
    everyone(work);
    load<ALIGNED>(a, mine_of_x, 0, depth, here);
    float scale = 0.f;
    if (NORM) {
        float total = squared(a);
        for (int part = 1; part < parts; part++) {
            u32 further[4][4];
            load<ALIGNED>(further, mine_of_x, part, depth, here);
            total += squared(further);
        }
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if ((lane & 3) == 0) SQUARES[warp * 8 + (lane >> 2)] = total;
        together();
        total = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += SQUARES[w * 8 + (lane >> 2)];
        scale = rsqrtf(total / depth + eps);
        if (here) normalise(a, g, scale);
    }
    const int groups = groups_of(rows, gated);
    u32 turn = 0;
    for (int t = first_of(work.dealt); t < groups; t += gridDim.x, turn++) {
        float c[4] = {0.f, 0.f, 0.f, 0.f};
        const int who = warp - (int)(turn * 2 & (WARPS - 1));  // two warps in turns add up what all found
        const int i = (who & 1) * 32 + lane, row = i >> 3, column = i & 7;
        const int n = gated ? t * 4 + (column & 3) : t * 8 + column;
        const bool mine = (who == 0 || who == 1) && n < rows && row < work.batch && !(gated && column > 3);
        bf16* out = y + (long long)row * rows + n;
        const float before = MODE == ADD && mine ? fresh(out) : 0.f;
        for (int part = 0; part < parts; part++) {
            u32 next[4][4], next_g[4][4];
            const int coming = part + 1 == parts ? 0 : part + 1;
            if (!ONE) {
                load<ALIGNED>(next, mine_of_x, coming, depth, here);
                if (NORM) load<ALIGNED>(next_g, norm, coming, depth, here);
            }
            const int length = depth - part * DEPTH, k0 = warp * 128 + (lane & 3) * 8;
            const u32 at = saddr(memory) + work.at * STAGE + (lane >> 2) * STRIDE + k0 * 2;
            uint4 v[4];
            wait(FULL + work.at * 8, work.turn);
#pragma unroll
            for (int block = 0; block < 4; block++) {
                v[block] = make_uint4(0u, 0u, 0u, 0u);
                if (k0 + block * 32 < length)
                    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v[block].x), "=r"(v[block].y), "=r"(v[block].z), "=r"(v[block].w) : "r"(at + block * 64) : "memory");
            }
#pragma unroll
            for (int block = 0; block < 4; block++) {
                multiply(c, a[block][0], a[block][1], v[block].x, v[block].y);
                multiply(c, a[block][2], a[block][3], v[block].z, v[block].w);
            }
            __syncwarp();
            if (lane == 0) arrive(EMPTY + work.at * 8);
            if (++work.at == STAGES) { work.at = 0; work.turn ^= 1; }
            if (!ONE) {
#pragma unroll
                for (int block = 0; block < 4; block++)
#pragma unroll
                    for (int k = 0; k < 4; k++) a[block][k] = next[block][k];
                if (NORM && here) normalise(a, next_g, scale);
            }
        }
        // The ring keeps warps from being more than STAGES groups apart, so as many sums and barriers are enough.
        float* sums = SUMS + (turn & (BUFFERS - 1)) * WARPS * 64;
        const int barrier = 2 + (turn & (BUFFERS - 1));
        *(float2*)(sums + warp * 64 + (lane >> 2) * 8 + (lane & 3) * 2) = make_float2(c[0], c[1]);
        if (who == 0 || who == 1) {
            asm volatile("bar.sync %0, 512;" :: "r"(barrier) : "memory");
            float total = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) total += sums[w * 64 + i];
            total = rounded(total);
            if (gated) total = rounded(total / (1.f + expf(-total))) * __shfl_down_sync(0xffffffffu, total, 4);
            if (MODE == ADD) total += before;
            if (mine) *out = __float2bfloat16_rn(total);
        } else {
            asm volatile("bar.arrive %0, 512;" :: "r"(barrier) : "memory");
        }
    }
}

template <bool ALIGNED, int MODE, bool NORM>
__device__ __forceinline__ void either(const Work& work, const bf16* x, const bf16* norm, float eps, int rows, int depth, bf16* y) {
    if (depth <= DEPTH) product<ALIGNED, MODE, NORM, true>(work, x, norm, eps, rows, depth, y);
    else product<ALIGNED, MODE, NORM, false>(work, x, norm, eps, rows, depth, y);
}

__device__ __forceinline__ float turned(const bf16* x, const bf16* cos, const bf16* sin, int d) {
    const float other = fresh(x + (d ^ 32));
    return rounded(rounded(fresh(x + d) * value(cos[d])) + rounded((d < 32 ? -other : other) * value(sin[d])));
}

// Attention over the cache in `splits` parts; the last part of a head of keys to be ready joins them.
template <bool ALIGNED>
__device__ __noinline__ void attend(Work work, const bf16* qkv, const bf16* cos, const bf16* sin, bf16* keys, bf16* values, float* found,
                       u32* ready, bf16* out, int kv_heads, int cache, int splits, int span) {
    float* shared = SUMS;
    float* q = shared;                          // [GROUP][HEAD]
    bf16* newest = (bf16*)(shared + 256);       // key and value, [2][HEAD]
    float* tops = shared + 320;                 // [WARPS][GROUP], and totals
    float* totals = tops + WARPS * GROUP;
    u32* last = (u32*)(totals + WARPS * GROUP);
    float* sums = shared + 512;                 // [WARPS][GROUP][HEAD]
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, j = (tid & 7) * 8;
    const int wide = kv_heads * (GROUP + 2) * HEAD, tasks = work.batch * kv_heads * splits;
    uint4 early_k = make_uint4(0u, 0u, 0u, 0u), early_v = early_k;
    if ((int)blockIdx.x < tasks) {
        const int pair = blockIdx.x / splits, begin = (blockIdx.x - pair * splits) * span, p = begin + (tid >> 3);
        const int end = min(begin + span, cache - 1);
        const long long at = ((long long)pair * cache + p) * HEAD;
        if (p < end) {
            early_k = eight<ALIGNED>(keys + at, j, HEAD);
            early_v = eight<ALIGNED>(values + at, j, HEAD);
        }
        for (int further = p + WORKERS / 8; further < end; further += WORKERS / 8)
            if (j == 0) {
                asm volatile("prefetch.global.L2 [%0];" :: "l"(keys + at + (long long)(further - p) * HEAD));
                asm volatile("prefetch.global.L2 [%0];" :: "l"(values + at + (long long)(further - p) * HEAD));
            }
    }
    everyone(work);
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int pair = task / splits, split = task - pair * splits, b = pair / kv_heads, h = pair - b * kv_heads;
        const int begin = split * span, end = min(begin + span, cache);
        const bf16* mine = qkv + (long long)b * wide;
        bf16* key = keys + (long long)pair * cache * HEAD;
        bf16* val = values + (long long)pair * cache * HEAD;
        if (tid < 256) {
            q[tid] = turned(mine + (h * GROUP + (tid >> 6)) * HEAD, cos, sin, tid & 63) * 0.125f;
        } else if (tid < 384 && end == cache) {
            const int d = tid & 63, which = (tid - 256) >> 6;
            const bf16* from = mine + (kv_heads * (GROUP + which) + h) * HEAD;
            const bf16 v = __float2bfloat16_rn(which ? fresh(from + d) : turned(from, cos, sin, d));
            newest[tid - 256] = v;
            (which ? val : key)[(long long)(cache - 1) * HEAD + d] = v;
        }
        together();
        float m[GROUP], l[GROUP], acc[GROUP][8];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            m[g] = NEG_INF; l[g] = 0.f;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[g][i] = 0.f;
        }
        for (int base = begin; base < end; base += WORKERS / 8) {
            const int p = base + (tid >> 3);
            const bool inside = p < end;
            uint4 kk = make_uint4(0u, 0u, 0u, 0u), vv = kk;
            if (inside && p == cache - 1) {
                kk = *(const uint4*)(newest + j);
                vv = *(const uint4*)(newest + HEAD + j);
            } else if (task == (int)blockIdx.x && base == begin) {
                kk = early_k;
                vv = early_v;
            } else if (inside) {
                kk = eight<ALIGNED>(key + (long long)p * HEAD, j, HEAD);
                vv = eight<ALIGNED>(val + (long long)p * HEAD, j, HEAD);
            }
            const u32 ks[4] = {kk.x, kk.y, kk.z, kk.w}, vs[4] = {vv.x, vv.y, vv.z, vv.w};
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                const float4 one = shared4(q + g * HEAD + j), two = shared4(q + g * HEAD + j + 4);
                float s = one.x * low(ks[0]) + one.y * high(ks[0]) + one.z * low(ks[1]) + one.w * high(ks[1]);
                s += two.x * low(ks[2]) + two.y * high(ks[2]) + two.z * low(ks[3]) + two.w * high(ks[3]);
                s += __shfl_xor_sync(0xffffffffu, s, 1);
                s += __shfl_xor_sync(0xffffffffu, s, 2);
                s += __shfl_xor_sync(0xffffffffu, s, 4);
                if (!inside) s = NEG_INF;
                const float top = fmaxf(m[g], s), from = top == NEG_INF ? 0.f : top;
                const float old = expf(m[g] - from), e = expf(s - from);
                l[g] = l[g] * old + e;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    acc[g][2 * i] = acc[g][2 * i] * old + e * low(vs[i]);
                    acc[g][2 * i + 1] = acc[g][2 * i + 1] * old + e * high(vs[i]);
                }
                m[g] = top;
            }
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            float top = fmaxf(m[g], __shfl_xor_sync(0xffffffffu, m[g], 8));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 16));
            const float share = expf(m[g] - (top == NEG_INF ? 0.f : top));
            l[g] *= share;
            l[g] += __shfl_xor_sync(0xffffffffu, l[g], 8);
            l[g] += __shfl_xor_sync(0xffffffffu, l[g], 16);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float v = acc[g][i] * share;
                v += __shfl_xor_sync(0xffffffffu, v, 8);
                v += __shfl_xor_sync(0xffffffffu, v, 16);
                if (lane < 8) sums[(warp * GROUP + g) * HEAD + j + i] = v;
            }
            if (lane == 0) { tops[warp * GROUP + g] = top; totals[warp * GROUP + g] = l[g]; }
        }
        together();
        if (tid < 256) {
            const int g = tid >> 6;
            float top = NEG_INF, total = 0.f, sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w * GROUP + g]);
            const float from = top == NEG_INF ? 0.f : top;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float share = expf(tops[w * GROUP + g] - from);
                total += totals[w * GROUP + g] * share;
                sum += sums[w * GROUP * HEAD + tid] * share;
            }
            float* mine_found = found + (long long)task * (GROUP * (HEAD + 2));
            mine_found[tid] = sum;
            if ((tid & 63) == 0) { mine_found[256 + g] = top; mine_found[260 + g] = total; }
        }
        __threadfence();
        together();
        if (tid == 0) *last = atomicAdd(ready + pair, 1u) % (u32)splits == (u32)splits - 1u;
        together();
        if (*last && tid < 256) {
            __threadfence();
            const int g = tid >> 6;
            const float* all = found + (long long)pair * splits * (GROUP * (HEAD + 2));
            float top = NEG_INF, total = 0.f, sum = 0.f;
            for (int s0 = 0; s0 < splits; s0 += 8) {
                float tops_of[8], totals_of[8], sums_of[8];
#pragma unroll
                for (int s = 0; s < 8; s++) {
                    const float* one = all + (s0 + s) * (GROUP * (HEAD + 2));
                    const bool there = s0 + s < splits;
                    tops_of[s] = there ? fresh(one + 256 + g) : NEG_INF;
                    totals_of[s] = there ? fresh(one + 260 + g) : 0.f;
                    sums_of[s] = there ? fresh(one + tid) : 0.f;
                }
                float higher = top;
#pragma unroll
                for (int s = 0; s < 8; s++) higher = fmaxf(higher, tops_of[s]);
                const float from = higher == NEG_INF ? 0.f : higher, old = expf(top - from);
                total *= old;
                sum *= old;
#pragma unroll
                for (int s = 0; s < 8; s++) {
                    const float share = expf(tops_of[s] - from);
                    total += totals_of[s] * share;
                    sum += sums_of[s] * share;
                }
                top = higher;
            }
            out[((long long)b * kv_heads * GROUP + h * GROUP + g) * HEAD + (tid & 63)] = __float2bfloat16_rn(sum / total);
        }
        together();
    }
}

template <bool ALIGNED>
__device__ __forceinline__ void whole(const int64_t* tokens, const bf16* embedding, const bf16* attention_norm, const bf16* wqkv, const bf16* wo,
                                      const bf16* mlp_norm, const bf16* w_gate_up, const bf16* w_down, const bf16* norm, const bf16* cos, const bf16* sin,
                                      bf16* keys, bf16* values, float eps, bf16* logits, bf16* x, bf16* qkv, bf16* attended, bf16* act, float* found,
                                      int* counters, int layers, int first, int batch, int of_batch, int hidden, int kv_heads, int mlp, int vocabulary,
                                      int cache, int splits, int span) {
    const int q = kv_heads * GROUP * HEAD, wide = kv_heads * (GROUP + 2) * HEAD;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(FULL + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 16;" :: "r"(EMPTY + i * 8) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= WORKERS) {
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        int dealt = 0;
        Ring ring = {0, 0u, 0, 0, 0u};
        for (int layer = 0; layer < layers; layer++) {
            stream<ALIGNED>(ring, wqkv + (long long)layer * wide * hidden, wide, hidden, false, dealt, policy);
            stream<ALIGNED>(ring, wo + (long long)layer * hidden * q, hidden, q, false, dealt, policy);
            stream<ALIGNED>(ring, w_gate_up + (long long)layer * 2 * mlp * hidden, mlp, hidden, true, dealt, policy);
            stream<ALIGNED>(ring, w_down + (long long)layer * hidden * mlp, hidden, mlp, false, dealt, policy);
        }
        stream<ALIGNED>(ring, embedding, vocabulary, hidden, false, dealt, policy);
        return;
    }
    for (int i = blockIdx.x * WORKERS + threadIdx.x; i < batch * hidden; i += gridDim.x * WORKERS)
        x[i] = embedding[tokens[first + i / hidden] * hidden + i % hidden];
    // One phase in each turn, and nothing kept over it but where it ends: what is kept would go to memory and come back
    // behind the weights.
    int at = 0, dealt = 0;
    u32 turn = 0u, rung = 0u;
#pragma unroll 1
    for (int phase = 0; phase <= 5 * layers; phase++) {
        int layer = phase / 5, h = hidden, kv = kv_heads, m = mlp;
        asm volatile("" : "+r"(layer), "+r"(h), "+r"(kv), "+r"(m));
        const int which = phase == 5 * layers ? 5 : phase - layer * 5, q = kv * GROUP * HEAD, wide = kv * (GROUP + 2) * HEAD;
        const int rows = which == 0 ? wide : which == 3 ? m : which == 5 ? vocabulary : h;
        const int depth = which == 2 ? q : which == 4 ? m : h;
        const Work work = {at, turn, dealt, rung, (u32*)counters, batch};
        const int groups = which == 1 ? 0 : groups_of(rows, which == 3);
        const int first_group = first_of(dealt);
        const int stages = first_group < groups ? ((groups - 1 - first_group) / (int)gridDim.x + 1) * ((depth + DEPTH - 1) / DEPTH) : 0;
        turn ^= (u32)((at + stages) / STAGES) & 1u;
        at = (at + stages) % STAGES;
        dealt = (dealt + groups) % (int)gridDim.x;
        rung += gridDim.x;
        if (which == 0 || which == 5) {
            either<ALIGNED, STORE, true>(work, x, which == 0 ? attention_norm + (long long)layer * h : norm, eps, rows, depth,
                                         which == 0 ? qkv : logits + (long long)first * vocabulary);
        } else if (which == 1) {
            const long long past = ((long long)layer * of_batch + first) * kv * cache * HEAD;
            attend<ALIGNED>(work, qkv, cos, sin, keys + past, values + past, found, (u32*)counters + 1, attended, kv, cache, splits, span);
        } else if (which == 3) {
            either<ALIGNED, GATED, true>(work, x, mlp_norm + (long long)layer * h, eps, rows, depth, act);
        } else {
            either<ALIGNED, ADD, false>(work, which == 2 ? attended : act, nullptr, eps, rows, depth, x);
        }
    }
}
extern "C" __global__ void __launch_bounds__(544, 1)
step(const int64_t* tokens, const bf16* embedding, const bf16* attention_norm, const bf16* wqkv, const bf16* wo,
     const bf16* mlp_norm, const bf16* w_gate_up, const bf16* w_down, const bf16* norm, const bf16* cos, const bf16* sin,
     bf16* keys, bf16* values, float eps, bf16* logits, bf16* x, bf16* qkv, bf16* attended, bf16* act, float* found,
     int* counters, int layers, int first, int batch, int of_batch, int hidden, int kv_heads, int mlp, int vocabulary,
     int cache, int splits, int span) {
    whole<true>(tokens, embedding, attention_norm, wqkv, wo, mlp_norm, w_gate_up, w_down, norm, cos, sin, keys, values, eps, logits, x, qkv, attended, act, found, counters, layers, first, batch, of_batch, hidden, kv_heads, mlp, vocabulary, cache, splits, span);
}
extern "C" __global__ void __launch_bounds__(544, 1)
step_of_any_alignment(const int64_t* tokens, const bf16* embedding, const bf16* attention_norm, const bf16* wqkv, const bf16* wo,
     const bf16* mlp_norm, const bf16* w_gate_up, const bf16* w_down, const bf16* norm, const bf16* cos, const bf16* sin,
     bf16* keys, bf16* values, float eps, bf16* logits, bf16* x, bf16* qkv, bf16* attended, bf16* act, float* found,
     int* counters, int layers, int first, int batch, int of_batch, int hidden, int kv_heads, int mlp, int vocabulary,
     int cache, int splits, int span) {
    whole<false>(tokens, embedding, attention_norm, wqkv, wo, mlp_norm, w_gate_up, w_down, norm, cos, sin, keys, values, eps, logits, x, qkv, attended, act, found, counters, layers, first, batch, of_batch, hidden, kv_heads, mlp, vocabulary, cache, splits, span);
}
""")


def run(tokens, embedding, attention_norm, wqkv, wo, mlp_norm, w_gate_up, w_down, norm, cos, sin, keys, values, eps, logits):
    layers, batch, kv_heads, cache = keys.shape[0], keys.shape[1], keys.shape[2], keys.shape[3]
    vocabulary, hidden = embedding.shape[0], embedding.shape[1]
    q, wide, mlp = wo.shape[2], wqkv.shape[1], w_down.shape[2]
    device = embedding.device
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    odd = hidden % 8 + mlp % 8
    for start in (embedding.data_ptr(), attention_norm.data_ptr(), wqkv.data_ptr(), wo.data_ptr(), mlp_norm.data_ptr(),
                  w_gate_up.data_ptr(), w_down.data_ptr(), norm.data_ptr(), keys.data_ptr(), values.data_ptr()):
        odd += start % 16
    for first in range(0, batch, MOST_ROWS):
        rows = min(MOST_ROWS, batch - first)
        pairs = rows * kv_heads
        splits = max(1, min(sms // pairs, (cache + 63) // 64))
        span = (cache + splits - 1) // splits
        splits = (cache + span - 1) // span
        x = torch.empty((rows, hidden), dtype=torch.bfloat16, device=device)
        qkv = torch.empty((rows, wide), dtype=torch.bfloat16, device=device)
        attended = torch.empty((rows, q), dtype=torch.bfloat16, device=device)
        act = torch.empty((rows, mlp), dtype=torch.bfloat16, device=device)
        found = torch.empty((pairs * splits, 264), dtype=torch.float32, device=device)
        counters = torch.zeros((1 + pairs,), dtype=torch.int32, device=device)
        if odd == 0:
            kernels.step.launch(sms, 544, tokens, embedding, attention_norm, wqkv, wo, mlp_norm, w_gate_up,
                w_down, norm, cos, sin, keys, values, eps, logits, x, qkv, attended, act, found, counters,
                layers, first, rows, batch, hidden, kv_heads, mlp, vocabulary, cache, splits, span,
                shared_bytes=SHARED, cooperative=True)
        else:
            kernels.step_of_any_alignment.launch(sms, 544, tokens, embedding, attention_norm, wqkv, wo,
                mlp_norm, w_gate_up, w_down, norm, cos, sin, keys, values, eps, logits, x, qkv, attended, act,
                found, counters, layers, first, rows, batch, hidden, kv_heads, mlp, vocabulary, cache, splits,
                span, shared_bytes=SHARED, cooperative=True)
