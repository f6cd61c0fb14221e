"""examples/add_relu.yaml in C++: right at every shape."""

from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void bias_relu(const float* __restrict x, const float* __restrict bias, float* __restrict y, int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            const float sum = x[r * columns + c] + bias[c];
            // Written so that NaN stays NaN, as in torch.
            y[r * columns + c] = sum < 0.0f ? 0.0f : sum;
        }
    }
}
""")


def run(x, bias, y):
    rows, columns = x.shape
    kernels.bias_relu(x, bias, y, rows, columns)
