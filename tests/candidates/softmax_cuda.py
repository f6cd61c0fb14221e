"""examples/softmax.yaml in CUDA: every row is read once and written once wherever it fits on the chip.

A warp keeps a row of up to 1024 columns in registers, a cluster of up to 8 blocks one of up to 65536. The blocks of a
cluster exchange one (maximum, sum) pair each: exponentials are taken relative to the block's own maximum, and the
factor that is left stands in the last product. Longer or unaligned rows are read twice.
"""

from kernels_db.runtime import cuda

WARP_COLUMNS, BLOCK_COLUMNS, CLUSTER_COLUMNS = 1024, 8192, 65536

kernels = cuda.compile(r"""
constexpr int kVectors = 8;    // float4 that a thread keeps
constexpr int kThreads = 256;  // of a block in a cluster
constexpr unsigned kAll = 0xffffffffu;
#define MINUS_INFINITY __int_as_float(0xff800000)

__device__ float warp_max(float value) {
    for (int step = 16; step > 0; step >>= 1) value = fmaxf(value, __shfl_xor_sync(kAll, value, step));
    return value;
}

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(kAll, value, step);
    return value;
}

// What exponentials are taken relative to: the maximum, or 0 where there is nothing to take one of.
__device__ float pivot_of(float largest) { return largest == MINUS_INFINITY ? 0.0f : largest; }

struct Row {
    float4 part[kVectors];

    // Vectors first, first + step ... of a row of `vectors`; what lies beyond counts for nothing.
    __device__ void load(const float4* row, int first, int step, int vectors) {
        #pragma unroll
        for (int j = 0; j < kVectors; ++j) {
            const int at = first + j * step;
            part[j] = at < vectors ? __ldcs(row + at)
                                   : make_float4(MINUS_INFINITY, MINUS_INFINITY, MINUS_INFINITY, MINUS_INFINITY);
        }
    }

    __device__ float largest() const {
        float found = MINUS_INFINITY;
        #pragma unroll
        for (int j = 0; j < kVectors; ++j)
            found = fmaxf(found, fmaxf(fmaxf(part[j].x, part[j].y), fmaxf(part[j].z, part[j].w)));
        return found;
    }

    // Replace each value by exp(value - pivot); returns the thread's sum of them.
    __device__ float exponentiate(float pivot) {
        float sum = 0.0f;
        #pragma unroll
        for (int j = 0; j < kVectors; ++j) {
            part[j].x = expf(part[j].x - pivot);
            part[j].y = expf(part[j].y - pivot);
            part[j].z = expf(part[j].z - pivot);
            part[j].w = expf(part[j].w - pivot);
            sum += (part[j].x + part[j].y) + (part[j].z + part[j].w);
        }
        return sum;
    }

    __device__ void store(float4* row, int first, int step, int vectors, float factor) const {
        #pragma unroll
        for (int j = 0; j < kVectors; ++j) {
            const int at = first + j * step;
            const float4 scaled = make_float4(part[j].x * factor, part[j].y * factor, part[j].z * factor, part[j].w * factor);
            if (at < vectors) __stcs(row + at, scaled);
        }
    }
};

// One row a warp: at most 1024 columns, a multiple of 4.
extern "C" __global__ void __launch_bounds__(256)
softmax_warp(const float* __restrict__ x, float* __restrict__ y, long long rows, int columns) {
    const long long row = blockIdx.x * 8LL + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32, vectors = columns / 4;
    Row values;
    values.load(reinterpret_cast<const float4*>(x + row * columns), lane, 32, vectors);
    const float largest = warp_max(values.largest());
    const float sum = warp_sum(values.exponentiate(largest));
    values.store(reinterpret_cast<float4*>(y + row * columns), lane, 32, vectors, 1.0f / sum);
}

// One row a cluster: at most 8192 columns a block, a multiple of 4.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
softmax_cluster(const float* __restrict__ x, float* __restrict__ y, int columns) {
    __shared__ float maxima[kThreads / 32], sums[kThreads / 32];
    __shared__ float2 pairs[8];  // of every block in the cluster, written by that block
    unsigned rank, blocks;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // waited for before another's memory is written
    const long long row = blockIdx.x / blocks;
    const int vectors = columns / 4, first = rank * (kThreads * kVectors) + threadIdx.x;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    Row values;
    values.load(reinterpret_cast<const float4*>(x + row * columns), first, kThreads, vectors);
    float largest = warp_max(values.largest());
    if (lane == 0) maxima[warp] = largest;
    __syncthreads();
    #pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, maxima[w]);
    float sum = warp_sum(values.exponentiate(pivot_of(largest)));
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < blocks) {
        sum = 0.0f;
        #pragma unroll
        for (int w = 0; w < kThreads / 32; ++w) sum += sums[w];
        unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(&pairs[rank]));
        asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(threadIdx.x));
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" :: "r"(address), "f"(largest), "f"(sum) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    float most = MINUS_INFINITY, total = 0.0f;
    for (unsigned b = 0; b < blocks; ++b) most = fmaxf(most, pairs[b].x);
    for (unsigned b = 0; b < blocks; ++b) total += pairs[b].y * expf(pairs[b].x - most);
    const float factor = expf(pivot_of(largest) - most) / total;
    values.store(reinterpret_cast<float4*>(y + row * columns), first, kThreads, vectors, factor);
}

// One row a block, of any length and alignment: maximum and sum in one pass, the result in another.
extern "C" __global__ void __launch_bounds__(512)
softmax_any(const float* __restrict__ x, float* __restrict__ y, long long columns) {
    __shared__ float maxima[16], sums[16];
    const float* in = x + blockIdx.x * columns;
    float* out = y + blockIdx.x * columns;
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (long long i = threadIdx.x; i < columns; i += 4 * 512) {
        float value[4], most = largest;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            value[j] = i + j * 512 < columns ? in[i + j * 512] : MINUS_INFINITY;
            most = fmaxf(most, value[j]);
        }
        const float pivot = pivot_of(most);
        sum *= expf(largest - pivot);
        #pragma unroll
        for (int j = 0; j < 4; ++j) sum += expf(value[j] - pivot);
        largest = most;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float most = warp_max(largest);
    if (lane == 0) maxima[warp] = most;
    __syncthreads();
    for (int w = 0; w < 16; ++w) most = fmaxf(most, maxima[w]);
    const float pivot = pivot_of(most);
    sum = warp_sum(sum * expf(largest - pivot));
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < 16; ++w) total += sums[w];
    for (long long i = threadIdx.x; i < columns; i += 512) __stcs(out + i, expf(in[i] - most) / total);
}
""")


def run(x, y):
    rows, columns = x.shape
    if columns % 4 == 0 and columns <= WARP_COLUMNS:
        kernels.softmax_warp[(rows + 7) // 8, 256](x, y, rows, columns)
    elif columns % 4 == 0 and columns <= CLUSTER_COLUMNS:
        blocks = 1
        while blocks * BLOCK_COLUMNS < columns:
            blocks *= 2
        kernels.softmax_cluster.launch(rows * blocks, 256, x, y, columns, cluster=blocks)
    else:
        kernels.softmax_any[rows, 512](x, y, columns)
