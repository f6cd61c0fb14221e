"""One position's rotary embedding, cache update and attention in one launch: a cluster of blocks for each head of keys.

Each block of a cluster looks at its part of the cache, four tiles of which are on their way at once; the parts are
joined through the shared memory of the cluster's first block. The new key and value take the place of what was read of
their row, so that no block waits for another one's write.
"""

from kernels_db.runtime import cuda

SHARED = 4 * 4 * 256 * 16  # four stages of a tile: of two rows a key and a value, sixteen bytes for each thread
FEW = 33  # heads of keys, of all rows of the batch: four clusters of eight blocks for each 32 of them fill a GPU

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int HEAD = 64, GROUP = 4, WARPS = 8, THREADS = WARPS * 32;
constexpr int LANES = HEAD / 8;                // that share a row, 16 bytes each
constexpr int PASS = THREADS / LANES;          // rows that a block reads at once
constexpr int PASSES = 2, TILE = PASS * PASSES, STAGES = 4;
constexpr int MOST = 8;                        // blocks of a cluster
constexpr int COUNT_BITS = 40;                 // of the length; above them clusters are counted
#define NEG_INF __int_as_float(0xff800000)

__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float rounded(float v) { return __bfloat162float(__float2bfloat16_rn(v)); }
__device__ __forceinline__ u32 packed(float a, float b) {
    const u32 first = __bfloat16_as_ushort(__float2bfloat16_rn(a)), second = __bfloat16_as_ushort(__float2bfloat16_rn(b));
    return first | (second << 16);
}
__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ u32 blocks_of_cluster() {
    u32 size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}
__device__ __forceinline__ void arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// writes to where `own` lies in the shared memory of the cluster's first block
__device__ __forceinline__ void store_in_first(float* own, float v) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"((u32)__cvta_generic_to_shared(own)));
    asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(there), "f"(v) : "memory");
}
__device__ __forceinline__ u64 fresh(const long long* p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
// eight numbers rotated by eight cosines and sines; each step is rounded, as PyTorch does
__device__ __forceinline__ void rotate(uint4 x, uint4 turned, uint4 cosine, uint4 sine, bool first_half, float* y) {
    const u32 xs[4] = {x.x, x.y, x.z, x.w}, ts[4] = {turned.x, turned.y, turned.z, turned.w};
    const u32 cs[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, ss[4] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float a = first_half ? -low(ts[i]) : low(ts[i]), b = first_half ? -high(ts[i]) : high(ts[i]);
        y[2 * i] = rounded(rounded(low(xs[i]) * low(cs[i])) + rounded(a * low(ss[i])));
        y[2 * i + 1] = rounded(rounded(high(xs[i]) * high(cs[i])) + rounded(b * high(ss[i])));
    }
}

// of four numbers, the sum over a warp's rows of the one that the row of this thread is to have
__device__ __forceinline__ float across(float a, float b, float c, float d, bool third, bool odd) {
    const float even = (third ? c : a) + __shfl_xor_sync(0xffffffffu, third ? a : c, LANES);
    const float uneven = (third ? d : b) + __shfl_xor_sync(0xffffffffu, third ? b : d, LANES);
    return (odd ? uneven : even) + __shfl_xor_sync(0xffffffffu, odd ? even : uneven, 2 * LANES);
}

// sixteen bytes into shared memory, for this thread alone; zeros where they are not wanted
__device__ __forceinline__ void copy(uint4* to, const uint4* from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// until all copies but those of the last STAGES - 1 groups are there
__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 1) : "memory"); }

// Begins to read a tile: of keys and values each thread copies what it uses itself, so that none waits for another.
__device__ __forceinline__ void begin_tile(uint4* stage, unsigned char* seen, const uint4* keys, const uint4* values,
                                           const bool* mask, int first, int end, int lane) {
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        const int c = first + i * PASS;
        const bool inside = c < end;
        const long long at = inside ? (long long)c * LANES + lane : 0;
        copy(stage + (2 * i) * THREADS, keys + at, inside);
        copy(stage + (2 * i + 1) * THREADS, values + at, inside);
        seen[i] = inside ? reinterpret_cast<const unsigned char*>(mask)[c] : 0;
    }
    close_copies();
}

extern "C" __global__ void __launch_bounds__(256, 2)
attend(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, const __nv_bfloat16* cosine,
       const __nv_bfloat16* sine, __nv_bfloat16* keys, __nv_bfloat16* values, long long* length, const bool* mask,
       __nv_bfloat16* out, int kv_heads, int cache, int span) {
    __shared__ __align__(16) float rotated[GROUP + 1][HEAD];
    __shared__ uint4 new_value[LANES];
    __shared__ __align__(16) float sums[WARPS][GROUP][HEAD];
    __shared__ float most[WARPS][GROUP], weight[WARPS][GROUP];
    __shared__ float box_sums[MOST][GROUP][HEAD], box_most[MOST][GROUP], box_weight[MOST][GROUP];

    const u32 rank = rank_in_cluster(), blocks = blocks_of_cluster();
    const int head = blockIdx.x / blocks;  // of keys, in all of the batch
    const int warp = threadIdx.x / 32, lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const int start = rank * span, end = min(start + span, cache);
    const uint4* all_keys = reinterpret_cast<const uint4*>(keys) + (long long)head * cache * LANES;
    const uint4* all_values = reinterpret_cast<const uint4*>(values) + (long long)head * cache * LANES;
    const bool* seen = mask + (long long)(head / kv_heads) * cache;

    // Nothing of the cache waits for the position: its row is read as it was, and replaced.
    extern __shared__ __align__(16) uint4 stages[];
    uint4* own_stages = stages + threadIdx.x;
    unsigned char unmasked[STAGES][PASSES];
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        begin_tile(own_stages + i * PASSES * 2 * THREADS, unmasked[i], all_keys, all_values, seen, start + i * TILE + row, end, lane);
    const int position = (int)(fresh(length) & ((1ull << COUNT_BITS) - 1));
    arrive();  // this thread has read the length
    if (row <= GROUP) {  // the query heads, and the key
        const uint4* own = row < GROUP ? reinterpret_cast<const uint4*>(query) + ((long long)head * GROUP + row) * LANES
                                       : reinterpret_cast<const uint4*>(key) + (long long)head * LANES;
        rotate(own[lane], own[lane ^ (LANES / 2)], reinterpret_cast<const uint4*>(cosine)[lane],
               reinterpret_cast<const uint4*>(sine)[lane], lane < LANES / 2, &rotated[row][lane * 8]);
    } else if (row == GROUP + 1) {
        new_value[lane] = reinterpret_cast<const uint4*>(value)[(long long)head * LANES + lane];
    }
    __syncthreads();
    float q[GROUP][8];
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(&rotated[g][lane * 8 + i]);
            q[g][i] = four.x, q[g][i + 1] = four.y, q[g][i + 2] = four.z, q[g][i + 3] = four.w;
        }
    }

    float m[GROUP], l[GROUP], acc[GROUP][8];
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        m[g] = NEG_INF;
        l[g] = 0.f;
#pragma unroll
        for (int i = 0; i < 8; i++) acc[g][i] = 0.f;
    }
    for (int at = start; at < end; at += STAGES * TILE) {
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            const int first = at + stage * TILE;
            if (first >= end) break;
            uint4* tile = own_stages + stage * PASSES * 2 * THREADS;
            await_copies();
            float s[PASSES][GROUP];
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                const int c = first + i * PASS + row;
                if (c == position && c < end) {
                    const float* k = &rotated[GROUP][lane * 8];
                    const uint4 new_key = make_uint4(packed(k[0], k[1]), packed(k[2], k[3]), packed(k[4], k[5]), packed(k[6], k[7]));
                    tile[2 * i * THREADS] = new_key;
                    tile[(2 * i + 1) * THREADS] = new_value[lane];
                    reinterpret_cast<uint4*>(keys)[((long long)head * cache + c) * LANES + lane] = new_key;
                    reinterpret_cast<uint4*>(values)[((long long)head * cache + c) * LANES + lane] = new_value[lane];
                }
                const uint4 four = tile[2 * i * THREADS];
                const u32 ks[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    float sum = 0.f;
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        sum = fmaf(q[g][2 * j], low(ks[j]), sum);
                        sum = fmaf(q[g][2 * j + 1], high(ks[j]), sum);
                    }
#pragma unroll
                    for (int step = 1; step < LANES; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
                    // the mask is added, as PyTorch adds it: a NaN behind it stays one
                    s[i][g] = c < end ? sum * 0.125f + (unmasked[stage][i] ? 0.f : NEG_INF) : NEG_INF;
                }
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                float top = m[g];
#pragma unroll
                for (int i = 0; i < PASSES; i++) top = fmaxf(top, s[i][g]);
#pragma unroll
                for (int step = LANES; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
                const float base = top == NEG_INF ? 0.f : top;  // all masked so far
                const float old = __expf(m[g] - base);
                m[g] = top;
                l[g] *= old;
#pragma unroll
                for (int i = 0; i < 8; i++) acc[g][i] *= old;
#pragma unroll
                for (int i = 0; i < PASSES; i++) {
                    s[i][g] = __expf(s[i][g] - base);
                    l[g] += s[i][g];
                }
            }
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                const uint4 four = tile[(2 * i + 1) * THREADS];
                const u32 vs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        acc[g][2 * j] = fmaf(s[i][g], low(vs[j]), acc[g][2 * j]);
                        acc[g][2 * j + 1] = fmaf(s[i][g], high(vs[j]), acc[g][2 * j + 1]);
                    }
                }
            }
            begin_tile(tile, unmasked[stage], all_keys, all_values, seen, first + STAGES * TILE + row, end, lane);
        }
    }

    // the four rows of a warp: each ends with the sum of one query head; then the warps of the block
    const bool third = threadIdx.x & LANES, odd = threadIdx.x & (2 * LANES);
    const int own_head = (third ? 2 : 0) + (odd ? 1 : 0);
    float own[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        own[i] = across(acc[0][i], acc[1][i], acc[2][i], acc[3][i], third, odd);
    }
    float4* place = reinterpret_cast<float4*>(&sums[warp][own_head][lane * 8]);
    place[0] = make_float4(own[0], own[1], own[2], own[3]);
    place[1] = make_float4(own[4], own[5], own[6], own[7]);
    const float own_weight = across(l[0], l[1], l[2], l[3], third, odd);
    if (lane == 0) {
        most[warp][own_head] = third ? (odd ? m[3] : m[2]) : (odd ? m[1] : m[0]);
        weight[warp][own_head] = own_weight;
    }
    __syncthreads();
    const int g = threadIdx.x / HEAD, d = threadIdx.x % HEAD;
    float top = NEG_INF, total = 0.f, sum = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, most[w][g]);
    const float base = top == NEG_INF ? 0.f : top;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const float share = __expf(most[w][g] - base);
        total = fmaf(share, weight[w][g], total);
        sum = fmaf(share, sums[w][g][d], sum);
    }
    wait();  // every block of the cluster runs, and has read the length
    store_in_first(&box_sums[rank][g][d], sum);
    if (d == 0) {
        store_in_first(&box_most[rank][g], top);
        store_in_first(&box_weight[rank][g], total);
    }
    arrive();
    if (rank == 0 && threadIdx.x == 0) {
        // The last cluster counts the length on: the others are done with it.
        const u64 before = atomicAdd(reinterpret_cast<u64*>(length), 1ull << COUNT_BITS);
        if ((before >> COUNT_BITS) + 1 == gridDim.x / blocks) *reinterpret_cast<volatile long long*>(length) = position + 1ll;
    }
    wait();
    if (rank == 0) {
        top = NEG_INF, total = 0.f, sum = 0.f;
        for (int b = 0; b < blocks; b++) top = fmaxf(top, box_most[b][g]);
        const float last = top == NEG_INF ? 0.f : top;
        for (int b = 0; b < blocks; b++) {
            const float share = __expf(box_most[b][g] - last);
            total = fmaf(share, box_weight[b][g], total);
            sum = fmaf(share, box_sums[b][g][d], sum);
        }
        // a row that is masked whole is zeros, as PyTorch's safe softmax has it; a NaN in it stays one
        out[((long long)head * GROUP + g) * HEAD + d] = __float2bfloat16_rn(total == 0.f ? sum : sum / total);
    }
}
""")


def run(query, key, value, cos, sin, keys, values, length, mask, out):
    batch, kv_heads, cache, head = keys.shape
    rows = batch * kv_heads
    blocks = 8 if rows <= FEW else 4
    span = (cache + blocks - 1) // blocks
    kernels.attend.launch(rows * blocks, 256, query, key, value, cos, sin, keys, values, length, mask, out, kv_heads,
                          cache, span, cluster=blocks)
