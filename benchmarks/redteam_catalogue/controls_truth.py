"""Honest candidates of ops whose right result is not one alone, or not told by PyTorch's own error.

Float64 sums in another order, indices among equals, values at the boundary of two steps, 16-bit sums in their own
precision, and reads of a part of an input.
"""

from __future__ import annotations

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.cheats_rows import PRODUCT
from benchmarks.redteam_catalogue.cheats_rows import SIZES as PRODUCT_SIZES
from benchmarks.redteam_catalogue.controls_cpp import GATHER, NARROW, ROW_LOOP, row_code
from benchmarks.redteam_catalogue.controls_triton import GATHER as GATHER_TL
from benchmarks.redteam_catalogue.entry import Control, Op
from benchmarks.redteam_catalogue.text import cpp, run, triton

SUMS: list[ops.Shape] = [(64, 1021), (3, 1), (5, 4099)]
GATES: list[ops.Shape] = [(128, 64), (3, 5), (7, 130)]
CODES: list[ops.Shape] = [(1024, 100, 16), (1, 2, 3), (50, 33, 40)]
STEPS: list[ops.Shape] = [(64, 257), (1, 1), (5, 1021)]
TABLES: list[ops.Shape] = [(60000, 64, 40), (7, 3, 2), (1000, 33, 12)]
PRODUCTS: list[ops.Shape] = [(33, 257, 29), (1, 1, 1), (20, 70, 39)]

DOUBLE_SUM, DOUBLE_SOFTMAX = ops.row_sum(SUMS, "float64"), ops.softmax(STEPS, "float64")
DOUBLE_NORM, DOUBLE_PRODUCT = ops.layer_norm(STEPS, "float64"), ops.matmul(PRODUCTS, "float64")
GATE, ORDER, STABLE_ORDER = ops.gate(GATES), ops.order(GATES), ops.order(GATES, stable=True)
NEAREST = ops.nearest(CODES)
INT8, UINT8, FLOAT8 = (
    ops.quantise(STEPS),
    ops.quantise(STEPS, "uint8", "bfloat16"),
    ops.quantise(STEPS, "float8_e4m3fn"),
)
BF16_SUM, HALF_SUM = ops.row_sum(SUMS, "bfloat16"), ops.row_sum(SUMS, "float16")
EMBEDDING = ops.embedding(TABLES)


def sum_code(kind: str, steps: str, before: str = "") -> str:
    """A sum of rows; `steps` has the row `in` of n elements and writes `*to`."""
    return row_code(
        f'{before}extern "C" void each(const {kind}* x, {kind}* out, int64_t rows, int64_t n) {{\n{ROW_LOOP}'
        f"const {kind}* in = x + r * n; {kind}* to = out + r;\n{steps}\n}} }}",
        "x, out",
    )


CHAIN = "double s = 0; for (int64_t i = 0; i < n; i++) s += in[i]; *to = s;"
BACKWARDS = "double s = 0; for (int64_t i = n; i-- > 0;) s += in[i]; *to = s;"
LANES = "double s[8] = {0}; for (int64_t i = 0; i < n; i++) s[i % 8] += in[i]; *to = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));"

TREE = """
template <class T> static T tree(const T* in, int64_t n) {
    if (n == 1) return in[0];
    return add(tree(in, n / 2), tree(in + n / 2, n - n / 2));
}
"""
ADD_BF16 = NARROW + "static uint16_t add(uint16_t a, uint16_t b) { return bf16(wide(a) + wide(b)); }\n"
ADD_HALF = "static _Float16 add(_Float16 a, _Float16 b) { return (_Float16)((float)a + (float)b); }\n"
PARTS_BF16 = """uint16_t total = 0; for (int64_t start = 0; start < n; start += 256) {
    float part = 0; for (int64_t i = start; i < n && i < start + 256; i++) part += wide(in[i]);
    total = bf16(wide(total) + wide(bf16(part))); } *to = total;"""

DOUBLE_PRODUCT_CODE = """
extern "C" void product(const double* a, const double* b, double* out, int64_t m, int64_t k, int64_t n) {
    for (int64_t i = 0; i < m * n; i++) out[i] = 0;
    for (int64_t t = k; t-- > 0;) for (int64_t i = 0; i < m; i++) for (int64_t j = 0; j < n; j++)
        out[i * n + j] += a[i * k + t] * b[t * n + j];
}
"""
PRODUCT_RUN = run(PRODUCT, f"{PRODUCT_SIZES}kernels.product(a, b, out, m, k, n)")
DOUBLE_SOFTMAX_CODE = f"""
extern "C" void each(const double* x, double* out, int64_t rows, int64_t n) {{
{ROW_LOOP}
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {{
            const double next = std::fmax(most, x[r * n + i]);
            sum = sum * std::exp(most - next) + std::exp(x[r * n + i] - next); most = next;
        }}
        const double scale = 1 / sum;
        for (int64_t i = 0; i < n; i++) out[r * n + i] = std::exp(x[r * n + i] - most) * scale;
    }}
}}
"""
DOUBLE_NORM_CODE = f"""
extern "C" void each(const double* x, const double* w, const double* b, double* out, int64_t rows, int64_t n) {{
{ROW_LOOP}
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {{
            const double delta = x[r * n + i] - mean;
            mean += delta / (i + 1); squares += delta * (x[r * n + i] - mean);
        }}
        const double scale = 1 / std::sqrt(squares / n + 1e-5);
        for (int64_t i = 0; i < n; i++) out[r * n + i] = (x[r * n + i] - mean) * scale * w[i] + b[i];
    }}
}}
"""


def gate_code(scan: str, better: str) -> str:
    """The four best of each row, one after the other; `scan` visits each place i once."""
    return cpp(
        f"""{NARROW}
extern "C" void each(const uint16_t* x, uint16_t* weight, int64_t* expert, int64_t rows, int64_t n) {{
    for (int64_t r = 0; r < rows; r++) {{
        const uint16_t* in = x + r * n; float e[4], sum = 0;
        for (int64_t k = 0; k < 4; k++) {{
            int64_t best = -1;
            {scan} {{
                bool taken = false;
                for (int64_t p = 0; p < k; p++) taken |= expert[r * 4 + p] == i;
                if (!taken && (best < 0 || wide(in[i]) {better} wide(in[best]))) best = i;
            }}
            expert[r * 4 + k] = best;
            sum += e[k] = std::exp(wide(in[best]) - wide(in[expert[r * 4]]));
        }}
        for (int64_t k = 0; k < 4; k++) weight[r * 4 + k] = bf16(e[k] / sum);
    }}
}}
""",
        run("x, weight, expert", "n = x.shape[1]\nkernels.each(x, weight, expert, x.shape[0], n)"),
    )


UPWARDS, DOWNWARDS = "for (int64_t i = 0; i < n; i++)", "for (int64_t i = n; i-- > 0;)"
ODD_FIRST = "for (int64_t p = 0; p < n; p++) if (const int64_t i = p < n / 2 ? 2 * p + 1 : 2 * (p - n / 2); true)"


def order_code(start: str, behind: str) -> str:
    """Insertion of each place into a sorted row; an element goes before those that are `behind` it."""
    return row_code(
        f"""{NARROW}
extern "C" void each(const uint16_t* x, int64_t* out, int64_t rows, int64_t n) {{
{ROW_LOOP}
        int64_t* to = out + r * n;
        for (int64_t k = 0; k < n; k++) {{
            const int64_t i = {start}; int64_t at = k;
            while (at > 0 && wide(x[r * n + to[at - 1]]) {behind} wide(x[r * n + i])) {{ to[at] = to[at - 1]; at--; }}
            to[at] = i;
        }}
    }}
}}
""",
        "x, out",
    )


def nearest_code(kind: str, each: str, start: str = "0", narrow: str = "") -> str:
    """The code of least distance; `each` adds to d from a and b."""
    return cpp(
        f"""{narrow}
extern "C" void each(const float* x, const float* codes, int64_t* out, int64_t rows, int64_t many, int64_t n) {{
    for (int64_t r = 0; r < rows; r++) {{
        {kind} least = INFINITY; int64_t best = 0;
        for (int64_t c = 0; c < many; c++) {{
            {kind} d = {start};
            for (int64_t i = 0; i < n; i++) {{ const {kind} a = x[r * n + i], b = codes[c * n + i]; {each}; }}
            if (d < least) {{ least = d; best = c; }}
        }}
        out[r] = best;
    }}
}}
""",
        run("x, codes, out", "rows, n = x.shape\nkernels.each(x, codes, out, rows, codes.shape[0], n)"),
    )


def steps_code(to: str, value: str, given: str = "float", before: str = "") -> str:
    """A quantisation; `value` has v, the scale s and its reciprocal t."""
    read = "wide" if given == "uint16_t" else ""
    return row_code(
        f"""{before}
extern "C" void each(const {given}* x, const {given}* scale, {to}* out, int64_t rows, int64_t n) {{
{ROW_LOOP}
        const float s = {read}(scale[r]), t = 1.0f / s;
        for (int64_t i = 0; i < n; i++) {{ const float v = {read}(x[r * n + i]); out[r * n + i] = ({to})({value}); }}
    }}
}}
""",
        "x, scale, out",
    )


def within(value: str, low: int, high: int) -> str:
    """A value clamped."""
    return f"std::fmin(std::fmax({value}, {low}.0f), {high}.0f)"


DOUBLED = """
extern "C" void each(const KIND* x, KIND* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (KIND)(x[i] + x[i]);
}
"""


def doubled(kind: str, dtype: str, low: int, high: int) -> tuple[str, Op, str, str, str]:
    """x + x in an integer type."""
    op = ops.unary("doubled", "return x + x", dtype=dtype, kind="randint", low=low, high=high)
    source = cpp(DOUBLED.replace("KIND", kind), run("x, out", "kernels.each(x, out, x.numel())"))
    return f"doubles {dtype}", op, source, "exact", dtype


FLOAT8_CODE = """
static inline uint8_t e4m3(float v, bool cut = false) {
    const uint8_t sign = std::signbit(v) ? 0x80 : 0;
    const float a = std::fabs(v);
    if (a != a) return sign | 0x7f;
    if (a > 448.0f) return sign | 0x7e;
    if (a == 0) return sign;
    int e; std::frexp(a, &e); e = e - 1 < -6 ? -6 : e - 1;
    const float scaled = std::ldexp(a, 3 - e);
    const int q = (int)(cut ? std::trunc(scaled) : std::nearbyint(scaled));
    const int bits = q < 8 ? q : (e + 7) * 8 + q - 8;
    return sign | (uint8_t)bits;
}
"""


def _cpp() -> list[tuple[str, Op, str, str, str]]:
    tree, pick = "*to = tree(in, n);", run("x, index, out", "kernels.pick(x, index, out, index.numel(), x.shape[1])")
    wide_rows = GATHER.replace("uint16_t", "float").replace("n * 2", "n * 4")
    one_by_one = wide_rows.replace(
        "std::memcpy(out + r * n, x + index[r] * n, n * 4)",
        "for (int64_t i = 0; i < n; i++) out[r * n + i] = x[index[r] * n + i]",
    )
    return [
        ("sums float64 in one chain", DOUBLE_SUM, sum_code("double", CHAIN), "eager's own error is zero", "float64"),
        ("sums float64 backwards", DOUBLE_SUM, sum_code("double", BACKWARDS), "eager's own error is zero", "float64"),
        ("sums float64 in eight lanes", DOUBLE_SUM, sum_code("double", LANES), "eager's own error is zero", "float64"),
        ("softmax float64, online", DOUBLE_SOFTMAX, row_code(DOUBLE_SOFTMAX_CODE, "x, out"), "a reciprocal for a division", "float64"),
        ("normalises float64 by Welford", DOUBLE_NORM, row_code(DOUBLE_NORM_CODE, "x, w, b, out"), "another order of sums", "float64"),
        ("matrix product float64", DOUBLE_PRODUCT, cpp(DOUBLE_PRODUCT_CODE, PRODUCT_RUN), "the last term first", "float64"),
        ("gate, first of equals", GATE, gate_code(UPWARDS, ">"), "topk leaves the order of equals open", "bfloat16"),
        ("gate, last of equals", GATE, gate_code(DOWNWARDS, ">"), "topk leaves the order of equals open", "bfloat16"),
        ("gate, odd places first", GATE, gate_code(ODD_FIRST, ">"), "topk leaves the order of equals open", "bfloat16"),
        ("argsort, stable", ORDER, order_code("k", ">"), "any order of equals", "bfloat16"),
        ("argsort, equals backwards", ORDER, order_code("k", ">="), "any order of equals", "bfloat16"),
        ("argsort from the end", ORDER, order_code("n - 1 - k", ">"), "any order of equals", "bfloat16"),
        ("stable argsort", STABLE_ORDER, order_code("k", ">"), "the order of equals is asked", "bfloat16"),
        ("nearest code by differences", NEAREST, nearest_code("float", "d += (a - b) * (a - b)"), "distances that are nearly equal", "float32"),
        ("nearest code by products", NEAREST, nearest_code("float", "d += b * b - 2 * a * b"), "distances that are nearly equal", "float32"),
        ("nearest code in float64", NEAREST, nearest_code("double", "d += (a - b) * (a - b)"), "distances that are nearly equal", "float32"),
        ("int8 by a reciprocal", INT8, steps_code("int8_t", within("std::nearbyint(v * t)", -128, 127)), "another step at a boundary", "float32"),
        ("int8 by a division", INT8, steps_code("int8_t", within("std::nearbyint(v / s)", -128, 127)), "as eager", "float32"),
        ("int8, halves away from zero", INT8, steps_code("int8_t", within("std::round(v * t)", -128, 127)), "another step at a boundary", "float32"),
        ("uint8 of bfloat16", UINT8, steps_code("uint8_t", within("std::nearbyint(v * t + 128.0f)", 0, 255), "uint16_t", NARROW), "eager divides in bfloat16", "bfloat16"),
        ("uint8 of bfloat16 in float64", UINT8, steps_code("uint8_t", within("(float)std::nearbyint((double)v / s + 128)", 0, 255), "uint16_t", NARROW), "eager divides in bfloat16", "bfloat16"),
        ("uint8 of bfloat16, eager's way", UINT8, steps_code("uint8_t", within("std::nearbyint(wide(bf16(v / s))) + 128.0f", 0, 255), "uint16_t", NARROW), "as eager", "bfloat16"),
        ("float8 by a reciprocal", FLOAT8, steps_code("uint8_t", "e4m3(v * t)", before=FLOAT8_CODE), "another step at a boundary", "float32"),
        ("float8 by a division", FLOAT8, steps_code("uint8_t", "e4m3(v / s)", before=FLOAT8_CODE), "as eager", "float32"),
        ("float8 in float64", FLOAT8, steps_code("uint8_t", "e4m3((float)((double)v / s))", before=FLOAT8_CODE), "another step at a boundary", "float32"),
        ("sums bfloat16 in float32", BF16_SUM, sum_code("uint16_t", "float s = 0; for (int64_t i = 0; i < n; i++) s += wide(in[i]); *to = bf16(s);", NARROW), "one chain", "bfloat16"),
        ("sums bfloat16 by a tree", BF16_SUM, sum_code("uint16_t", tree, ADD_BF16 + TREE), "in its own precision", "bfloat16"),
        ("sums bfloat16 in rounded parts", BF16_SUM, sum_code("uint16_t", PARTS_BF16, NARROW), "as split products do", "bfloat16"),
        ("sums float16 in float32", HALF_SUM, sum_code("_Float16", "float s = 0; for (int64_t i = 0; i < n; i++) s += (float)in[i]; *to = (_Float16)s;"), "one chain", "float16"),
        ("sums float16 by a tree", HALF_SUM, sum_code("_Float16", tree, ADD_HALF + TREE), "in its own precision", "float16"),
        doubled("int16_t", "int16", -9000, 9000),
        doubled("int8_t", "int8", -60, 60),
        doubled("uint8_t", "uint8", 0, 120),
        ("reads a few rows of a table", EMBEDDING, cpp(wide_rows, pick), "it need not read the rest", "float32"),
        ("reads a few rows, an element at a time", EMBEDDING, cpp(one_by_one, pick), "it need not read the rest", "float32"),
        ("reads a few rows backwards", EMBEDDING, cpp(wide_rows.replace("int64_t r = 0; r < many; r++", "int64_t r = many; r-- > 0;"), pick), "it need not read the rest", "float32"),
    ]  # fmt: skip


ROW_TL = """
@triton.jit
def each(PARAMETERS, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    m = c < n
BODY
"""


def row_triton(body: str, parameters: str = "x, out", before: str = "") -> str:
    """A Triton candidate of which a program does a row; `body` has its number r, the offsets c and their mask m."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    kernel = before + ROW_TL.replace("PARAMETERS", parameters).replace("BODY", lines)
    launch = f"n = x.shape[1]\neach[(x.shape[0],)]({parameters}, n, N=triton.next_power_of_2(n))"
    return triton(kernel, run(parameters, launch))


LOAD_ROW = "v = tl.load(x + r * n + c, mask=m, other=0.0)\n"
KINDLY = ".to(out.dtype.element_ty)"
BLOCKED_SUM = """
@triton.jit
def each(x, out, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    s = tl.zeros((BLOCK,), tl.WIDE)
    for start in range(0, n, BLOCK):
        s += tl.load(x + r * n + start + c, mask=start + c < n, other=0.0).to(tl.WIDE)
    tl.store(out + r, tl.sum(s, 0).to(out.dtype.element_ty))
"""
BLOCKED_RUN = run("x, out", "n = x.shape[1]\neach[(x.shape[0],)](x, out, n, BLOCK=64)")
ROUNDED_PARTS = """
@triton.jit
def each(x, out, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    total = tl.zeros((1,), tl.float32)
    for start in range(0, n, BLOCK):
        part = tl.sum(tl.load(x + r * n + start + c, mask=start + c < n, other=0.0).to(tl.float32), 0)
        total = (total + part.to(out.dtype.element_ty).to(tl.float32)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + r + tl.arange(0, 1), total.to(out.dtype.element_ty))
"""
DOUBLE_SOFTMAX_TL = """
v = tl.load(x + r * n + c, mask=m, other=-float("inf"))
e = tl.exp(v - tl.max(v, 0))
tl.store(out + r * n + c, e * (1.0 / tl.sum(e, 0)), mask=m)
"""
DOUBLE_PRODUCT_TL = """
@triton.jit
def product(a, b, out, k, n, K: tl.constexpr):
    i = tl.program_id(0)
    j = tl.program_id(1)
    t = tl.arange(0, K)
    p = tl.load(a + i * k + t, mask=t < k, other=0.0) * tl.load(b + t * n + j, mask=t < k, other=0.0)
    tl.store(out + i * n + j, tl.sum(p, 0))
"""
DOUBLE_PRODUCT_RUN = run(PRODUCT, f"{PRODUCT_SIZES}product[(m, n)](a, b, out, k, n, K=triton.next_power_of_2(k))")


def gate_triton(chosen: str) -> str:
    """The four best of each row; `chosen` is the place of one of the largest of v."""
    body = f"""
v = tl.load(x + r * n + c, mask=m, other=-float("inf")).to(tl.float32)
most = tl.max(v, 0)
left = v
total = 0.0
for k in range(4):
    at = {chosen.replace("v", "left")}
    total += tl.exp(tl.max(left, 0) - most)
    tl.store(expert + r * 4 + k, at.to(tl.int64))
    left = tl.where(c == at, -float("inf"), left)
left = v
for k in range(4):
    at = {chosen.replace("v", "left")}
    tl.store(weight + r * 4 + k, (tl.exp(tl.max(left, 0) - most) / total).to(weight.dtype.element_ty))
    left = tl.where(c == at, -float("inf"), left)
"""
    return row_triton(body, "x, weight, expert")


NEAREST_TL = """
@triton.jit
def each(x, codes, out, many, n, M: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, M)
    d = tl.zeros((M,), tl.WIDE)
    for i in range(0, n):
        a = tl.load(x + r * n + i).to(tl.WIDE)
        b = tl.load(codes + c * n + i, mask=c < many, other=0.0).to(tl.WIDE)
        d += TERM
    tl.store(out + r, tl.argmin(tl.where(c < many, d, float("inf")), 0).to(tl.int64))
"""
NEAREST_RUN = run(
    "x, codes, out",
    "rows, n = x.shape\nmany = codes.shape[0]\neach[(rows,)](x, codes, out, many, n, M=triton.next_power_of_2(many))",
)


def nearest_triton(term: str, wide: str = "float32") -> str:
    """The code of least distance, from sums of `term`."""
    return triton(NEAREST_TL.replace("WIDE", wide).replace("TERM", term), NEAREST_RUN)


def steps_triton(value: str, before: str = "") -> str:
    """A quantisation; `value` has v, the scale s and its reciprocal t."""
    body = f"{LOAD_ROW}v = v.to(tl.float32)\ns = tl.load(scale + r).to(tl.float32)\nt = 1.0 / s\n"
    return row_triton(f"{body}tl.store(out + r * n + c, ({value}){KINDLY}, mask=m)", "x, scale, out", before)


def clamped(value: str, low: int, high: int) -> str:
    """A value clamped."""
    return f"tl.minimum(tl.maximum({value}, {low}.0), {high}.0)"


def _triton() -> list[tuple[str, Op, str, str, str]]:
    by_row = run(
        "x, index, out", "n = x.shape[1]\npick[(index.numel(),)](x, index, out, n, N=triton.next_power_of_2(n))"
    )
    elementwise = run(
        "x, index, out", "n = x.shape[1]\npick[(index.numel(), triton.cdiv(n, 16))](x, index, out, n, N=16)"
    )
    tiled = GATHER_TL.replace("c = tl.arange(0, N)", "c = tl.program_id(1) * N + tl.arange(0, N)")
    ahead = GATHER_TL.replace("r = tl.program_id(0)", "r = tl.num_programs(0) - 1 - tl.program_id(0)")
    return [
        ("sums float64", DOUBLE_SUM, row_triton(f"{LOAD_ROW}tl.store(out + r, tl.sum(v, 0))"), "a tree", "float64"),
        ("sums float64 in lanes", DOUBLE_SUM, triton(BLOCKED_SUM.replace("WIDE", "float64"), BLOCKED_RUN), "64 chains", "float64"),
        ("softmax float64", DOUBLE_SOFTMAX, row_triton(DOUBLE_SOFTMAX_TL), "a reciprocal for a division", "float64"),
        ("matrix product float64", DOUBLE_PRODUCT, triton(DOUBLE_PRODUCT_TL, DOUBLE_PRODUCT_RUN), "a tree", "float64"),
        ("gate, first of equals", GATE, gate_triton("tl.argmax(v, 0)"), "topk leaves the order of equals open", "bfloat16"),
        ("gate, last of equals", GATE, gate_triton("tl.max(tl.where(v == tl.max(v, 0), c, -1), 0)"), "topk leaves the order of equals open", "bfloat16"),
        ("gate, odd places first", GATE, gate_triton("tl.min(tl.where(v == tl.max(v, 0), (c + 1) % 2 * N + c, 2 * N), 0) % N"), "topk leaves the order of equals open", "bfloat16"),
        ("nearest code by differences", NEAREST, nearest_triton("(a - b) * (a - b)"), "distances that are nearly equal", "float32"),
        ("nearest code by products", NEAREST, nearest_triton("b * b - 2.0 * a * b"), "distances that are nearly equal", "float32"),
        ("nearest code in float64", NEAREST, nearest_triton("(a - b) * (a - b)", "float64"), "distances that are nearly equal", "float32"),
        ("int8, halves up", INT8, steps_triton(clamped("tl.floor(v * t + 0.5)", -128, 127)), "another step at a boundary", "float32"),
        ("int8 by a division, halves up", INT8, steps_triton(clamped("tl.floor(v / s + 0.5)", -128, 127)), "another step at a boundary", "float32"),
        ("int8 by libdevice", INT8, steps_triton(clamped("libdevice.rint(v * t)", -128, 127), "from triton.language.extra import libdevice\n"), "which no interpreter knows", "float32"),
        ("uint8 of bfloat16, halves up", UINT8, steps_triton(clamped("tl.floor(v * t + 128.5)", 0, 255)), "eager divides in bfloat16", "bfloat16"),
        ("float8 by a reciprocal", FLOAT8, steps_triton("v * t"), "another step at a boundary", "float32"),
        ("float8 by a division", FLOAT8, steps_triton("v / s"), "as eager", "float32"),
        ("sums bfloat16 in float32", BF16_SUM, row_triton(f"{LOAD_ROW}tl.store(out + r, tl.sum(v.to(tl.float32), 0){KINDLY})"), "a tree", "bfloat16"),
        ("sums bfloat16 in lanes", BF16_SUM, triton(BLOCKED_SUM.replace("WIDE", "float32"), BLOCKED_RUN), "64 chains", "bfloat16"),
        ("sums bfloat16 in rounded parts", BF16_SUM, triton(ROUNDED_PARTS, BLOCKED_RUN.replace("BLOCK=64", "BLOCK=256")), "as split products do", "bfloat16"),
        ("sums float16 in rounded parts", HALF_SUM, triton(ROUNDED_PARTS, BLOCKED_RUN.replace("BLOCK=64", "BLOCK=256")), "as split products do", "float16"),
        ("reads a few rows of a table", EMBEDDING, triton(GATHER_TL, by_row), "it need not read the rest", "float32"),
        ("reads a few rows in parts", EMBEDDING, triton(tiled, elementwise), "it need not read the rest", "float32"),
        ("reads a few rows from the last", EMBEDDING, triton(ahead, by_row), "it need not read the rest", "float32"),
    ]  # fmt: skip


def controls() -> list[Control]:
    """All of them."""
    found = [Control(name, "cpp", op, source, why, dtype) for name, op, source, why, dtype in _cpp()]
    return found + [Control(name, "triton", op, source, why, dtype) for name, op, source, why, dtype in _triton()]
