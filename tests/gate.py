"""The gate of a mixture of experts, as its example declares it, with a kernel in C++: of equal logits the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GATE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "examples" / "moe_topk_gate.yaml").read_text(encoding="utf-8")
)
GATE_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
#include <cmath>
#include <cstdint>
#include <cstring>
static float value_of(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float found;
  std::memcpy(&found, &wide, 4);
  return found;
}
extern "C" void gate(const uint16_t* logits, float* weights, int32_t* chosen, int64_t tokens, int64_t experts,
                     int64_t k) {
  for (int64_t row = 0; row < tokens; ++row, logits += experts, weights += k, chosen += k) {
    int64_t last = INT64_MAX;
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      int64_t best = INT64_MIN;
      for (int64_t i = 0; i < experts; ++i) {
        const uint16_t bits = (logits[i] & 0x7fff) > 0x7f80 ? 0x7fff : logits[i];  // NaN, of either sign, above all
        const int16_t turned = int16_t(bits ^ (bits & 0x8000 ? 0x7fff : 0));
        const int64_t key = int64_t(turned) * 65536 + (65535 - i);
        if (key < last && key > best) best = key;
      }
      last = best;
      chosen[j] = int32_t(65535 - (best & 65535));
      weights[j] = std::exp(value_of(logits[chosen[j]]) - value_of(logits[chosen[0]]));
      sum += weights[j];
    }
    for (int64_t j = 0; j < k; ++j) weights[j] /= sum;
  }
}
""")


def run(logits, k, weights, chosen):
    tokens, experts = logits.shape
    kernels.gate(logits, weights, chosen, tokens, experts, weights.shape[1])
'''
