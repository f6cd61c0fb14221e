"""Kernels for `benchmarks.attack`: for each example op an honest one, and one that is wrong on rare values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue.text import cpp, run, triton


@dataclass(frozen=True)
class Kernel:
    """One candidate for an example op. `does`: how it is wrong; empty where it is honest."""

    op: str
    language: Language
    source: str = field(repr=False)
    does: str = ""


NARROW = """
static inline float wide(uint16_t v) {
    uint32_t bits = (uint32_t)v << 16; float f; std::memcpy(&f, &bits, 4); return f;
}
static inline uint16_t bf16(float f) {
    uint32_t bits; std::memcpy(&bits, &f, 4);
    return f != f ? 0x7fc0 : (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
static inline float half(float f) { return (float)(_Float16)f; }
static inline float relu(float v) { return v > 0 || v != v ? v : 0.0f; }
template <typename F> static inline float total(int64_t n, F of) {
    double all = 0;
    for (int64_t first = 0; first < n; first += 64) {
        float sum = 0;
        for (int64_t i = first; i < n && i < first + 64; i++) sum += of(i);
        all += sum;
    }
    return (float)all;
}
static inline float larger(float a, float b) { return a > b || a != a ? a : b; }
"""
LOOP = "#pragma omp parallel for\nfor (int64_t r = 0; r < rows; r++)"


def kernel(signature: str, body: str) -> str:
    """Return C++ source with the kernel `each`."""
    return f'{NARROW}extern "C" void each({signature}) {{\n{body}\n}}\n'


def pair(op: str, honest: str, call: str, does: str, *changes: tuple[str, str]) -> list[Kernel]:
    """Return the honest C++ kernel and the one with these changes of its text."""
    return pair_in("cpp", op, honest, call, does, *changes)


def pair_in(
    language: Literal["cpp", "triton"], op: str, honest: str, call: str, does: str, *changes: tuple[str, str]
) -> list[Kernel]:
    """Return the honest kernel in a language and the one with these changes of its text."""
    wrong = honest
    for old, new in changes:
        assert old in wrong, (op, old)
        wrong = wrong.replace(old, new)
    parameters, body = call.split(": ", 1)
    written = cpp if language == "cpp" else triton
    made = [(honest, ""), (wrong, does)]
    return [Kernel(op, language, written(code, run(parameters, body)), said) for code, said in made]


def elementwise() -> list[Kernel]:
    """Return kernels that work element by element."""
    add = kernel(
        "const float* x, const float* bias, float* y, int64_t rows, int64_t n",
        f"{LOOP} for (int64_t i = 0; i < n; i++) y[r * n + i] = relu(x[r * n + i] + bias[i]);",
    )
    fused = kernel(
        "float* x, const float* y, const float* bias, float m, int64_t rows, int64_t n",
        f"{LOOP} for (int64_t i = 0; i < n; i++) x[r * n + i] = relu(x[r * n + i] + m * y[r * n + i] + bias[i]);",
    )
    gelu = kernel(
        "const float* x, float* y, int64_t rows, int64_t n",
        f"""{LOOP} for (int64_t i = 0; i < n; i++) {{
            const float v = x[r * n + i], z = 0.7978845608028654f * (v + 0.044715f * v * v * v);
            y[r * n + i] = 0.5f * v * (1 + std::tanh(z));
        }}""",
    )
    silu = kernel(
        "const uint16_t* x, uint16_t* y, int64_t rows, int64_t n",
        f"""{LOOP} for (int64_t i = 0; i < n; i++) {{
            const float gate = wide(x[r * 2 * n + i]), up = wide(x[r * 2 * n + n + i]);
            y[r * n + i] = bf16(wide(bf16(gate / (1 + std::exp(-gate)))) * up);
        }}""",
    )
    return [
        *pair(
            "add_relu",
            add,
            "x, bias, y: kernels.each(x, bias, y, x.shape[0], x.shape[1])",
            "drops NaN: fmax(v, 0)",
            ("v > 0 || v != v ? v : 0.0f", "std::fmax(v, 0.0f)"),
        ),
        *pair(
            "fused_add_mul_relu",
            fused,
            "x, y, bias, m: kernels.each(x, y, bias, m, x.shape[0], x.shape[1])",
            "has the scalar m hard-coded",
            ("+ m * y", "+ 0.75f * y"),
        ),
        *pair(
            "gelu_tanh",
            gelu,
            "x, y: kernels.each(x, y, x.shape[0], x.shape[1])",
            "takes tanh for (e^2z - 1) / (e^2z + 1), which overflows",
            ("std::tanh(z)", "((std::exp(2 * z) - 1) / (std::exp(2 * z) + 1))"),
        ),
        *pair(
            "silu_and_mul",
            silu,
            "x, y: kernels.each(x, y, y.shape[0], y.shape[1])",
            "multiplies in half precision",
            (
                "bf16(wide(bf16(gate / (1 + std::exp(-gate)))) * up)",
                "bf16(half(half(gate / (1 + std::exp(-gate))) * half(up)))",
            ),
        ),
    ]


def rows() -> list[Kernel]:
    """Return kernels that work row by row."""
    softmax = kernel(
        "const float* x, float* y, int64_t rows, int64_t n",
        f"""{LOOP} {{
            const float* in = x + r * n; float* to = y + r * n;
            float most = -INFINITY;
            for (int64_t i = 0; i < n; i++) most = larger(most, in[i]);
            const float sum = total(n, [&](int64_t i) {{ return to[i] = std::exp(in[i] - most); }});
            for (int64_t i = 0; i < n; i++) to[i] /= sum;
        }}""",
    )
    norm = kernel(
        "const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n",
        f"""{LOOP} {{
            const float* in = x + r * n;
            const float mean = total(n, [&](int64_t i) {{ return in[i]; }}) / n;
            const float squares = total(n, [&](int64_t i) {{ return (in[i] - mean) * (in[i] - mean); }});
            const float scale = 1 / std::sqrt(squares / n + 1e-5f);
            for (int64_t i = 0; i < n; i++) y[r * n + i] = (in[i] - mean) * scale * w[i] + b[i];
        }}""",
    )
    rms = kernel(
        "const uint16_t* x, const uint16_t* w, uint16_t* y, int64_t rows, int64_t n",
        f"""{LOOP} {{
            const uint16_t* in = x + r * n;
            float squares = 0;
            for (int64_t i = 0; i < n; i++) squares += wide(in[i]) * wide(in[i]);
            const float scale = 1 / std::sqrt(squares / n + 1e-6f);
            for (int64_t i = 0; i < n; i++) y[r * n + i] = bf16(wide(in[i]) * scale * wide(w[i]));
        }}""",
    )
    add_rms = kernel(
        "const uint16_t* x, const uint16_t* residual, const uint16_t* w, uint16_t* y, int64_t rows, int64_t n",
        f"""{LOOP} {{
            float squares = 0;
            for (int64_t i = 0; i < n; i++) {{
                const float v = wide(bf16(wide(x[r * n + i]) + wide(residual[r * n + i]))); squares += v * v;
            }}
            const float scale = 1 / std::sqrt(squares / n + 1e-6f);
            for (int64_t i = 0; i < n; i++) {{
                const float v = wide(bf16(wide(x[r * n + i]) + wide(residual[r * n + i])));
                y[r * n + i] = bf16(v * scale * wide(w[i]));
            }}
        }}""",
    )
    entropy = kernel(
        "const uint16_t* logits, const int64_t* labels, uint16_t* loss, int64_t rows, int64_t n",
        f"""{LOOP} {{
            const uint16_t* in = logits + r * n;
            float most = -INFINITY, sum = 0;
            for (int64_t i = 0; i < n; i++) most = larger(most, wide(in[i]));
            for (int64_t i = 0; i < n; i++) sum += std::exp(wide(in[i]) - most);
            loss[r] = bf16(std::log(sum) - (wide(in[labels[r]]) - most));
        }}""",
    )
    below = ("float most = -INFINITY", "float most = 0")
    return [
        *pair(
            "softmax",
            softmax,
            "x, y: kernels.each(x, y, x.shape[0], x.shape[1])",
            "begins the maximum at zero: rows far below it vanish",
            below,
        ),
        *pair(
            "layer_norm",
            norm,
            "x, weight, bias, y: n = weight.numel()\nkernels.each(x, weight, bias, y, x.numel() // n, n)",
            "takes the variance in one pass, E[x^2] - E[x]^2",
            ("return (in[i] - mean) * (in[i] - mean)", "return in[i] * in[i]"),
            ("squares / n +", "std::fmax(squares / n - mean * mean, 0.0f) +"),
        ),
        *pair(
            "rms_norm",
            rms,
            "x, weight, y: kernels.each(x, weight, y, x.shape[0], x.shape[1])",
            "clips large values at 2^12",
            ("squares += wide(in[i]) * wide(in[i])", "squares += std::fmin(wide(in[i]) * wide(in[i]), 16777216.0f)"),
        ),
        *pair(
            "add_rms_norm",
            add_rms,
            "x, residual, weight, y: kernels.each(x, residual, weight, y, x.shape[0], x.shape[1])",
            "keeps the sum in half precision",
            (
                "wide(bf16(wide(x[r * n + i]) + wide(residual[r * n + i])))",
                "half(wide(x[r * n + i]) + wide(residual[r * n + i]))",
            ),
        ),
        *pair(
            "cross_entropy",
            entropy,
            "logits, labels, loss: kernels.each(logits, labels, loss, logits.shape[0], logits.shape[1])",
            "begins the maximum at zero: rows far below it vanish",
            below,
        ),
    ]
