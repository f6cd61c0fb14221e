from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
#include <cmath>
extern "C" void add_rms_norm(const float* x, const float* r, const float* w, float* z, float* y, int64_t rows,
                             int64_t n) {
  for (int64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (int64_t i = row * n; i < (row + 1) * n; ++i) { z[i] = x[i] + r[i]; squares += double(z[i]) * z[i]; }
    const double scale = 1 / std::sqrt(squares / n + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[row * n + i] = float(z[row * n + i] * scale * w[i]);
  }
}
""")


def run(x, x_2, weight, y, y_2):
    n = weight.numel()
    kernels.add_rms_norm(x, x_2, weight, y, y_2, x.numel() // n, n)
