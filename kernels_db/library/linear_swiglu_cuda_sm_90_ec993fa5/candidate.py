"""silu(x w_gate^T) * (x w_up^T): one persistent kernel, in which a thread has both factors of an element in registers.

A cluster of two blocks computes 256 rows of 128 columns. One thread of a block copies tiles of x, gate and up into a
ring of shared memory; each block brings one of the two weights to both. A tile of gate and one of up lie one behind the
other and are one operand: two warpgroups multiply 64 rows by 256 columns, the first 128 of which are gate's.
"""

import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
constexpr int STAGES = 4;
constexpr int GROUP = 8;  // clusters of rows whose tiles run side by side: x stays in the cache while weights stream by
constexpr int BM = 128, BN = 128, BK = 64;
constexpr int A_BYTES = BM * BK * 2, W_BYTES = BN * BK * 2, STAGE_BYTES = A_BYTES + 2 * W_BYTES;
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

__device__ __forceinline__ void wgmma_n256(float (&d)[128], unsigned long long a, unsigned long long b,
                                           int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"
                 " %128, %129, p, 1, 1, 0, 0;\n}\n"
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
                   "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
                   "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),
                   "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
                   "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),
                   "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
                   "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
                   "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
                   "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]),
                   "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
                 : "l"(a), "l"(b), "r"(accumulate));
}

// silu(g) * u. exp(-|g|) never overflows; the reciprocal of 1 + exp(-|g|), in [1, 2], by a quadratic and Newton's step.
__device__ __forceinline__ float gated(float g, float u) {
    float e;
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(-1.4426950408889634f * fabsf(g)));
    const float d = 1.0f + e;
    float r = fmaf(fmaf(0.32323232f, d, -1.45454545f), d, 2.12121212f);
    r *= fmaf(-d, r, 2.0f);
    return (g < 0.0f ? g * e : g) * r * u;
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

extern "C" __global__ void __launch_bounds__(384, 1)
swiglu(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap gate,
       const __grid_constant__ CUtensorMap up, const __grid_constant__ CUtensorMap y, int rows, int columns,
       int depth) {
    extern __shared__ unsigned char memory[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    const unsigned base = (shared(memory) + 1023u) & ~1023u, staging = base + STAGES * STAGE_BYTES;
    const unsigned full = shared(barriers), empty = full + 8 * STAGES;
    const unsigned rank = blockIdx.x & 1;
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
                int row, column;
                place(tile, rows, columns, row, column);
                for (int k = 0; k < depth; ++k) {
                    const unsigned to = base + slot * STAGE_BYTES, bar = full + 8 * slot;
                    wait(empty + 8 * slot, parity);
                    expect(bar, STAGE_BYTES);
                    load(to, &x, k * BK, (2 * row + rank) * BM, bar);
                    if (rank == 0) load_for_both(to + A_BYTES, &gate, k * BK, column * BN, bar);
                    else load_for_both(to + A_BYTES + W_BYTES, &up, k * BK, column * BN, bar);
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
            float sum[128];
            int before = 0;
            for (int k = 0; k < depth; ++k) {
                wait(full + 8 * slot, parity);
                const unsigned at = base + slot * STAGE_BYTES;
                const unsigned long long a = matrix(at + half * (A_BYTES / 2)), b = matrix(at + A_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < BK / 16; ++i) wgmma_n256(sum, a + 2 * i, b + 2 * i, k > 0 || i > 0);
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
            for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sum[i]) :: "memory");
            if (lane < 2) arrive(empty + 8 * before, lane);
            if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("bar.sync %0, 128;" :: "r"(group) : "memory");
#pragma unroll
            for (int j = 0; j < 16; j += 2) {
                unsigned out[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    out[i] = pair(gated(sum[4 * j + 2 * i], sum[64 + 4 * j + 2 * i]),
                                  gated(sum[4 * j + 2 * i + 1], sum[64 + 4 * j + 2 * i + 1]));
                const unsigned to = mine + j / 8 * 8192 + within * 128 + (((j % 8 + chunk) ^ (within & 7)) << 4);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             :: "r"(to), "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3]) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" :: "r"(group) : "memory");
            if (threadIdx.x % 128 == 0) {
                store(&y, column * BN, (2 * row + rank) * BM + half * 64, mine);
                store(&y, column * BN + 64, (2 * row + rank) * BM + half * 64, mine + 8192);
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
        }
        if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    cluster_sync();
}
""")

SHARED = 1024 + 4 * 49152 + 32768  # alignment, ring, results on their way out


def run(x, w_gate, w_up, y):
    m = x.shape[0]
    k = x.shape[1]
    n = w_gate.shape[0]
    rows = (m + 255) // 256
    columns = (n + 127) // 128
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    x_map = cuda.tensor_map(x, (128, 64), swizzle=128, l2_promotion=128)
    gate_map = cuda.tensor_map(w_gate, (128, 64), swizzle=128, l2_promotion=128)
    up_map = cuda.tensor_map(w_up, (128, 64), swizzle=128, l2_promotion=128)
    y_map = cuda.tensor_map(y, (64, 64), swizzle=128)
    kernels.swiglu.launch(2 * min(sms // 2, rows * columns), 384, x_map, gate_map, up_map, y_map, rows, columns,
                          (k + 63) // 64, shared_bytes=SHARED, cluster=2)
