"""8-bit linear layer, each number of tokens by the kernel that is fastest for it.

One token: float32 products of rows. Up to 16: float16 products, which are exact, by mma.sync. Up to 128: 8-bit wgmma with
weights as rows, a ring by TMA and k shared by a cluster. More: tiles of 128 x 256 by 8-bit wgmma. The tensor cores keep some 14
bits of a sum of 8-bit products: up to 128 tokens none runs over more than 128 of k before it is added to a float32 one; for more
the sum's leading bits are moved to a bfloat16 beside it every 1024 of k, and what is left, which is exact, goes on.
"""

import torch

from kernels_db.runtime import cuda

GROUPS = 2  # warpgroups of 64 channels in a block for up to 128 tokens; one: three blocks a multiprocessor, two: two
ROWS = 2  # of a warp, for one token
TUNE = {"ROWS": [2, 4]}

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __nv_bfloat16 bf16;

// ---- one token: float32 products of rows, 512 bytes of a row a warp ----

__device__ __forceinline__ uint4 stream16(const unsigned char* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ void widen(u32 v, u32& low, u32& high) {
    asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}\n" : "=r"(low), "=r"(high) : "r"(v));
}
__device__ __forceinline__ float2 floats(u32 v) {
    const __half2 h = *reinterpret_cast<const __half2*>(&v);
    return __half22float2(h);
}

constexpr int LONGEST = 16384;  // of k, whose x is in shared memory as float16, which holds it exactly

extern "C" __global__ void __launch_bounds__(128, ROWS == 2 ? 6 : 4)
one(const unsigned char* __restrict__ x, const float* __restrict__ x_scale, const unsigned char* __restrict__ weight,
    const float* __restrict__ weight_scale, __nv_bfloat16* __restrict__ y, int inner, int outer) {
    __shared__ __align__(16) u32 wide[LONGEST / 2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = (blockIdx.x * 4 + warp) * ROWS;
    const uint4 none = make_uint4(0, 0, 0, 0);
    float sum[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; r++) sum[r] = 0.f;
    uint4 w[4][ROWS];
    #pragma unroll
    for (int s = 0; s < 4; s++) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int k = s * 512 + lane * 16;
            w[s][r] = row + r < outer && k < inner ? stream16(weight + (long long)(row + r) * inner + k) : none;
        }
    }
    for (int k = threadIdx.x * 16; k < inner; k += 2048) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(x + k));
        uint4 a, b;
        widen(v.x, a.x, a.y);
        widen(v.y, a.z, a.w);
        widen(v.z, b.x, b.y);
        widen(v.w, b.z, b.w);
        *reinterpret_cast<uint4*>(wide + k / 2) = a;
        *reinterpret_cast<uint4*>(wide + k / 2 + 4) = b;
    }
    __syncthreads();
    for (int first = 0; first < inner; first += 2048) {
        #pragma unroll
        for (int s = 0; s < 4; s++) {
            const int k = first + s * 512 + lane * 16;
            if (k < inner) {
                const uint4 a = *reinterpret_cast<const uint4*>(wide + k / 2), b = *reinterpret_cast<const uint4*>(wide + k / 2 + 4);
                const u32 xs[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
                #pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const u32 ws[4] = {w[s][r].x, w[s][r].y, w[s][r].z, w[s][r].w};
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        u32 low, high;
                        widen(ws[i], low, high);
                        const float2 c = floats(low), d = floats(high), e = floats(xs[2 * i]), f = floats(xs[2 * i + 1]);
                        sum[r] = fmaf(c.x, e.x, sum[r]);
                        sum[r] = fmaf(c.y, e.y, sum[r]);
                        sum[r] = fmaf(d.x, f.x, sum[r]);
                        sum[r] = fmaf(d.y, f.y, sum[r]);
                    }
                }
            }
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (row + r < outer && k + 2048 < inner) w[s][r] = stream16(weight + (long long)(row + r) * inner + k + 2048);
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        #pragma unroll
        for (int d = 16; d; d /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d);
        if (lane == 0 && row + r < outer) y[row + r] = __float2bfloat16(sum[r] * x_scale[0] * weight_scale[row + r]);
    }
}

// ---- up to 16 tokens: weights go from memory straight into the registers of mma.sync, widened to float16, which is exact ----

__device__ __forceinline__ void product(float (&c)[4], u32 a, u32 b, u32 v) {  // four of k for each lane
    u32 a0, a2, a1, a3, b0, b1;
    widen(a, a0, a2);
    widen(b, a1, a3);
    widen(v, b0, b1);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 16 output channels for 8 NT tokens; the four warps share k. A lane's 16 bytes are 16 of k in a row: which of k a place
// of a fragment holds is free as long as both operands agree. STEPS of 128 of k are on their way at once.
template <int NT, int STEPS>
__device__ __forceinline__ void strip(const unsigned char* x, const float* x_scale, const unsigned char* weight,
                                      const float* weight_scale, bf16* y, int tokens, int inner, int outer) {
    __shared__ float shared[4 * NT * 128];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int column = blockIdx.x * 16, row = blockIdx.y * 8 * NT;
    float c[NT][4];
    #pragma unroll
    for (int n = 0; n < NT; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.f;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const bool low = column + g < outer, high = column + g + 8 < outer;
    const unsigned char* at_low = weight + (long long)(column + g) * inner;
    const unsigned char* at_high = at_low + 8LL * inner;
    for (int first = warp * 128 * STEPS; first < inner; first += 4 * 128 * STEPS) {
        uint4 a[STEPS][2], b[STEPS][2];
        #pragma unroll
        for (int s = 0; s < STEPS; s++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int k = first + s * 128 + h * 64 + t * 16;
                a[s][h] = low && k < inner ? stream16(at_low + k) : none;
                b[s][h] = high && k < inner ? stream16(at_high + k) : none;
            }
        }
        #pragma unroll
        for (int n = 0; n < NT; n++) {
            const int token = row + n * 8 + g;
            const unsigned char* at = x + (long long)token * inner;
            #pragma unroll
            for (int s = 0; s < STEPS; s++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int k = first + s * 128 + h * 64 + t * 16;
                    const uint4 v = token < tokens && k < inner ? __ldg(reinterpret_cast<const uint4*>(at + k)) : none;
                    product(c[n], a[s][h].x, b[s][h].x, v.x);
                    product(c[n], a[s][h].y, b[s][h].y, v.y);
                    product(c[n], a[s][h].z, b[s][h].z, v.z);
                    product(c[n], a[s][h].w, b[s][h].w, v.w);
                }
            }
        }
    }
    // shared[warp][token][channel]: the four shares are added, and a token's 16 channels lie side by side
    #pragma unroll
    for (int n = 0; n < NT; n++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) shared[(warp * 8 * NT + n * 8 + 2 * t + (i & 1)) * 16 + g + (i & 2 ? 8 : 0)] = c[n][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 128 * NT; i += 128) {
        const float sum = (shared[i] + shared[i + 128 * NT]) + (shared[i + 256 * NT] + shared[i + 384 * NT]);
        const int token = row + i / 16, to = column + i % 16;
        if (token < tokens && to < outer) y[(long long)token * outer + to] = __float2bfloat16(sum * x_scale[token] * weight_scale[to]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 4)
few8(const unsigned char* __restrict__ x, const float* __restrict__ x_scale, const unsigned char* __restrict__ weight,
     const float* __restrict__ weight_scale, __nv_bfloat16* __restrict__ y, int tokens, int inner, int outer) {
    strip<1, 4>(x, x_scale, weight, weight_scale, y, tokens, inner, outer);
}

extern "C" __global__ void __launch_bounds__(128, 4)
few16(const unsigned char* __restrict__ x, const float* __restrict__ x_scale, const unsigned char* __restrict__ weight,
      const float* __restrict__ weight_scale, __nv_bfloat16* __restrict__ y, int tokens, int inner, int outer) {
    strip<2, 4>(x, x_scale, weight, weight_scale, y, tokens, inner, outer);
}

// ---- TMA, barriers, wgmma ----

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
__device__ __forceinline__ void fetch(u32 to, const CUtensorMap* map, int k, int row, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(bar) : "memory");
}
// rows of 128 bytes, swizzled: eight rows are 1024 bytes
__device__ __forceinline__ u64 operand(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void settle() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
__device__ __forceinline__ void mma256(float (&d)[128], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void mma64(float (&d)[32], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ u32 pair(float a, float b) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
    return v;
}
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }

// ---- up to 128 tokens: 64 channels a warpgroup are the rows of wgmma, 64 tokens its columns; the blocks of a cluster share
// k, and all blocks are on the device at once ----

__device__ __forceinline__ void meet() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }

template <int NT, int SLOTS, int WIDE>  // WIDE warpgroups of 64 channels
__device__ __forceinline__ void shares(const CUtensorMap* x, const CUtensorMap* w, const float* x_scale, const float* weight_scale,
                                       bf16* y, int tokens, int inner, int outer) {
    constexpr u32 SIZE = WIDE * 8192 + NT * 128;
    constexpr int CHANNELS = 64 * WIDE, QUADS = CHANNELS / 4;
    extern __shared__ char pool[];
    __shared__ u64 barriers[2 * SLOTS];
    const u32 base = (place(pool) + 1023) & ~1023u, full = place(barriers), empty = full + 8 * SLOTS;
    const int ranks = gridDim.x, rank = blockIdx.x, column = blockIdx.y * CHANNELS, row = blockIdx.z * NT;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int chunks = (inner + 127) / 128, share = (chunks + ranks - 1) / ranks, begin = min(rank * share, chunks), many = min(share, chunks - begin);
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; s++) { init(full + 8 * s, 1); init(empty + 8 * s, 4 * WIDE); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    float (*sums)[CHANNELS + 4] = reinterpret_cast<float (*)[CHANNELS + 4]>(pool + (base - place(pool)));  // [token][channel], over the ring
    if (warp == 4 * WIDE) {
        if (lane == 0) {
            for (int c = 0; c < many; c++) {
                const int slot = c % SLOTS;
                if (c >= SLOTS) wait(empty + 8 * slot, (c / SLOTS - 1) & 1);
                const u32 bar = full + 8 * slot, to = base + slot * SIZE;
                expect(bar, SIZE);
                fetch(to, w, (begin + c) * 128, column, bar);
                fetch(to + WIDE * 8192, x, (begin + c) * 128, row, bar);
            }
        }
        __syncwarp();
    } else {
        float total[NT / 2], d[NT / 2];
        #pragma unroll
        for (int i = 0; i < NT / 2; i++) total[i] = 0.f;
        for (int c = 0; c < many; c++) {
            const int slot = c % SLOTS;
            wait(full + 8 * slot, (c / SLOTS) & 1);
            const u64 a = operand(base + slot * SIZE + warp / 4 * 8192), b = operand(base + slot * SIZE + WIDE * 8192);
            fence();
            #pragma unroll
            for (int i = 0; i < 4; i++) mma64(d, a + 2 * i, b + 2 * i, i > 0);
            commit();
            settle<0>();
            if (lane == 0) arrive(empty + 8 * slot);
            #pragma unroll
            for (int i = 0; i < NT / 2; i++) total[i] += d[i];
        }
        asm volatile("bar.sync 1, %0;" ::"n"(128 * WIDE) : "memory");
        #pragma unroll
        for (int j = 0; j < NT / 8; j++) {
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[8 * j + 2 * t + (i & 1)][warp * 16 + g + (i & 2 ? 8 : 0)] = total[4 * j + i];
        }
    }
    meet();
    const int mine = NT / ranks;
    for (int u = threadIdx.x; u < mine * QUADS; u += 128 * WIDE + 32) {
        const int token = rank * mine + u / QUADS, channel = u % QUADS * 4, to = column + channel;
        if (row + token < tokens && to < outer) {
            float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
            const u32 here = place(&sums[token][channel]);
            for (int r = 0; r < ranks; r++) {
                u32 there;
                float4 part;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(r));
                asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w) : "r"(there) : "memory");
                sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
            }
            const float s = x_scale[row + token];
            const float4 c = *reinterpret_cast<const float4*>(weight_scale + to);
            *reinterpret_cast<uint2*>(y + (long long)(row + token) * outer + to) =
                make_uint2(pair(sum.x * s * c.x, sum.y * s * c.y), pair(sum.z * s * c.z, sum.w * s * c.w));
        }
    }
    meet();  // no block goes while another may still read its sums
}

extern "C" __global__ void __launch_bounds__(128 * GROUPS + 32, 4 - GROUPS)
some(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, const float* __restrict__ x_scale,
     const float* __restrict__ weight_scale, __nv_bfloat16* __restrict__ y, int tokens, int inner, int outer) {
    shares<64, 4, GROUPS>(&x, &w, x_scale, weight_scale, y, tokens, inner, outer);
}

// ---- many tokens: one thread fills a ring by TMA, two warpgroups multiply 64 x 256 each ----

constexpr int ST = 4, RUN = 8;  // slots of the ring; steps of 128 of k after which the sums leave the tensor cores' accumulator
constexpr u32 BYTES = 384 * 128;

extern "C" __global__ void __launch_bounds__(384, 1)
tiles(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, const float* __restrict__ x_scale,
      const float* __restrict__ weight_scale, __nv_bfloat16* __restrict__ y, int tokens, int inner, int outer) {
    extern __shared__ char ring[];
    __shared__ u64 barriers[2 * ST];
    const u32 base = (place(ring) + 1023) & ~1023u, full = place(barriers), empty = full + 8 * ST;
    if (threadIdx.x == 0) {
        for (int s = 0; s < ST; s++) { init(full + 8 * s, 1); init(empty + 8 * s, 8); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int tall = (tokens + 127) / 128, total = tall * ((outer + 255) / 256), steps = (inner + 127) / 128;
    int slot = 0;
    u32 phase = 0;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
                const int row = tile % tall * 128, column = tile / tall * 256;
                for (int k = 0; k < steps; k++) {
                    wait(empty + 8 * slot, phase ^ 1);
                    const u32 bar = full + 8 * slot, to = base + slot * BYTES;
                    expect(bar, BYTES);
                    fetch(to, &x, k * 128, row, bar);
                    fetch(to + 16384, &w, k * 128, column, bar);
                    if (++slot == ST) { slot = 0; phase ^= 1; }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4;
        for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
            const int row = tile % tall * 128 + group * 64 + warp * 16 + lane / 4, column = tile / tall * 256;
            float d[128];
            u32 kept[64];
            #pragma unroll
            for (int i = 0; i < 64; i++) kept[i] = 0;
            int former = -1, run = 0;
            for (int k = 0; k < steps; k++) {
                wait(full + 8 * slot, phase);
                const u64 a = operand(base + slot * BYTES + group * 8192), b = operand(base + slot * BYTES + 16384);
                fence();
                #pragma unroll
                for (int i = 0; i < 4; i++) mma256(d, a + 2 * i, b + 2 * i, k + i > 0);
                commit();
                settle<1>();
                if (former >= 0 && lane == 0) arrive(empty + 8 * former);
                former = slot;
                if (++slot == ST) { slot = 0; phase ^= 1; }
                if (++run == RUN) {  // the sum's leading bits are kept as bfloat16; the rest, which is exact, stays in the accumulator
                    run = 0;
                    settle<0>();
                    if (lane == 0) arrive(empty + 8 * former);
                    former = -1;
                    #pragma unroll
                    for (int i = 0; i < 64; i++) {
                        const float e = d[2 * i] + low(kept[i]), f = d[2 * i + 1] + high(kept[i]);
                        kept[i] = pair(e, f);
                        d[2 * i] = e - low(kept[i]);
                        d[2 * i + 1] = f - high(kept[i]);
                    }
                }
            }
            settle<0>();
            if (former >= 0 && lane == 0) arrive(empty + 8 * former);
            float scale[2];
            scale[0] = row < tokens ? x_scale[row] : 0.f;
            scale[1] = row + 8 < tokens ? x_scale[row + 8] : 0.f;
            #pragma unroll
            for (int q = 0; q < 8; q++) {  // four lanes exchange: 16 bytes of one row each
                u32 v[2][4];
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int c = column + 32 * q + 8 * i + 2 * t;
                    const float2 s = c < outer ? __ldg(reinterpret_cast<const float2*>(weight_scale + c)) : make_float2(0.f, 0.f);
                    #pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int at = 16 * q + 4 * i + 2 * half;
                        v[half][i] = pair((d[at] + low(kept[at / 2])) * scale[half] * s.x, (d[at + 1] + high(kept[at / 2])) * scale[half] * s.y);
                    }
                }
                const int c = column + 32 * q + 8 * t;
                #pragma unroll
                for (int half = 0; half < 2; half++) {
                    #pragma unroll
                    for (int i = 0; i < 4; i += 2) {
                        const u32 got = __shfl_xor_sync(0xffffffffu, t & 1 ? v[half][i] : v[half][i + 1], 1);
                        if (t & 1) v[half][i] = got; else v[half][i + 1] = got;
                    }
                    #pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const u32 got = __shfl_xor_sync(0xffffffffu, t & 2 ? v[half][i] : v[half][i + 2], 2);
                        if (t & 2) v[half][i] = got; else v[half][i + 2] = got;
                    }
                    if (row + 8 * half < tokens && c < outer)
                        *reinterpret_cast<uint4*>(y + (long long)(row + 8 * half) * outer + c) = make_uint4(v[half][0], v[half][1], v[half][2], v[half][3]);
                }
            }
        }
    }
}
""", flags=("-DGROUPS=2", "-DROWS=2"))


def run(x, x_scale, weight, weight_scale, y):
    tokens, inner = x.shape
    outer = weight.shape[0]
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    bytes_x = x.view(torch.uint8)
    bytes_w = weight.view(torch.uint8)
    if tokens == 1 and inner <= 16384:
        kernels.one[(outer + 4 * ROWS - 1) // (4 * ROWS), 128](bytes_x, x_scale, bytes_w, weight_scale, y, inner, outer)
    elif tokens <= 8:
        kernels.few8[(outer + 15) // 16, 128](bytes_x, x_scale, bytes_w, weight_scale, y, tokens, inner, outer)
    elif tokens <= 16:
        kernels.few16[(outer + 15) // 16, 128](bytes_x, x_scale, bytes_w, weight_scale, y, tokens, inner, outer)
    elif tokens <= 128:
        wide = 64 * GROUPS
        strips = (outer + wide - 1) // wide
        many = strips * ((tokens + 63) // 64)
        room = (4 - GROUPS) * blocks
        ranks = 8 if many * 8 <= room else 4 if many * 4 <= room else 2 if many * 2 <= room else 1
        kernels.some.launch((ranks, strips, (tokens + 63) // 64), 128 * GROUPS + 32, cuda.tensor_map(bytes_x, (64, 128), swizzle=128),
                            cuda.tensor_map(bytes_w, (wide, 128), swizzle=128),
                            x_scale, weight_scale, y, tokens, inner, outer, shared_bytes=4 * (8192 * GROUPS + 8192) + 1024, cluster=ranks)
    else:
        kernels.tiles.launch(blocks, 384, cuda.tensor_map(bytes_x, (128, 128), swizzle=128),
                             cuda.tensor_map(bytes_w, (256, 128), swizzle=128),
                             x_scale, weight_scale, y, tokens, inner, outer, shared_bytes=4 * 49152 + 1024)
