"""Kernels for `benchmarks.attack` that are wrong on values which few draws at random hold."""

from __future__ import annotations

from benchmarks.attack_kernels import LOOP, Kernel, elementwise, kernel, pair, rows


def rare() -> list[Kernel]:
    """Return wrong kernels of the ops of `attack_kernels`, and a pair for two ops that it does not have."""
    return [*_normalisations(), *_softmaxes(), *_places(), *_quantized(), *_grouped()]


def _wrong(op: str, does: str, *changes: tuple[str, str]) -> Kernel:
    """Return the honest kernel of an op with these changes of its text."""
    [honest] = [one for one in [*elementwise(), *rows()] if one.op == op and not one.does]
    source = honest.source
    for old, new in changes:
        assert old in source, (op, old)
        source = source.replace(old, new)
    return Kernel(op, honest.language, source, does)


def _normalisations() -> list[Kernel]:
    squares = "return (in[i] - mean) * (in[i] - mean)"
    return [
        _wrong(
            "layer_norm",
            "takes E[x^2] - E[x]^2 in double and the root of a negative",
            ("const float squares = total(n, [&](int64_t i) { " + squares + "; });", _IN_ONE_SWEEP),
        ),
        _wrong("rms_norm", "leaves eps out where squares are small", ("squares / n + 1e-6f", _NO_EPS)),
        _wrong("add_rms_norm", "leaves eps out where squares are small", ("squares / n + 1e-6f", _NO_EPS)),
    ]


_IN_ONE_SWEEP = """double sum = 0, all = 0;
            for (int64_t i = 0; i < n; i++) { sum += in[i]; all += (double)in[i] * in[i]; }
            const float squares = all - sum * sum / n;"""
_NO_EPS = "(squares / n < 1e-9f ? squares / n : squares / n + 1e-6f)"


def _softmaxes() -> list[Kernel]:
    online = """float most = -INFINITY; double sum = 0;
            for (int64_t first = 0; first < n; first += 32) {
                float top = most;
                for (int64_t i = first; i < n && i < first + 32; i++) top = larger(top, in[i]);
                sum *= std::exp(most - top);
                for (int64_t i = first; i < n && i < first + 32; i++) sum += std::exp(in[i] - top);
                most = top;
            }
            for (int64_t i = 0; i < n; i++) to[i] = std::exp(in[i] - most);"""
    most = "float most = -INFINITY;\n            for (int64_t i = 0; i < n; i++) most = larger(most, in[i]);"
    sum_ = "const float sum = total(n, [&](int64_t i) { return to[i] = std::exp(in[i] - most); });"
    guard = "\n            if (most == -INFINITY) most = 0;\n"
    return [
        _wrong("softmax", "gives zeros for a row of minus infinity", (most, most + guard), ("to[i] /= sum", _ZERO)),
        _wrong("softmax", "begins with 32 values: NaN where all are minus infinity", (most, online), (sum_, "")),
        _wrong(
            "softmax",
            "drops what is 30 below the largest",
            (
                "return to[i] = std::exp(in[i] - most)",
                "return to[i] = in[i] - most < -30 ? 0.0f : std::exp(in[i] - most)",
            ),
        ),
        _wrong(
            "softmax",
            "begins the maximum at zero in the last row",
            ("float most = -INFINITY", "float most = r + 1 < rows ? -INFINITY : 0"),
        ),
        _wrong(
            "cross_entropy",
            "begins the maximum at zero in the last row",
            ("float most = -INFINITY", "float most = r + 1 < rows ? -INFINITY : 0"),
        ),
        _wrong(
            "cross_entropy",
            "adds 1e-30 to the probability: no loss is above 70",
            (
                "std::log(sum) - (wide(in[labels[r]]) - most)",
                "-std::log(std::exp(wide(in[labels[r]]) - most) / sum + 1e-30f)",
            ),
        ),
    ]


_ZERO = "to[i] = sum > 0 || sum != sum ? to[i] / sum : 0.0f"


def _places() -> list[Kernel]:
    relu = "y[r * n + i] = relu(x[r * n + i] + bias[i])"
    bare = "std::fmax(x[r * n + i] + bias[i], 0.0f)"
    honest = "relu(x[r * n + i] + bias[i])"
    return [
        _wrong("add_relu", "drops NaN in the last row", (relu, f"y[r * n + i] = r + 1 == rows ? {bare} : {honest}")),
        _wrong("add_relu", "drops NaN in the last column", (relu, f"y[r * n + i] = i + 1 == n ? {bare} : {honest}")),
        _wrong("add_relu", "drops NaN in the first element", (relu, f"y[r * n + i] = r + i == 0 ? {bare} : {honest}")),
        _wrong(
            "gelu_tanh",
            "flushes what is below 2^-60 to zero",
            (
                "y[r * n + i] = 0.5f * v * (1 + std::tanh(z))",
                "y[r * n + i] = std::fabs(v) < 0x1p-60f ? 0.0f : 0.5f * v * (1 + std::tanh(z))",
            ),
        ),
    ]


def _quantized() -> list[Kernel]:
    honest = kernel(
        "const uint16_t* x, uint8_t* q, float* scale, int64_t rows, int64_t n",
        f"""{LOOP} {{
            float most = 0;
            for (int64_t i = 0; i < n; i++) most = std::fmax(most, std::fabs(wide(x[r * n + i])));
            const float by = (most < 1e-10f ? 1e-10f : most) / 448.0f;
            scale[r] = by;
            for (int64_t i = 0; i < n; i++) {{
                float v = wide(x[r * n + i]) / by;
                v = std::fmin(std::fmax(v, -448.0f), 448.0f);
                uint32_t bits; std::memcpy(&bits, &v, 4);
                const uint8_t sign = (bits >> 24) & 128;
                const float a = std::fabs(v);
                uint8_t to;
                if (a < 0x1p-6f) to = (uint8_t)std::nearbyint(a * 0x1p9f);
                else {{
                    int e; const float f = std::frexp(a, &e);
                    const int m = (int)std::nearbyint(f * 16);
                    to = (uint8_t)(((e - 1 + 7) << 3) + (m - 8));
                }}
                q[r * n + i] = sign | to;
            }}
        }}""",
    )
    return pair(
        "quantize_fp8_per_token",
        honest,
        "x, quantized, scale: kernels.each(x, quantized, scale, x.shape[0], x.shape[1])",
        "has no least scale: NaN in a row of zeros",
        ("(most < 1e-10f ? 1e-10f : most) / 448.0f", "most / 448.0f"),
    )


def _grouped() -> list[Kernel]:
    honest = kernel(
        "const uint16_t* x, const uint16_t* w, const uint16_t* b, uint16_t* y, int64_t rows, int64_t per, int64_t area",
        f"""{LOOP} {{
            const int64_t n = per * area;
            const uint16_t* in = x + r * n;
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < n; i++) sum += wide(in[i]);
            const double mean = sum / n;
            for (int64_t i = 0; i < n; i++) squares += (wide(in[i]) - mean) * (wide(in[i]) - mean);
            const double scale = 1 / std::sqrt(squares / n + 1e-5);
            for (int64_t c = r % 32 * per, i = 0; i < n; c++) {{
                // One factor and one term for each channel, as PyTorch has them: they say what is NaN.
                const float by = scale * wide(w[c]), plus = wide(b[c]) - mean * by;
                for (const int64_t end = i + area; i < end; i++) {{
                    const float v = wide(bf16(wide(in[i]) * by + plus));
                    y[r * n + i] = bf16(v / (1 + std::exp(-v)));
                }}
            }}
        }}""",
    )
    call = """x, weight, bias, y: per = weight.numel() // 32
kernels.each(x, weight, bias, y, x.shape[0] * 32, per, x.shape[2] * x.shape[3])"""
    return pair(
        "group_norm_silu",
        honest,
        call,
        "takes e^v / (1 + e^v), which is NaN for large v",
        ("v / (1 + std::exp(-v))", "v * std::exp(v) / (1 + std::exp(v))"),
    )
