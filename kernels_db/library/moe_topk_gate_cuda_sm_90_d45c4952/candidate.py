"""Keys in two instructions; few rows: a warp each; many rows: four a warp, whose rounds of choice interleave.

A word of two logits becomes two keys by a byte permutation that spreads the signs, one logical operation, and one
permutation a key that puts the inverted index below the logit: signed order is the order of the numbers, and of equals
the first is the larger. A lane sorts its four keys once; each choice is then one redux over the heads of the lanes. With
four rows a warp four of them are in flight, and lane 8 r + j keeps the j-th choice of row r, so exponentials, sums and
stores are done once for four rows. The softmax's own sum cancels in the renormalised weights.
"""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
constexpr int NONE = 0x80000000;  // below the key of every logit

// Both halves of a word turned so that signed order is the order of the numbers.
__device__ __forceinline__ unsigned turned(unsigned v) {
    unsigned signs;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(signs) : "r"(v));  // 0xffff in place of each negative half, else 0
    return v ^ (signs & 0x7fff7fffu);
}
// The keys of a word's two logits; `places` has their inverted indices, that of the lower half in its lower half.
__device__ __forceinline__ int low_key(unsigned t, unsigned places) { return (int)__byte_perm(t, places, 0x1054); }
__device__ __forceinline__ int high_key(unsigned t, unsigned places) { return (int)__byte_perm(t, places, 0x3276); }
__device__ __forceinline__ float value_of(int key) {
    return __uint_as_float((unsigned)(key ^ (key >> 31 & 0x7fff0000)) & 0xffff0000u);
}
__device__ __forceinline__ int index_of(int key) { return ~key & 0xffff; }
__device__ __forceinline__ int most_of(int v) { return __reduce_max_sync(0xffffffffu, v); }
__device__ __forceinline__ void exchange(int& a, int& b) {  // the larger first
    const int high = max(a, b);
    b = min(a, b);
    a = high;
}
__device__ __forceinline__ float inverse(float v) {  // of a number from 1 to 8: within 1 ulp, without a division's slow path
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

struct Keys {
    int a, b, c, d;
    __device__ __forceinline__ Keys(uint2 v, unsigned places, bool in) {
        const unsigned x = turned(v.x), y = turned(v.y), after = places - 0x00020002u;
        a = in ? low_key(x, places) : NONE;
        b = in ? high_key(x, places) : NONE;
        c = in ? low_key(y, after) : NONE;
        d = in ? high_key(y, after) : NONE;
        exchange(a, b);
        exchange(c, d);
        exchange(a, c);
        exchange(b, d);
        exchange(b, c);
    }
    __device__ __forceinline__ int choose() {
        const int best = most_of(a);
        if (a == best) {
            a = b;
            b = c;
            c = d;
            d = NONE;
        }
        return best;
    }
};

// The inverted indices of a lane's first two logits.
__device__ __forceinline__ unsigned places_of(int lane) { return 0xfffeffffu - 0x00040004u * lane; }

// Up to 128 experts, a multiple of 4, k up to 32: a warp a row.
extern "C" __global__ void __launch_bounds__(128)
one_row(const uint2* logits, float* weights, int* chosen, int tokens, int experts, int k) {
    const int row = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= tokens) return;
    const bool in = 4 * lane < experts;
    uint2 v = make_uint2(0u, 0u);
    if (in) v = logits[(long long)row * (experts >> 2) + lane];
    Keys keys(v, places_of(lane), in);
    int mine = NONE;
#pragma unroll 1
    for (int j = 0; j < k; ++j) {
        const int best = keys.choose();
        if (lane == j) mine = best;
    }
    const float most = value_of(__shfl_sync(0xffffffffu, mine, 0));
    const float e = lane < k ? expf(value_of(mine) - most) : 0.f;
    float sum = e;
#pragma unroll 1
    for (int far = k > 8 ? 16 : 4; far; far >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, far);
    if (lane < k) {
        weights[(long long)row * k + lane] = e * inverse(sum);
        chosen[(long long)row * k + lane] = index_of(mine);
    }
}

// The same for k up to 8 and less than 2^31 logits: four rows a warp.
extern "C" __global__ void __launch_bounds__(128)
four_rows(const uint2* logits, float* weights, int* chosen, int tokens, int experts, int k) {
    const int first = (blockIdx.x * 4 + (threadIdx.x >> 5)) * 4, lane = threadIdx.x & 31;
    if (first >= tokens) return;
    const int vectors = experts >> 2, last = tokens - 1;
    const bool in = lane < vectors;
    uint2 v0 = make_uint2(0u, 0u), v1 = v0, v2 = v0, v3 = v0;
    if (in) {
        v0 = logits[unsigned(first * vectors + lane)];
        v1 = logits[unsigned(min(first + 1, last) * vectors + lane)];
        v2 = logits[unsigned(min(first + 2, last) * vectors + lane)];
        v3 = logits[unsigned(min(first + 3, last) * vectors + lane)];
    }
    const unsigned places = places_of(lane);
    Keys r0(v0, places, in), r1(v1, places, in), r2(v2, places, in), r3(v3, places, in);
    const int group = lane >> 3, place = lane & 7;
    const bool odd = group & 1, upper = group & 2;
    int mine = NONE;
#pragma unroll 1
    for (int j = 0; j < k; ++j) {
        const int b0 = r0.choose(), b1 = r1.choose(), b2 = r2.choose(), b3 = r3.choose();
        const int low = odd ? b1 : b0, high = odd ? b3 : b2, of_group = upper ? high : low;
        if (place == j) mine = of_group;
    }
    const float most = value_of(__shfl_sync(0xffffffffu, mine, 0, 8));
    const float e = place < k ? expf(value_of(mine) - most) : 0.f;
    float sum = e;
#pragma unroll
    for (int far = 4; far; far >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, far);
    if (place < k && first + group < tokens) {
        const unsigned at = (first + group) * k + place;
        weights[at] = e * inverse(sum);
        chosen[at] = index_of(mine);
    }
}

extern "C" __global__ void __launch_bounds__(128)
eight_two(const uint4* logits, float2* weights, int2* chosen, int tokens) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= tokens) return;
    const uint4 v = logits[row];
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    int first = NONE, second = NONE;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned t = turned(words[i]), places = 0xfffeffffu - 0x00020002u * i;
        const int a = low_key(t, places), b = high_key(t, places);
        second = max(min(first, max(a, b)), max(second, min(a, b)));
        first = max(first, max(a, b));
    }
    const float e = expf(value_of(second) - value_of(first)), r = inverse(1.f + e);
    weights[row] = make_float2(r, e * r);
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
    int last = 0x7fffffff;
    float most = 0.f, sum = 0.f;
    for (int j = 0; j < k; ++j) {
        int best = NONE;
        for (int i = lane; i < experts; i += 32) {
            const int key = low_key(turned(from[i]), ~i & 0xffff);
            if (key < last) best = max(best, key);
        }
        last = most_of(best);
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
    if experts == 8 and top == 2:
        kernels.eight_two[(tokens + 63) // 64, 64](logits, weights, chosen, tokens)
    elif experts % 4 == 0 and experts <= 128 and top <= 8 and 4096 <= tokens < 16777216:
        kernels.four_rows[(tokens + 15) // 16, 128](logits, weights, chosen, tokens, experts, top)
    elif experts % 4 == 0 and experts <= 128 and top <= 32:
        kernels.one_row[(tokens + 3) // 4, 128](logits, weights, chosen, tokens, experts, top)
    else:
        kernels.any_size[(tokens + 3) // 4, 128](logits, weights, chosen, tokens, experts, top)
