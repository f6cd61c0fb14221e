from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void interaction(const float* dense, const float* sparse, const int64_t* pairs, float* y, int64_t batch,
                            int64_t tables, int64_t width, int64_t count) {
  const int64_t vectors = tables + 1, features = width + count;
  for (int64_t b = 0; b < batch; ++b) {
    const float* first = dense + b * width;
    const float* rest = sparse + b * tables * width;
    float* out = y + b * features;
    for (int64_t i = 0; i < width; ++i) out[i] = first[i];
    for (int64_t p = 0; p < count; ++p) {
      const int64_t one = pairs[p] / vectors, other = pairs[p] % vectors;
      const float* a = one ? rest + (one - 1) * width : first;
      const float* c = other ? rest + (other - 1) * width : first;
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += double(a[i]) * c[i];
      out[width + p] = float(sum);
    }
  }
}
""")


def run(x, x_2, pairs, y):
    kernels.interaction(x, x_2, pairs, y, x.shape[0], x_2.shape[1], x.shape[1], pairs.numel())
