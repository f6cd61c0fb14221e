"""examples/conv2d.yaml in CUDA: an implicit matrix product on the tensor cores, in TF32, whose left operand is never made.

A block keeps all weights in shared memory, as the tensor cores take them, and goes over tiles of 4 rows of 56 outputs.
The inputs of a tile lie there too, one channel a buffer: while one channel is multiplied, the next tile's values come
into the buffers of the others. At a stride of 4, the 8 outputs by 4 columns of the kernel that a warp reads at once are
32 words in a row. The kernel's 11 columns are taken as 12, the last of which counts for nothing.
"""

import torch

from kernels_db.runtime import cuda

TILE_ROWS, TILE_COLUMNS = 4, 56
SHARED_BYTES = 4 * (51 * 12 * 64 + 3 * 23 * 236)

kernels = cuda.compile(r"""
constexpr int kChannels = 3, kKernel = 11, kStride = 4, kPadding = 2, kFilters = 96;
constexpr int kRows = 4, kColumns = 56, kGroups = 7;            // outputs of a tile; groups of 8 in a row
constexpr int kWarps = 7, kThreads = 32 * kWarps;               // a warp takes 4 groups
constexpr int kInRows = kStride * (kRows - 1) + kKernel;        // 23
constexpr int kInColumns = 236;                                 // from 4 left of the first output's centre on
constexpr int kQuads = 34, kSteps = kQuads / 2;                 // of a channel: 11 rows of 3 quads of columns, and one to fill up
constexpr int kWeights = kChannels * kSteps * (kFilters / 8) * 64;
constexpr int kBuffer = kInRows * kInColumns;

__device__ unsigned rounded_to_tf32(float value) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned b[2] = {b0, b1};
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void copy16(float* to, const float* from, bool inside) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(address), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ void copy4(float* to, const float* from, bool inside) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(address), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

struct Shape {
    int height, width, out_height, out_width, down, across;  // the last two: tiles of an image
};

// One channel of the inputs of a tile into shared memory, zero outside of the image.
template <bool kVector>
__device__ void fetch(float* buffer, const float* __restrict__ x, long long tile, int channel, const Shape& shape) {
    const int across = static_cast<int>(tile % shape.across), down = static_cast<int>(tile / shape.across % shape.down);
    const long long image = tile / shape.across / shape.down;
    const int row0 = down * kRows * kStride - kPadding, column0 = across * kColumns * kStride - 4;
    const float* in = x + (image * kChannels + channel) * ((long long)shape.height * shape.width);
    constexpr int kParts = kVector ? kInColumns / 4 : kInColumns;
    for (int i = threadIdx.x; i < kInRows * kParts; i += kThreads) {
        const int r = i / kParts, c = i % kParts * (kVector ? 4 : 1), row = row0 + r, column = column0 + c;
        const bool inside = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
        const float* from = inside ? in + row * (long long)shape.width + column : x;
        if (kVector) copy16(buffer + r * kInColumns + c, from, inside);
        else copy4(buffer + r * kInColumns + c, from, inside);
    }
}

// Weights [filter][channel][row][column] as pairs (k, k + 4) in the order in which lanes take them; two of the 8-filter
// parts stand beside each other, so that one read of 16 bytes serves both.
__device__ void pack(float* packed, const float* __restrict__ weight) {
    for (int i = threadIdx.x; i < kWeights; i += kThreads) packed[i] = 0.0f;
    __syncthreads();
    constexpr int kOne = kChannels * kKernel * kKernel;
    for (int i = threadIdx.x; i < kFilters * kOne; i += kThreads) {
        const int filter = i / kOne, channel = i % kOne / (kKernel * kKernel);
        const int place = i % kOne % (kKernel * kKernel), row = place / kKernel, column = place % kKernel;
        const int quad = row * 3 + column / 4, lane = filter % 8 * 4 + column % 4;
        const int step = channel * kSteps + quad / 2, pair = filter / 16;
        packed[((step * 6 + pair) * 32 + lane) * 4 + filter / 8 % 2 * 2 + quad % 2] = __uint_as_float(rounded_to_tf32(weight[i]));
    }
}

template <bool kVector>
__device__ void convolve(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                         float* __restrict__ y, int images, const Shape shape) {
    extern __shared__ __align__(16) float memory[];
    float* weights = memory;
    float* buffers = memory + kWeights;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const long long tiles = (long long)images * shape.down * shape.across;

    long long tile = blockIdx.x;
    for (int channel = 0; channel < kChannels; ++channel) {
        if (tile < tiles) fetch<kVector>(buffers + channel * kBuffer, x, tile, channel, shape);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    pack(weights, weight);

    // Where each of the warp's 4 groups begins in a buffer: its row, and 2 columns on from what was fetched.
    int starts[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int number = warp * 4 + i;
        starts[i] = number / kGroups * kStride * kInColumns + (number % kGroups * 8 + group) * kStride + quad + 2;
    }

    for (; tile < tiles; tile += gridDim.x) {
        float sum[2][12][4];
        #pragma unroll
        for (int part = 0; part < 12; ++part) {
            const float first = __ldg(bias + part * 8 + 2 * quad), second = __ldg(bias + part * 8 + 2 * quad + 1);
            #pragma unroll
            for (int i = 0; i < 2; ++i) sum[i][part][0] = sum[i][part][2] = first, sum[i][part][1] = sum[i][part][3] = second;
        }
        for (int channel = 0; channel < kChannels; ++channel) {
            asm volatile("cp.async.wait_group 2;" ::: "memory");  // of three under way, the first: this channel
            __syncthreads();
            float* buffer = buffers + channel * kBuffer;
            const float4* packed = reinterpret_cast<const float4*>(weights) + channel * (kSteps * 6 * 32) + lane;
            #pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                unsigned a[2][4];
                #pragma unroll
                for (int half = 0; half < 2; ++half) {  // k, then k + 4
                    const int place = 2 * step + half, row = place / 3, column = place % 3 * 4;
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const bool beyond = place >= 3 * kKernel || (column == 8 && quad == 3);
                        a[i / 2][half * 2 + i % 2] =
                            beyond ? 0u : rounded_to_tf32(buffer[starts[i] + row * kInColumns + column]);
                    }
                }
                #pragma unroll
                for (int pair = 0; pair < 6; ++pair) {
                    const float4 b = packed[(step * 6 + pair) * 32];
                    #pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        multiply(sum[i][2 * pair], a[i], __float_as_uint(b.x), __float_as_uint(b.y));
                        multiply(sum[i][2 * pair + 1], a[i], __float_as_uint(b.z), __float_as_uint(b.w));
                    }
                }
            }
            __syncthreads();
            if (tile + gridDim.x < tiles) fetch<kVector>(buffer, x, tile + gridDim.x, channel, shape);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }

        const int across = static_cast<int>(tile % shape.across), down = static_cast<int>(tile / shape.across % shape.down);
        const long long image = tile / shape.across / shape.down, plane = (long long)shape.out_height * shape.out_width;
        float* out = y + image * kFilters * plane;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int number = warp * 4 + i, row = down * kRows + number / kGroups;
            const int column = across * kColumns + number % kGroups * 8 + group;
            if (row >= shape.out_height || column >= shape.out_width) continue;
            #pragma unroll
            for (int part = 0; part < 12; ++part)
                #pragma unroll
                for (int j = 0; j < 2; ++j)
                    out[(part * 8 + 2 * quad + j) * plane + row * (long long)shape.out_width + column] = sum[i / 2][part][i % 2 * 2 + j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
conv2d(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
       float* __restrict__ y, int images, int height, int width, int out_height, int out_width, int down, int across) {
    convolve<false>(x, weight, bias, y, images, {height, width, out_height, out_width, down, across});
}
// width is a multiple of 4
extern "C" __global__ void __launch_bounds__(kThreads, 1)
conv2d4(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
        float* __restrict__ y, int images, int height, int width, int out_height, int out_width, int down, int across) {
    convolve<true>(x, weight, bias, y, images, {height, width, out_height, out_width, down, across});
}
""")


def run(x, weight, bias, y):
    images, _, height, width = x.shape
    _, _, out_height, out_width = y.shape
    down = (out_height + TILE_ROWS - 1) // TILE_ROWS
    across = (out_width + TILE_COLUMNS - 1) // TILE_COLUMNS
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    grid = min(images * down * across, processors)
    shape = (images, height, width, out_height, out_width, down, across)
    if width % 4 == 0:
        kernels.conv2d4.launch(grid, 224, x, weight, bias, y, *shape, shared_bytes=SHARED_BYTES)
    else:
        kernels.conv2d.launch(grid, 224, x, weight, bias, y, *shape, shared_bytes=SHARED_BYTES)
