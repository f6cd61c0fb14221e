"""examples/layer_norm.yaml in CUDA: a row is shared by many warps, because a few rows of millions of elements would
leave most of the GPU idle.

Each warp takes 1024 elements into registers and writes their sum and their sum of squares. Both come from the distances
to the mean of a thread's own elements, so that nothing cancels when the mean is large, and are put together in float64.
Then every part is normalised, the ones that were read last first, while they are still in the L2 cache, with weight and
bias read once for several rows.
"""

import torch

from kernels_db.runtime import cuda

PART = 1024  # elements of one warp
WARPS = 8  # of a block

kernels = cuda.compile(r"""
constexpr int kValues = 32;  // of one thread in a part
constexpr unsigned kAll = 0xffffffffu;

__device__ void warp_sums(double& first, double& second) {
    for (int step = 16; step > 0; step >>= 1) {
        first += __shfl_xor_sync(kAll, first, step);
        second += __shfl_xor_sync(kAll, second, step);
    }
}

// One part a warp: (sum, sum of squares) into partials[row][part]. Parts of all rows stand beside each other in time, as
// they do when they are normalised.
template <bool kVector>
__device__ void sum_parts(const float* __restrict__ x, double2* __restrict__ partials, long long rows, long long n,
                          long long parts) {
    const long long task = blockIdx.x * 8LL + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const long long row = task % rows, part = task / rows;
    if (part >= parts) return;
    const float* in = x + row * n + part * 1024;
    const int valid = static_cast<int>(min(n - part * 1024, 1024LL));
    float value[kValues];
    float sum = 0.0f;
    int count = 0;
    #pragma unroll
    for (int j = 0; j < kValues; j += 4) {
        if (kVector) {
            const int at = (j / 4 * 32 + lane) * 4;  // a multiple of 4, as `valid` is
            const float4 four = at < valid ? *reinterpret_cast<const float4*>(in + at) : make_float4(0, 0, 0, 0);
            value[j] = four.x, value[j + 1] = four.y, value[j + 2] = four.z, value[j + 3] = four.w;
            count += at < valid ? 4 : 0;
        } else {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = (j + i) * 32 + lane;
                value[j + i] = at < valid ? in[at] : 0.0f;
                count += at < valid ? 1 : 0;
            }
        }
        sum += (value[j] + value[j + 1]) + (value[j + 2] + value[j + 3]);
    }
    const float pivot = count ? sum / count : 0.0f;
    float rest = 0.0f, squares = 0.0f;
    #pragma unroll
    for (int j = 0; j < kValues; ++j) {
        const int at = kVector ? (j / 4 * 32 + lane) * 4 : j * 32 + lane;
        const float distance = at < valid ? value[j] - pivot : 0.0f;
        rest += distance;
        squares = fmaf(distance, distance, squares);
    }
    const double wide = pivot;
    double total = count * wide + rest;
    double square = squares + wide * (total + rest);
    warp_sums(total, square);
    if (lane == 0) partials[row * parts + part] = make_double2(total, square);
}

extern "C" __global__ void __launch_bounds__(256)
part_sums(const float* __restrict__ x, void* __restrict__ partials, long long rows, long long n, long long parts) {
    sum_parts<false>(x, static_cast<double2*>(partials), rows, n, parts);
}
extern "C" __global__ void __launch_bounds__(256)
part_sums4(const float* __restrict__ x, void* __restrict__ partials, long long rows, long long n, long long parts) {
    sum_parts<true>(x, static_cast<double2*>(partials), rows, n, parts);
}

// (mean, 1 / sqrt(variance + epsilon)) of one row a block.
extern "C" __global__ void __launch_bounds__(512)
row_statistics(const void* __restrict__ partials, void* __restrict__ statistics, long long n, long long parts,
               double epsilon) {
    __shared__ double totals[16], squares[16];
    const double2* of_row = static_cast<const double2*>(partials) + blockIdx.x * parts;
    double total = 0.0, square = 0.0;
    for (long long i = threadIdx.x; i < parts; i += 512) {
        const double2 pair = of_row[i];
        total += pair.x;
        square += pair.y;
    }
    warp_sums(total, square);
    if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total, squares[threadIdx.x / 32] = square;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    total = threadIdx.x < 16 ? totals[threadIdx.x] : 0.0;
    square = threadIdx.x < 16 ? squares[threadIdx.x] : 0.0;
    warp_sums(total, square);
    const double mean = total / n, variance = fmax(square / n - mean * mean, 0.0);
    if (threadIdx.x == 0)
        static_cast<float2*>(statistics)[blockIdx.x] = make_float2(float(mean), float(1.0 / sqrt(variance + epsilon)));
}

__device__ float normalised(float value, float2 row, float weight, float bias) {
    return fmaf((value - row.x) * row.y, weight, bias);
}
__device__ float4 normalised(float4 value, float2 row, float4 weight, float4 bias) {
    return make_float4(normalised(value.x, row, weight.x, bias.x), normalised(value.y, row, weight.y, bias.y),
                       normalised(value.z, row, weight.z, bias.z), normalised(value.w, row, weight.w, bias.w));
}

// One element of type T of every row in blockIdx.y's group a thread; n counts T. Blocks go from the end to the start.
template <typename T>
__device__ void normalise_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
                               T* __restrict__ y, const float2* __restrict__ statistics, long long rows, long long n,
                               long long group) {
    const long long at = (gridDim.x - 1 - blockIdx.x) * 256LL + threadIdx.x;
    if (at >= n) return;
    const long long first = blockIdx.y * group, end = min(first + group, rows);
    const T w = weight[at], b = bias[at];
    long long row = first;
    for (; row + 4 <= end; row += 4) {
        T value[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) value[i] = __ldcs(x + (row + i) * n + at);
        #pragma unroll
        for (int i = 0; i < 4; ++i) __stcs(y + (row + i) * n + at, normalised(value[i], statistics[row + i], w, b));
    }
    for (; row < end; ++row) __stcs(y + row * n + at, normalised(__ldcs(x + row * n + at), statistics[row], w, b));
}

extern "C" __global__ void __launch_bounds__(256)
normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
          float* __restrict__ y, const void* __restrict__ statistics, long long rows, long long n, long long group) {
    normalise_rows<float>(x, weight, bias, y, static_cast<const float2*>(statistics), rows, n, group);
}
extern "C" __global__ void __launch_bounds__(256)
normalise4(const float4* __restrict__ x, const float4* __restrict__ weight, const float4* __restrict__ bias,
           float4* __restrict__ y, const void* __restrict__ statistics, long long rows, long long n, long long group) {
    normalise_rows<float4>(x, weight, bias, y, static_cast<const float2*>(statistics), rows, n, group);
}
""")


def run(x, weight, bias, y):
    n = weight.numel()
    rows = x.numel() // n
    parts = (n + PART - 1) // PART
    partials = torch.empty((rows, parts, 2), device=x.device, dtype=torch.float64)
    statistics = torch.empty((rows, 2), device=x.device, dtype=torch.float32)
    vector = n % 4 == 0
    blocks = (rows * parts + WARPS - 1) // WARPS
    if vector:
        kernels.part_sums4[blocks, 256](x, partials, rows, n, parts)
    else:
        kernels.part_sums[blocks, 256](x, partials, rows, n, parts)
    kernels.row_statistics[rows, 512](partials, statistics, n, parts, 1e-5)
    length = n // 4 if vector else n
    across = (length + 255) // 256
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    groups = min(max(1, 8 * processors // across, (rows + 15) // 16), rows)
    group = (rows + groups - 1) // groups
    grid = (across, (rows + group - 1) // group)
    if vector:
        kernels.normalise4[grid, 256](x, weight, bias, y, statistics, rows, length, group)
    else:
        kernels.normalise[grid, 256](x, weight, bias, y, statistics, rows, length, group)
