"""Wide: a cluster of two blocks of 512 threads a row, one a multiprocessor, reads and writes in turn; narrow: the shipped one."""

from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#define HINT 0
#define STORE(p, v) *(p) = (v)
#define PLAIN_LOADS 1

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


#if PLAIN_LOADS
__device__ __forceinline__ float4 once(const float4* p) { return *p; }
#else
__device__ __forceinline__ float4 once(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
#endif

// 65536 columns: a row for a cluster of C blocks of T threads, V vectors a thread in registers, one exchange of
// (maximum, sum) by warps. The first barrier of the cluster says that all blocks have begun, the second that all was sent.
template <int C, int T, int V>
__device__ __forceinline__ void piece(const float* __restrict__ x, float* __restrict__ y) {
    constexpr int W = T / 32, N = C * W;
    static_assert(C * T * V == 16384 && N % 32 == 0, "the row");
    __shared__ __align__(16) float2 part[N];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const u32 rank = blockIdx.x % C;
    const long long at0 = (long long)blockIdx.x * (T * V) + threadIdx.x;
    const float4* src = reinterpret_cast<const float4*>(x) + at0;
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    float4 v[V];
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = once(src + i * T);
    float m = NEG_INF;
#pragma unroll
    for (int i = 0; i < V; i++) m = fmaxf(m, max4(v[i]));
    m = warp_max(m);
    const float ref = finite_ref(m);
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < V; i++) {
        v[i] = exp4(v[i], ref);
        s += sum4(v[i]);
    }
    s = warp_sum(s);
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (lane < C) {
        u32 to;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(to) : "r"((u32)__cvta_generic_to_shared(part + rank * W + warp)), "r"(lane));
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(m), "f"(s) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    float top = NEG_INF, total = 0.f;
#pragma unroll
    for (int i = 0; i < N; i += 32) top = fmaxf(top, part[i + lane].x);
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < N; i += 32) total += part[i + lane].y * factor(part[i + lane].x, top);
    const float f = factor(m, top) / warp_sum(total);
    float4* dst = reinterpret_cast<float4*>(y) + at0;
#pragma unroll
    for (int i = 0; i < V; i++) STORE(dst + i * T, mul4(v[i], f));
}
extern "C" __global__ void __launch_bounds__(512, 1) wide(const float* __restrict__ x, float* __restrict__ y) {
    piece<2, 512, 16>(x, y);
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


def run(x, y):
    rows, columns = x.shape
    if rows * columns == 0:
        return
    aligned = (x.data_ptr() | y.data_ptr()) % 16 == 0
    if columns == 65536 and aligned:
        kernels.wide.launch(2 * rows, 512, x, y, cluster=2)
    elif columns == 1024 and aligned:
        kernels.narrow[rows, 128](x, y)
    else:
        threads = 1024
        if columns <= 2048:
            threads = 128
        kernels.general[rows, threads](x, y, columns)
