"""Attention of every position to every other by wgmma: one warpgroup fetches, two multiply in turns, and no maximum is taken.

A block stays and walks tiles of 128 rows of queries. Two threads of the first warpgroup fetch queries, keys and values by TMA;
each of the two others holds 64 rows' sums and multiplies the next block of keys while the powers of this one are taken. Powers
are of the scores as they are: a softmax does not depend on the maximum, which only keeps sums in range. Where a row's sum or a
result leaves the range (or is not finite) the warp computes its 16 rows again with a running maximum. The first scores of the
next tile run beside the last values of this one, so that no tile begins or ends with idle tensor cores.
"""

import math

import torch

from kernels_db.runtime import cuda

SECTION = 1  # heads whose tiles run side by side: their keys and values stay in the L2 cache
TUNE = {"SECTION": [1, 4], "TURNS": [0, 1]}

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __nv_bfloat16 bf16;

__device__ __forceinline__ u32 place(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
__device__ __forceinline__ void expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory"); }
__device__ __forceinline__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void wait(u32 bar, u32 phase) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(done) : "r"(bar), "r"(phase) : "memory");
    } while (!done);
}
__device__ __forceinline__ void fetch(u32 to, const CUtensorMap* map, int column, int row, int head, u32 bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(head), "r"(bar) : "memory");
}
__device__ __forceinline__ void send(const CUtensorMap* map, int column, int row, int head, u32 from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
                 ::"l"(map), "r"(column), "r"(row), "r"(head), "r"(from) : "memory");
}
// Boxes of 128 rows of 128 bytes, swizzled. Along a row: eight rows are 1024 bytes. Across the rows: 64 columns are a box of 16384.
__device__ __forceinline__ u64 along(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ u64 across(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1024ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void settle() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int N> __device__ __forceinline__ void pin(u32 (&d)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i]) :: "memory");
}
__device__ __forceinline__ void mma_scores(float (&d)[64], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void mma_values(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ void mma_warp(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
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
__device__ __forceinline__ void meet(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void allow(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

constexpr u32 BOX = 16384, TILE = 2 * BOX;  // 128 rows of 64 numbers, and of a head's 128
#define LOWEST __int_as_float(0xff800000)   // minus infinity

__device__ __forceinline__ void scores(float (&s)[64], u32 q, u32 k) {
    #pragma unroll
    for (int i = 0; i < 8; i++) mma_scores(s, along(q + i / 4 * BOX) + 2 * (i % 4), along(k + i / 4 * BOX) + 2 * (i % 4), i > 0);
    commit();
}
__device__ __forceinline__ void values(float (&o)[64], const u32 (&p)[32], u32 v) {
    #pragma unroll
    for (int i = 0; i < 8; i++) mma_values(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], across(v) + 128 * i);
    commit();
}
__device__ __forceinline__ void pack(u32 (&p)[32], const float (&s)[64]) {
    #pragma unroll
    for (int i = 0; i < 32; i++) p[i] = pair(s[2 * i], s[2 * i + 1]);
}

// Which tile of queries is a block's next one: sections of heads whose keys and values the L2 cache holds, the longest tiles
// of a section first, dealt out forwards and backwards in turns.
struct Where { int head, tile; };
template <bool CAUSAL>
__device__ __forceinline__ bool next(int round, int heads, int tiles, int section, Where& at) {
    const int blocks = gridDim.x, b = blockIdx.x;
    const int n = round * blocks + (CAUSAL && round & 1 ? blocks - 1 - b : b);
    if (n >= heads * tiles) return false;
    const int first = n / (section * tiles) * section, wide = min(section, heads - first), local = n - first * tiles;
    at.tile = tiles - 1 - local / wide;
    at.head = first + local % wide;
    return true;
}

// 16 rows of queries of one warp, with the usual running maximum: where sums by powers of the bare scores leave the range.
template <bool CAUSAL>
__device__ __forceinline__ void careful(float (&o)[64], float& l0, float& l1, const bf16* q, const bf16* k, const bf16* v, int row, int length, float scale) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int keys = CAUSAL ? min(row + 16, length) : length;
    const u32* q0 = reinterpret_cast<const u32*>(q + (long long)min(row + g, length - 1) * 128) + t;
    const u32* q1 = reinterpret_cast<const u32*>(q + (long long)min(row + g + 8, length - 1) * 128) + t;
    float m0 = LOWEST, m1 = LOWEST;
    l0 = l1 = 0.f;
    #pragma unroll
    for (int i = 0; i < 64; i++) o[i] = 0.f;
    #pragma unroll 1
    for (int first = 0; first < keys; first += 16) {
        float s[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const u32* at = reinterpret_cast<const u32*>(k + (long long)min(first + 8 * h + g, length - 1) * 128) + t;
            #pragma unroll
            for (int i = 0; i < 8; i++) mma_warp(s[h], q0[8 * i], q1[8 * i], q0[8 * i + 4], q1[8 * i + 4], at[8 * i], at[8 * i + 4]);
        }
        float n0 = m0, n1 = m1;
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                const int key = first + 8 * h + 2 * t + e;
                s[h][e] = key < keys && (!CAUSAL || key <= row + g) ? s[h][e] * scale : LOWEST;
                s[h][e + 2] = key < keys && (!CAUSAL || key <= row + g + 8) ? s[h][e + 2] * scale : LOWEST;
                n0 = fmaxf(n0, s[h][e]);
                n1 = fmaxf(n1, s[h][e + 2]);
            }
        }
        #pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            n0 = fmaxf(n0, __shfl_xor_sync(0xffffffffu, n0, d));
            n1 = fmaxf(n1, __shfl_xor_sync(0xffffffffu, n1, d));
        }
        const float b0 = n0 == LOWEST ? 0.f : n0, b1 = n1 == LOWEST ? 0.f : n1;
        const float old0 = power(m0 - b0), old1 = power(m1 - b1);
        m0 = n0, m1 = n1, l0 *= old0, l1 *= old1;
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                s[h][e] = power(s[h][e] - b0);
                s[h][e + 2] = power(s[h][e + 2] - b1);
                l0 += s[h][e];
                l1 += s[h][e + 2];
            }
        }
        #pragma unroll
        for (int j = 0; j < 16; j++) {
            const int column = 8 * j + g;
            u32 w[4];
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = first + 2 * t + (e & 1) + (e & 2 ? 8 : 0);
                w[e] = key < keys ? reinterpret_cast<const unsigned short*>(v)[(long long)key * 128 + column] : 0;
            }
            float d[4] = {o[4 * j] * old0, o[4 * j + 1] * old0, o[4 * j + 2] * old1, o[4 * j + 3] * old1};
            mma_warp(d, pair(s[0][0], s[0][1]), pair(s[0][2], s[0][3]), pair(s[1][0], s[1][1]), pair(s[1][2], s[1][3]), w[0] | w[1] << 16, w[2] | w[3] << 16);
            #pragma unroll
            for (int e = 0; e < 4; e++) o[4 * j + e] = d[e];
        }
    }
    #pragma unroll
    for (int d = 1; d < 4; d *= 2) {
        l0 += __shfl_xor_sync(0xffffffffu, l0, d);
        l1 += __shfl_xor_sync(0xffffffffu, l1, d);
    }
}

// The powers of a tile's first block, which has a mask.
template <bool CAUSAL>
__device__ __forceinline__ void first_powers(float (&s)[64], float& a0, float& a1, float& b0, float& b1, int row, int limit, float scale) {
    const int t = threadIdx.x % 4;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        #pragma unroll
        for (int e = 0; e < 2; e++) {
            const int column = 8 * i + 2 * t + e;
            s[4 * i + e] = (CAUSAL ? column <= row : column < limit) ? power(s[4 * i + e] * scale) : 0.f;
            s[4 * i + e + 2] = (CAUSAL ? column <= row + 8 : column < limit) ? power(s[4 * i + e + 2] * scale) : 0.f;
        }
        a0 += s[4 * i], a1 += s[4 * i + 1], b0 += s[4 * i + 2], b1 += s[4 * i + 3];
    }
}

template <bool CAUSAL>
__device__ __forceinline__ void attend(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map, const CUtensorMap* o_map,
                                       const bf16* q, const bf16* k, const bf16* v, int heads, int length, int section, float scale) {
    extern __shared__ char pool[];
    __shared__ u64 barriers[12];
    __shared__ Where told[2];  // the tile whose queries are in this place
    const u32 qs = (place(pool) + 1023) & ~1023u, ks = qs + 2 * TILE, vs = ks + 2 * TILE, os = vs + 2 * TILE;
    const u32 q_full = place(barriers), q_empty = q_full + 16, k_full = q_full + 32, k_empty = q_full + 48, v_full = q_full + 64, v_empty = q_full + 80;
    const int tiles = (length + 127) / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            init(q_full + 8 * i, 1); init(k_full + 8 * i, 1); init(v_full + 8 * i, 1);
            init(q_empty + 8 * i, 8); init(k_empty + 8 * i, 8); init(v_empty + 8 * i, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Where at;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp < 2 && lane == 0) {  // one thread fetches queries and keys, another one values
            const u32 slots = warp ? vs : ks, full = warp ? v_full : k_full, empty = warp ? v_empty : k_empty;
            const CUtensorMap* map = warp ? v_map : k_map;
            u32 c = 0;
            int round = 0;
            for (; next<CAUSAL>(round, heads, tiles, section, at); round++) {
                if (warp == 0) {
                    const u32 bar = q_full + 8 * (round & 1), to = qs + (round & 1) * TILE;
                    wait(q_empty + 8 * (round & 1), (round >> 1 & 1) ^ 1);
                    told[round & 1] = at;
                    expect(bar, TILE);
                    fetch(to, q_map, 0, at.tile * 128, at.head, bar);
                    fetch(to + BOX, q_map, 64, at.tile * 128, at.head, bar);
                }
                const int last = CAUSAL ? at.tile : tiles - 1;
                for (int j = 0; j <= last; j++, c++) {  // the block with a mask comes first
                    const int row = (j == 0 ? last : j - 1) * 128;
                    const u32 bar = full + 8 * (c & 1), to = slots + (c & 1) * TILE;
                    wait(empty + 8 * (c & 1), (c >> 1 & 1) ^ 1);
                    expect(bar, TILE);
                    fetch(to, map, 0, row, at.head, bar);
                    fetch(to + BOX, map, 64, row, at.head, bar);
                }
            }
            if (warp == 0) {  // no tile follows
                wait(q_empty + 8 * (round & 1), (round >> 1 & 1) ^ 1);
                told[round & 1].head = -1;
                arrive(q_full + 8 * (round & 1));
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int mine = group - 1;
        if (TURNS && mine == 1) allow(1, 256);
        const u32 staging = os + mine * BOX;
        const int within = warp * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = lane / 16;
        const int row = mine * 64 + warp * 16 + g, limit = length - (tiles - 1) * 128;
        float o[64], s[64], a0 = 0.f, a1 = 0.f, b0 = 0.f, b1 = 0.f;
        u32 p[32], c = 0;
        #pragma unroll
        for (int i = 0; i < 64; i++) o[i] = 0.f;
        wait(q_full, 0);
        at = told[0];
        wait(k_full, 0);
        fence();
        scores(s, qs + mine * (BOX / 2), ks);
        settle<0>();
        pin(s);
        if (lane == 0) arrive(k_empty);
        first_powers<CAUSAL>(s, a0, a1, b0, b1, row, limit, scale);
        pack(p, s);
        #pragma unroll 1
        for (int round = 0; at.head >= 0; round++) {
            const int last = CAUSAL ? at.tile : tiles - 1;
            const u32 queries = qs + (round & 1) * TILE + mine * (BOX / 2);
            #pragma unroll 1
            for (int j = 1; j <= last; j++) {
                const u32 slot = c & 1, phase = c >> 1 & 1, ahead = (c + 1) & 1;
                wait(k_full + 8 * ahead, (c + 1) >> 1 & 1);
                if (TURNS) meet(1 + mine, 256);
                pin(p);
                pin(o);
                fence();
                scores(s, queries, ks + ahead * TILE);
                wait(v_full + 8 * slot, phase);
                values(o, p, vs + slot * TILE);
                if (TURNS) allow(2 - mine, 256);
                settle<1>();
                pin(s);
                if (lane == 0) arrive(k_empty + 8 * ahead);
                #pragma unroll
                for (int i = 0; i < 16; i++) {
                    #pragma unroll
                    for (int e = 0; e < 4; e++) s[4 * i + e] = power(s[4 * i + e] * scale);
                    a0 += s[4 * i], a1 += s[4 * i + 1], b0 += s[4 * i + 2], b1 += s[4 * i + 3];
                }
                // never stores: a place in the order of memory, so that the powers are taken while the product runs
                asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}\n" ::"f"((a0 + a1) + (b0 + b1)), "r"(staging) : "memory");
                settle<0>();
                pin(o);
                if (lane == 0) arrive(v_empty + 8 * slot);
                pack(p, s);
                c++;
            }
            // The last values of this tile beside the first scores of the next one: where none follows those are of what lies there.
            const u32 slot = c & 1, phase = c >> 1 & 1, ahead = (c + 1) & 1, turn = (round + 1) & 1;
            if (lane == 0) arrive(q_empty + 8 * (round & 1));
            wait(q_full + 8 * turn, (round + 1) >> 1 & 1);
            const Where then = told[turn];
            if (then.head >= 0) wait(k_full + 8 * ahead, (c + 1) >> 1 & 1);
            if (TURNS) meet(1 + mine, 256);
            pin(p);
            pin(o);
            fence();
            scores(s, qs + turn * TILE + mine * (BOX / 2), ks + ahead * TILE);
            wait(v_full + 8 * slot, phase);
            values(o, p, vs + slot * TILE);
            if (TURNS) allow(2 - mine, 256);
            settle<1>();
            pin(s);
            if (lane == 0 && then.head >= 0) arrive(k_empty + 8 * ahead);
            float l0 = a0 + a1, l1 = b0 + b1;
            a0 = a1 = b0 = b1 = 0.f;
            first_powers<CAUSAL>(s, a0, a1, b0, b1, row, limit, scale);
            // never stores: a place in the order of memory, so that the powers are taken while the product runs
            asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}\n" ::"f"((a0 + a1) + (b0 + b1)), "r"(staging) : "memory");
            settle<0>();
            pin(o);
            if (lane == 0) arrive(v_empty + 8 * slot);
            pack(p, s);
            c++;
            #pragma unroll
            for (int d = 1; d < 4; d *= 2) {
                l0 += __shfl_xor_sync(0xffffffffu, l0, d);
                l1 += __shfl_xor_sync(0xffffffffu, l1, d);
            }
            bool fine = l0 > 1e-18f && l0 < 1e18f && l1 > 1e-18f && l1 < 1e18f;
            float size = 0.f;  // what is not a number stays none
            #pragma unroll
            for (int i = 0; i < 64; i++) size += fabsf(o[i]);
            fine = fine && size < 1e37f;
            if (__any_sync(0xffffffffu, !fine)) {
                const long long head = (long long)at.head * length * 128;
                careful<CAUSAL>(o, l0, l1, q + head, k + head, v + head, at.tile * 128 + mine * 64 + warp * 16, length, scale);
            }
            const float i0 = l0 == 0.f ? 1.f : 1.f / l0, i1 = l1 == 0.f ? 1.f : 1.f / l1;
            if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            meet(3 + mine, 128);
            #pragma unroll
            for (int j = 0; j < 16; j += 2) {
                const u32 to = staging + j / 8 * 8192 + within * 128 + (((j % 8 + chunk) ^ (within & 7)) << 4);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             ::"r"(to), "r"(pair(o[4 * j] * i0, o[4 * j + 1] * i0)), "r"(pair(o[4 * j + 2] * i1, o[4 * j + 3] * i1)),
                               "r"(pair(o[4 * j + 4] * i0, o[4 * j + 5] * i0)), "r"(pair(o[4 * j + 6] * i1, o[4 * j + 7] * i1)) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            meet(3 + mine, 128);
            if (threadIdx.x % 128 == 0) {
                const int to = at.tile * 128 + mine * 64;
                if (to < length) {
                    send(o_map, 0, to, at.head, staging);
                    send(o_map, 64, to, at.head, staging + 8192);
                }
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }

            #pragma unroll
            for (int i = 0; i < 64; i++) o[i] = 0.f;
            at = then;
        }
        if (TURNS && mine == 0) meet(1, 256);
        if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
whole(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
       const __grid_constant__ CUtensorMap o_map, const bf16* __restrict__ q, const bf16* __restrict__ k, const bf16* __restrict__ v,
       int heads, int length, int section, float scale) {
    attend<false>(&q_map, &k_map, &v_map, &o_map, q, k, v, heads, length, section, scale);
}
""", flags=("-DTURNS=1",))


def run(query, key, value, out):
    batch, heads, length, head = query.shape
    rows = batch * heads
    tiles = rows * ((length + 127) // 128)
    blocks = min(torch.cuda.get_device_properties(out.device).multi_processor_count, tiles)
    q = query.view(rows, length, head)
    k = key.view(rows, length, head)
    v = value.view(rows, length, head)
    o = out.view(rows, length, head)
    kernels.whole.launch(blocks, 384, cuda.tensor_map(q, (1, 128, 64), swizzle=128), cuda.tensor_map(k, (1, 128, 64), swizzle=128),
                         cuda.tensor_map(v, (1, 128, 64), swizzle=128), cuda.tensor_map(o, (1, 64, 64), swizzle=128), query, key, value,
                         rows, length, SECTION, 1.4426950408889634 / math.sqrt(head), shared_bytes=7 * 32768 + 1024)
