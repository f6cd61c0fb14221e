from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void __launch_bounds__(64)
interaction(const float* __restrict__ dense, const float* __restrict__ sparse, const long long* __restrict__ pairs,
            float* __restrict__ y, int count) {
    __shared__ float v[9][33];
    const long long b = blockIdx.x;
    for (int i = threadIdx.x; i < 288; i += 64) v[i / 32][i % 32] = i < 32 ? dense[b * 32 + i] : sparse[b * 256 + i - 32];
    __syncthreads();
    float* out = y + b * (32 + count);
    if (threadIdx.x < 32) out[threadIdx.x] = v[0][threadIdx.x];
    for (int p = threadIdx.x; p < count; p += 64) {
        const int at = (int)pairs[p], one = at / 9, other = at % 9;
        float sum = 0.f;
        for (int i = 0; i < 32; ++i) sum += v[one][i] * v[other][i];
        out[32 + p] = sum;
    }
}
""")


def run(x, x_2, pairs, y):
    kernels.interaction[x.shape[0], 64](x, x_2, pairs, y, pairs.numel())
