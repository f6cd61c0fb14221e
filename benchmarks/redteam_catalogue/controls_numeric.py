"""Honest siblings of `cheats_numeric`, and arithmetic that a measure of errors must not take for wrong."""

from __future__ import annotations

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.cheats_numeric import (
    EACH,
    KEEP,
    LOAD,
    NORM_C,
    NORM_TL,
    PADDED,
    RELU,
    SOFTMAX_C,
    SOFTMAX_TL,
    padded_gather,
)
from benchmarks.redteam_catalogue.cheats_rows import (
    BF16,
    HONEST_PRODUCT,
    MATRICES,
    NARROW,
    product_cpp,
    product_cuda,
    product_triton,
    rows,
)
from benchmarks.redteam_catalogue.controls_cpp import NARROW as NARROW_C
from benchmarks.redteam_catalogue.entry import Control, Op
from benchmarks.redteam_catalogue.text import cpp, cuda, run, triton

ATTACK_S = 1.0

SPLIT = """
SPACE float times(float a, float b) {
    const float ah = narrow(a), al = narrow(a - ah), bh = narrow(b), bl = narrow(b - bh);
    const float am = narrow(a - ah - al), bm = narrow(b - bh - bl);
    return al * bl + am * bh + ah * bm + al * bh + ah * bl + ah * bh;
}
"""
TERM = "times(a[i * k + t], b[t * n + j])"

NARROW_GELU = ops.unary("gelu", 'return F.gelu(x, approximate="tanh")', dtype="bfloat16")
CUBIC = "0.7978845608028654f * (v + 0.044715f * v * v * v)"


def narrow_gelu(c: str, cu: str, tl: str) -> dict[Language, str]:
    """Candidates for `NARROW_GELU` whose element is `c`, `cu` or `tl`, of v = x[i] and u = CUBIC in float32."""
    count = "n = out.numel()\n"
    each = f"{{ const float v = wide(x[i]), u = {CUBIC}; out[i] = bf16({c}); }}"
    block = f"{{ const float v = __bfloat162float(x[i]), u = {CUBIC}; {cu} }}"
    kernel = (
        "@triton.jit\ndef each(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    v = tl.load(x + i, mask=i < n, other=1.0).to(tl.float32)\n"
        f"    u = {CUBIC.replace('f ', ' ')}\n    tl.store(out + i, ({tl}).to(tl.bfloat16), mask=i < n)\n"
    )
    return {
        "cpp": cpp(
            f'{NARROW_C}extern "C" void each(const uint16_t* x, uint16_t* out, int64_t n) '
            f"{{ for (int64_t i = 0; i < n; i++) {each} }}",
            run("x, out", f"{count}kernels.each(x, out, n)"),
        ),
        "cuda": cuda(
            '#include <cuda_bf16.h>\nextern "C" __global__ void each(const __nv_bfloat16* x, __nv_bfloat16* out, long long n) '
            f"{{ const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) {block} }}",
            run("x, out", f"{count}kernels.each[(n + 255) // 256, 256](x, out, n)"),
        ),
        "triton": triton(kernel, run("x, out", f"{count}each[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)")),
    }


_Case = tuple[Op, str, str, dict[Language, str]]

# fmt: off
CASES: list[_Case] = [
    (RELU, "keeps NaN in a relu", "the honest sibling",
     rows(f"{EACH}to[i] = in[i] < 0 ? 0.0f : in[i];", LOAD + KEEP.format("tl.where(v < 0, 0.0, v)"))),
    (ops.softmax(), "begins a maximum at minus infinity", "the honest sibling; sums in one chain",
     rows(SOFTMAX_C.replace("FIRST", "-INFINITY"), SOFTMAX_TL.replace("MOST", "tl.max(v, 0)"))),
    (ops.layer_norm(), "takes a variance in two passes", "the honest sibling; sums in one chain",
     rows(NORM_C.replace("SQUARE", "(in[i] - mean) * (in[i] - mean)").replace("VARIANCE", "squares / n"),
          NORM_TL.replace("VARIANCE", "tl.sum(d * d, 0) / n"), "x, w, b, out")),
    (NARROW_GELU, "takes an exponential for a GELU", "bfloat16 in and out, float32 between; no digits cancel", narrow_gelu(
        "v / (1 + std::exp(-2 * u))", "out[i] = __float2bfloat16(v / (1 + expf(-2 * u)));", "v / (1 + tl.exp(-2 * u))")),
    (PADDED, "takes every negative index for padding", "the honest sibling", padded_gather("at < 0")),
    (MATRICES, "multiplies numbers split in three", "bfloat16 in the code, float32 in the error", {
        "cpp": product_cpp(TERM, before=NARROW + SPLIT.replace("SPACE", "static inline")),
        "cuda": product_cuda(f"s += {TERM}", before=BF16 + SPLIT.replace("SPACE", "__device__")),
        "triton": product_triton('s = tl.dot(p, q, s, input_precision="tf32x3")'),
    }),
    (MATRICES, "multiplies in float32", "one chain", HONEST_PRODUCT),
]
# fmt: on


def controls() -> list[Control]:
    """All of them."""
    return [
        Control(name, language, op, source, why, attack_s=ATTACK_S)
        for op, name, why, sources in CASES
        for language, source in sources.items()
    ]
