from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void __launch_bounds__(128)
add_layer_norm(const float* __restrict__ x, const float* __restrict__ r, const float* __restrict__ w,
               const float* __restrict__ b, float* __restrict__ y, long long rows) {
    const long long row = blockIdx.x * 4LL + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    float4 v = reinterpret_cast<const float4*>(x + row * 128)[lane];
    const float4 u = reinterpret_cast<const float4*>(r + row * 128)[lane];
    v.x += u.x; v.y += u.y; v.z += u.z; v.w += u.w;
    float sum = v.x + v.y + v.z + v.w;
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    const float mean = sum / 128.f;
    v.x -= mean; v.y -= mean; v.z -= mean; v.w -= mean;
    float square = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    for (int o = 16; o; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
    const float scale = 1.f / sqrtf(square / 128.f + 1e-5f);
    const float4 g = reinterpret_cast<const float4*>(w)[lane], h = reinterpret_cast<const float4*>(b)[lane];
    reinterpret_cast<float4*>(y + row * 128)[lane] =
        make_float4(v.x * scale * g.x + h.x, v.y * scale * g.y + h.y, v.z * scale * g.z + h.z, v.w * scale * g.w + h.w);
}
""")


def run(x, x_2, weight, bias, y):
    rows = x.numel() // x.shape[-1]
    kernels.add_layer_norm[(rows + 3) // 4, 128](x, x_2, weight, bias, y, rows)
