"""examples/matmul.yaml in CUDA: three TF32 products on the tensor cores give the accuracy of float32.

Every operand is split into its leading 11 bits and the rest; the product of the two rests is below float32's roundoff.
Tensor cores cut off what they add up, so each step over 32 of k starts from zero and is added to the result by the
float32 units, which round (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores, 2022). Where few
tiles would leave multiprocessors idle, k is shared by several blocks, whose parts are summed afterwards. Matrices of
odd or small sizes take plain float32 multiplications, summed in two levels.
"""

import torch

from kernels_db.runtime import cuda

STAGES = 4
TILE_N, STEP_K = 128, 32
PLAIN_TILE, PLAIN_K = 64, 16

kernels = cuda.compile(r"""
constexpr int kStages = 4, kTileN = 128, kStepK = 32;
constexpr int kRowA = kStepK + 4, kRowB = kTileN + 8;  // padded, so that the reads of a warp fall into 32 banks

__device__ void copy16(float* to, const float* from, bool inside) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(address), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ unsigned leading(float value) { return __float_as_uint(value) & 0xffffe000u; }

// The leading bits of a value, and the rest rounded to as many. An infinity has no rest.
__device__ void split(float value, unsigned& big, unsigned& small) {
    big = leading(value);
    const float most = __uint_as_float(big);
    const float rest = most == value ? 0.0f : value - most;
    small = __float_as_uint(rest) + 0x1000u;  // the tensor core ignores the lower 13 bits
}

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A tile of (32 * kBlocks) by 128, kBlocks blocks of 16 rows and 4 of 8 columns a warp, over k from blockIdx.z * depth on;
// into c, or into part blockIdx.z of `parts`. n and k are multiples of 4.
template <int kBlocks>
__device__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
                        int k, int depth) {
    constexpr int kTileM = 32 * kBlocks, kStageA = kTileM * kRowA, kStage = kStageA + kStepK * kRowB;
    extern __shared__ __align__(16) float stages[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, group = lane / 4, quad = lane % 4;
    const int row0 = blockIdx.y * kTileM, column0 = blockIdx.x * kTileN;
    const int warp_row = warp / 4 * (16 * kBlocks), warp_column = warp % 4 * 32;
    const int first = blockIdx.z * depth, last = min(first + depth, k);
    const int steps = (last - first + kStepK - 1) / kStepK;

    auto fetch = [&](int step) {
        float* stage = stages + step % kStages * kStage;
        const int k0 = first + step * kStepK;
        if (step < steps) {
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i) {  // 32 * kBlocks rows of 8 vectors
                const int at = thread + i * 256, row = at / 8, column = at % 8 * 4;
                const bool inside = row0 + row < m && k0 + column < last;
                copy16(stage + row * kRowA + column, inside ? a + (row0 + row) * (long long)k + k0 + column : a, inside);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {  // 32 rows of 32 vectors
                const int at = thread + i * 256, row = at / 32, column = at % 32 * 4;
                const bool inside = k0 + row < last && column0 + column < n;
                copy16(stage + kStageA + row * kRowB + column,
                       inside ? b + (k0 + row) * (long long)n + column0 + column : b, inside);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    float sum[kBlocks][4][4] = {};
    #pragma unroll
    for (int step = 0; step < kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" :: "n"(kStages - 2) : "memory");
        __syncthreads();
        fetch(step + kStages - 1);  // into the stage that every warp left before the barrier
        const float* tile_a = stages + step % kStages * kStage + (warp_row + group) * kRowA + quad;
        const float* tile_b = stages + step % kStages * kStage + kStageA + quad * kRowB + warp_column + group;
        float part[kBlocks][4][4] = {};
        // First the products with a rest: what is cut off beside their small sums is next to nothing.
        #pragma unroll
        for (int k8 = 0; k8 < kStepK; k8 += 8) {
            unsigned big_a[kBlocks][4], small_a[kBlocks][4], big_b[4][2], small_b[4][2];
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j)
                    split(tile_a[(16 * i + j % 2 * 8) * kRowA + k8 + j / 2 * 4], big_a[i][j], small_a[i][j]);
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 2; ++j) split(tile_b[(k8 + 4 * j) * kRowB + 8 * i], big_b[i][j], small_b[i][j]);
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) multiply(part[i][j], small_a[i], big_b[j]);
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) multiply(part[i][j], big_a[i], small_b[j]);
        }
        #pragma unroll
        for (int k8 = 0; k8 < kStepK; k8 += 8) {
            unsigned big_a[kBlocks][4], big_b[4][2];
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) big_a[i][j] = leading(tile_a[(16 * i + j % 2 * 8) * kRowA + k8 + j / 2 * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 2; ++j) big_b[i][j] = leading(tile_b[(k8 + 4 * j) * kRowB + 8 * i]);
            #pragma unroll
            for (int i = 0; i < kBlocks; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) multiply(part[i][j], big_a[i], big_b[j]);
        }
        #pragma unroll
        for (int i = 0; i < kBlocks; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j)
                #pragma unroll
                for (int l = 0; l < 4; ++l) sum[i][j][l] += part[i][j][l];
    }

    float* out = c + blockIdx.z * ((long long)m * n);
    #pragma unroll
    for (int i = 0; i < kBlocks; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = row0 + warp_row + 16 * i + group, column = column0 + warp_column + 8 * j + 2 * quad;
            if (column >= n) continue;  // n is even, and so is the column
            float2* upper = reinterpret_cast<float2*>(out + row * (long long)n + column);
            float2* lower = reinterpret_cast<float2*>(out + (row + 8) * (long long)n + column);
            if (row < m) *upper = make_float2(sum[i][j][0], sum[i][j][1]);
            if (row + 8 < m) *lower = make_float2(sum[i][j][2], sum[i][j][3]);
        }
}

extern "C" __global__ void __launch_bounds__(256, 1)
product128(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int depth) {
    product<4>(a, b, c, m, n, k, depth);
}
extern "C" __global__ void __launch_bounds__(256, 2)
product64(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int depth) {
    product<2>(a, b, c, m, n, k, depth);
}

// A tile of 64 by 64, 4 by 4 a thread, of matrices of any size: 16 of k at a time are summed by themselves.
extern "C" __global__ void __launch_bounds__(256)
product_plain(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k,
              int depth) {
    __shared__ float tile_a[16][64 + 1], tile_b[16][64 + 4];
    const int thread = threadIdx.x, column = thread % 16 * 4, row = thread / 16 * 4;
    const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    const int first = blockIdx.z * depth, last = min(first + depth, k);
    float sum[4][4] = {};
    for (int k0 = first; k0 < last; k0 += 16) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int ra = thread / 16 + 16 * i, ka = thread % 16, kb = thread / 64 + 4 * i, cb = thread % 64;
            const bool in_a = row0 + ra < m && k0 + ka < last, in_b = k0 + kb < last && column0 + cb < n;
            tile_a[ka][ra] = in_a ? a[(row0 + ra) * (long long)k + k0 + ka] : 0.0f;
            tile_b[kb][cb] = in_b ? b[(k0 + kb) * (long long)n + column0 + cb] : 0.0f;
        }
        __syncthreads();
        float part[4][4] = {};
        #pragma unroll
        for (int l = 0; l < 16; ++l)
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) part[i][j] = fmaf(tile_a[l][row + i], tile_b[l][column + j], part[i][j]);
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j) sum[i][j] += part[i][j];
        __syncthreads();
    }
    float* out = c + blockIdx.z * ((long long)m * n);
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            if (row0 + row + i < m && column0 + column + j < n)
                out[(row0 + row + i) * (long long)n + column0 + column + j] = sum[i][j];
}

// c is the sum of `count` parts.
extern "C" __global__ void __launch_bounds__(256)
add_parts(const float* __restrict__ parts, float* __restrict__ c, long long elements, int count) {
    const long long step = (long long)gridDim.x * 256;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < elements; i += step) {
        double sum = 0.0;
        for (int part = 0; part < count; ++part) sum += parts[part * elements + i];
        c[i] = static_cast<float>(sum);
    }
}
""")


def shares(tiles, k, step, processors):
    """How many blocks share k, and how much of it each takes, so that two rounds of blocks fill the GPU."""
    wanted = max(1, min(16, 2 * processors // tiles, k // 256))
    depth = (k + wanted - 1) // wanted
    depth = (depth + step - 1) // step * step
    return (k + depth - 1) // depth, depth


def run(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    tensor_cores = n % 4 == 0 and k % 4 == 0 and m >= 32 and n >= 64 and k >= 64
    tall = m > 64
    if tensor_cores:
        rows, columns, step = (128 if tall else 64), TILE_N, STEP_K
    else:
        rows, columns, step = PLAIN_TILE, PLAIN_TILE, PLAIN_K
    across, down = (n + columns - 1) // columns, (m + rows - 1) // rows
    count, depth = shares(across * down, k, step, processors)
    out = c if count == 1 else torch.empty((count, m, n), device=c.device, dtype=torch.float32)
    grid = (across, down, count)
    shared_bytes = STAGES * (rows * (STEP_K + 4) + STEP_K * (TILE_N + 8)) * 4
    if not tensor_cores:
        kernels.product_plain[grid, 256](a, b, out, m, n, k, depth)
    elif tall:
        kernels.product128.launch(grid, 256, a, b, out, m, n, k, depth, shared_bytes=shared_bytes)
    else:
        kernels.product64.launch(grid, 256, a, b, out, m, n, k, depth, shared_bytes=shared_bytes)
    if count > 1:
        kernels.add_parts[min((m * n + 255) // 256, 8 * processors), 256](out, c, m * n, count)
