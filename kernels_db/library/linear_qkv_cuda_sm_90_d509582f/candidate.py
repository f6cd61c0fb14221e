"""x wq^T, x wk^T and x wv^T as one product: their columns follow one another, so that all tiles are in the same waves.

A cluster of two blocks computes 256 rows of three boxes of 64 columns, each of which is of one of the three. One thread
of a block copies tiles of x and of the weights into a ring of shared memory; each block brings half of a weight's box
to both. Two warpgroups multiply 64 rows by 192 columns.
"""

import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
constexpr int STAGES = 4;
constexpr int GROUP = 8;  // clusters of rows whose tiles run side by side: x stays in the cache while weights stream by
constexpr int BM = 128, BN = 192, BK = 64;
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BN * BK * 2;
constexpr int Y_BYTES = BM * BN * 2;

__device__ __forceinline__ unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void init(unsigned bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}\n" :: "r"(bar), "r"(parity) : "memory");
}

__device__ __forceinline__ void expect(unsigned bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

// Arrive at the barrier with this address in block `rank` of the cluster.
__device__ __forceinline__ void arrive(unsigned bar, unsigned rank) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n"
                 :: "r"(bar), "r"(rank) : "memory");
}

__device__ __forceinline__ void load(unsigned to, const CUtensorMap* map, int column, int row, unsigned bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar) : "memory");
}

__device__ __forceinline__ void load_for_both(unsigned to, const CUtensorMap* map, int column, int row, unsigned bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar), "h"((unsigned short)3) : "memory");
}

__device__ __forceinline__ void store(const CUtensorMap* map, int column, int row, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(map), "r"(column), "r"(row), "r"(from) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Shared memory as wgmma reads it: rows of 128 bytes, swizzled, 8 of them apart by 1024.
__device__ __forceinline__ unsigned long long matrix(unsigned at) {
    return (unsigned long long)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void wgmma_n192(float (&d)[96], unsigned long long a, unsigned long long b,
                                           int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95},"
                 " %96, %97, p, 1, 1, 0, 0;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
                   "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
                   "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
                   "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
                   "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]),
                   "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
                   "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]),
                   "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
                   "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),
                   "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
                   "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
                   "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
                   "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),
                   "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
                 : "l"(a), "l"(b), "r"(accumulate));
}


__device__ __forceinline__ unsigned pair(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ void place(int tile, int rows, int columns, int& row, int& column) {
    const int group = GROUP * columns, first = tile / group * GROUP;
    const int size = min(rows - first, GROUP), inside = tile % group;
    row = first + inside % size;
    column = inside / size;
}

// Boxes are 64 columns of the results; those of the three follow one another. Returns which of the three a box is of.
__device__ __forceinline__ int part(int box, int q, int kv, int& column) {
    const int at = box < q ? 0 : box < q + kv ? 1 : 2;
    column = 64 * (box - (at == 0 ? 0 : at == 1 ? q : q + kv));
    return at;
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_qkv(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap wq,
           const __grid_constant__ CUtensorMap wk, const __grid_constant__ CUtensorMap wv,
           const __grid_constant__ CUtensorMap query, const __grid_constant__ CUtensorMap key,
           const __grid_constant__ CUtensorMap value, int rows, int q, int kv, int depth) {
    extern __shared__ unsigned char memory[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    const unsigned base = (shared(memory) + 1023u) & ~1023u, staging = base + STAGES * STAGE_BYTES;
    const unsigned full = shared(barriers), empty = full + 8 * STAGES;
    const unsigned rank = blockIdx.x & 1;
    const int columns = (q + 2 * kv + 2) / 3;
    const int group = threadIdx.x / 128, tiles = rows * columns, clusters = gridDim.x / 2;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(full + 8 * s, 1);
            init(empty + 8 * s, 16);  // 8 warps of either block
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int slot = 0;
            unsigned parity = 1;
            for (int tile = blockIdx.x / 2; tile < tiles; tile += clusters) {
                int row, column, at[3];
                place(tile, rows, columns, row, column);
                const CUtensorMap* map[3];
#pragma unroll
                for (int i = 0; i < 3; ++i) {
                    const int p = part(3 * column + i, q, kv, at[i]);
                    map[i] = p == 0 ? &wq : p == 1 ? &wk : &wv;
                }
                for (int k = 0; k < depth; ++k) {
                    const unsigned to = base + slot * STAGE_BYTES, bar = full + 8 * slot;
                    wait(empty + 8 * slot, parity);
                    expect(bar, STAGE_BYTES);
                    load(to, &x, k * BK, (2 * row + rank) * BM, bar);
#pragma unroll
                    for (int i = 0; i < 3; ++i)  // each block of the cluster brings half of a box to both
                        load_for_both(to + A_BYTES + i * 8192 + rank * 4096, map[i], k * BK, at[i] + rank * 32, bar);
                    if (++slot == STAGES) { slot = 0; parity ^= 1; }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int half = group - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const unsigned mine = staging + half * (Y_BYTES / 2);
        // lane l gives stmatrix row l % 8 of matrix l / 8: rows 0-7 and 8-15 of two 8-column chunks
        const int within = warp * 16 + (lane / 8 % 2) * 8 + lane % 8, chunk = lane / 16;
        int slot = 0;
        unsigned parity = 0;
        for (int tile = blockIdx.x / 2; tile < tiles; tile += clusters) {
            int row, column;
            place(tile, rows, columns, row, column);
            float sum[96];
            int before = 0;
            for (int k = 0; k < depth; ++k) {
                wait(full + 8 * slot, parity);
                const unsigned at = base + slot * STAGE_BYTES;
                const unsigned long long a = matrix(at + half * (A_BYTES / 2)), b = matrix(at + A_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < BK / 16; ++i) wgmma_n192(sum, a + 2 * i, b + 2 * i, k > 0 || i > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (k > 0) {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (lane < 2) arrive(empty + 8 * before, lane);
                }
                before = slot;
                if (++slot == STAGES) { slot = 0; parity ^= 1; }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < 96; ++i) asm volatile("" : "+f"(sum[i]) :: "memory");
            if (lane < 2) arrive(empty + 8 * before, lane);
            if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("bar.sync %0, 128;" :: "r"(group) : "memory");
#pragma unroll
            for (int j = 0; j < 24; j += 2) {
                unsigned out[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) out[i] = pair(sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]);
                const unsigned to = mine + j / 8 * 8192 + within * 128 + (((j % 8 + chunk) ^ (within & 7)) << 4);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             :: "r"(to), "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3]) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" :: "r"(group) : "memory");
            if (threadIdx.x % 128 == 0) {
#pragma unroll
                for (int i = 0; i < 3; ++i) {
                    int at;
                    const int p = part(3 * column + i, q, kv, at);
                    const CUtensorMap* map = p == 0 ? &query : p == 1 ? &key : &value;
                    store(map, at, (2 * row + rank) * BM + half * 64, mine + i * 8192);
                }
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
        }
        if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    cluster_sync();
}
""")

SHARED = 1024 + 4 * 40960 + 49152  # alignment, ring, results on their way out


def run(x, wq, wk, wv, query, key, value):
    m = x.shape[0]
    k = x.shape[1]
    q = (wq.shape[0] + 63) // 64
    kv = (wk.shape[0] + 63) // 64
    rows = (m + 255) // 256
    columns = (q + 2 * kv + 2) // 3
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    x_map = cuda.tensor_map(x, (128, 64), swizzle=128, l2_promotion=128)
    wq_map = cuda.tensor_map(wq, (32, 64), swizzle=128, l2_promotion=128)
    wk_map = cuda.tensor_map(wk, (32, 64), swizzle=128, l2_promotion=128)
    wv_map = cuda.tensor_map(wv, (32, 64), swizzle=128, l2_promotion=128)
    query_map = cuda.tensor_map(query, (64, 64), swizzle=128)
    key_map = cuda.tensor_map(key, (64, 64), swizzle=128)
    value_map = cuda.tensor_map(value, (64, 64), swizzle=128)
    kernels.linear_qkv.launch(2 * min(sms // 2, rows * columns), 384, x_map, wq_map, wk_map, wv_map, query_map, key_map,
                              value_map, rows, q, kv, (k + 63) // 64, shared_bytes=SHARED, cluster=2)
