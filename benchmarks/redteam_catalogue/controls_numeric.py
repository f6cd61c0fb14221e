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
    RELU,
    SOFTMAX_C,
    SOFTMAX_TL,
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
from benchmarks.redteam_catalogue.entry import Control, Op

ATTACK_S = 1.0

SPLIT = """
SPACE float times(float a, float b) {
    const float ah = narrow(a), al = narrow(a - ah), bh = narrow(b), bl = narrow(b - bh);
    const float am = narrow(a - ah - al), bm = narrow(b - bh - bl);
    return al * bl + am * bh + ah * bm + al * bh + ah * bl + ah * bh;
}
"""
TERM = "times(a[i * k + t], b[t * n + j])"

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
