"""y = silu(causal depthwise conv1d of width 4): a warp takes a stretch of one row, its inputs leave L2 first, its outputs stay.

A lane has V loads of 16 bytes in flight, and the stretch ahead of its own comes from its neighbour by a shuffle: the lane
before the first is the last one of the step before, so a stretch reads 8 bytes beyond itself and nothing twice. Inputs
are used once: marked evict-first they make room for outputs, which then need not push older data out to memory.
"""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
__device__ __forceinline__ float silu(float v) { return __fdividef(v, 1.f + __expf(-v)); }
__device__ __forceinline__ float low(unsigned v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(unsigned v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ unsigned pack(float a, float b) {
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<unsigned*>(&p);
}
__device__ __forceinline__ unsigned long long once() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint4 load(const uint4* from, unsigned long long policy) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(policy));
    return v;
}

__device__ __forceinline__ uint4 eight(uint4 v, uint2 before, const float* w, float bias, bool start) {
    const float h[11] = {high(before.x), low(before.y), high(before.y), low(v.x), high(v.x), low(v.y),
                         high(v.y), low(v.z), high(v.z), low(v.w), high(v.w)};
    float o[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        o[i] = fmaf(w[3], h[i + 3], fmaf(w[2], h[i + 2], fmaf(w[1], h[i + 1], fmaf(w[0], h[i], bias))));
    if (start) {  // no products with what is ahead of the row: zero times infinity would be NaN
        o[0] = fmaf(w[3], h[3], bias);
        o[1] = fmaf(w[3], h[4], fmaf(w[2], h[3], bias));
        o[2] = fmaf(w[3], h[5], fmaf(w[2], h[4], fmaf(w[1], h[3], bias)));
    }
    return make_uint4(pack(silu(o[0]), silu(o[1])), pack(silu(o[2]), silu(o[3])), pack(silu(o[4]), silu(o[5])),
                      pack(silu(o[6]), silu(o[7])));
}

template <int V>
__device__ __forceinline__ void stretch(const uint4* x, const uint2* weight, const __nv_bfloat16* bias, uint4* y,
                                        unsigned warps, unsigned of_row, unsigned channels, unsigned steps) {
    const unsigned warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp >= warps) return;
    const unsigned row = of_row == 1 ? warp : warp / of_row, base = (warp - row * of_row) * (32 * V);
    const long long at = (long long)row * steps + base + lane;
    const unsigned long long policy = once();
    uint4 v[V];
#pragma unroll
    for (int k = 0; k < V; ++k)
        v[k] = base + 32 * k + lane < steps ? load(x + at + 32 * k, policy) : make_uint4(0, 0, 0, 0);
    uint2 carried = make_uint2(0, 0);
    if (lane == 0 && base > 0) carried = reinterpret_cast<const uint2*>(x + at)[-1];
    const unsigned channel = row % channels;
    const uint2 packed = __ldg(weight + channel);
    const float b = __bfloat162float(bias[channel]);
    const float w[4] = {low(packed.x), high(packed.x), low(packed.y), high(packed.y)};
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const uint2 turned = make_uint2(__shfl_sync(0xffffffffu, v[k].z, (lane + 31) & 31),
                                        __shfl_sync(0xffffffffu, v[k].w, (lane + 31) & 31));
        const uint2 before = lane == 0 ? carried : turned;
        carried = turned;
        if (base + 32 * k + lane < steps) y[at + 32 * k] = eight(v[k], before, w, b, k == 0 && base + lane == 0);
    }
}

extern "C" __global__ void __launch_bounds__(128)
stretch4(const uint4* __restrict__ x, const uint2* __restrict__ weight, const __nv_bfloat16* __restrict__ bias,
         uint4* __restrict__ y, unsigned warps, unsigned of_row, unsigned channels, unsigned steps) {
    stretch<4>(x, weight, bias, y, warps, of_row, channels, steps);
}
extern "C" __global__ void __launch_bounds__(128)
stretch2(const uint4* __restrict__ x, const uint2* __restrict__ weight, const __nv_bfloat16* __restrict__ bias,
         uint4* __restrict__ y, unsigned warps, unsigned of_row, unsigned channels, unsigned steps) {
    stretch<2>(x, weight, bias, y, warps, of_row, channels, steps);
}

extern "C" __global__ void __launch_bounds__(256)
single(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ weight, const __nv_bfloat16* __restrict__ bias,
       __nv_bfloat16* __restrict__ y, long long total, int channels, int length) {
    const long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= total) return;
    const long long row = i / length;
    const int at = int(i - row * length), channel = int(row % channels);
    float sum = __bfloat162float(bias[channel]);
#pragma unroll
    for (int k = 0; k < 4; ++k)
        if (at + k >= 3) sum = fmaf(__bfloat162float(weight[channel * 4 + k]), __bfloat162float(x[i + k - 3]), sum);
    y[i] = __float2bfloat16(silu(sum));
}
""")


def run(x, weight, bias, y):
    batch, channels, length = x.shape
    rows = batch * channels
    steps = length // 8
    if length % 8 == 0 and rows * ((steps + 63) // 64) < 2147483648:
        if steps > 64:
            of_row = (steps + 127) // 128
            kernels.stretch4[(rows * of_row + 3) // 4, 128](x, weight, bias, y, rows * of_row, of_row, channels, steps)
        else:
            kernels.stretch2[(rows + 3) // 4, 128](x, weight, bias, y, rows, 1, channels, steps)
    else:
        kernels.single[(rows * length + 255) // 256, 256](x, weight, bias, y, rows * length, channels, length)
