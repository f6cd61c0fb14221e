"""y = x W^T with four-bit weights: bf16 tensor cores, 16 or 32 rows of W a block, K split over its eight warps, no staging.

A weight is made as PyTorch makes it, each step rounded to bfloat16: (q - zero) * scale. So products add into one
accumulator over all of K, and an infinite scale gives NaN and infinity where PyTorch has them. Fragments of x come straight from L1 or
L2, permuted in registers to match the nibbles i and i + 4 of a word, which one AND/OR makes a pair of bfloat16.
"""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;


__device__ __forceinline__ u32 dequant(u32 v, __nv_bfloat162 z, __nv_bfloat162 s) {
    u32 m = (v & 0x000F000Fu) | 0x43004300u;
    const u32 c = 0x43004300u;
    __nv_bfloat162 q = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&m), *reinterpret_cast<const __nv_bfloat162*>(&c));
    q = __hmul2(__hsub2(q, z), s);
    return *reinterpret_cast<u32*>(&q);
}

__device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 permuted(uint4 v) {  // elements 0 4 1 5 2 6 3 7
    return make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
                      __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
}

__device__ __forceinline__ uint4 load_stream(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

template <int NT, int MT, int CH>  // CH: groups in flight a warp
__device__ __forceinline__ void product(const __nv_bfloat16* x, const unsigned char* packed, const __nv_bfloat16* scales,
                                        const __nv_bfloat16* zeros, __nv_bfloat16* y, int tokens, int inner, int outer) {
    constexpr int W = NT * 8 + 1, ROWS = MT * 16;
    __shared__ float sums[8][ROWS * W];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int groups = inner / 128, n0 = blockIdx.x * ROWS, m0 = blockIdx.y * (NT * 8);
    float acc[MT][NT][4] = {};
    for (int base = warp; base < groups; base += 8 * CH) {
        uint4 wa[MT][CH], wb[MT][CH];
        __nv_bfloat162 s[MT][CH], z[MT][CH];
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            const long long ra = min(n0 + m * 16 + g, outer - 1), rb = min(n0 + m * 16 + g + 8, outer - 1);
#pragma unroll
            for (int i = 0; i < CH; ++i) {
                const int group = base + i * 8;
                if (group < groups) {
                    wa[m][i] = load_stream(reinterpret_cast<const uint4*>(packed + ra * (inner / 2)) + group * 4 + t);
                    wb[m][i] = load_stream(reinterpret_cast<const uint4*>(packed + rb * (inner / 2)) + group * 4 + t);
                    s[m][i] = __halves2bfloat162(scales[ra * groups + group], scales[rb * groups + group]);
                    z[m][i] = __halves2bfloat162(zeros[ra * groups + group], zeros[rb * groups + group]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < CH; ++i) {
            const int group = base + i * 8;
            if (group >= groups) break;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                uint4 b[NT];
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    const int token = m0 + n * 8 + g;
                    uint4 value = make_uint4(0, 0, 0, 0);
                    if (token < tokens)
                        value = __ldg(reinterpret_cast<const uint4*>(x + (long long)token * inner + group * 128 + t * 32 + w * 8));
                    b[n] = permuted(value);
                }
#pragma unroll
                for (int m = 0; m < MT; ++m) {
                    const __nv_bfloat162 z0 = __low2bfloat162(z[m][i]), z1 = __high2bfloat162(z[m][i]);
                    const __nv_bfloat162 s0 = __low2bfloat162(s[m][i]), s1 = __high2bfloat162(s[m][i]);
                    const u32 A = w == 0 ? wa[m][i].x : w == 1 ? wa[m][i].y : w == 2 ? wa[m][i].z : wa[m][i].w;
                    const u32 B = w == 0 ? wb[m][i].x : w == 1 ? wb[m][i].y : w == 2 ? wb[m][i].z : wb[m][i].w;
                    const u32 a0 = dequant(A, z0, s0), a1 = dequant(B, z1, s1), a2 = dequant(A >> 4, z0, s0), a3 = dequant(B >> 4, z1, s1);
                    const u32 d0 = dequant(A >> 8, z0, s0), d1 = dequant(B >> 8, z1, s1), d2 = dequant(A >> 12, z0, s0), d3 = dequant(B >> 12, z1, s1);
#pragma unroll
                    for (int n = 0; n < NT; ++n) {
                        mma(acc[m][n], a0, a1, a2, a3, b[n].x, b[n].y);
                        mma(acc[m][n], d0, d1, d2, d3, b[n].z, b[n].w);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            float* row = sums[warp] + (m * 16 + g) * W + n * 8 + 2 * t;
            row[0] = acc[m][n][0]; row[1] = acc[m][n][1]; row[8 * W] = acc[m][n][2]; row[8 * W + 1] = acc[m][n][3];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * NT * 8; i += 256) {
        const int r = i % ROWS, m = i / ROWS;
        float total = 0.f;
#pragma unroll
        for (int k = 0; k < 8; ++k) total += sums[k][r * W + m];
        if (n0 + r < outer && m0 + m < tokens) y[(long long)(m0 + m) * outer + n0 + r] = __float2bfloat16(total);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
few(const __nv_bfloat16* x, const unsigned char* packed, const __nv_bfloat16* scales, const __nv_bfloat16* zeros,
    __nv_bfloat16* y, int tokens, int inner, int outer) {
    product<1, 1, 2>(x, packed, scales, zeros, y, tokens, inner, outer);
}

extern "C" __global__ void __launch_bounds__(256, 3)
many(const __nv_bfloat16* x, const unsigned char* packed, const __nv_bfloat16* scales, const __nv_bfloat16* zeros,
     __nv_bfloat16* y, int tokens, int inner, int outer) {
    product<2, 2, 1>(x, packed, scales, zeros, y, tokens, inner, outer);
}
""")


def run(x, packed, scales, zeros, y):
    tokens, inner = x.shape
    outer = packed.shape[0]
    if tokens <= 8:
        kernels.few[(outer + 15) // 16, 256](x, packed, scales, zeros, y, tokens, inner, outer)
    else:
        kernels.many[((outer + 31) // 32, (tokens + 15) // 16), 256](x, packed, scales, zeros, y, tokens, inner, outer)
