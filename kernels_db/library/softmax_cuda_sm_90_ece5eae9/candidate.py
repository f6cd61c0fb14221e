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
__device__ __forceinline__ void put4(u32 a, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
// joins a group (maximum gm, sum gs of exponentials against it) into a running maximum m and sum s
__device__ __forceinline__ void join(float& m, float& s, float gm, float gs) {
    const float top = fmaxf(m, gm);
    s = s * factor(m, top) + gs * factor(gm, top);
    m = top;
}

__device__ __forceinline__ u32 slot_of(u32 base, int j) {  // base < 14, j < 16
    u32 s = base + j;
    if (s >= 28) s -= 28;
    else if (s >= 14) s -= 14;
    return s * 16384u;
}
// a thread has two float4 of a plane of 16 KiB
__device__ __forceinline__ void fetch(u32 a, const float4* src) {
    copy16(a, src);
    copy16(a + 8192, src + 512);
}
// two planes in shared memory become exponentials against their own maximum, in place
template <int N> __device__ __forceinline__ float in_place(u32 a, u32 b, float& m, float& s) {
    wait_but<N>();
    float4 v0 = get4(a), v1 = get4(a + 8192), v2 = get4(b), v3 = get4(b + 8192);
    const float gm = fmaxf(fmaxf(max4(v0), max4(v1)), fmaxf(max4(v2), max4(v3)));
    const float ref = finite_ref(gm);
    v0 = exp4(v0, ref);
    v1 = exp4(v1, ref);
    v2 = exp4(v2, ref);
    v3 = exp4(v3, ref);
    put4(a, v0);
    put4(a + 8192, v1);
    put4(b, v2);
    put4(b + 8192, v3);
    join(m, s, gm, (sum4(v0) + sum4(v1)) + (sum4(v2) + sum4(v3)));
    return gm;
}
// 65536 columns, one row per block: 16 planes of 1024 float4, of which 8 end in registers and 8 in shared memory, as
// exponentials against the maximum of a thread's own group; 6 planes of the next row are on the way meanwhile.
// A thread reads only what it copied itself. Plane k + 14 takes the slot of plane k as soon as that is done.
extern "C" __global__ void __launch_bounds__(512, 1) wide(const float* x, float* y, int rows) {
    extern __shared__ __align__(128) unsigned char planes[];
    __shared__ __align__(16) float2 part[2][16];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const u32 at = saddr(planes) + tid * 16;
    const long long stride = (long long)gridDim.x * 16384;
    const float4* src = reinterpret_cast<const float4*>(x) + (long long)blockIdx.x * 16384 + tid;
#pragma unroll
    for (int j = 0; j < 14; j++) {
        fetch(at + j * 16384, src + j * 1024);
        commit();
    }
    u32 base = 0;
    int half = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const bool more = row + (int)gridDim.x < rows;
        const float4* next = src + stride;
        float4 v[16];
        float r[6];
        float m = NEG_INF, s = 0.f;
#pragma unroll
        for (int g = 0; g < 2; g++) {
            float gm = NEG_INF;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int j = 4 * g + k;
                wait_but<13>();
                const u32 a = at + slot_of(base, j);
                v[2 * j] = get4(a);
                v[2 * j + 1] = get4(a + 8192);
                gm = fmaxf(gm, fmaxf(max4(v[2 * j]), max4(v[2 * j + 1])));
                if (j < 2) fetch(a, src + (14 + j) * 1024);
                else if (more) fetch(a, next + (j - 2) * 1024);
                commit();
            }
            const float ref = finite_ref(gm);
            float gs = 0.f;
#pragma unroll
            for (int k = 8 * g; k < 8 * g + 8; k++) {
                v[k] = exp4(v[k], ref);
                gs += sum4(v[k]);
            }
            join(m, s, gm, gs);
            r[g] = gm;
        }
        r[2] = in_place<12>(at + slot_of(base, 8), at + slot_of(base, 9), m, s);
        r[3] = in_place<10>(at + slot_of(base, 10), at + slot_of(base, 11), m, s);
        r[4] = in_place<8>(at + slot_of(base, 12), at + slot_of(base, 13), m, s);
        r[5] = in_place<6>(at + slot_of(base, 14), at + slot_of(base, 15), m, s);
        const float wm = warp_max(m);
        s = warp_sum(s * factor(m, wm));
        if (lane == 0) part[half][warp] = make_float2(wm, s);
        __syncthreads();
        const float2 p = part[half][lane & 15];
        const float top = warp_max(p.x);
        const float total = warp_sum(lane < 16 ? p.y * factor(p.x, top) : 0.f);
        const float inverse = 1.f / total;
#pragma unroll
        for (int g = 0; g < 6; g++) r[g] = factor(r[g], top) * inverse;
        float4* dst = reinterpret_cast<float4*>(y) + (long long)row * 16384 + tid;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 a = at + slot_of(base, 8 + i);
            const float4 e0 = get4(a), e1 = get4(a + 8192);
            if (more) fetch(a, next + (6 + i) * 1024);
            commit();
            dst[(8 + i) * 1024] = mul4(e0, r[2 + i / 2]);
            dst[(8 + i) * 1024 + 512] = mul4(e1, r[2 + i / 2]);
            dst[i * 1024] = mul4(v[2 * i], r[i / 4]);
            dst[i * 1024 + 512] = mul4(v[2 * i + 1], r[i / 4]);
        }
        src = next;
        base += 2;  // 16 mod 14
        if (base >= 14) base -= 14;
        half ^= 1;
    }
    wait_but<0>();
}

// 1024 columns: a row per block of 128 threads, two float4 each, one barrier
extern "C" __global__ void __launch_bounds__(128, 16) narrow(const float* x, float* y) {
    __shared__ __align__(16) float2 part[4];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    const float4* src = reinterpret_cast<const float4*>(x) + at;
    float4* dst = reinterpret_cast<float4*>(y) + at;
    float4 a = src[0], b = src[128];
    const float m = warp_max(fmaxf(max4(a), max4(b)));
    const float mr = finite_ref(m);
    a = exp4(a, mr);
    b = exp4(b, mr);
    const float s = warp_sum(sum4(a) + sum4(b));
    if (lane == 0) part[warp] = make_float2(m, s);
    __syncthreads();
    const float4 p = reinterpret_cast<const float4*>(part)[0], q = reinterpret_cast<const float4*>(part)[1];
    const float top = fmaxf(fmaxf(p.x, p.z), fmaxf(q.x, q.z));
    const float total = (p.y * factor(p.x, top) + p.w * factor(p.z, top)) + (q.y * factor(q.x, top) + q.w * factor(q.z, top));
    const float f = factor(m, top) / total;
    dst[0] = mul4(a, f);
    dst[128] = mul4(b, f);
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


def even(rows, most):
    """How many blocks (or clusters) share the rows: all, or a few less where that leaves no part of a round."""
    fewer = most // 32 * 32
    if fewer > 0 and rows % fewer == 0:
        return fewer
    return min(rows, most)


def run(x, y):
    rows, columns = x.shape
    if rows * columns == 0:
        return
    if columns == 65536:
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        kernels.wide.launch(even(rows, processors), 512, x, y, rows, shared_bytes=229376)
    elif columns == 1024:
        kernels.narrow[rows, 128](x, y)
    else:
        threads = 1024
        if columns <= 2048:
            threads = 128
        kernels.general[rows, threads](x, y, columns)
