"""Selective scan in one pass over time: 8 lanes a channel with 2 states each; b and c wait as pairs of bfloat16
in shared memory, two steps in 16 bytes, and softplus(delta) and its product with x as float32."""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
__device__ __forceinline__ float low(unsigned v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(unsigned v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ unsigned lows(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ unsigned highs(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }
__device__ __forceinline__ unsigned pack(float a, float b) {
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<unsigned*>(&p);
}
__device__ __forceinline__ float power2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float softplus(float v) {
    const float e = power2(v * 1.4426950408889634f);
    // log1p of a small number by its series, for its own digits; of a larger one by the logarithm
    float s = fmaf(e, 0.14285714f, -0.16666667f);
    s = fmaf(e, s, 0.2f);
    s = fmaf(e, s, -0.25f);
    s = fmaf(e, s, 0.33333333f);
    s = fmaf(e, s, -0.5f);
    s = fmaf(e * e, s, e);
    const float l = e < 0.125f ? s : __logf(1.f + e);
    return v > 20.f ? v : l;
}
__device__ __forceinline__ float silu(float v) {
    float r;  // not by __fdividef, which has zero for a divisor beyond 2^126
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(1.f + power2(v * -1.4426950408889634f)));
    return v * r;
}

// Four neighbouring numbers of a row; beyond its end zeros.
template <bool FAST> __device__ __forceinline__ uint2 four(const bf16* row, int at, int steps) {
    if (FAST) return at < steps ? __ldg(reinterpret_cast<const uint2*>(row + at)) : make_uint2(0u, 0u);
    unsigned v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = at + i < steps ? __ldg(reinterpret_cast<const unsigned short*>(row) + at + i) : 0;
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
}
template <bool FAST>
__device__ __forceinline__ void pass(const bf16* __restrict__ x, const bf16* __restrict__ delta, const float* __restrict__ a,
                                     const bf16* __restrict__ b, const bf16* __restrict__ c, const float* __restrict__ d,
                                     const bf16* __restrict__ gate, const float* __restrict__ bias, bf16* __restrict__ out,
                                     int channels, int steps, int groups) {
    // Of two steps and a lane's two states: {b, c, next b, next c}, each a pair of bfloat16;
    // lanes change places from four steps to four, so that the copies meet no bank twice.
    __shared__ uint4 bc[2][16][8];
    __shared__ __align__(16) float2 pairs[2][8][34];  // of a channel and step: softplus, and its product with x
    const int tid = threadIdx.x, lane = tid & 31, j = lane & 7, own = tid >> 3;
    const int batch = blockIdx.x / groups;
    const int wanted = (blockIdx.x % groups) * 8 + own;
    const bool live = wanted < channels;
    const int channel = live ? wanted : channels - 1;
    const long long row = (batch * (long long)channels + channel) * steps;
    const bf16 *xr = x + row, *dr = delta + row, *gr = gate + row;
    const int twin = tid >> 3, quad = tid & 7;  // who copies which pair of states, and which four steps
    const bf16* br = b + (batch * 16LL + 2 * twin) * steps;
    const bf16* cr = c + (batch * 16LL + 2 * twin) * steps;
    const float rate0 = a[channel * 16LL + 2 * j] * 1.4426950408889634f;
    const float rate1 = a[channel * 16LL + 2 * j + 1] * 1.4426950408889634f;
    const float skip = d[channel], shift = bias[channel];
    float h0 = 0.f, h1 = 0.f;
    const int mine = j * 4;
    uint2 xw = four<FAST>(xr, mine, steps), dw = four<FAST>(dr, mine, steps), gw = four<FAST>(gr, mine, steps);
    const int theirs = quad * 4;
    uint2 be = four<FAST>(br, theirs, steps), bo = four<FAST>(br + steps, theirs, steps);
    uint2 ce = four<FAST>(cr, theirs, steps), co = four<FAST>(cr + steps, theirs, steps);
    int buffer = 0;
    for (int t = 0; t < steps; t += 32, buffer ^= 1) {
        const float xs[4] = {low(xw.x), high(xw.x), low(xw.y), high(xw.y)};
        const float ds[4] = {low(dw.x), high(dw.x), low(dw.y), high(dw.y)};
        const float gs[4] = {low(gw.x), high(gw.x), low(gw.y), high(gw.y)};
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = softplus(ds[i] + shift);
        float4* to = reinterpret_cast<float4*>(&pairs[buffer][own][mine]);
        to[0] = make_float4(w[0], w[0] * xs[0], w[1], w[1] * xs[1]);
        to[1] = make_float4(w[2], w[2] * xs[2], w[3], w[3] * xs[3]);
        bc[buffer][quad * 2][twin ^ quad] = make_uint4(lows(be.x, bo.x), lows(ce.x, co.x), highs(be.x, bo.x), highs(ce.x, co.x));
        bc[buffer][quad * 2 + 1][twin ^ quad] = make_uint4(lows(be.y, bo.y), lows(ce.y, co.y), highs(be.y, bo.y), highs(ce.y, co.y));
        xw = four<FAST>(xr, t + 32 + mine, steps);
        dw = four<FAST>(dr, t + 32 + mine, steps);
        gw = four<FAST>(gr, t + 32 + mine, steps);
        be = four<FAST>(br, t + 32 + theirs, steps);
        bo = four<FAST>(br + steps, t + 32 + theirs, steps);
        ce = four<FAST>(cr, t + 32 + theirs, steps);
        co = four<FAST>(cr + steps, t + 32 + theirs, steps);
        __syncthreads();  // the other buffer is free: who comes here has read it
        float y[32];
        const float4* from = reinterpret_cast<const float4*>(&pairs[buffer][own][0]);
#pragma unroll
        for (int s = 0; s < 32; s += 2) {
            const float4 two = from[s / 2];
            const uint4 p = bc[buffer][s / 2][j ^ (s >> 2)];
            const bool first = s == 0 && t == 0;  // nothing decays into the first step: a rate that is NaN does not matter there
            h0 = fmaf(h0, first ? 0.f : power2(two.x * rate0), two.y * low(p.x));
            h1 = fmaf(h1, first ? 0.f : power2(two.x * rate1), two.y * high(p.x));
            y[s] = fmaf(h1, high(p.y), h0 * low(p.y));
            h0 = fmaf(h0, power2(two.z * rate0), two.w * low(p.z));
            h1 = fmaf(h1, power2(two.z * rate1), two.w * high(p.z));
            y[s + 1] = fmaf(h1, high(p.w), h0 * low(p.w));
        }
        // Sums over the 8 lanes; lane j is left with steps 4 j to 4 j + 3.
        const bool b2 = j & 4, b1 = j & 2, b0 = j & 1;
        float u[16], v[8], r[4];
#pragma unroll
        for (int i = 0; i < 16; ++i) u[i] = (b2 ? y[16 + i] : y[i]) + __shfl_xor_sync(0xffffffffu, b2 ? y[i] : y[16 + i], 4);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = (b1 ? u[8 + i] : u[i]) + __shfl_xor_sync(0xffffffffu, b1 ? u[i] : u[8 + i], 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) r[i] = (b0 ? v[4 + i] : v[i]) + __shfl_xor_sync(0xffffffffu, b0 ? v[i] : v[4 + i], 1);
#pragma unroll
        for (int i = 0; i < 4; ++i) r[i] = fmaf(skip, xs[i], r[i]) * silu(gs[i]);
        const int at = t + mine;
        if (live) {
            if (FAST) {
                if (at < steps) *reinterpret_cast<uint2*>(out + row + at) = make_uint2(pack(r[0], r[1]), pack(r[2], r[3]));
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (at + i < steps) out[row + at + i] = __float2bfloat16_rn(r[i]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(64, 8)
whole(const bf16* __restrict__ x, const bf16* __restrict__ delta, const float* __restrict__ a, const bf16* __restrict__ b,
      const bf16* __restrict__ c, const float* __restrict__ d, const bf16* __restrict__ gate, const float* __restrict__ bias,
      bf16* __restrict__ out, int channels, int steps, int groups) {
    pass<true>(x, delta, a, b, c, d, gate, bias, out, channels, steps, groups);
}

extern "C" __global__ void __launch_bounds__(64, 8)
ragged(const bf16* __restrict__ x, const bf16* __restrict__ delta, const float* __restrict__ a, const bf16* __restrict__ b,
       const bf16* __restrict__ c, const float* __restrict__ d, const bf16* __restrict__ gate, const float* __restrict__ bias,
       bf16* __restrict__ out, int channels, int steps, int groups) {
    pass<false>(x, delta, a, b, c, d, gate, bias, out, channels, steps, groups);
}
""")


def run(x, delta, a, b, c, d, gate, bias, out):
    batch, channels, steps = x.shape
    groups = (channels + 7) // 8
    if steps % 4 == 0:
        kernels.whole[batch * groups, 64](x, delta, a, b, c, d, gate, bias, out, channels, steps, groups)
    else:
        kernels.ragged[batch * groups, 64](x, delta, a, b, c, d, gate, bias, out, channels, steps, groups)
