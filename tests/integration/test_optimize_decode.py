"""All kernels of a step in one graph: they share views, hand on to each other and meet a cache in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import transformers

import warpsmith
from tests.exporting import exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import load_op

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
EXAMPLES = Path(__file__).parents[2] / "examples"
LLAMA: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "intermediate_size": 320,
    "vocab_size": 200,
    "rms_norm_eps": 1e-5,
}
DECODE = ("linear_add", "rms_norm_linear", "rms_norm_qkv", "rms_norm_swiglu")
ROWS, PROMPT, CACHE = 2, 20, 64
PRODUCT = """
#include <cmath>
#include <vector>
static void product(const float* x, const float* w, const float* add, float* y, int64_t rows, int64_t k, int64_t n) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += double(x[row * k + j]) * w[i * k + j];
      y[row * n + i] = float(add ? add[row * n + i] + sum : sum);
    }
}
static std::vector<float> norm(const float* x, const float* w, float eps, int64_t rows, int64_t k) {
  std::vector<float> y(rows * k);
  for (int64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < k; ++i) squares += double(x[row * k + i]) * x[row * k + i];
    const double scale = 1 / std::sqrt(squares / k + eps);
    for (int64_t i = 0; i < k; ++i) y[row * k + i] = float(x[row * k + i] * scale * w[i]);
  }
  return y;
}
"""
ATTENTION = """
static void attend(const float* q, const float* k, const float* v, const uint8_t* mask, float* y, int64_t batch,
                   int64_t heads, int64_t group, int64_t n) {
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = b * heads + h, kv = (b * (heads / group) + h / group) * n * 64;
      std::vector<double> p(n);
      double most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < 64; ++j) p[i] += double(q[at * 64 + j]) * k[kv + i * 64 + j] * 0.125;
        if (!mask[b * n + i]) p[i] = -INFINITY;
        most = std::isnan(p[i]) ? p[i] : std::fmax(most, p[i]);
      }
      for (int64_t i = 0; i < n; ++i) sum += p[i] = std::exp(p[i] - most);
      for (int64_t j = 0; j < 64; ++j) {
        double out = 0;
        for (int64_t i = 0; i < n; ++i) out += p[i] / sum * v[kv + i * 64 + j];
        y[at * 64 + j] = float(out);
      }
    }
}
"""
SOURCES = {
    "linear_add": (
        """
extern "C" void linear_add(const float* x, const float* w, const float* add, float* y, int64_t m, int64_t k,
                           int64_t n) { product(x, w, add, y, m, k, n); }""",
        "x, weight, residual, y",
        "x, weight, residual, y, x.shape[0], x.shape[1], y.shape[1]",
    ),
    "rms_norm_linear": (
        """
extern "C" void rms_norm_linear(const float* x, const float* g, const float* w, float eps, float* y, int64_t m,
                                int64_t k, int64_t n) {
  product(norm(x, g, eps, m, k).data(), w, nullptr, y, m, k, n);
}""",
        "x, weight, w, eps, y",
        "x, weight, w, eps, y, x.shape[0], x.shape[1], y.shape[1]",
    ),
    "rms_norm_qkv": (
        """
extern "C" void rms_norm_qkv(const float* x, const float* g, const float* wq, const float* wk, const float* wv,
                             float eps, float* q, float* k, float* v, int64_t m, int64_t h, int64_t nq, int64_t nk) {
  const std::vector<float> y = norm(x, g, eps, m, h);
  product(y.data(), wq, nullptr, q, m, h, nq);
  product(y.data(), wk, nullptr, k, m, h, nk);
  product(y.data(), wv, nullptr, v, m, h, nk);
}""",
        "x, weight, wq, wk, wv, eps, query, key, value",
        "x, weight, wq, wk, wv, eps, query, key, value, x.shape[0], x.shape[1], query.shape[1], key.shape[1]",
    ),
    "rms_norm_swiglu": (
        """
extern "C" void rms_norm_swiglu(const float* x, const float* g, const float* gate, const float* up, float eps, float* y,
                                int64_t m, int64_t k, int64_t n) {
  const std::vector<float> h = norm(x, g, eps, m, k);
  std::vector<float> a(m * n);
  product(h.data(), gate, nullptr, a.data(), m, k, n);
  product(h.data(), up, nullptr, y, m, k, n);
  for (int64_t i = 0; i < m * n; ++i) y[i] *= a[i] / (1 + std::exp(-a[i]));
}""",
        "x, weight, w_gate, w_up, eps, y",
        "x, weight, w_gate, w_up, eps, y, x.shape[0], x.shape[1], y.shape[1]",
    ),
    "linear_qkv": (
        """
extern "C" void linear_qkv(const float* x, const float* wq, const float* wk, const float* wv, float* q, float* k,
                           float* v, int64_t m, int64_t h, int64_t nq, int64_t nk) {
  product(x, wq, nullptr, q, m, h, nq);
  product(x, wk, nullptr, k, m, h, nk);
  product(x, wv, nullptr, v, m, h, nk);
}""",
        "x, wq, wk, wv, query, key, value",
        "x, wq, wk, wv, query, key, value, x.shape[0], x.shape[1], query.shape[1], key.shape[1]",
    ),
    "linear_swiglu": (
        """
extern "C" void linear_swiglu(const float* x, const float* gate, const float* up, float* y, int64_t m, int64_t k,
                              int64_t n) {
  std::vector<float> a(m * n);
  product(x, gate, nullptr, a.data(), m, k, n);
  product(x, up, nullptr, y, m, k, n);
  for (int64_t i = 0; i < m * n; ++i) y[i] *= a[i] / (1 + std::exp(-a[i]));
}""",
        "x, w_gate, w_up, y",
        "x, w_gate, w_up, y, x.shape[0], x.shape[1], y.shape[1]",
    ),
    "decode_attention": (
        ATTENTION
        + """
extern "C" void decode_attention(const float* q, const float* k, const float* v, const uint8_t* mask, float* y,
                                 int64_t batch, int64_t heads, int64_t group, int64_t n) {
  attend(q, k, v, mask, y, batch, heads, group, n);
}""",
        "query, key, value, mask, out",
        "query, key, value, mask, out, query.shape[0], query.shape[1], 4, key.shape[2]",
    ),
    "rope_cache_attention": (
        ATTENTION
        + """
static void rotated(const float* x, const float* cos, const float* sin, float* y) {
  for (int64_t j = 0; j < 64; ++j) y[j] = x[j] * cos[j] + (j < 32 ? -x[j + 32] : x[j - 32]) * sin[j];
}
extern "C" void rope_cache_attention(const float* q, const float* k, const float* v, const float* cos, const float* sin,
                                     float* keys, float* values, int64_t* length, const uint8_t* mask, float* y,
                                     int64_t batch, int64_t heads, int64_t group, int64_t n) {
  std::vector<float> turned(batch * heads * 64);
  for (int64_t h = 0; h < batch * heads; ++h) rotated(q + h * 64, cos, sin, &turned[h * 64]);
  for (int64_t h = 0; h < batch * heads / group; ++h) {
    const int64_t at = (h * n + *length) * 64;
    rotated(k + h * 64, cos, sin, keys + at);
    for (int64_t j = 0; j < 64; ++j) values[at + j] = v[h * 64 + j];
  }
  ++*length;
  attend(turned.data(), keys, values, mask, y, batch, heads, group, n);
}""",
        "query, key, value, cos, sin, keys, values, length, mask, out",
        "query, key, value, cos, sin, keys, values, length, mask, out, "
        "query.shape[0], query.shape[1], 4, keys.shape[2]",
    ),
}


def package(name: str, directory: Path) -> Path:
    """Export a plain kernel of an example, in float32 and for any size."""
    spec = load_op((EXAMPLES / f"{name}.yaml").read_text("utf-8").replace("bfloat16", "float32")).document()
    axes = [axis for axis, kind in spec["axes"].items() if kind["kind"] == "var"]
    ends = [
        dict.fromkeys(axes, 1),
        dict.fromkeys(axes, 512),
        *({axis: 8 ** (1 + at) for at, axis in enumerate(order)} for order in (axes, axes[::-1])),
    ]
    sizes = [{"id": f"n{at}", "role": "test" if at else "bench", "axes": each} for at, each in enumerate(ends)]
    source, parameters, arguments = SOURCES[name]
    run = f"def run({parameters}):\n    kernels.{name}({arguments})\n"
    text = f'from kernels_db.runtime import cpp\n\nkernels = cpp.compile(r"""{PRODUCT}{source}\n""")\n\n\n{run}'
    plain = {**spec, "constraints": [], "workloads": sizes, "targets": {}}
    return build(exported(plain, text), directory / name)


def optimized(names: Sequence[str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a small model, and it with plain kernels of these examples wherever they fit."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(directory / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()
    return model, warpsmith.optimize(model, kernels=[package(name, directory) for name in names], keep="right")


@pytest.mark.nightly
def test_the_kernels_of_a_prefill_stand_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, fast = optimized(("linear_qkv", "linear_swiglu"), tmp_path, monkeypatch)
    prompt = torch.randint(0, 200, (ROWS, PROMPT))
    with torch.no_grad():
        found = fast(input_ids=prompt, use_cache=False).logits
        torch.testing.assert_close(found, model(input_ids=prompt, use_cache=False).logits)
    report = fast.report()
    assert "4 of 4 places of kernels taken" in report, report
    assert "keys and values are not repeated for groups of queries" in report, report


@pytest.mark.nightly
@pytest.mark.parametrize("attention", ["decode_attention", "rope_cache_attention"])
def test_all_kernels_of_a_decode_step_stand_in_it(
    attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fast = optimized((*DECODE, attention), tmp_path, monkeypatch)
    prompt, token = (torch.randint(0, 200, (ROWS, length)) for length in (PROMPT, 1))
    found = []
    with torch.no_grad():
        for call in (model, fast):
            cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
            model(prompt, past_key_values=cache, use_cache=True)
            logits = [call(input_ids=token, past_key_values=cache, use_cache=True).logits for _ in range(3)]
            layers = cast("list[Any]", cache.layers)
            parts = [part for each in layers for part in (each.keys, each.values, each.cumulative_length)]
            found.append([*logits, *parts])
    torch.testing.assert_close(found[1], found[0])
    report = fast.report()
    assert "11 of 11 places of kernels taken" in report, report
