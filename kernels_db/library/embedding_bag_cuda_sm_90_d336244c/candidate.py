"""Sums of embedding rows by equal shares: LANES consecutive lookups a piece, whatever bags they are of.

A first kernel zeroes the sums. Then each piece of LANES lanes (one float4 column a lane) loads its indices at once and
their rows in groups of UNROLL, which need no offsets; a search with LANES probes a step finds its first bag meanwhile.
A bag that lies inside of a piece is stored, parts of others are added by red.global.add.v4.f32. Other widths go bag by
bag, column by column.
"""

from kernels_db.runtime import cuda

TUNE = {"UNROLL": [4, 8]}
UNROLL = 4
kernels = cuda.compile(r"""
__device__ __forceinline__ void put(float4* at, float4 v, bool whole) {
    if (whole) *at = v;
    else asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                      :: "l"(at), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

template <int LANES>
__device__ __forceinline__ void pieces(const long long* indices, const float4* weight, const long long* offsets,
                                       float4* sums, long long lookups, int bags, int vectors) {
    const int lane = threadIdx.x & (LANES - 1), shift = (threadIdx.x & 31) & ~(LANES - 1);
    const unsigned all = LANES == 32 ? 0xffffffffu : ((1u << (LANES & 31)) - 1u) << shift;
    const long long piece = (long long)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    const long long start = piece * LANES;
    if (start >= lookups) return;
    const int count = (int)min((long long)LANES, lookups - start);
    const bool inside = lane < vectors;
    const long long mine = lane < count ? __ldg(indices + start + lane) : 0;
    float4 v[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        const long long row = __shfl_sync(all, mine, shift + k, 32);
        v[k] = k < count && inside ? __ldg(weight + row * vectors + lane) : make_float4(0.f, 0.f, 0.f, 0.f);
    }
    int low = 0, high = bags;  // the first bag whose end lies beyond the start is in [low, high)
    while (low < high - 1) {
        const int step = (high - 1 - low + LANES - 1) / LANES, at = low + (lane + 1) * step - 1;
        const bool beyond = at >= high - 1 || offsets[at + 1] > start;
        const unsigned votes = __ballot_sync(all, beyond) >> shift;
        const int first = (votes & (LANES == 32 ? 0xffffffffu : (1u << (LANES & 31)) - 1u)) ? __ffs(votes) - 1 : LANES;
        const int next = min(low + first * step, high - 1);
        high = first == LANES ? high : min(next + step, high);
        low = next;
    }
    int bag = low;
    long long begin = offsets[bag], end = offsets[bag + 1];
    float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int from = 0; from < count; from += UNROLL) {
        if (from > 0) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                const long long row = __shfl_sync(all, mine, shift + from + k, 32);
                v[k] = from + k < count && inside ? __ldg(weight + row * vectors + lane)
                                                  : make_float4(0.f, 0.f, 0.f, 0.f);
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            if (from + k < count) {
                while (start + from + k >= end) {
                    if (inside && end > begin && end > start)
                        put(sums + (long long)bag * vectors + lane, total, begin >= start);
                    total = make_float4(0.f, 0.f, 0.f, 0.f);
                    ++bag;
                    begin = end;
                    end = offsets[bag + 1];
                }
                total.x += v[k].x; total.y += v[k].y; total.z += v[k].z; total.w += v[k].w;
            }
        }
    }
    if (inside) put(sums + (long long)bag * vectors + lane, total, begin >= start && end <= start + count);
}

extern "C" __global__ void __launch_bounds__(256) zero(float4* __restrict__ sums, long long vectors) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at < vectors) sums[at] = make_float4(0.f, 0.f, 0.f, 0.f);
}
extern "C" __global__ void __launch_bounds__(128)
lanes32(const long long* __restrict__ indices, const float4* __restrict__ weight,
        const long long* __restrict__ offsets, float4* __restrict__ sums, long long lookups, int bags, int vectors) {
    pieces<32>(indices, weight, offsets, sums, lookups, bags, vectors);
}
extern "C" __global__ void __launch_bounds__(128)
lanes16(const long long* __restrict__ indices, const float4* __restrict__ weight,
        const long long* __restrict__ offsets, float4* __restrict__ sums, long long lookups, int bags, int vectors) {
    pieces<16>(indices, weight, offsets, sums, lookups, bags, vectors);
}
extern "C" __global__ void __launch_bounds__(128)
columns(const long long* __restrict__ indices, const float* __restrict__ weight,
        const long long* __restrict__ offsets, float* __restrict__ sums, int width) {
    const long long bag = blockIdx.x, start = offsets[bag], end = offsets[bag + 1];
    for (int at = threadIdx.x; at < width; at += 128) {
        float total = 0.f;
        for (long long i = start; i < end; ++i) total += __ldg(weight + __ldg(indices + i) * width + at);
        sums[bag * width + at] = total;
    }
}
""", flags=("-DUNROLL=4",))


def run(indices, weight, offsets, sums):
    lookups = indices.numel()
    bags, width = sums.shape
    if width % 4 or width > 128:
        kernels.columns[bags, 128](indices, weight, offsets, sums, width)
    else:
        vectors = width // 4
        kernels.zero[(bags * vectors + 255) // 256, 256](sums, bags * vectors)
        if width > 64:
            kernels.lanes32[(lookups + 127) // 128, 128](indices, weight, offsets, sums, lookups, bags, vectors)
        else:
            kernels.lanes16[(lookups + 127) // 128, 128](indices, weight, offsets, sums, lookups, bags, vectors)
