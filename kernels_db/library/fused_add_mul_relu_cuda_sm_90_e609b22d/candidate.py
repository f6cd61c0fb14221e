"""x = relu(x + m y + bias) in place: light blocks of 1024 consecutive floats in memory order, no cache policies."""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
typedef unsigned long long u64;
typedef unsigned int u32;

__device__ __forceinline__ float one(float x, float y, float b, float m) {
    const float v = fmaf(m, y, x) + b;
    return v < 0.f ? 0.f : v;   // keeps NaN
}
__device__ __forceinline__ float4 four(float4 x, float4 y, float4 b, float m) {
    return make_float4(one(x.x, y.x, b.x, m), one(x.y, y.y, b.y, m), one(x.z, y.z, b.z, m), one(x.w, y.w, b.w, m));
}

__device__ __forceinline__ float4 read_only(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

// A block is 1024 consecutive floats of one row; blocks start in memory order (the grid's x runs along a row).
extern "C" __global__ void __launch_bounds__(128, 16)
linear(float4* x, const float4* y, const float4* bias, float m, int hidden4) {
    const u32 col = blockIdx.x * 256u + threadIdx.x;
    const u32 i = blockIdx.y * (u32)hidden4 + col;
    float4* const p = x + i;
    const float4* const q = y + i;
    const float4* const r = bias + col;
    const float4 a0 = p[0];
    const float4 a1 = p[128];
    const float4 c0 = read_only(q);
    const float4 c1 = read_only(q + 128);
    const float4 b0 = read_only(r);
    const float4 b1 = read_only(r + 128);
    p[0] = four(a0, c0, b0, m);
    p[128] = four(a1, c1, b1, m);
}

// Small tensors: one float4 a thread, straight line, every load before anything else. A block is 128 float4 of one row.
extern "C" __global__ void __launch_bounds__(128)
light(float4* x, const float4* __restrict__ y, const float4* __restrict__ bias, float m, int hidden4) {
    const u32 col = blockIdx.x * 128u + threadIdx.x;
    const u32 i = blockIdx.y * (u32)hidden4 + col;
    const float4 a = x[i];
    const float4 c = __ldg(y + i);
    const float4 b = __ldg(bias + col);
    x[i] = four(a, c, b, m);
}

// Any width that 16 bytes divide: a thread owns 4 columns and takes 4 rows at a time.
extern "C" __global__ void __launch_bounds__(256)
general(float* x, const float* __restrict__ y, const float* __restrict__ bias, float m, int tokens, int hidden) {
    const long long col = ((long long)blockIdx.x * 256 + threadIdx.x) * 4;
    if (col >= hidden) return;
    const float4 b = __ldg(reinterpret_cast<const float4*>(bias + col));
    for (long long row = (long long)blockIdx.y * 4; row < tokens; row += (long long)gridDim.y * 4) {
        float4 a[4], c[4];
        float* p = x + row * hidden + col;
        const float* q = y + row * hidden + col;
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (k == 0 || row + k < tokens) {
                a[k] = *reinterpret_cast<const float4*>(p + (long long)k * hidden);
                c[k] = __ldg(reinterpret_cast<const float4*>(q + (long long)k * hidden));
            }
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (k == 0 || row + k < tokens) *reinterpret_cast<float4*>(p + (long long)k * hidden) = four(a[k], c[k], b, m);
    }
}

// Rows that 16 bytes do not divide
extern "C" __global__ void __launch_bounds__(256)
scalar(float* x, const float* __restrict__ y, const float* __restrict__ bias, float m, int tokens, int hidden) {
    const long long col = (long long)blockIdx.x * 256 + threadIdx.x;
    if (col >= hidden) return;
    const float b = bias[col];
    for (long long row = (long long)blockIdx.y * 4; row < tokens; row += (long long)gridDim.y * 4) {
        float a[4], c[4];
        const long long i = row * hidden + col;
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (row + k < tokens) { a[k] = x[i + (long long)k * hidden]; c[k] = y[i + (long long)k * hidden]; }
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (row + k < tokens) x[i + (long long)k * hidden] = one(a[k], c[k], b, m);
    }
}
""")


def run(x, y, bias, m):
    tokens, hidden = x.shape
    n = tokens * hidden
    if n == 0:
        return
    if hidden % 1024 == 0 and tokens <= 65535 and n <= (1 << 32):
        if n <= (1 << 21):
            kernels.light[(hidden // 512, tokens), 128](x, y, bias, m, hidden // 4)
        else:
            kernels.linear[(hidden // 1024, tokens), 128](x, y, bias, m, hidden // 4)
        return
    if hidden % 4 == 0:
        kernels.general[((hidden + 1023) // 1024, min((tokens + 3) // 4, 65535)), 256](x, y, bias, m, tokens, hidden)
        return
    kernels.scalar[((hidden + 255) // 256, min((tokens + 3) // 4, 65535)), 256](x, y, bias, m, tokens, hidden)
