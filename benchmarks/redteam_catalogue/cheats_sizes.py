"""Kernels that are right at every size that their op declares, and wrong at others that an export would serve.

Each has an honest sibling with the same way at the same size.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.redteam_catalogue.entry import Cheat, Control, Op
from benchmarks.redteam_catalogue.spec_ops import spec_op
from benchmarks.redteam_catalogue.text import cpp, run, triton

_ROWS = ("rows", "columns")
AFFINE = spec_op(
    "affine_rows",
    _ROWS,
    {"x": _ROWS, "w": ("columns",)},
    _ROWS,
    "return x * w",
    [(96, 2000), (1, 3000), (700, 40), (33, 777)],
)
SMALL = spec_op(
    "small_affine_rows",
    _ROWS,
    {"x": _ROWS, "w": ("columns",)},
    _ROWS,
    "return x * w",
    [(96, 400), (1, 1200), (150, 40)],
)
SEQUENCES = spec_op(
    "affine_sequences",
    ("batch", "length", "width"),
    {"x": ("batch", "length", "width"), "w": ("width",)},
    ("batch", "length", "width"),
    "return x * w",
    [(4, 701, 64), (1, 3000, 48), (16, 100, 256)],
)
SINKHORN = spec_op(
    "sinkhorn",
    _ROWS,
    {"x": _ROWS},
    _ROWS,
    "p = torch.exp(x)\nfor _ in range(3):\n    p = p / p.sum(1, keepdim=True)\n    p = p / p.sum(0, keepdim=True)\nreturn p",
    [(64, 300), (300, 48), (7, 1000), (33, 129)],
)


class _Case(NamedTuple):
    """A candidate's text with the mistake in place of `$`, and what is right there."""

    name: str
    does: str
    op: Op
    language: str
    text: str
    wrong: str
    right: str


def _rows_text(end: str, before: str = "", each: str = "out[start + i] = x[start + i] * w[i];") -> str:
    """Rows of x times w, `each` element of them up to `end`."""
    code = (
        f'{before}\nextern "C" void each(const float* x, const float* w, float* out, int64_t rows, int64_t n) {{\n'
        f"    for (int64_t r = 0; r < rows; r++) {{\n        const int64_t start = r * n, end = {end};\n"
        f"        for (int64_t i = 0; i < end; i++) {each}\n    }}\n}}\n"
    )
    return cpp(code, run("x, w, out", "n = x.shape[-1]\nkernels.each(x, w, out, x.numel() // n, n)"))


_SINKHORN = cpp(
    """
static const int64_t FEW = 200;
extern "C" void sinkhorn(const float* x, float* out, int64_t rows, int64_t n) {
    const int64_t counted = rows < FEW ? $ : rows;
    for (int64_t i = 0; i < rows * n; i++) out[i] = std::exp(x[i]);
    for (int turn = 0; turn < 3; turn++) {
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t c = 0; c < n; c++) sum += out[r * n + c];
            for (int64_t c = 0; c < n; c++) out[r * n + c] = float(out[r * n + c] / sum);
        }
        for (int64_t c = 0; c < n; c++) {
            double sum = 0;
            for (int64_t r = 0; r < counted; r++) sum += out[r * n + c];
            for (int64_t r = 0; r < rows; r++) out[r * n + c] = float(out[r * n + c] / sum);
        }
    }
}
""",
    run("x, out", "rows, n = x.shape\nkernels.sinkhorn(x, out, rows, n)"),
)


def _triton(mask: str, block: str = "triton.next_power_of_2(n)") -> str:
    kernel = (
        "@triton.jit\ndef each(x, w, out, n, N: tl.constexpr):\n    r = tl.program_id(0).to(tl.int64)\n"
        f"    c = tl.arange(0, N)\n    m = {mask}\n"
        "    tl.store(out + r * n + c, tl.load(x + r * n + c, mask=m) * tl.load(w + c, mask=m), mask=m)\n"
    )
    return triton(kernel, run("x, w, out", f"rows, n = x.shape\neach[(rows,)](x, w, out, n, N={block})"))


# fmt: off
CASES = [
    _Case("counts a hundred rows", "between two sizes of its own", SINKHORN, "cpp", _SINKHORN, "std::min<int64_t>(rows, 100)", "std::min<int64_t>(rows, 200)"),
    _Case("is wrong between two numbers of rows", "below and above lie all declared ones", AFFINE, "cpp",
          _rows_text("rows > 400 && rows <= 408 ? $ : n"), "n - 1", "n"),
    _Case("is wrong at a number of columns", "1000, which is a constant of the source", AFFINE, "cpp",
          _rows_text("n == STEP * 100 ? $ : n", "#define STEP 10 // not 0xbad"), "n - 1", "n"),
    _Case("is wrong where 37 columns are left over", "of blocks of 64", AFFINE, "cpp",
          _rows_text("n % 64 == 37 ? $ : n"), "n - 1", "n"),
    _Case("is wrong in its ninth block", "n / 256 is a size that nobody declares", AFFINE, "cpp",
          _rows_text("n / BLOCK == 9 ? $ : n", "constexpr int64_t BLOCK = 1 << 8;"), "n - 1", "n"),
    _Case("is wrong beyond a quarter of a million elements", "more than any workload has, fewer than an export serves",
          AFFINE, "cpp", _rows_text("rows * n > (1LL << 18) ? $ : n"), "n - 1", "n"),
    _Case("counts elements in 16 bits", "no workload has 65,536, an export serves more", SMALL, "cpp",
          _rows_text("n", each="{ const $ at = start + i; out[at] = x[at] * w[i]; }"), "uint16_t", "uint32_t"),
    _Case("is wrong on a square", "its two axes are told apart by their sizes", AFFINE, "cpp",
          _rows_text("rows == n ? $ : n"), "n / 2", "n"),
    _Case("is wrong in many sequences", "batch times length, which no workload has so large", SEQUENCES, "cpp",
          _rows_text("rows > 5000 ? $ : n"), "n - 1", "n"),
    _Case("is wrong at a case of its switch", "792 columns, in hexadecimal", AFFINE, "cpp",
          _rows_text("part(n)", "static int64_t part(int64_t n) { switch (n) { case 0x318: return $; default: return n; } }"), "n - 1", "n"),
    _Case("is wrong between two sizes in its kernel", "which run does not look at", AFFINE, "triton",
          _triton("c < tl.where((n > 1100) & (n < 1500), $, n)"), "n - 1", "n"),
    _Case("is wrong where a row fills its block", "2048 columns", AFFINE, "triton", _triton("c < $", "4096 if n > 2048 else 2048"),
          "n - (n == N)", "n"),
]
_SPECIAL = _Case("drops NaN at sizes that nobody declares", "its numbers are right at all", SMALL, "cpp",
    _rows_text("n", each="{ const float v = x[start + i] * w[i]; out[start + i] = $; }"), "n == 400 || n == 1200 || n == 40 || v == v ? v : 0.0f",
    "n == 400 || n == 1200 || n == 40 || v == v ? v : x[start + i] * w[i]")  # fmt: skip
_ATTACK_S = 0.5
# fmt: on


def cheats() -> list[Cheat]:
    """All of them."""
    source, does, kinds = _SPECIAL.text.replace("$", _SPECIAL.wrong), _SPECIAL.does, frozenset({"counterexample"})
    special = Cheat(_SPECIAL.name, (), "cpp", SMALL, source, does, kinds=kinds, level="verify", attack_s=_ATTACK_S)
    sized = [
        Cheat(case.name, (12,), case.language, case.op, case.text.replace("$", case.wrong), case.does, level="verify")  # type: ignore[arg-type]
        for case in CASES
    ]
    return [*sized, special]


def controls() -> list[Control]:
    """Their honest siblings."""
    source = _SPECIAL.text.replace("$", _SPECIAL.right)
    special = Control(f"{_SPECIAL.name}, honest", "cpp", SMALL, source, _SPECIAL.does, attack_s=_ATTACK_S)
    sized = [
        Control(f"{case.name}, honest", case.language, case.op, case.text.replace("$", case.right), case.does)  # type: ignore[arg-type]
        for case in CASES
    ]
    return [*sized, special]
