"""The products of a mixture of experts, as their examples declare them at small sizes, with kernels in C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_EXAMPLES = Path(__file__).parents[1] / "examples"
_COMMON = """
#include <cmath>
#include <cstdint>
#include <cstring>
static float value_of(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float found;
  std::memcpy(&found, &wide, 4);
  return found;
}
static uint16_t rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float dot(const uint16_t* a, const uint16_t* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += value_of(a[i]) * value_of(b[i]);
  return sum;
}
static float gated(float gate, float up) { return gate / (1 + std::exp(-gate)) * up; }
"""


def _kernel(signature: str, body: str, run: str) -> str:
    code = f'extern "C" void work({signature}) {{\n{body}}}\n'
    return f'from kernels_db.runtime import cpp\n\nkernels = cpp.compile(r"""{_COMMON}{code}""")\n\n\n{run}'


GROUPED_MM_CPP = _kernel(
    "const uint16_t* x, const uint16_t* weight, const int32_t* ends, uint16_t* y, int64_t experts, int64_t inner, "
    "int64_t outer",
    """  for (int64_t e = 0, row = 0; e < experts; ++e, weight += outer * inner)
    for (; row < ends[e]; ++row)
      for (int64_t c = 0; c < outer; ++c) y[row * outer + c] = rounded(dot(x + row * inner, weight + c * inner, inner));
""",
    """def run(x, weight, ends, y):
    kernels.work(x, weight, ends, y, weight.shape[0], x.shape[1], y.shape[1])
""",
)
GROUPED_SWIGLU_CPP = _kernel(
    "const uint16_t* x, const uint16_t* weight, const int32_t* ends, uint16_t* y, int64_t experts, int64_t inner, "
    "int64_t outer",
    """  for (int64_t e = 0, row = 0; e < experts; ++e, weight += 2 * outer * inner)
    for (; row < ends[e]; ++row)
      for (int64_t c = 0; c < outer; ++c)
        y[row * outer + c] = rounded(gated(dot(x + row * inner, weight + c * inner, inner),
                                           dot(x + row * inner, weight + (outer + c) * inner, inner)));
""",
    """def run(x, weight, ends, y):
    kernels.work(x, weight, ends, y, weight.shape[0], x.shape[1], y.shape[1])
""",
)
EXPERTS_CPP = _kernel(
    "const uint16_t* x, const int64_t* chosen, const uint16_t* weights, const uint16_t* gate_up, const uint16_t* down, "
    "uint16_t* y, uint16_t* h, int64_t tokens, int64_t top, int64_t hidden, int64_t inner",
    """  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t j = 0; j < top; ++j)
      for (int64_t c = 0; c < inner; ++c) {
        const uint16_t* gate = gate_up + (chosen[token * top + j] * 2 * inner + c) * hidden;
        h[j * inner + c] = rounded(gated(dot(x + token * hidden, gate, hidden),
                                         dot(x + token * hidden, gate + inner * hidden, hidden)));
      }
    for (int64_t c = 0; c < hidden; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < top; ++j)
        sum += value_of(weights[token * top + j]) *
               dot(h + j * inner, down + (chosen[token * top + j] * hidden + c) * inner, inner);
      y[token * hidden + c] = rounded(sum);
    }
  }
""",
    """def run(x, chosen, weights, gate_up, down, y):
    tokens, hidden = x.shape
    h = x.new_empty((chosen.shape[1], down.shape[2]))
    kernels.work(x, chosen, weights, gate_up, down, y, h, tokens, chosen.shape[1], hidden, down.shape[2])
""",
)
EXPERTS_FP32_CPP = EXPERTS_CPP.replace("const uint16_t* weights", "const float* weights").replace(
    "value_of(weights[token * top + j])", "weights[token * top + j]"
)


def op(name: str, *sizes: dict[str, int]) -> dict[str, Any]:
    """The document of an example with workloads of these sizes."""
    document: dict[str, Any] = yaml.safe_load((_EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    del document["targets"]
    workloads = [{"id": f"sizes_{at}", "role": "bench", "axes": axes} for at, axes in enumerate(sizes)]
    return document | {"workloads": workloads}


GROUPED_SIZES = tuple(
    {"tokens": tokens, "experts": experts, "inner": 32, "outer": outer}
    for tokens, experts, outer in ((1, 8, 32), (48, 16, 64), (96, 8, 32))
)
GROUPED_MM, GROUPED_SWIGLU = (op(name, *GROUPED_SIZES) for name in ("moe_grouped_mm", "moe_grouped_swiglu"))
EXPERTS_SIZES = (
    {"tokens": 2, "top": 1, "experts": 2, "hidden": 32, "inner": 32},
    {"tokens": 1, "top": 4, "experts": 16, "hidden": 32, "inner": 40},
    {"tokens": 12, "top": 2, "experts": 8, "hidden": 64, "inner": 32},
)
EXPERTS, EXPERTS_FP32 = (op(name, *EXPERTS_SIZES) for name in ("moe_experts", "moe_experts_fp32"))
