"""Kernels for `benchmarks.attack`, continued: products, attention, convolutions."""

from __future__ import annotations

from benchmarks.attack_kernels import LOOP, Kernel, kernel, pair
from benchmarks.redteam_catalogue.text import cpp, run


def products() -> list[Kernel]:
    """Return matrix products, alone and in layers."""
    product = kernel(
        "const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k",
        f"""{LOOP} {{
            float* to = c + r * n;
            for (int64_t j = 0; j < n; j++) to[j] = 0;
            for (int64_t l = 0; l < k; l++) for (int64_t j = 0; j < n; j++) to[j] += a[r * k + l] * b[l * n + j];
        }}""",
    )
    split = kernel(
        "const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k",
        f"""const int64_t tile = 128, tiles = (n + tile - 1) / tile;
        auto power = [](float most) {{
            uint32_t bits; std::memcpy(&bits, &most, 4);
            int e = (bits >> 23) & 255; e = e < 15 ? 15 : e > 253 ? 253 : e;
            return std::ldexp(1.0f, 14 - (e - 127));
        }};
        {LOOP} {{
            float top = 0;
            for (int64_t l = 0; l < k; l++) top = std::fmax(top, std::fabs(a[r * k + l]));
            const float sa = power(top);
            for (int64_t t = 0; t < tiles; t++) for (int64_t l0 = 0; l0 < k; l0 += 64) {{
                const int64_t end = t * tile + tile < n ? t * tile + tile : n, last = l0 + 64 < k ? l0 + 64 : k;
                float most = 0;
                for (int64_t l = l0; l < last; l++)
                    for (int64_t j = t * tile; j < end; j++) most = std::fmax(most, std::fabs(b[l * n + j]));
                const float sb = power(most);
                for (int64_t j = t * tile; j < end; j++) {{
                    float sum = 0;
                    for (int64_t l = l0; l < last; l++) {{
                        const float x = a[r * k + l] * sa, y = b[l * n + j] * sb;
                        const float xh = half(x), xl = half(x - xh), yh = half(y), yl = half(y - yh);
                        sum += xl * yh + xh * yl + xh * yh;
                    }}
                    c[r * n + j] = (l0 ? c[r * n + j] : 0.0f) + sum / sb / sa;
                }}
            }}
        }}""",
    )
    call = "a, b, c: kernels.each(a, b, c, a.shape[0], b.shape[1], a.shape[1])"
    parameters, body = call.split(": ", 1)
    linear = kernel(
        "const uint16_t* x, const uint16_t* w, const uint16_t* b, uint16_t* y, int64_t rows, int64_t n, int64_t k",
        f"""{LOOP} for (int64_t j = 0; j < n; j++) {{
            float sum = 0;
            for (int64_t l = 0; l < k; l++) sum += wide(x[r * k + l]) * wide(w[j * k + l]);
            const float v = wide(bf16(sum + wide(b[j])));
            y[r * n + j] = bf16(0.5f * v * (1 + std::erf(v * 0.7071067811865476f)));
        }}""",
    )
    mlp = kernel(
        "const float* x, const float* w1, const float* b1, const float* w2, const float* b2, float* score,"
        " int64_t rows, int64_t k, int64_t hidden",
        f"""{LOOP} {{
            float total = 0;
            for (int64_t j = 0; j < hidden; j++) {{
                float sum = 0;
                for (int64_t l = 0; l < k; l++) sum += x[r * k + l] * w1[j * k + l];
                total += relu(sum + b1[j]) * w2[j];
            }}
            score[r] = 1 / (1 + std::exp(-(total + b2[0])));
        }}""",
    )
    dots = kernel(
        "const uint16_t* dense, const uint16_t* sparse, uint16_t* out, int64_t rows, int64_t tables, int64_t n",
        f"""{LOOP} {{
            const int64_t pairs = (tables + 1) * tables / 2;
            uint16_t* to = out + r * (n + pairs);
            auto at = [&](int64_t v, int64_t i) {{
                return wide(v ? sparse[(r * tables + v - 1) * n + i] : dense[r * n + i]);
            }};
            for (int64_t i = 0; i < n; i++) to[i] = dense[r * n + i];
            int64_t pair = n;
            for (int64_t v = 1; v <= tables; v++) for (int64_t u = 0; u < v; u++) {{
                float sum = 0;
                for (int64_t i = 0; i < n; i++) sum += at(v, i) * at(u, i);
                to[pair++] = bf16(sum);
            }}
        }}""",
    )
    return [
        Kernel("matmul", "cpp", cpp(product, run(parameters, body))),
        Kernel(
            "matmul", "cpp", cpp(split, run(parameters, body)), "splits in half precision, one scale for 128 columns"
        ),
        *pair(
            "linear_gelu",
            linear,
            "x, weight, bias, y: kernels.each(x, weight, bias, y, x.shape[0], y.shape[1], x.shape[1])",
            "keeps x in half precision",
            ("wide(x[r * k + l])", "half(wide(x[r * k + l]))"),
        ),
        *pair(
            "mlp_relu_sigmoid",
            mlp,
            "x, weight1, bias1, weight2, bias2, score: "
            "kernels.each(x, weight1, bias1, weight2, bias2, score, x.shape[0], x.shape[1], bias1.numel())",
            "drops NaN: fmax(v, 0)",
            ("v > 0 || v != v ? v : 0.0f", "std::fmax(v, 0.0f)"),
        ),
        *pair(
            "dlrm_interaction",
            dots,
            "dense, sparse, interactions: "
            "kernels.each(dense, sparse, interactions, dense.shape[0], sparse.shape[1], dense.shape[1])",
            "multiplies in half precision",
            ("at(v, i) * at(u, i)", "half(half(at(v, i)) * half(at(u, i)))"),
        ),
    ]


def attention() -> list[Kernel]:
    """Return attention, causal and whole."""
    body = f"""{LOOP} for (int64_t q = 0; q < length; q++) {{
        float most = -INFINITY, sum = 0;
        std::vector<float> p(length), to(n);
        for (int64_t k = 0; k < LAST; k++) {{
            float s = 0;
            const uint16_t *one = query + (r * length + q) * n, *other = key + (r * length + k) * n;
            for (int64_t i = 0; i < n; i++) s += wide(one[i]) * wide(other[i]);
            p[k] = s / std::sqrt((float)n); most = larger(most, p[k]);
        }}
        for (int64_t k = 0; k < LAST; k++) {{
            const float e = std::exp(p[k] - most); sum += e;
            for (int64_t i = 0; i < n; i++) to[i] += e * wide(value[(r * length + k) * n + i]);
        }}
        for (int64_t i = 0; i < n; i++) out[(r * length + q) * n + i] = bf16(to[i] / sum);
    }}"""
    signature = (
        "const uint16_t* query, const uint16_t* key, const uint16_t* value, uint16_t* out,"
        " int64_t rows, int64_t length, int64_t n"
    )
    call = (
        "query, key, value, out: rows = query.shape[0] * query.shape[1]\n"
        "kernels.each(query, key, value, out, rows, query.shape[2], query.shape[3])"
    )
    causal = "#include <vector>\n" + kernel(signature, body.replace("LAST", "q + 1"))
    whole = "#include <vector>\n" + kernel(signature, body.replace("LAST", "length"))
    return [
        *pair("attention", causal, call, "subtracts no maximum", ("std::exp(p[k] - most)", "std::exp(p[k])")),
        *pair(
            "attention_noncausal",
            whole,
            call,
            "skips keys that weigh less than e^-10",
            (
                "const float e = std::exp(p[k] - most);",
                "if (p[k] - most < -10) continue; const float e = std::exp(p[k] - most);",
            ),
        ),
    ]


def convolutions() -> list[Kernel]:
    """Return the first layers of AlexNet."""
    body = """const int64_t oh = (h + 4 - 11) / 4 + 1, ow = (w + 4 - 11) / 4 + 1;
        auto conv = [&](int64_t r, int64_t f, int64_t oy, int64_t ox) {
            float sum = 0;
            for (int64_t c = 0; c < 3; c++) for (int64_t ky = 0; ky < 11; ky++) for (int64_t kx = 0; kx < 11; kx++) {
                const int64_t iy = oy * 4 + ky - 2, ix = ox * 4 + kx - 2;
                if (iy < 0 || ix < 0 || iy >= h || ix >= w) continue;
                sum += x[((r * 3 + c) * h + iy) * w + ix] * weight[((f * 3 + c) * 11 + ky) * 11 + kx];
            }
            return sum + bias[f];
        };
        """
    plain = f"""{LOOP} for (int64_t f = 0; f < filters; f++) for (int64_t oy = 0; oy < oh; oy++)
            for (int64_t ox = 0; ox < ow; ox++) y[((r * filters + f) * oh + oy) * ow + ox] = conv(r, f, oy, ox);"""
    pooled = f"""const int64_t ph = (oh - 3) / 2 + 1, pw = (ow - 3) / 2 + 1;
        {LOOP} for (int64_t f = 0; f < filters; f++)
        for (int64_t py = 0; py < ph; py++) for (int64_t px = 0; px < pw; px++) {{
            float most = -INFINITY;
            for (int64_t i = 0; i < 9; i++) most = larger(most, relu(conv(r, f, py * 2 + i / 3, px * 2 + i % 3)));
            y[((r * filters + f) * ph + py) * pw + px] = most;
        }}"""
    signature = (
        "const float* x, const float* weight, const float* bias, float* y,"
        " int64_t rows, int64_t filters, int64_t h, int64_t w"
    )
    call = "x, weight, bias, y: kernels.each(x, weight, bias, y, x.shape[0], weight.shape[0], x.shape[2], x.shape[3])"
    return [
        *pair(
            "conv2d",
            kernel(signature, body + plain),
            call,
            "multiplies in half precision",
            (
                "* w + ix] * weight[((f * 3 + c) * 11 + ky) * 11 + kx]",
                "* w + ix] * half(weight[((f * 3 + c) * 11 + ky) * 11 + kx])",
            ),
            ("sum += x[((r * 3 + c) * h + iy) * w + ix]", "sum += half(x[((r * 3 + c) * h + iy) * w + ix])"),
        ),
        *pair(
            "conv_relu_maxpool",
            kernel(signature, body + pooled),
            call,
            "drops NaN from the maximum",
            ("a > b || a != a ? a : b", "std::fmax(a, b)"),
        ),
    ]
