"""One position's rotary embedding, cache update and attention in one launch: a cluster for each head of keys.

The blocks of a cluster take spans of one head's cache. A lane asks for all its keys and values (16 bytes each) before it
waits for anything; eight lanes share a position, a warp keeps a maximum, a sum and results of its own, and products are of
float32 numbers. The warps' results are joined in the block's shared memory, the blocks' in that of the cluster's first.
The new row takes part as it is before it is rounded, in the block that holds its place; what was there is hidden.

The length is read and counted on in the same launch: every block adds 2^32 to it and has the position from the low half of
what it found; the last one to come, which the high half tells, writes the position plus one.
"""

import torch

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __nv_bfloat16 bf16;

#define LOWEST __int_as_float(0xff800000)  // minus infinity
constexpr u32 ALL = 0xffffffffu;

__device__ __forceinline__ u32 place(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ void widen(float (&f)[8], const uint4& v) {
    f[0] = low(v.x), f[1] = high(v.x), f[2] = low(v.y), f[3] = high(v.y);
    f[4] = low(v.z), f[5] = high(v.z), f[6] = low(v.w), f[7] = high(v.w);
}
__device__ __forceinline__ u32 pair(float a, float b) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
    return v;
}
__device__ __forceinline__ float power(float v) {
    float p;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
    return p;
}
__device__ __forceinline__ uint4 stream(const bf16* p) {  // not through the read-only path: the cache is written in this launch
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void give(u32 at, u32 rank, float v) {  // to another block's shared memory
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(v) : "memory");
}
// halves rotated against each other: the partner of number d of 64 is d + 32 or d - 32, in the lane four away
__device__ __forceinline__ void rotate(float (&x)[8], const float (&turn)[8], const float (&cross)[8]) {
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        const float other = __shfl_xor_sync(ALL, x[i], 4);
        x[i] = x[i] * turn[i] + other * cross[i];
    }
}

constexpr int WARPS = 8;

// STEPS x 32 positions of a block's span are under way at once; MORE: the span may be longer.
template <int STEPS, bool MORE>
__device__ __forceinline__ void attend(const bf16* query, const bf16* key, const bf16* value, const bf16* cosine, const bf16* sine,
                                       bf16* keys, bf16* values, u64* length, const unsigned char* mask, bf16* out,
                                       int kv_heads, int cache, int span) {
    __shared__ float sums[WARPS][4][64], most[WARPS][4], weight[WARPS][4];
    __shared__ float all_sums[8][4][64], all_most[8][4], all_weight[8][4];  // of the cluster's blocks, in the first one
    __shared__ long long where;
    const int ranks = gridDim.x, rank = blockIdx.x, row = blockIdx.y, batch = row / kv_heads;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 8, line = lane / 8;
    const int start = rank * span, end = min(start + span, cache);
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // that every block has begun is asked below
    bf16* k_row = keys + (long long)row * cache * 64 + part * 8;
    bf16* v_row = values + (long long)row * cache * 64 + part * 8;
    const unsigned char* seen_row = mask + (long long)batch * cache;
    uint4 k[STEPS], v[STEPS];
    bool seen[STEPS];
    #pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int c = start + s * 32 + warp * 4 + line;
        k[s] = c < end ? stream(k_row + (long long)c * 64) : make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) {
        const u64 found = atomicAdd(length, 1ull << 32);
        where = (long long)(found & 0xffffffffull);
        if (found >> 32 == (u64)gridDim.x * gridDim.y - 1) atomicExch(length, (found & 0xffffffffull) + 1);
    }
    #pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int c = start + s * 32 + warp * 4 + line;
        v[s] = c < end ? stream(v_row + (long long)c * 64) : make_uint4(0, 0, 0, 0);
        seen[s] = c < end ? seen_row[c] != 0 : false;
    }
    float turn[8], cross[8], q[4][8], fresh[8];
    widen(turn, *reinterpret_cast<const uint4*>(cosine + part * 8));
    widen(cross, *reinterpret_cast<const uint4*>(sine + part * 8));
    widen(fresh, *reinterpret_cast<const uint4*>(key + (long long)row * 64 + part * 8));
    #pragma unroll
    for (int h = 0; h < 4; h++) widen(q[h], *reinterpret_cast<const uint4*>(query + ((long long)row * 4 + h) * 64 + part * 8));
    if (part < 4) {
        #pragma unroll
        for (int i = 0; i < 8; i++) cross[i] = -cross[i];
    }
    #pragma unroll
    for (int h = 0; h < 4; h++) rotate(q[h], turn, cross);
    rotate(fresh, turn, cross);
    __syncthreads();
    const long long position = where;
    const float scale = 0.125f * 1.4426950408889634f;
    // the new row: its score of every head, for the block that holds its place
    const bool owner = position >= start && position < end;
    __shared__ float fresh_score[4];
    if (owner && warp == 0) {
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            float f = 0.f;
            #pragma unroll
            for (int i = 0; i < 8; i++) f = fmaf(q[h][i], fresh[i], f);
            f += __shfl_xor_sync(ALL, f, 1);
            f += __shfl_xor_sync(ALL, f, 2);
            f += __shfl_xor_sync(ALL, f, 4);
            if (lane == 0) fresh_score[h] = f * scale + (seen_row[position] ? 0.f : LOWEST);
        }
        if (line == 0) {
            const uint4 fresh_value = *reinterpret_cast<const uint4*>(value + (long long)row * 64 + part * 8);
            *reinterpret_cast<uint4*>(k_row + position * 64) = make_uint4(pair(fresh[0], fresh[1]), pair(fresh[2], fresh[3]), pair(fresh[4], fresh[5]), pair(fresh[6], fresh[7]));
            *reinterpret_cast<uint4*>(v_row + position * 64) = fresh_value;
        }
    }
    // Of its four heads a lane has the score of one: the one that is told by bits 2 and 1 of its number.
    const int mine = (lane >> 2 & 1) * 2 + (lane >> 1 & 1);
    float m = LOWEST, l = 0.f, acc[4][8];
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        #pragma unroll
        for (int i = 0; i < 8; i++) acc[h][i] = 0.f;
    }
    for (int first = start; first == start || (MORE && first < end); first += STEPS * 32) {
        if (MORE && first > start) {
            #pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const int c = first + s * 32 + warp * 4 + line;
                k[s] = c < end ? stream(k_row + (long long)c * 64) : make_uint4(0, 0, 0, 0);
                v[s] = c < end ? stream(v_row + (long long)c * 64) : make_uint4(0, 0, 0, 0);
                seen[s] = c < end ? seen_row[c] != 0 : false;
            }
        }
        float score[STEPS], n = m;
        #pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const int c = first + s * 32 + warp * 4 + line;
            float x[8], d[4];
            widen(x, k[s]);
            #pragma unroll
            for (int h = 0; h < 4; h++) {
                d[h] = q[h][0] * x[0];
                #pragma unroll
                for (int i = 1; i < 8; i++) d[h] = fmaf(q[h][i], x[i], d[h]);
            }
            // summed over the eight lanes of a position, the heads shared out on the way
            const float e0 = (lane & 4 ? d[2] : d[0]) + __shfl_xor_sync(ALL, lane & 4 ? d[0] : d[2], 4);
            const float e1 = (lane & 4 ? d[3] : d[1]) + __shfl_xor_sync(ALL, lane & 4 ? d[1] : d[3], 4);
            float f = (lane & 2 ? e1 : e0) + __shfl_xor_sync(ALL, lane & 2 ? e0 : e1, 2);
            f += __shfl_xor_sync(ALL, f, 1);
            // the mask is added, as PyTorch adds it: a NaN behind it stays one; what is overwritten is not met
            f = f * scale + (seen[s] ? 0.f : LOWEST);
            score[s] = c < end && c != position ? f : LOWEST;
            n = fmaxf(n, score[s]);
        }
        n = fmaxf(n, __shfl_xor_sync(ALL, n, 8));
        n = fmaxf(n, __shfl_xor_sync(ALL, n, 16));
        const float base = n == LOWEST ? 0.f : n, old = power(m - base);
        m = n;
        l *= old;
        if (MORE && first > start) {
            #pragma unroll
            for (int h = 0; h < 4; h++) {
                const float rise = __shfl_sync(ALL, old, lane & 24 | h << 1);
                #pragma unroll
                for (int i = 0; i < 8; i++) acc[h][i] *= rise;
            }
        }
        #pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const int c = first + s * 32 + warp * 4 + line;
            const float p = power(score[s] - base);
            l += p;
            float x[8];
            widen(x, c != position ? v[s] : make_uint4(0, 0, 0, 0));
            #pragma unroll
            for (int h = 0; h < 4; h++) {
                const float w = __shfl_sync(ALL, p, lane & 24 | h << 1);
                #pragma unroll
                for (int i = 0; i < 8; i++) acc[h][i] = fmaf(w, x[i], acc[h][i]);
            }
        }
    }
    // a warp's four positions at once come together: lane 8 h + part is left with head h
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        const float e0 = (lane & 16 ? acc[2][i] : acc[0][i]) + __shfl_xor_sync(ALL, lane & 16 ? acc[0][i] : acc[2][i], 16);
        const float e1 = (lane & 16 ? acc[3][i] : acc[1][i]) + __shfl_xor_sync(ALL, lane & 16 ? acc[1][i] : acc[3][i], 16);
        sums[warp][line][part * 8 + i] = (lane & 8 ? e1 : e0) + __shfl_xor_sync(ALL, lane & 8 ? e0 : e1, 8);
    }
    l += __shfl_xor_sync(ALL, l, 8);
    l += __shfl_xor_sync(ALL, l, 16);
    if (line == 0 && (lane & 1) == 0) { most[warp][mine] = m; weight[warp][mine] = l; }
    __syncthreads();
    {  // the warps' results, and the new row's, of one head and column
        const int h = threadIdx.x / 64, d = threadIdx.x % 64;
        const float own = owner ? fresh_score[h] : LOWEST;
        float top = own;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, most[w][h]);
        const float base = top == LOWEST ? 0.f : top, p = power(own - base);
        float total = owner ? p : 0.f, y = owner ? p * __bfloat162float(value[(long long)row * 64 + d]) : 0.f;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float share = power(most[w][h] - base);
            total = fmaf(share, weight[w][h], total);
            y = fmaf(share, sums[w][h][d], y);
        }
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        give(place(&all_sums[rank][h][d]), 0, y);
        if (d == 0) {
            give(place(&all_most[rank][h]), 0, top);
            give(place(&all_weight[rank][h]), 0, total);
        }
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        if (rank == 0) {
            float top = LOWEST, total = 0.f, y = 0.f;
            for (int r = 0; r < ranks; r++) top = fmaxf(top, all_most[r][h]);
            const float base = top == LOWEST ? 0.f : top;
            for (int r = 0; r < ranks; r++) {
                const float share = power(all_most[r][h] - base);
                total = fmaf(share, all_weight[r][h], total);
                y = fmaf(share, all_sums[r][h][d], y);
            }
            // a row that is masked whole is zeros, as PyTorch's safe softmax has it; a NaN in it stays one
            out[((long long)row * 4 + h) * 64 + d] = __float2bfloat16(total == 0.f ? y : y / total);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
up_to_128(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, const __nv_bfloat16* cosine, const __nv_bfloat16* sine,
    __nv_bfloat16* keys, __nv_bfloat16* values, long long* length, const bool* mask, __nv_bfloat16* out, int kv_heads, int cache, int span) {
    attend<4, false>(query, key, value, cosine, sine, keys, values, reinterpret_cast<u64*>(length), reinterpret_cast<const unsigned char*>(mask), out, kv_heads, cache, span);
}

extern "C" __global__ void __launch_bounds__(256, 2)
up_to_256(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, const __nv_bfloat16* cosine, const __nv_bfloat16* sine,
    __nv_bfloat16* keys, __nv_bfloat16* values, long long* length, const bool* mask, __nv_bfloat16* out, int kv_heads, int cache, int span) {
    attend<8, false>(query, key, value, cosine, sine, keys, values, reinterpret_cast<u64*>(length), reinterpret_cast<const unsigned char*>(mask), out, kv_heads, cache, span);
}

extern "C" __global__ void __launch_bounds__(256, 2)
any(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, const __nv_bfloat16* cosine, const __nv_bfloat16* sine,
    __nv_bfloat16* keys, __nv_bfloat16* values, long long* length, const bool* mask, __nv_bfloat16* out, int kv_heads, int cache, int span) {
    attend<2, true>(query, key, value, cosine, sine, keys, values, reinterpret_cast<u64*>(length), reinterpret_cast<const unsigned char*>(mask), out, kv_heads, cache, span);
}
""")


def run(query, key, value, cos, sin, keys, values, length, mask, out):
    batch, kv_heads, cache, head = keys.shape
    rows = batch * kv_heads
    blocks = 2 * torch.cuda.get_device_properties(out.device).multi_processor_count
    most = (cache + 127) // 128
    ranks = 8
    while ranks > 1 and (rows * ranks > blocks or ranks > most):
        ranks = ranks // 2
    span = (cache + ranks - 1) // ranks
    if span <= 128:
        kernels.up_to_128.launch((ranks, rows), 256, query, key, value, cos, sin, keys, values, length, mask, out, kv_heads, cache, span,
                           cluster=ranks)
    elif span <= 256:
        kernels.up_to_256.launch((ranks, rows), 256, query, key, value, cos, sin, keys, values, length, mask, out, kv_heads, cache, span,
                           cluster=ranks)
    else:
        kernels.any.launch((ranks, rows), 256, query, key, value, cos, sin, keys, values, length, mask, out, kv_heads, cache, span,
                           cluster=ranks)
