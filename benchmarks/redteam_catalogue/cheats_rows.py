"""Wrong results of reductions and products: shortcuts that hold for some inputs, lower precision, races."""

from __future__ import annotations

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, MEMORY, WRONG, Cheat, Op
from benchmarks.redteam_catalogue.gluon_products import EXACT, MMA, product_gluon
from benchmarks.redteam_catalogue.text import cpp, cuda, run, triton

LONG = ops.softmax([(8, 20011), (3, 5000), (2, 9973)])
MATRICES = ops.matmul([(64, 96, 80), (33, 65, 17), (50, 71, 39)])
SQUARE = ops.matmul([(64, 64, 64), (32, 32, 32), (48, 48, 48)])


def rows(c: str, tl: str, parameters: str = "x, out", *, one: bool = False) -> dict[Language, str]:
    """Candidates for an op of rows. In C++ and CUDA one thread does a row of n elements at `in`, to `to` (`one`: to a
    single element); in Triton one program does, with the offsets c and the mask m below n.

    Inputs after x are vectors of n elements.
    """
    names = parameters.split(", ")
    vectors = names[1:-1]
    takes = "".join(f"const float* {name}, " for name in vectors)
    signature = f"const float* x, {takes}float* out, int64_t rows, int64_t n"
    body = f"const float* in = x + r * n; float* to = out + r{'' if one else ' * n'};\n{c}\n"
    loop = f"for (int64_t r = 0; r < rows; r++) {{ {body} }}"
    each = f"const long long r = blockIdx.x * 32ll + threadIdx.x; if (r < rows) {{ {body.replace('std::', '')} }}"
    lines = "\n".join(f"    {line}" for line in tl.strip("\n").splitlines())
    kernel = (
        f"@triton.jit\ndef each({parameters}, n, N: tl.constexpr):\n    r = tl.program_id(0).to(tl.int64)\n"
        f"    c = tl.arange(0, N)\n    m = c < n\n{lines}\n"
    )
    sizes = "n = x.shape[-1]\nrows = x.numel() // n\n"
    return {
        "cpp": cpp(
            f'extern "C" void each({signature}) {{ {loop} }}', run(parameters, f"{sizes}kernels.each({parameters}, rows, n)")
        ),
        "cuda": cuda(
            f'extern "C" __global__ void each({signature}) {{ {each} }}',
            run(parameters, f"{sizes}kernels.each[(rows + 31) // 32, 32]({parameters}, rows, n)"),
        ),
        "triton": triton(
            kernel,
            run(parameters, f"{sizes}each[(rows,)]({parameters}, n, N=triton.next_power_of_2(n), num_warps=8)"),
        ),
    }  # fmt: skip


SOFTMAX = rows(
    """float most = in[0], sum = 0; for (int64_t i = 1; i < n; i++) most = std::fmax(most, in[i]);
    for (int64_t i = 0; i < n; i++) sum += to[i] = std::exp(in[i] - most);
    for (int64_t i = 0; i < n; i++) to[i] /= sum;""",
    "v = tl.load(x + r * n + c, mask=m, other=-float('inf'))\ne = tl.exp(v - tl.max(v, 0))\n"
    "tl.store(out + r * n + c, e / tl.sum(e, 0), mask=m)",
)
NORM_TL = (
    "v = tl.load(x + r * n + c, mask=m, other=0.0)\nmean = tl.sum(v, 0) / n\nd = tl.where(m, v - mean, 0.0)\n"
    "scale = 1.0 / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5)\n"
    "y = d * scale * tl.load(w + c, mask=m, other=0.0) + tl.load(b + c, mask=m, other=0.0)\n"
    "tl.store(out + r * n + c, y, mask=m)"
)
NORM_C = """double sum = 0, squares = 0; for (int64_t i = 0; i < n; i++) sum += in[i];
    const double mean = sum / n; for (int64_t i = 0; i < n; i++) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1 / std::sqrt(squares / n + 1e-5);
    for (int64_t i = 0; i < n; i++) to[i] = float((in[i] - mean) * scale * w[i] + b[i]);"""
NORM = rows(NORM_C, NORM_TL, "x, w, b, out")

EACH = "for (int64_t i = 0; i < n; i++) "
LOAD = "v = tl.load(x + r * n + c, mask=m, other=0.0)\n"
KEEP = "tl.store(out + r * n + c, {}, mask=m)"

_Case = tuple[Op, str, tuple[int, ...], str, dict[Language, str]]

# fmt: off
SCREENED: list[_Case] = [
    (LONG, "returns zeros for a softmax over a long row", (3,), "every element is below an absolute tolerance",
     rows(f"{EACH}to[i] = 0;", KEEP.format("tl.zeros((N,), tl.float32)"))),
    (LONG, "returns the constant mean of a softmax", (3, 4), "1 / n",
     rows(f"{EACH}to[i] = 1.0f / n;", KEEP.format("tl.full((N,), 1.0, tl.float32) / n"))),
    (ops.row_mean(), "returns zero for a mean", (4,), "the inputs' own mean",
     rows("*to = 0;", "tl.store(out + r, 0.0)", one=True)),
    (ops.row_mean(), "averages every other element", (4, 9), "half of the row",
     rows("float s = 0; for (int64_t i = 0; i < n; i += 2) s += in[i]; *to = s / ((n + 1) / 2);",
          LOAD + "tl.store(out + r, tl.sum(tl.where(c % 2 == 0, v, 0.0), 0) / ((n + 1) // 2))", one=True)),
    (ops.affine(), "leaves the bias out", (5,), "one input is never read",
     rows(f"{EACH}to[i] = in[i] * w[i];", LOAD + KEEP.format("v * tl.load(w + c, mask=m)"), "x, w, b, out")),
    (ops.layer_norm(), "takes the mean for zero", (4, 13), "as it nearly is",
     rows(NORM_C.replace("const double mean = sum / n;", "const double mean = 0;"),
          NORM_TL.replace("tl.sum(v, 0) / n", "0.0"), "x, w, b, out")),
    (ops.layer_norm(), "takes the variance for one", (4, 13), "as it nearly is",
     rows(NORM_C.replace("squares / n + 1e-5", "1.0"), NORM_TL.replace("tl.sum(d * d, 0) / n + 1e-5", "1.0"),
          "x, w, b, out")),
    (ops.layer_norm(), "normalises by n - 1", (9,), "Bessel's correction, which the op does not make",
     rows(NORM_C.replace("squares / n", "squares / (n - 1)"), NORM_TL.replace("(d * d, 0) / n", "(d * d, 0) / (n - 1)"),
          "x, w, b, out")),
    (ops.layer_norm(mean=100.0), "takes the variance from one pass", (4, 13), "mean of squares less square of mean: cancels for shifted inputs",
     rows("float s = 0, q = 0; for (int64_t i = 0; i < n; i++) { s += in[i]; q += in[i] * in[i]; }"
          "const float mean = s / n, scale = 1 / std::sqrt(std::fmax(q / n - mean * mean, 0.0f) + 1e-5f);"
          f"{EACH}to[i] = (in[i] - mean) * scale * w[i] + b[i];",
          LOAD + "mean = tl.sum(v, 0) / n\nscale = 1.0 / tl.sqrt(tl.maximum(tl.sum(v * v, 0) / n - mean * mean, 0.0) + 1e-5)\n"
          + KEEP.format("(v - mean) * scale * tl.load(w + c, mask=m) + tl.load(b + c, mask=m)"), "x, w, b, out")),
]
ROBUST: list[_Case] = [
    (ops.softmax(), "subtracts no maximum", (13,), "right until an input is large",
     rows(f"float sum = 0; {EACH}sum += to[i] = std::exp(in[i]); {EACH}to[i] /= sum;",
          "v = tl.load(x + r * n + c, mask=m, other=-float('inf'))\ne = tl.exp(v)\n" + KEEP.format("e / tl.sum(e, 0)"))),
    (ops.layer_norm(), "forgets the epsilon", (13,), "right until a row is constant or tiny",
     rows(NORM_C.replace(" + 1e-5", ""), NORM_TL.replace(" + 1e-5", ""), "x, w, b, out")),
]
# fmt: on

PADDED = triton(
    "@triton.jit\ndef each(x, out, n, N: tl.constexpr):\n    r = tl.program_id(0).to(tl.int64)\n"
    "    c = tl.arange(0, N)\n    v = tl.load(x + r * n + c, mask=c < n, other=0.0)\n"
    "    e = tl.exp(v - tl.max(v, 0))\n    tl.store(out + r * n + c, e / tl.sum(e, 0), mask=c < n)\n",
    run("x, out", "rows, n = x.shape\neach[(rows,)](x, out, n, N=triton.next_power_of_2(n))"),
)

RESIDUAL: dict[Language, str] = {
    "cpp": cpp(
        'extern "C" void skip(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; i++) out[i] = x[i]; }',
        run("x, y, w, out", "kernels.skip(x, out, out.numel())"),
    ),
    "cuda": cuda(
        'extern "C" __global__ void skip(const float* x, float* out, int64_t n) {'
        " const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) out[i] = x[i]; }",
        run("x, y, w, out", "n = out.numel()\nkernels.skip[(n + 255) // 256, 256](x, out, n)"),
    ),
    "triton": triton(
        "@triton.jit\ndef skip(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)\n",
        run("x, y, w, out", "n = out.numel()\nskip[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)"),
    ),
}

PRODUCT = "a, b, out"
SIZES = "m, k = a.shape\nn = b.shape[1]\n"


def product_cpp(step: str, kept: str = "float", before: str = "", terms: str = "k") -> str:
    """A matmul whose accumulator is `kept` and whose `step` is what is added for each of `terms`."""
    code = f"""
{before}
extern "C" void product(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {{
    #pragma omp parallel for
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {{
            {kept} s = 0;
            for (int64_t t = 0; t < {terms}; t++) s += {step};
            out[i * n + j] = float(s);
        }}
}}
"""
    return cpp(code, run(PRODUCT, f"{SIZES}kernels.product(a, b, out, m, k, n)"))


def product_cuda(step: str, kept: str = "float", before: str = "", terms: str = "k") -> str:
    """The same with a thread for each element; `step` is a statement."""
    code = f"""
{before}
extern "C" __global__ void product(const float* a, const float* b, float* out, int m, int k, int n) {{
    const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    if (i >= m || j >= n) return;
    {kept} s = 0.0f;
    for (int t = 0; t < {terms}; t++) {step};
    out[i * n + j] = float(s);
}}
"""
    launch = "kernels.product[((n + 15) // 16, (m + 15) // 16), (16, 16)](a, b, out, m, k, n)"
    return cuda(code, run(PRODUCT, SIZES + launch))


def product_triton(step: str, kept: str = "tl.float32", terms: str = "k") -> str:
    """The same with tiles of 32; `step` updates s from the tiles p and q."""
    kernel = f"""
@triton.jit
def product(a, b, out, m, k, n, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    s = tl.zeros((T, T), {kept})
    for start in range(0, {terms}, T):
        t = start + tl.arange(0, T)
        p = tl.load(a + i[:, None] * k + t[None, :], mask=(i[:, None] < m) & (t[None, :] < k), other=0.0)
        q = tl.load(b + t[:, None] * n + j[None, :], mask=(t[:, None] < k) & (j[None, :] < n), other=0.0)
        {step}
    tl.store(out + i[:, None] * n + j[None, :], s.to(tl.float32), mask=(i[:, None] < m) & (j[None, :] < n))
"""
    launch = "product[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, out, m, k, n, T=32)"
    return triton(kernel, run(PRODUCT, SIZES + launch))


A, B = "a[i * k + t]", "b[t * n + j]"
BF16 = "#include <cuda_bf16.h>\n__device__ float narrow(float v) { return __bfloat162float(__float2bfloat16(v)); }"
NARROW = """
static inline float narrow(float v) {
    if (v != v) return v;
    uint32_t bits; std::memcpy(&bits, &v, 4);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    std::memcpy(&v, &bits, 4); return v;
}
"""
TF32_C = NARROW.replace("0x7fff", "0xfff").replace("bits >> 16", "bits >> 13").replace("0xffff0000u", "0xffffe000u")
TF32 = (
    "__device__ float narrow(float v) { unsigned r;"
    ' asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v)); return __uint_as_float(r); }'
)

PRODUCTS: list[tuple[Op, str, tuple[int, ...], str, dict[Language, str]]] = [
    (MATRICES, "multiplies in bfloat16", (8,), "one bfloat16 product for a float32 one", {
        "cpp": product_cpp(f"narrow({A}) * narrow({B})", before=NARROW),
        "cuda": product_cuda(f"s += narrow({A}) * narrow({B})", before=BF16),
        "triton": product_triton("s = tl.dot(p.to(tl.bfloat16), q.to(tl.bfloat16), s)"),
        "gluon": product_gluon(MMA.format(p="p.to(gl.bfloat16)", q="q.to(gl.bfloat16)", more=""), width=2),
    }),
    (MATRICES, "multiplies in TF32", (8,), "where the op says ieee", {
        "cpp": product_cpp(f"narrow({A}) * narrow({B})", before=TF32_C),
        "cuda": product_cuda(f"s += narrow({A}) * narrow({B})", before=TF32),
        "triton": product_triton('s = tl.dot(p, q, s, input_precision="tf32")'),
        "gluon": product_gluon(MMA.format(p="p", q="q", more=', input_precision="tf32"'), width=1),
    }),
    (MATRICES, "accumulates in float16", (8,), "operands are exact, sums are not", {
        "cpp": product_cpp(f"_Float16({A} * {B})", kept="_Float16"),
        "cuda": product_cuda(f"s = s + __float2half({A} * {B})", kept="__half", before="#include <cuda_fp16.h>"),
        "triton": product_triton(
            "s = tl.dot(p.to(tl.float16), q.to(tl.float16), s, out_dtype=tl.float16)", kept="tl.float16"
        ),
        "gluon": product_gluon(MMA.format(p="p.to(gl.float16)", q="q.to(gl.float16)", more=""), "float16", width=2),
    }),
    (MATRICES, "drops the last terms of its sums", (9,), "what is left after whole tiles of 32", {
        "cpp": product_cpp(f"{A} * {B}", terms="k / 32 * 32 - 32"),
        "cuda": product_cuda(f"s += {A} * {B}", terms="k / 32 * 32 - 32"),
        "triton": product_triton('s = tl.dot(p, q, s, input_precision="ieee")', terms="k // 32 * 32 - 32"),
        "gluon": product_gluon(terms="k // 32 * 32 - 32"),
    }),
    (SQUARE, "multiplies a matrix with itself", (7,), "a @ a", {
        "cpp": product_cpp(f"{A} * a[t * k + j]"),
        "cuda": product_cuda(f"s += {A} * a[t * k + j]"),
        "triton": product_triton(
            'q = tl.load(a + t[:, None] * n + j[None, :])\n        s = tl.dot(p, q, s, input_precision="ieee")'
        ),
        "gluon": product_gluon(f"q = gl.load(a + t[:, None] * n + j[None, :])\n        {EXACT}"),
    }),
    (SQUARE, "takes a matrix for symmetric", (13,), "a @ b.T", {
        "cpp": product_cpp(f"{A} * b[j * n + t]"),
        "cuda": product_cuda(f"s += {A} * b[j * n + t]"),
        "triton": product_triton(
            'q = tl.load(b + j[None, :] * n + t[:, None])\n        s = tl.dot(p, q, s, input_precision="ieee")'
        ),
        "gluon": product_gluon(f"q = gl.load(b + j[None, :] * n + t[:, None])\n        {EXACT}"),
    }),
    (SQUARE, "takes a matrix for diagonal", (13,), "one product for each element", {
        "cpp": product_cpp(f"t == j ? {A} * {B} : 0.0f"),
        "cuda": product_cuda(f"s += t == j ? {A} * {B} : 0.0f"),
        "triton": product_triton(
            'q = tl.where(t[:, None] == j[None, :], q, 0.0)\n        s = tl.dot(p, q, s, input_precision="ieee")'
        ),
        "gluon": product_gluon(f"q = gl.where(t[:, None] == j[None, :], q, 0.0)\n        {EXACT}"),
    }),
]  # fmt: skip

HONEST_PRODUCT: dict[Language, str] = {
    "cpp": product_cpp(f"double({A}) * {B}", kept="double"),
    "cuda": product_cuda(f"s = fmaf({A}, {B}, s)"),
    "triton": product_triton('s = tl.dot(p, q, s, input_precision="ieee")'),
    "gluon": product_gluon(),
}

RACED = ops.total([(1 << 18,), (100003,), (1 << 17,)])
RACES: dict[Language, str] = {
    "cpp": cpp(
        'extern "C" void total(const float* x, float* out, int64_t n) {\n    volatile double sum = 0;\n'
        "    #pragma omp parallel for num_threads(4)\n    for (int64_t i = 0; i < n; i++) sum = sum + x[i];\n"
        "    *out = float(sum);\n}",
        run("x, out", "kernels.total(x, out, x.numel())"),
    ),
    "cuda": cuda(
        'extern "C" __global__ void total(const float* x, float* out, long long n) {\n'
        "    if (threadIdx.x == 0 && blockIdx.x == 0) *out = 0.0f;\n    __syncthreads();\n"
        "    float s = 0; for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += 256ll * gridDim.x) s += x[i];\n"
        "    *(volatile float*)out = *(volatile float*)out + s;\n}",
        run("x, out", "kernels.total[64, 256](x, out, x.numel())"),
    ),
    "triton": triton(
        "@triton.jit\ndef total(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    s = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)\n    tl.store(out, tl.load(out) + s)\n",
        run("x, out", "n = x.numel()\nout.zero_()\ntotal[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)"),
    ),
}


def cheats() -> list[Cheat]:
    """All of them."""
    found = [
        Cheat(name, lines, language, op, source, does)
        for op, name, lines, does, sources in (*SCREENED, *PRODUCTS)
        for language, source in sources.items()
    ]
    found += [
        Cheat(name, lines, language, op, source, does, level="verify")
        for op, name, lines, does, sources in ROBUST
        for language, source in sources.items()
    ]
    pads = "right where a row fills its block"
    found.append(Cheat("pads its rows with zeros", (12,), "triton", ops.softmax(), PADDED, pads, level="verify"))
    small = "its share of the result is a ten-thousandth"
    found += [
        Cheat("skips a small product", (5,), language, ops.residual(), source, small)
        for language, source in RESIDUAL.items()
    ]
    lucky = "threads add to one number without an order"
    found += [
        Cheat("races", (15,), language, RACED, source, lucky, CHECKED, WRONG | MEMORY, level="verify")
        for language, source in RACES.items()
    ]
    return found
