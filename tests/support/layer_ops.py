"""Ops that are layers of models, on float32 rows, with C++ kernels: normalisations and activations."""

from __future__ import annotations

from typing import Any

WORKLOADS = [
    {"id": "large", "role": "bench", "axes": {"tokens": 40, "hidden": 64}},
    {"id": "small", "role": "test", "axes": {"tokens": 2, "hidden": 64}},
]


def spec(name: str, inputs: list[str], reference: str, outputs: int = 1) -> dict[str, Any]:
    """An op on float32 rows; an input `weight` is one."""
    return {
        "schema_version": 1,
        "name": name,
        "axes": {"tokens": {"kind": "var"}, "hidden": {"kind": "var"}},
        "inputs": [
            {"name": each, "dtype": "float32"}
            | ({"shape": ["hidden"], "role": "weight"} if each == "weight" else {"shape": ["tokens", "hidden"]})
            for each in inputs
        ],
        "outputs": [
            {"name": f"y{number}", "shape": ["tokens", "hidden"], "dtype": "float32"} for number in range(outputs)
        ],
        "reference": f"import torch\n\ndef run({', '.join(inputs)}):\n{reference}",
        "workloads": WORKLOADS,
    }


RMS = spec("rms_norm", ["x", "weight"], "    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)\n")
RMS_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void norm(const float* x, const float* w, float* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double s = 0;
    for (int64_t i = 0; i < n; ++i) s += double(x[i]) * x[i];
    const double scale = 1 / std::sqrt(s / n + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[i] = float(x[i] * scale * w[i]);
  }
}
""")


def run(x, weight, y):
    kernels.norm(x, weight, y, x.shape[0], x.shape[1])
'''
ADD_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void norm(const float* x, const float* r, const float* w, float* y, float* t, int64_t rows, int64_t n) {
  for (int64_t k = 0; k < rows; ++k, x += n, r += n, y += n, t += n) {
    double s = 0;
    for (int64_t i = 0; i < n; ++i) { t[i] = x[i] + r[i]; s += double(t[i]) * t[i]; }
    const double scale = 1 / std::sqrt(s / n + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[i] = float(t[i] * scale * w[i]);
  }
}
""")


def run(x, residual, weight, y0, y1):
    kernels.norm(x, residual, weight, y0, y1, x.shape[0], x.shape[1])
'''
ADD = spec(
    "add_rms_norm",
    ["x", "residual", "weight"],
    "    total = x + residual\n    return torch.nn.functional.rms_norm(total, weight.shape, weight, 1e-6), total\n",
    outputs=2,
)
ADD_ALONE = spec(
    "add_rms_norm",
    ["x", "residual", "weight"],
    "    return torch.nn.functional.rms_norm(x + residual, weight.shape, weight, eps=1e-6)\n",
)
ADD_ALONE_CPP = ADD_CPP
for _old, _new in (
    ("float* y, float* t,", "float* y,"),
    (", t += n", ""),
    ("t[i] = x[i] + r[i]; s += double(t[i]) * t[i];", "const float t = x[i] + r[i]; s += double(t) * t;"),
    ("float(t[i] * scale", "float((x[i] + r[i]) * scale"),
    ("y0, y1", "y"),
):
    ADD_ALONE_CPP = ADD_ALONE_CPP.replace(_old, _new)
POINTWISE_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void activate(const float* x, float* y, int64_t rows, int64_t n) {
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t i = 0; i < n; ++i) {
      const double v = x[k * STEP + i];
      y[k * n + i] = float(FORMULA);
    }
}
""")


def run(x, y):
    kernels.activate(x, y, y.shape[0], y.shape[1])
'''
SILU = spec(
    "silu_and_mul", ["x"], "    gate, up = x.chunk(2, dim=-1)\n    return torch.nn.functional.silu(gate) * up\n"
) | {
    "axes": {"tokens": {"kind": "var"}, "hidden": {"kind": "var"}, "packed": {"kind": "expr", "expr": "2 * hidden"}},
    "inputs": [{"name": "x", "shape": ["tokens", "packed"], "dtype": "float32"}],
}
SILU_CPP = POINTWISE_CPP.replace("STEP", "(2 * n)").replace("FORMULA", "v / (1 + std::exp(-v)) * x[k * 2 * n + n + i]")
GELU = spec("gelu_tanh", ["x"], '    return torch.nn.functional.gelu(x, approximate="tanh")\n')
GELU_CPP = POINTWISE_CPP.replace("STEP", "n").replace(
    "FORMULA", "0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))"
)
