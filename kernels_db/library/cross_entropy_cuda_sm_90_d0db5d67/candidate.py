"""Cross entropy: no running maximum, a fixed reference for each thread that is verified at the end of the row."""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

#define L2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define FLOOR (-1e38f)          // reference of a thread that has seen nothing
#define NEG2 0xFF80FF80u        // two bfloat16 -inf

__device__ __forceinline__ float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 max2(u32 a, u32 b) {
    u32 y;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
__device__ __forceinline__ float lo(u32 a) { return __uint_as_float(a << 16); }
__device__ __forceinline__ float hi(u32 a) { return __uint_as_float(a & 0xFFFF0000u); }

// sum of 2^(x*log2e - c) over N vectors of 8 bfloat16
template <int N>
__device__ __forceinline__ float exp_sum(const uint4 (&v)[N], float c) {
    float a0 = 0.f, a1 = 0.f, a2 = 0.f, a3 = 0.f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        a0 += ex2(fmaf(lo(v[j].x), L2E, -c));
        a1 += ex2(fmaf(hi(v[j].x), L2E, -c));
        a2 += ex2(fmaf(lo(v[j].y), L2E, -c));
        a3 += ex2(fmaf(hi(v[j].y), L2E, -c));
        a0 += ex2(fmaf(lo(v[j].z), L2E, -c));
        a1 += ex2(fmaf(hi(v[j].z), L2E, -c));
        a2 += ex2(fmaf(lo(v[j].w), L2E, -c));
        a3 += ex2(fmaf(hi(v[j].w), L2E, -c));
    }
    return (a0 + a1) + (a2 + a3);
}

template <int N>
__device__ __forceinline__ float vec_max(const uint4 (&v)[N]) {
    u32 m[N];
#pragma unroll
    for (int j = 0; j < N; ++j) m[j] = max2(max2(v[j].x, v[j].y), max2(v[j].z, v[j].w));
#pragma unroll
    for (int j = 1; j < N; ++j) m[0] = max2(m[0], m[j]);
    return fmaxf(lo(m[0]), hi(m[0]));
}

// online softmax: c is the reference in units of log2, s the sum of 2^(x*log2e - c)
template <int N>
__device__ __forceinline__ void online(const uint4 (&v)[N], float& c, float& s) {
    const float cn = fmaxf(c, vec_max(v) * L2E);
    s = s * ex2(c - cn) + exp_sum(v, cn);
    c = cn;
}
__device__ __forceinline__ void online_one(const __nv_bfloat16* p, float& c, float& s) {
    uint4 v[1];
    v[0] = make_uint4(0xFF800000u | (u32)*reinterpret_cast<const unsigned short*>(p), NEG2, NEG2, NEG2);
    online(v, c, s);
}

// the whole warp's (c, s); every lane gets it
__device__ __forceinline__ void warp_combine(float& c, float& s) {
    int k = __float_as_int(c);
    k ^= (k >> 31) & 0x7fffffff;
    k = __reduce_max_sync(0xffffffffu, k);
    k ^= (k >> 31) & 0x7fffffff;
    const float cm = __int_as_float(k);
    s *= ex2(c - cm);
    c = cm;
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
}

__device__ __forceinline__ long long label_of(const long long* labels, long long row, long long rows) {
    return row < rows ? __ldg(labels + row) : -1;
}
__device__ __forceinline__ u32 logit_of(const __nv_bfloat16* logits, long long row, long long v, long long label) {
    return (label >= 0 && label < v)
        ? (u32)__ldg(reinterpret_cast<const unsigned short*>(logits) + row * v + label) : 0u;
}
#define THREADS 256
#define EXACT (1.f / 64.f)      // above it the rounding of logit and log2 of the sum is less than bfloat16 shows

__device__ __forceinline__ uint4 load_stream(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
// 4 vectors of this thread in batch k; absent ones are -inf
__device__ __forceinline__ void load_batch(uint4 (&w)[4], const uint4* q, long long k, long long nvec) {
    const long long i = k * (4 * THREADS) + threadIdx.x;
    if ((k + 1) * (4 * THREADS) <= nvec) {
#pragma unroll
        for (int j = 0; j < 4; ++j) w[j] = load_stream(q + i + j * THREADS);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            w[j] = make_uint4(NEG2, NEG2, NEG2, NEG2);
            if (i + j * THREADS < nvec) w[j] = load_stream(q + i + j * THREADS);
        }
    }
}

__device__ __forceinline__ float ordered_max(float m) {
    int k = __float_as_int(m);
    k ^= (k >> 31) & 0x7fffffff;
    k = __reduce_max_sync(0xffffffffu, k);
    k ^= (k >> 31) & 0x7fffffff;
    return __int_as_float(k);
}

// The row against its true maximum, which is subtracted from logits before anything is scaled: what is equal to it
// counts exactly 1, so a loss of zero is zero. Two passes, the second from the cache.
__device__ __noinline__ void careful_row(const __nv_bfloat16* p, const uint4* q, long long head, long long tail, long long v,
                                         long long nvec, long long batches, u32 x, long long label,
                                         __nv_bfloat16* out) {
    __shared__ float share[THREADS / 32];
    uint4 a[4];
    const int tid = threadIdx.x, lane = tid & 31;
    const unsigned short* raw = reinterpret_cast<const unsigned short*>(p);
    float m = -INFINITY;
    for (long long k = 0; k < batches; ++k) {
        load_batch(a, q, k, nvec);
        m = fmaxf(m, vec_max(a));
    }
    if (tid < head) m = fmaxf(m, lo(raw[tid]));
    if (tail + tid < v) m = fmaxf(m, lo(raw[tail + tid]));
    m = ordered_max(m);
    if (lane == 0) share[tid >> 5] = m;
    __syncthreads();
    m = ordered_max(lane < THREADS / 32 ? share[lane] : -INFINITY);
    __syncthreads();
    float s = 0.f;
    for (long long k = 0; k < batches; ++k) {
        load_batch(a, q, k, nvec);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const u32 w[4] = {a[j].x, a[j].y, a[j].z, a[j].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s += ex2((lo(w[i]) - m) * L2E);
                s += ex2((hi(w[i]) - m) * L2E);
            }
        }
    }
    if (tid < head) s += ex2((lo(raw[tid]) - m) * L2E);
    if (tail + tid < v) s += ex2((lo(raw[tail + tid]) - m) * L2E);
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (lane == 0) share[tid >> 5] = s;
    __syncthreads();
    if (tid < 32) {
        s = lane < THREADS / 32 ? share[lane] : 0.f;
#pragma unroll
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
        if (tid == 0) *out = __float2bfloat16(label == -100 ? 0.f : (m - lo(x)) + logf(s));
    }
}

// One block a row. The sum is taken against a fixed reference of the thread (the largest of its first 8 logits);
// if it leaves the range in which float32 loses nothing, or the loss is so small that logit and log of the sum cancel,
// the row is done again against its true maximum.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
optimistic_rows(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ labels,
                __nv_bfloat16* __restrict__ loss, long long v) {
    __shared__ float2 part[THREADS / 32];
    const int tid = threadIdx.x;
    const long long row = blockIdx.x;
    const __nv_bfloat16* p = logits + row * v;
    long long head = ((16 - (reinterpret_cast<u64>(p) & 15)) & 15) >> 1;
    if (head > v) head = v;
    const long long nvec = (v - head) >> 3;
    const long long tail = head + nvec * 8;
    const long long batches = (nvec + 4 * THREADS - 1) / (4 * THREADS);
    const uint4* q = reinterpret_cast<const uint4*>(p + head);
    uint4 a[4], b[4];
    load_batch(a, q, 0, nvec);
    load_batch(b, q, 1, nvec);
    const long long label = labels[row];
    const u32 x = logit_of(logits, row, v, label);

    uint4 f[1];
    f[0] = a[0];
    float c = fmaxf(FLOOR, vec_max(f) * L2E), s = 0.f;
    for (long long k = 0; k < batches; k += 2) {
        s += exp_sum(a, c);
        if (k + 1 < batches) {
            load_batch(a, q, k + 2, nvec);
            s += exp_sum(b, c);
            load_batch(b, q, k + 3, nvec);
        }
    }
    // NaN, infinity and anything so large that a common reference could flush its peers: again, with care
    bool again = __syncthreads_or(!(s < 1e18f));
    if (!again) {
        if (tid < head) online_one(p + tid, c, s);
        if (tail + tid < v) online_one(p + tail + tid, c, s);
        warp_combine(c, s);
        if ((tid & 31) == 0) part[tid >> 5] = make_float2(c, s);
        __syncthreads();
        // every warp comes to the same loss, so that no flag has to be passed
        const int lane = tid & 31;
        const float2 g = lane < THREADS / 32 ? part[lane] : make_float2(FLOOR, 0.f);
        c = g.x; s = g.y;
        warp_combine(c, s);
        const float y = LN2 * (log2f(s) - fmaf(lo(x), L2E, -c));
        // a logit beyond the last vector may be so large that its own reference, rounded, leaves 2^128 of it
        again = !(y > EXACT && s < 1e18f);
        if (tid == 0 && !again) loss[row] = __float2bfloat16(label == -100 ? 0.f : y);
    }
    if (again) careful_row(p, q, head, tail, v, nvec, batches, x, label, loss + row);
}
""")


def run(logits, labels, loss):
    rows, v = logits.shape[0], logits.shape[1]
    if rows == 0:
        return
    kernels.optimistic_rows[rows, 256](logits, labels, loss, v)
