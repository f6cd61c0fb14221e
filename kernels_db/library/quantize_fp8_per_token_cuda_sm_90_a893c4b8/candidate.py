"""A block a row, in registers between both passes: read once, written once, by plain accesses.

The scale is made as PyTorch makes it on a GPU, by the float32 reciprocal of 448, and the quotient is the correctly rounded one: the
product with 1 / scale, corrected by one residual. The maximum of magnitudes is taken on their bits, two to a word. Rows
that are no multiple of 8 or too long go through a scalar kernel that reads twice.
"""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
#include <cuda_fp8.h>

__device__ __forceinline__ unsigned block_max(unsigned m) {
    __shared__ unsigned part[32];
    m = __reduce_max_sync(0xffffffffu, m);
    const int warps = (blockDim.x + 31) >> 5;
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = m;
    __syncthreads();
    m = (threadIdx.x & 31) < warps ? part[threadIdx.x & 31] : 0u;
    return __reduce_max_sync(0xffffffffu, m);
}

__device__ __forceinline__ float scale_of(unsigned bits) {
    return fmaxf(__uint_as_float(bits << 16), 1e-10f) * (1.f / 448.f);  // as PyTorch divides by a number on a GPU
}

__device__ __forceinline__ float quotient(float x, float scale, float inverse) {
    const float q = x * inverse;
    return fmaf(fmaf(-q, scale, x), inverse, q);
}

__device__ __forceinline__ unsigned pair(unsigned two, float scale, float inverse) {
    const float low = __uint_as_float(two << 16), high = __uint_as_float(two & 0xffff0000u);
    return __nv_cvt_float2_to_fp8x2(make_float2(quotient(low, scale, inverse), quotient(high, scale, inverse)),
                                    __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ unsigned magnitude(unsigned m, unsigned two) {
    return __vmaxu2(m, two & 0x7fff7fffu);
}

template <int VECS>
__device__ __forceinline__ void load(uint4 (&v)[VECS], const uint4* from, int vectors) {
#pragma unroll
    for (int i = 0; i < VECS; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        v[i] = at < vectors ? from[at] : make_uint4(0, 0, 0, 0);
    }
}

template <int VECS>
__device__ __forceinline__ void row(const uint4* x, uint2* out, float* scales, int vectors) {
    const long long r = blockIdx.x;
    uint4 v[VECS];
    load<VECS>(v, x + r * vectors, vectors);
    unsigned m = 0;
#pragma unroll
    for (int i = 0; i < VECS; ++i)
        m = magnitude(magnitude(magnitude(magnitude(m, v[i].x), v[i].y), v[i].z), v[i].w);
    m = block_max(max(m & 0xffffu, m >> 16));
    const float scale = scale_of(m), inverse = 1.f / scale;
    if (threadIdx.x == 0) scales[r] = scale;
    uint2* to = out + r * vectors;
#pragma unroll
    for (int i = 0; i < VECS; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at < vectors)
            to[at] = make_uint2(
                pair(v[i].x, scale, inverse) | pair(v[i].y, scale, inverse) << 16,
                pair(v[i].z, scale, inverse) | pair(v[i].w, scale, inverse) << 16);
    }
}

extern "C" __global__ void __launch_bounds__(1024)
row2(const __nv_bfloat16* x, __nv_fp8_e4m3* out, float* scales, int vectors) {
    row<2>((const uint4*)x, (uint2*)out, scales, vectors);
}
extern "C" __global__ void __launch_bounds__(1024)
row4(const __nv_bfloat16* x, __nv_fp8_e4m3* out, float* scales, int vectors) {
    row<4>((const uint4*)x, (uint2*)out, scales, vectors);
}
extern "C" __global__ void __launch_bounds__(512)
any_row(const void* bits, unsigned char* out, float* scales, long long hidden) {
    const unsigned short* x = (const unsigned short*)bits;
    const long long start = blockIdx.x * hidden;
    unsigned m = 0;
    for (long long i = threadIdx.x; i < hidden; i += blockDim.x) m = max(m, x[start + i] & 0x7fffu);
    m = block_max(m);
    const float scale = scale_of(m), inverse = 1.f / scale;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (long long i = threadIdx.x; i < hidden; i += blockDim.x)
        out[start + i] = pair(x[start + i], scale, inverse) & 0xffu;
}
""")


def run(x, quantized, scale):
    rows, hidden = x.shape
    vectors = hidden // 8
    if hidden % 8 or vectors > 4096:
        kernels.any_row[rows, 512](x, quantized, scale, hidden)
    elif vectors <= 2048:
        kernels.row2[rows, (vectors + 63) // 64 * 32](x, quantized, scale, vectors)
    else:
        kernels.row4[rows, (vectors + 127) // 128 * 32](x, quantized, scale, vectors)
