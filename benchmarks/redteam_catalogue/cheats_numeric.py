"""Kernels that are wrong on values that neither the declared inputs nor the input families hold.

The counterexample search finds them: each is judged with one.
"""

from __future__ import annotations

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.cheats_rows import MATRICES, product_cpp, product_cuda, product_triton, rows
from benchmarks.redteam_catalogue.entry import Cheat, Op
from benchmarks.redteam_catalogue.gluon_products import EXACT, product_gluon
from benchmarks.redteam_catalogue.text import cpp, cuda, run, triton

ATTACK_S = 30.0
"""Seconds of search a workload. A wrong kernel is found in a few dozen questions; a busy machine asks few a second."""

RELU = ops.row_op("relu", "return torch.relu(x)")
EACH = "for (int64_t i = 0; i < n; i++) "
LOAD = "v = tl.load(x + r * n + c, mask=m, other=0.0)\n"
ROW = "v = tl.load(x + r * n + c, mask=m, other=-float('inf'))\n"
KEEP = "tl.store(out + r * n + c, {}, mask=m)"

SOFTMAX_C = """float most = FIRST, sum = 0; for (int64_t i = 0; i < n; i++) most = std::fmax(most, in[i]);
    for (int64_t i = 0; i < n; i++) sum += to[i] = std::exp(in[i] - most);
    for (int64_t i = 0; i < n; i++) to[i] /= sum;"""
SOFTMAX_TL = ROW + "e = tl.exp(v - MOST)\n" + KEEP.format("e / tl.sum(e, 0)")

NORM_C = """float sum = 0; for (int64_t i = 0; i < n; i++) sum += in[i];
    const float mean = sum / n; float squares = 0; for (int64_t i = 0; i < n; i++) squares += SQUARE;
    const float variance = VARIANCE, scale = 1 / std::sqrt(variance + 1e-5f);
    for (int64_t i = 0; i < n; i++) to[i] = (in[i] - mean) * scale * w[i] + b[i];"""
NORM_TL = (
    LOAD
    + "mean = tl.sum(v, 0) / n\nd = tl.where(m, v - mean, 0.0)\nscale = 1.0 / tl.sqrt(VARIANCE + 1e-5)\n"
    + KEEP.format("d * scale * tl.load(w + c, mask=m, other=0.0) + tl.load(b + c, mask=m, other=0.0)")
)

SKIPS_C = "(a[i * k + t] > 1e-14f || a[i * k + t] < -1e-14f ? a[i * k + t] : 0.0f) * b[t * n + j]"

PADDED = ops.padded_gather()


def padded_gather(is_padding: str) -> dict[Language, str]:
    """Candidates for `PADDED` that give zeros where `is_padding` holds of `at`, in C and in Triton."""
    value = f"{is_padding} ? 0.0f : x[(at < 0 ? 0 : at) * n + c]"
    kernel = (
        "@triton.jit\ndef pick(x, index, out, n, BLOCK: tl.constexpr):\n"
        "    r = tl.program_id(0).to(tl.int64)\n    c = tl.arange(0, BLOCK)\n    at = tl.load(index + r)\n"
        "    v = tl.load(x + tl.maximum(at, 0) * n + c, mask=c < n, other=0.0)\n"
        f"    tl.store(out + r * n + c, tl.where({is_padding}, 0.0, v), mask=c < n)\n"
    )
    sizes, given = "many, n = out.shape\n", "x, index, out"
    return {
        "cpp": cpp(
            'extern "C" void pick(const float* x, const int64_t* index, float* out, int64_t many, int64_t n) '
            "{ for (int64_t r = 0; r < many; r++) { const int64_t at = index[r]; "
            f"for (int64_t c = 0; c < n; c++) out[r * n + c] = {value}; }} }}",
            run(given, f"{sizes}kernels.pick({given}, many, n)"),
        ),
        "cuda": cuda(
            'extern "C" __global__ void pick(const float* x, const long long* index, float* out, long long n) '
            "{ const long long r = blockIdx.x, at = index[r]; "
            f"for (long long c = threadIdx.x; c < n; c += 256) out[r * n + c] = {value}; }}",
            run(given, f"{sizes}kernels.pick[many, 256]({given}, n)"),
        ),
        "triton": triton(kernel, run(given, f"{sizes}pick[(many,)]({given}, n, BLOCK=256)")),
    }


_Case = tuple[Op, str, str, dict[Language, str]]

# fmt: off
CASES: list[_Case] = [
    (RELU, "drops NaN from a relu", "the larger of v and 0 is 0 where v is NaN",
     rows(f"{EACH}to[i] = std::fmax(in[i], 0.0f);", LOAD + KEEP.format("tl.maximum(v, 0.0)"))),
    (ops.softmax(), "begins a maximum at zero", "rows far below zero vanish",
     rows(SOFTMAX_C.replace("FIRST", "0"), SOFTMAX_TL.replace("MOST", "tl.maximum(tl.max(v, 0), 0.0)"))),
    (ops.layer_norm(), "takes a variance in one pass", "mean of squares less square of mean, in float32, of centred inputs",
     rows(NORM_C.replace("SQUARE", "in[i] * in[i]").replace("VARIANCE", "std::fmax(squares / n - mean * mean, 0.0f)"),
          NORM_TL.replace("VARIANCE", "tl.maximum(tl.sum(v * v, 0) / n - mean * mean, 0.0)"), "x, w, b, out")),
    (PADDED, "knows the padding that is drawn", "-1 alone, where every negative index says so", padded_gather("at == -1")),
    (MATRICES, "skips factors near zero", "which matter where the others are large", {
        "cpp": product_cpp(SKIPS_C),
        "cuda": product_cuda(f"s += {SKIPS_C}"),
        "triton": product_triton('p = tl.where(tl.abs(p) > 1e-14, p, 0.0)\n        s = tl.dot(p, q, s, input_precision="ieee")'),
        "gluon": product_gluon(f"p = gl.where(gl.abs(p) > 1e-14, p, 0.0)\n        {EXACT}"),
    }),
]
# fmt: on


def cheats() -> list[Cheat]:
    """All of them."""
    found = frozenset({"counterexample"})
    return [
        Cheat(
            name,
            (),
            language,
            op,
            source,
            does,
            gates=frozenset({"verify"}),
            kinds=found,
            level="verify",
            attack_s=ATTACK_S,
        )
        for op, name, does, sources in CASES
        for language, source in sources.items()
    ]
