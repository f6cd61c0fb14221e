import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
typedef unsigned int u32;
typedef unsigned long long u64;
#define NEG_INF __int_as_float(0xff800000)

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
__device__ __forceinline__ float max4(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
__device__ __forceinline__ float4 exp4(float4 v, float m) {
    return make_float4(expf(v.x - m), expf(v.y - m), expf(v.z - m), expf(v.w - m));
}
__device__ __forceinline__ float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ __forceinline__ float4 mul4(float4 v, float f) { return make_float4(v.x * f, v.y * f, v.z * f, v.w * f); }
__device__ __forceinline__ float finite_ref(float m) { return m == NEG_INF ? 0.f : m; }
__device__ __forceinline__ float factor(float m, float top) { return m == NEG_INF ? 0.f : expf(m - top); }
__device__ __forceinline__ u32 saddr(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void copy16(u32 dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_but() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ float4 get4(u32 a) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(a) : "memory");
    return v;
}
__device__ __forceinline__ u32 slot_of(u32 base, int j) {  // base < 14, j < 16
    u32 s = base + j;
    if (s >= 28) s -= 28;
    else if (s >= 14) s -= 14;
    return s * 16384u;
}
// 65536 columns: a row is 16 planes of 1024 float4; 8 planes in registers, 8 in shared memory, 6 of the next row on
// the way. A thread reads only what it copied itself. Plane k + 14 takes the slot of plane k as soon as that is done.
extern "C" __global__ void __launch_bounds__(1024, 1) wide(const float* x, float* y, int rows) {
    extern __shared__ __align__(128) unsigned char planes[];
    __shared__ __align__(16) float2 part[2][32];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const u32 at = saddr(planes) + tid * 16;
    const long long stride = (long long)gridDim.x * 16384;
    const float4* src = reinterpret_cast<const float4*>(x) + (long long)blockIdx.x * 16384 + tid;
    float4* dst = reinterpret_cast<float4*>(y) + (long long)blockIdx.x * 16384 + tid;
#pragma unroll
    for (int j = 0; j < 14; j++) {
        copy16(at + j * 16384, src + j * 1024);
        commit();
    }
    u32 base = 0;
    int half = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const bool more = row + (int)gridDim.x < rows;
        const float4* next = src + stride;
        float4 v[8];
        float m = NEG_INF;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            wait_but<13>();
            const u32 a = at + slot_of(base, j);
            v[j] = get4(a);
            m = fmaxf(m, max4(v[j]));
            if (j < 2) copy16(a, src + (14 + j) * 1024);
            else if (more) copy16(a, next + (j - 2) * 1024);
            commit();
        }
        wait_but<6>();
#pragma unroll 2
        for (int j = 8; j < 16; j++) m = fmaxf(m, max4(get4(at + slot_of(base, j))));
        m = warp_max(m);
        const float mr = finite_ref(m);
        float s = 0.f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] = exp4(v[j], mr);
            s += sum4(v[j]);
        }
#pragma unroll 2
        for (int j = 8; j < 16; j++) s += sum4(exp4(get4(at + slot_of(base, j)), mr));
        s = warp_sum(s);
        if (lane == 0) part[half][warp] = make_float2(m, s);
        __syncthreads();
        const float2 p = part[half][lane];
        const float top = warp_max(p.x);
        const float f = factor(m, top) / warp_sum(p.y * factor(p.x, top));
#pragma unroll
        for (int j = 0; j < 8; j++) __stcs(dst + j * 1024, mul4(v[j], f));
#pragma unroll 2
        for (int j = 8; j < 16; j++) {
            const u32 a = at + slot_of(base, j);
            const float4 e = mul4(exp4(get4(a), mr), f);
            if (more) copy16(a, next + (j - 2) * 1024);
            commit();
            __stcs(dst + j * 1024, e);
        }
        src = next;
        dst += stride;
        base += 2;  // 16 mod 14
        if (base >= 14) base -= 14;
        half ^= 1;
    }
    wait_but<0>();
}

// 1024 columns: one warp per row, the row in registers
extern "C" __global__ void __launch_bounds__(256) narrow(const float* x, float* y, int rows) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= rows) return;
    const float4* src = reinterpret_cast<const float4*>(x + (long long)row * 1024) + lane;
    float4* dst = reinterpret_cast<float4*>(y + (long long)row * 1024) + lane;
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __ldcs(src + 32 * i);
    float m = max4(v[0]);
#pragma unroll
    for (int i = 1; i < 8; i++) m = fmaxf(m, max4(v[i]));
    m = warp_max(m);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = exp4(v[i], m);
        s += sum4(v[i]);
    }
    const float f = 1.f / warp_sum(s);
#pragma unroll
    for (int i = 0; i < 8; i++) __stcs(dst + 32 * i, mul4(v[i], f));
}

// any other shape: one block per row, scalar accesses
extern "C" __global__ void __launch_bounds__(1024) general(const float* x, float* y, long long columns) {
    __shared__ float red[33];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    const float* src = x + (long long)blockIdx.x * columns;
    float* dst = y + (long long)blockIdx.x * columns;
    float m = NEG_INF;
#pragma unroll 4
    for (long long i = threadIdx.x; i < columns; i += blockDim.x) m = fmaxf(m, src[i]);
    m = warp_max(m);
    if (lane == 0) red[warp] = m;
    __syncthreads();
    m = warp_max(lane < warps ? red[lane] : NEG_INF);
    __syncthreads();
    float s = 0.f;
#pragma unroll 4
    for (long long i = threadIdx.x; i < columns; i += blockDim.x) s += expf(src[i] - m);
    s = warp_sum(s);
    if (lane == 0) red[warp] = s;
    __syncthreads();
    s = warp_sum(lane < warps ? red[lane] : 0.f);
    const float f = 1.f / s;
#pragma unroll 4
    for (long long i = threadIdx.x; i < columns; i += blockDim.x) dst[i] = expf(src[i] - m) * f;
}
""")


def run(x, y):
    rows, columns = x.shape
    if rows * columns == 0:
        return
    if columns == 65536:
        blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
        if blocks > rows:
            blocks = rows
        kernels.wide.launch(blocks, 1024, x, y, rows, shared_bytes=229376)
    elif columns == 1024:
        kernels.narrow[(rows + 7) // 8, 256](x, y, rows)
    else:
        threads = 1024
        if columns <= 2048:
            threads = 128
        kernels.general[rows, threads](x, y, columns)
