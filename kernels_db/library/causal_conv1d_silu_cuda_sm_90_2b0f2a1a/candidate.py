"""y = silu(causal depthwise conv1d of width 4): a warp a stretch of a row, found without a division; one body of code.

A lane has up to four 16-byte loads in flight. What is ahead of its own inputs comes from its neighbour by a rotation of the
warp, and to lane 0 from what lane 31 had a step before: nothing is read twice but 8 bytes a stretch. Row, channel and
stretch are block and thread numbers, so the first load follows a few instructions after the start. The vectors of a lane
pass through one loop that is not unrolled: with cold caches the code comes from memory, too.
"""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
__device__ __forceinline__ float silu(float v) {
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.f + e));
    return v * r;
}
__device__ __forceinline__ float low(unsigned v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(unsigned v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ unsigned pack(float a, float b) {
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<unsigned*>(&p);
}

// Lanes of x: those of the stretches of a row that a block takes; y: rows. Blocks of x: rows, y: batch, z: further stretches.
template <int V>
__device__ __forceinline__ void stretch(const uint4* x, const uint2* weight, const __nv_bfloat16* bias, uint4* y,
                                        unsigned channels, unsigned steps) {
    const unsigned channel = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x & 31;
    const unsigned base = (blockIdx.z * blockDim.x + threadIdx.x - lane) * V;
    if (channel >= channels || base >= steps) return;
    const long long at = (long long)(blockIdx.y * channels + channel) * steps + base + lane;
    uint4 v[V];
#pragma unroll
    for (int k = 0; k < V; ++k)
        v[k] = base + 32 * k + lane < steps ? __ldg(x + at + 32 * k) : make_uint4(0u, 0u, 0u, 0u);
    uint2 carried = make_uint2(0u, 0u);
    if (lane == 0 && base > 0) carried = __ldg(reinterpret_cast<const uint2*>(x + at) - 1);
    const uint2 packed = __ldg(weight + channel);
    const float b = __bfloat162float(bias[channel]);
    const float w0 = low(packed.x), w1 = high(packed.x), w2 = low(packed.y), w3 = high(packed.y);
    uint4* to = y + at;
    unsigned i = base + lane;
#pragma unroll 1
    for (int k = 0; k < V; ++k) {
        const uint4 u = v[0];
        const uint2 turned = make_uint2(__shfl_sync(0xffffffffu, u.z, lane + 31), __shfl_sync(0xffffffffu, u.w, lane + 31));
        const uint2 before = lane == 0 ? carried : turned;
        carried = turned;
        const float h[11] = {high(before.x), low(before.y), high(before.y), low(u.x), high(u.x), low(u.y),
                             high(u.y), low(u.z), high(u.z), low(u.w), high(u.w)};
        float o[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) o[j] = fmaf(w3, h[j + 3], fmaf(w2, h[j + 2], fmaf(w1, h[j + 1], fmaf(w0, h[j], b))));
        if (i == 0) {  // no products with what is ahead of the row: zero times infinity would be NaN
            o[0] = fmaf(w3, h[3], b);
            o[1] = fmaf(w3, h[4], fmaf(w2, h[3], b));
            o[2] = fmaf(w3, h[5], fmaf(w2, h[4], fmaf(w1, h[3], b)));
        }
        if (i < steps)
            *to = make_uint4(pack(silu(o[0]), silu(o[1])), pack(silu(o[2]), silu(o[3])), pack(silu(o[4]), silu(o[5])),
                             pack(silu(o[6]), silu(o[7])));
        i += 32;
        to += 32;
#pragma unroll
        for (int j = 0; j + 1 < V; ++j) v[j] = v[j + 1];
    }
}

extern "C" __global__ void __launch_bounds__(128, 12)
stretch4(const uint4* __restrict__ x, const uint2* __restrict__ weight, const __nv_bfloat16* __restrict__ bias,
         uint4* __restrict__ y, unsigned channels, unsigned steps) {
    stretch<4>(x, weight, bias, y, channels, steps);
}
extern "C" __global__ void __launch_bounds__(128, 16)
stretch2(const uint4* __restrict__ x, const uint2* __restrict__ weight, const __nv_bfloat16* __restrict__ bias,
         uint4* __restrict__ y, unsigned channels, unsigned steps) {
    stretch<2>(x, weight, bias, y, channels, steps);
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
    steps = length // 8
    if length % 8 == 0 and batch < 65536 and batch * channels < 2147483648 and steps <= 4194304:
        if steps <= 64:
            kernels.stretch2[((channels + 3) // 4, batch, 1), (32, 4)](x, weight, bias, y, channels, steps)
        else:
            warps = 1 if steps <= 128 else 2 if steps <= 256 else 4
            height = 4 // warps
            kernels.stretch4[((channels + height - 1) // height, batch, (steps + 128 * warps - 1) // (128 * warps)), (32 * warps, height)](
                x, weight, bias, y, channels, steps
            )
    else:
        total = batch * channels * length
        kernels.single[(total + 255) // 256, 256](x, weight, bias, y, total, channels, length)
