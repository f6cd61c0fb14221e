"""Logit and index packed in one 32-bit key, so that each of the k choices is one warp-wide redux.sync.

A bfloat16 has 16 bits: mapped to an order-preserving integer they are the key's upper half, and the inverted index its
lower half, so the larger key is the larger logit and, of equals, the first. The softmax's own sum cancels in the
renormalised weights: only the k chosen are exponentiated. With 8 experts a thread takes a row, whose logits are one
16-byte load; with more a warp does, up to 512 of them in registers; beyond that each choice scans the row again.
"""

import torch

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
__device__ __forceinline__ unsigned key_of(unsigned bits, int index) {
    if (bits == 0x8000u) bits = 0u;                                    // -0 and +0 are equal
    const unsigned order = bits & 0x8000u ? (~bits & 0xffffu) : (bits | 0x8000u);
    return order << 16 | (0xffffu - index);
}
__device__ __forceinline__ float value_of(unsigned key) {
    const unsigned order = key >> 16;
    const unsigned bits = order & 0x8000u ? (order & 0x7fffu) : (~order & 0xffffu);
    return __uint_as_float(bits << 16);
}
__device__ __forceinline__ int index_of(unsigned key) { return 0xffff - (key & 0xffffu); }

// Lane j holds the j-th key: k up to 32 in one pass.
__device__ __forceinline__ void finish(unsigned mine, int lane, int k, float* weights, int* chosen) {
    const float most = value_of(__shfl_sync(0xffffffffu, mine, 0));
    const float e = lane < k ? expf(value_of(mine) - most) : 0.f;
    float sum = e;
#pragma unroll
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane < k) {
        weights[lane] = e / sum;
        chosen[lane] = index_of(mine);
    }
}

template <int VECS>   // VECS * 4 logits a lane
__device__ __forceinline__ void warp_row(const uint2* logits, float* weights, int* chosen, int tokens, int experts, int k) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= tokens) return;
    const uint2* from = logits + (long long)row * (experts >> 2);
    unsigned keys[VECS * 4];
#pragma unroll
    for (int i = 0; i < VECS; ++i) {
        const int at = lane + 32 * i;
        const bool in = at * 4 < experts;
        const uint2 v = in ? from[at] : make_uint2(0, 0);
        keys[4 * i] = in ? key_of(v.x & 0xffffu, 4 * at) : 0u;
        keys[4 * i + 1] = in ? key_of(v.x >> 16, 4 * at + 1) : 0u;
        keys[4 * i + 2] = in ? key_of(v.y & 0xffffu, 4 * at + 2) : 0u;
        keys[4 * i + 3] = in ? key_of(v.y >> 16, 4 * at + 3) : 0u;
    }
    unsigned mine = 0u;
    for (int j = 0; j < k; ++j) {
        unsigned best = keys[0];
#pragma unroll
        for (int i = 1; i < VECS * 4; ++i) best = max(best, keys[i]);
        best = __reduce_max_sync(0xffffffffu, best);
        if (lane == j) mine = best;
#pragma unroll
        for (int i = 0; i < VECS * 4; ++i) if (keys[i] == best) keys[i] = 0u;
    }
    finish(mine, lane, k, weights + (long long)row * k, chosen + (long long)row * k);
}

extern "C" __global__ void __launch_bounds__(128)
to128(const void* logits, float* weights, int* chosen, int tokens, int experts, int k) {
    warp_row<1>((const uint2*)logits, weights, chosen, tokens, experts, k);
}
extern "C" __global__ void __launch_bounds__(128)
to512(const void* logits, float* weights, int* chosen, int tokens, int experts, int k) {
    warp_row<4>((const uint2*)logits, weights, chosen, tokens, experts, k);
}

extern "C" __global__ void __launch_bounds__(128)
eight_two(const uint4* logits, float2* weights, int2* chosen, int tokens) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= tokens) return;
    const uint4 v = logits[row];
    const unsigned two[4] = {v.x, v.y, v.z, v.w};
    unsigned first = 0u, second = 0u;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const unsigned key = key_of(i & 1 ? two[i >> 1] >> 16 : two[i >> 1] & 0xffffu, i);
        second = max(second, min(first, key));
        first = max(first, key);
    }
    const float e = expf(value_of(second) - value_of(first)), sum = 1.f + e;
    weights[row] = make_float2(1.f / sum, e / sum);
    chosen[row] = make_int2(index_of(first), index_of(second));
}

// Any number of experts below 65,536 and any k: the largest key below the last one, k times, then the weights.
extern "C" __global__ void __launch_bounds__(128)
any_size(const void* bits, float* weights, int* chosen, int tokens, int experts, int k) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= tokens) return;
    const unsigned short* from = (const unsigned short*)bits + (long long)row * experts;
    float* w = weights + (long long)row * k;
    int* c = chosen + (long long)row * k;
    unsigned last = 0xffffffffu;
    float most = 0.f, sum = 0.f;
    for (int j = 0; j < k; ++j) {
        unsigned best = 0u;
        for (int i = lane; i < experts; i += 32) {
            const unsigned key = key_of(from[i], i);
            if (key < last) best = max(best, key);
        }
        last = __reduce_max_sync(0xffffffffu, best);
        if (j == 0) most = value_of(last);
        const float e = expf(value_of(last) - most);
        sum += e;
        if (lane == 0) {
            w[j] = e;
            c[j] = index_of(last);
        }
    }
    __syncwarp();
    for (int j = lane; j < k; j += 32) w[j] /= sum;
}
""")


def run(logits, k, weights, chosen):
    tokens, experts = logits.shape
    top = weights.shape[1]
    blocks = (tokens + 3) // 4
    if experts == 8 and top == 2:
        kernels.eight_two[(tokens + 127) // 128, 128](logits, weights, chosen, tokens)
    elif experts % 4 == 0 and experts <= 128 and top <= 32:
        kernels.to128[blocks, 128](logits, weights, chosen, tokens, experts, top)
    elif experts % 4 == 0 and experts <= 512 and top <= 32:
        kernels.to512[blocks, 128](logits, weights, chosen, tokens, experts, top)
    else:
        kernels.any_size[blocks, 128](logits, weights, chosen, tokens, experts, top)
