"""Selective scan in one pass over time: 8 lanes a channel with 2 states each; b and c wait as pairs of bfloat16
in shared memory, two steps in 16 bytes, and softplus(delta) and its product with x as float32, made a tile ahead between the steps of the one before."""

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

// Four neighbouring numbers of a row, which are its steps from `at` on; beyond its end zeros.
template <bool FAST> __device__ __forceinline__ uint2 four(const bf16* from, int at, int steps) {
    if (FAST) return at < steps ? __ldg(reinterpret_cast<const uint2*>(from)) : make_uint2(0u, 0u);
    unsigned v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = at + i < steps ? __ldg(reinterpret_cast<const unsigned short*>(from) + i) : 0;
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
}
// What a thread copies of a tile of 32 steps: four steps of its channel, and four of two states.
struct Tile {
    uint2 x, d, g, be, bo, ce, co;
};
struct Rows {
    const bf16 *x, *d, *g, *b, *c;  // where the thread's four steps of the tile begin
};
template <bool FAST> __device__ __forceinline__ Tile fetch(Rows& at, int mine, int theirs, int steps) {
    Tile v;
    v.x = four<FAST>(at.x, mine, steps);
    v.d = four<FAST>(at.d, mine, steps);
    v.g = four<FAST>(at.g, mine, steps);
    v.be = four<FAST>(at.b, theirs, steps);
    v.bo = four<FAST>(at.b + steps, theirs, steps);
    v.ce = four<FAST>(at.c, theirs, steps);
    v.co = four<FAST>(at.c + steps, theirs, steps);
    at.x += 32; at.d += 32; at.g += 32; at.b += 32; at.c += 32;
    return v;
}
__device__ __forceinline__ float part(const uint2& v, int i) {
    return i == 0 ? low(v.x) : i == 1 ? high(v.x) : i == 2 ? low(v.y) : high(v.y);
}

// Of two steps and a lane's two states: {b, c, next b, next c}, each a pair of bfloat16; 16 bytes are left out after each
// four steps, so that copies meet no bank twice. pairs: of a channel and step softplus(delta), and its product with x.
struct Shared {
    uint4 bc[8][17];
    float4 pairs[8][17];
};

__device__ __forceinline__ void place(Shared& to, const Tile& v, int twin, int quad) {
    to.bc[quad][twin] = make_uint4(lows(v.be.x, v.bo.x), lows(v.ce.x, v.co.x), highs(v.be.x, v.bo.x), highs(v.ce.x, v.co.x));
    to.bc[quad][8 + twin] = make_uint4(lows(v.be.y, v.bo.y), lows(v.ce.y, v.co.y), highs(v.be.y, v.bo.y), highs(v.ce.y, v.co.y));
}

template <bool FAST>
__device__ __forceinline__ void pass(const bf16* __restrict__ x, const bf16* __restrict__ delta, const float* __restrict__ a,
                                     const bf16* __restrict__ b, const bf16* __restrict__ c, const float* __restrict__ d,
                                     const bf16* __restrict__ gate, const float* __restrict__ bias, bf16* __restrict__ out,
                                     int channels, int steps, int groups) {
    __shared__ Shared shared[2];
    const int tid = threadIdx.x, j = tid & 7, own = tid >> 3;
    const int batch = blockIdx.x / groups;
    const int wanted = (blockIdx.x % groups) * 8 + own;
    const bool live = wanted < channels;
    const int channel = live ? wanted : channels - 1;
    const long long row = (batch * (long long)channels + channel) * steps;
    const int twin = tid >> 3, quad = tid & 7;  // who copies which pair of states, and which four steps
    const float rate0 = a[channel * 16LL + 2 * j] * 1.4426950408889634f;
    const float rate1 = a[channel * 16LL + 2 * j + 1] * 1.4426950408889634f;
    const float skip = d[channel], shift = bias[channel];
    float h0 = 0.f, h1 = 0.f;
    const int mine = j * 4, theirs = quad * 4;
    const long long shared_row = (batch * 16LL + 2 * twin) * steps + theirs;
    Rows rows = {x + row + mine, delta + row + mine, gate + row + mine, b + shared_row, c + shared_row};
    Tile now = fetch<FAST>(rows, mine, theirs, steps);
    Tile next = fetch<FAST>(rows, 32 + mine, 32 + theirs, steps);
    {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = softplus(part(now.d, i) + shift);
        shared[0].pairs[own][2 * j] = make_float4(w[0], w[0] * part(now.x, 0), w[1], w[1] * part(now.x, 1));
        shared[0].pairs[own][2 * j + 1] = make_float4(w[2], w[2] * part(now.x, 2), w[3], w[3] * part(now.x, 3));
        place(shared[0], now, twin, quad);
    }
    __syncthreads();
    int buffer = 0;
    for (int t = 0; t < steps; t += 32, buffer ^= 1) {
        const Tile far = fetch<FAST>(rows, t + 64 + mine, t + 64 + theirs, steps);
        const Shared& from = shared[buffer];
        Shared& to = shared[buffer ^ 1];
        const int later = t == 0 ? 0 : -1;  // nothing decays into the first step: a rate that is NaN does not matter there
        float y[32], w[4], opened[4];
        // The next tile's softplus and this one's silu stand between the steps, which do not wait for them.
#pragma unroll
        for (int s = 0; s < 32; s += 2) {
            const float4 two = from.pairs[own][s / 2];
            const uint4 p = from.bc[s / 4][(s / 2 & 1) * 8 + j];
            float e0 = power2(two.x * rate0), e1 = power2(two.x * rate1);
            if (s == 0) {
                e0 = __int_as_float(__float_as_int(e0) & later);
                e1 = __int_as_float(__float_as_int(e1) & later);
            }
            h0 = fmaf(h0, e0, two.y * low(p.x));
            h1 = fmaf(h1, e1, two.y * high(p.x));
            y[s] = fmaf(h1, high(p.y), h0 * low(p.y));
            h0 = fmaf(h0, power2(two.z * rate0), two.w * low(p.z));
            h1 = fmaf(h1, power2(two.z * rate1), two.w * high(p.z));
            y[s + 1] = fmaf(h1, high(p.w), h0 * low(p.w));
            if (s % 8 == 2) w[s / 8] = softplus(part(next.d, s / 8) + shift);
            if (s % 8 == 6) opened[s / 8] = silu(part(now.g, s / 8));
        }
        to.pairs[own][2 * j] = make_float4(w[0], w[0] * part(next.x, 0), w[1], w[1] * part(next.x, 1));
        to.pairs[own][2 * j + 1] = make_float4(w[2], w[2] * part(next.x, 2), w[3], w[3] * part(next.x, 3));
        place(to, next, twin, quad);
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
        for (int i = 0; i < 4; ++i) r[i] = fmaf(skip, part(now.x, i), r[i]) * opened[i];
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
        now = next;
        next = far;
        __syncthreads();
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
