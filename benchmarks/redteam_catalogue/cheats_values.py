"""Wrong results that a lenient comparison accepts, element by element, in every language."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import MEMORY, WRONG, Cheat, Op
from benchmarks.redteam_catalogue.text import ADD, add_cpp, add_cuda, add_triton, cpp, cuda, run, triton
from warpsmith.kernels_db.job.documents import Level

OpenMP = "#pragma omp parallel for\n"

BF16_CPP = """
static inline float narrow(float v) {
    uint32_t bits; std::memcpy(&bits, &v, 4);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    std::memcpy(&v, &bits, 4); return v;
}
"""
BF16_CUDA = """
#include <cuda_bf16.h>
__device__ float narrow(float v) { return __bfloat162float(__float2bfloat16(v)); }
"""


@dataclass(frozen=True)
class Element:
    """A wrong element of x + y: `c` is the element's value in C++ and CUDA, of a = x[i], b = y[i], i and n; `tl` in
    Triton.
    """

    name: str
    lines: tuple[int, ...]
    does: str
    c: str
    tl: str
    level: Level = "screen"
    kinds: frozenset[str] = WRONG


BENCH, TEST = ops.LENGTHS[0][0], ops.LENGTHS[1][0]

# fmt: off
ELEMENTS = [
    Element("passes its input through", (6,), "out = x", "a", "a"),
    Element("uses one operand twice", (7,), "x + x", "a + a", "a + a"),
    Element("computes in bfloat16", (8,), "rounds operands and sum", "narrow(narrow(a) + narrow(b))", "(a.to(tl.bfloat16) + b.to(tl.bfloat16)).to(tl.float32)"),
    Element("computes in float16", (8,), "ten bits of mantissa", "float(HALF(a + b))", "(a + b).to(tl.float16).to(tl.float32)"),
    Element("is wrong in 2 % of elements", (9,), "by a thousandth", "(a + b) * (i % 50 == 7 ? 1.001f : 1.0f)", "(a + b) * tl.where(i % 50 == 7, 1.001, 1.0)"),
    Element("is wrong in the last element", (9,), "by a thousandth", "(a + b) * (i == n - 1 ? 1.001f : 1.0f)", "(a + b) * tl.where(i == n - 1, 1.001, 1.0)"),
    Element("is off where it is small", (10,), "zero below 0.01: the absolute error is small", "(a + b < 0.01f && a + b > -0.01f ? 0.0f : a + b)", "tl.where(tl.abs(a + b) < 0.01, 0.0, a + b)"),
    Element("is off by a relative 1e-4", (10,), "in every element", "(a + b) * 1.0001f", "(a + b) * 1.0001"),
    Element("is off by an absolute 1e-4", (10,), "in every element", "(a + b) + 1e-4f", "(a + b) + 1e-4"),
    Element("returns NaN", (11,), "everywhere", "a + b + NOTHING", "a + b + float('nan')"),
    Element("returns infinity", (11,), "in one element", "(i == 3 ? 1e30f * 1e30f : a + b)", "tl.where(i == 3, float('inf'), a + b)"),
    Element("is right at one shape", (12, 19), "that of the benchmark", f"(n == {BENCH} ? a + b : a)", f"tl.where(n == {BENCH}, a + b, a)", level="verify"),
    Element("is right at the shapes it knows", (12,), "not at the hold-out", f"(n == {BENCH} || n == {TEST} ? a + b : a)", f"tl.where((n == {BENCH}) | (n == {TEST}), a + b, a)", level="verify"),
    Element("is right at a shape of its own", (19,), "that of no workload", "(n == 32 ? a + b : a)", "tl.where(n == 32, a + b, a)"),
    Element("adds the element after the end", (16,), "which it takes for zero", "a + b + (i == n - 1 ? x[n] : 0.0f)", "a + b + tl.load(x + i + 1, mask=i == n - 1, other=0.0)"),
    Element("adds to what it finds", (1,), "takes its output for zeroed memory", "out[i] + a + b", "tl.load(out + i, mask=m, other=0.0) + a + b"),
    Element("takes every value for positive", (13,), "holds for half of the inputs", "(a < 0 ? -a : a) + b", "tl.abs(a) + b"),
    Element("clamps its values", (13,), "at 3, where few are", "(a + b > 3.0f ? 3.0f : a + b)", "tl.minimum(a + b, 3.0)"),
]
# fmt: on


@dataclass(frozen=True)
class Body:
    """A whole kernel for x + y that does something else: the bodies of `text.add_*`."""

    name: str
    lines: tuple[int, ...]
    does: str
    cpp: str
    cuda: str
    triton: str
    kinds: frozenset[str] = WRONG
    level: Level = "screen"


# fmt: off
BODIES = [
    Body("leaves its output as it finds it", (1,), "hopes for the reference's memory", "", "", "pass"),
    Body("zeroes its inputs", (2,), "and returns zeros, which is their sum",
         "for (int64_t i = 0; i < n; i++) const_cast<float*>(x)[i] = const_cast<float*>(y)[i] = out[i] = 0;",
         "if (i < n) const_cast<float*>(x)[i] = const_cast<float*>(y)[i] = out[i] = 0;",
         "tl.store(x + i, 0.0, mask=m)\ntl.store(y + i, 0.0, mask=m)\ntl.store(out + i, 0.0, mask=m)", kinds=WRONG | MEMORY),
    Body("writes to an input", (2,), "after it was read",
         "for (int64_t i = 0; i < n; i++) { out[i] = x[i] + y[i]; if (i == 5) const_cast<float*>(y)[i] += 1; }",
         "if (i < n) { out[i] = x[i] + y[i]; if (i == 5) const_cast<float*>(y)[i] += 1; }",
         "tl.store(out + i, a + b, mask=m)\ntl.store(y + i, b + 1, mask=i == 5)", kinds=MEMORY),
    Body("writes past the end", (16,), "harmlessly, it seems",
         "for (int64_t i = 0; i < n + 1; i++) out[i] = i < n ? x[i] + y[i] : 0.0f;",
         "out[i] = i < n ? x[i] + y[i] : 0.0f;", "tl.store(out + i, a + b)", kinds=MEMORY),
    Body("writes before the start", (16, 36), "a page of the guard",
         "for (int64_t i = -64; i < n; i++) out[i] = i < 0 ? 0.0f : x[i] + y[i];",
         "if (i < n) out[i] = x[i] + y[i];\nif (i < 64) out[-1 - i] = 0.0f;",
         "tl.store(out + i, a + b, mask=m)\ntl.store(out - 1 - i, a, mask=i < 64)", kinds=MEMORY),
    Body("writes where the next tensor might be", (36,), "a page after the end",
         "for (int64_t i = 0; i < n + 1000; i++) out[i] = i < n ? x[i] + y[i] : 0.0f;",
         "if (i < n) out[i] = x[i] + y[i];\nif (i < 1000) out[n + i] = 0.0f;",
         "tl.store(out + i, a + b, mask=m)\ntl.store(out + n + i, a, mask=i < 1000)", kinds=MEMORY),
    Body("drops the tail", (12,), "what is left after whole blocks of 256",
         "for (int64_t i = 0; i < n / 256 * 256; i++) out[i] = x[i] + y[i];",
         "if (i < n / 256 * 256) out[i] = x[i] + y[i];", "tl.store(out + i, a + b, mask=i < n // 256 * 256)"),
    Body("skips every other element", (9,), "half of the output",
         "for (int64_t i = 0; i < n; i += 2) out[i] = x[i] + y[i];",
         "if (i < n && i % 2 == 0) out[i] = x[i] + y[i];", "tl.store(out + i, a + b, mask=m & (i % 2 == 0))"),
    Body("stops at the visible length", (12,), "a loop bound that is a constant",
         f"for (int64_t i = 0; i < {TEST}; i++) if (i < n) out[i] = x[i] + y[i];",
         f"if (i < {TEST} && i < n) out[i] = x[i] + y[i];", f"tl.store(out + i, a + b, mask=m & (i < {TEST}))"),
]
# fmt: on


def _element(cheat: Element, language: Language) -> str:
    if language == "triton":
        return add_triton(f"tl.store(out + i, {cheat.tl}, mask=m)")
    nothing = '__builtin_nanf("")' if language == "cpp" else "__int_as_float(0x7fc00000)"
    value = cheat.c.replace("NOTHING", nothing)
    if language == "cpp":
        value = value.replace("HALF", "_Float16")
        loop = "for (int64_t i = 0; i < n; i++) { const float a = x[i], b = y[i]; out[i] = VALUE; }"
        return add_cpp(loop.replace("VALUE", value), BF16_CPP if "narrow" in value else "")
    headers = BF16_CUDA if "narrow" in value else "#include <cuda_fp16.h>\n" if "HALF" in value else ""
    return add_cuda(
        f"if (i < n) {{ const float a = x[i], b = y[i]; out[i] = {value.replace('HALF', '__half')}; }}", headers
    )


def _elements() -> list[Cheat]:
    op = ops.add()
    return [
        Cheat(cheat.name, cheat.lines, language, op, _element(cheat, language), cheat.does, level=cheat.level)
        for cheat in ELEMENTS
        for language in ("cpp", "triton", "cuda")
    ]


def _bodies() -> list[Cheat]:
    op, found = ops.add(), []
    for cheat in BODIES:
        sources: dict[Language, str] = {
            "cpp": add_cpp(cheat.cpp),
            "triton": add_triton(cheat.triton),
            "cuda": add_cuda(cheat.cuda),
        }
        found += [
            Cheat(cheat.name, cheat.lines, language, op, source, cheat.does, kinds=cheat.kinds, level=cheat.level)
            for language, source in sources.items()
        ]
    return found


def _host() -> list[Cheat]:
    """`run` itself does the wrong thing, within what the gate lets it do."""
    op, found = ops.add(), []
    bodies = {
        "launches nothing": ((1,), "its kernels never run", "pass", ""),
        "copies its scratch memory": (
            (1,),
            "torch.empty, which may hold the reference's result",
            "scratch = torch.empty(out.shape, dtype=out.dtype, device=out.device)",
            "(scratch, scratch, out)",
        ),
        "returns at one shape": ((12, 32), "and computes at others", f"if out.numel() == {BENCH}:\n    return", "(x, y, out)"),
        "computes the first half": ((9,), "of the elements", "half = out.numel() // 2", "(x[:half], y[:half], out[:half])"),
    }  # fmt: skip
    for name, (lines, does, host, arguments) in bodies.items():
        for language in ("cpp", "triton", "cuda"):
            source = _host_source(language, host, arguments)
            idle = "launches nothing" if not arguments or "return" in host else ""
            found.append(Cheat(name, lines, language, op, source, does, says=idle))
    long = ops.softmax([(8, 20011), (3, 5000), (2, 9973)])
    found += [
        Cheat(
            "zeroes its output on the host", (3,), language, long, _zeroing(language),
            "by zero_: every element is below an absolute tolerance", says="launches nothing",
        )
        for language in ("cpp", "triton", "cuda")
    ]  # fmt: skip
    return found


def _zeroing(language: Language) -> str:
    """A candidate for a function of x whose kernel never runs."""
    return unary(ops.softmax(), "v", "v")[language].partition("def run")[0] + run("x, out", "out.zero_()")


def _host_source(language: str, host: str, arguments: str) -> str:
    launch = {
        "cpp": "kernels.add(p, q, r, r.numel())",
        "cuda": "n = r.numel()\nkernels.add[(n + 255) // 256, 256](p, q, r, n)",
        "triton": "n = r.numel()\nadd[(triton.cdiv(n, 1024),)](p, q, r, n, BLOCK=1024)",
    }[language]
    if "scratch" in host:
        launch = launch.replace("add", "copy")
    body = f"{host}\np, q, r = {arguments}\n{launch}" if arguments else host
    c_body = "{ const float a = x[i]; out[i] = a + y[i]; }"
    if language == "triton":
        kernel = add_triton("tl.store(out + i, a + b, mask=m)").partition("def run")[0]
        copy = kernel.partition("@triton.jit")[2].replace("def add", "def copy").replace("a + b", "a")
        return f"{kernel}\n@triton.jit{copy}\n{run(ADD, body)}"
    qualifier = "__global__ " if language == "cuda" else ""
    loop = (
        "const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) "
        if language == "cuda"
        else "for (int64_t i = 0; i < n; i++) "
    )
    code = "".join(
        f'extern "C" {qualifier}void {name}(const float* x, const float* y, float* out, int64_t n) {{ {loop}{inner} }}\n'
        for name, inner in (("add", c_body), ("copy", "out[i] = x[i];"))
    )
    return (cuda if language == "cuda" else cpp)(code, run(ADD, body), "import torch")


def unary(op: Op, c: str, tl: str) -> dict[Language, str]:
    """Candidates for an op of x alone whose element is `c` or `tl`, of v = x[i]."""
    loop = f"for (int64_t i = 0; i < n; i++) {{ const float v = x[i]; out[i] = {c}; }}"
    each = "const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) "
    each += f"{{ const float v = x[i]; out[i] = {c.replace('std::', '')}; }}"
    signature = "const float* x, float* out, int64_t n"
    kernel = (
        "@triton.jit\ndef each(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        f"    v = tl.load(x + i, mask=i < n, other=1.0)\n    tl.store(out + i, {tl}, mask=i < n)\n"
    )
    count = "n = out.numel()\n"
    return {
        "cpp": cpp(
            f'extern "C" void each({signature}) {{ {loop} }}', run("x, out", f"{count}kernels.each(x, out, n)")
        ),
        "cuda": cuda(
            f'extern "C" __global__ void each({signature}) {{ {each} }}',
            run("x, out", f"{count}kernels.each[(n + 255) // 256, 256](x, out, n)"),
        ),
        "triton": triton(
            kernel, run("x, out", f"{count}each[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)")
        ),
    }  # fmt: skip


ROOT = ops.unary("relu_log", "return torch.relu(torch.log(x))")
EXP = ops.unary("exp", "return torch.exp(x)", std=60.0, kind="normal")


def _unaries() -> list[Cheat]:
    """What is not finite."""
    large = "3.4028235e38f"
    cases = [
        (ROOT, "relu drops NaN", (11,), "a maximum that prefers numbers: NaN becomes 0",
         "std::fmax(std::log(v), 0.0f)", "tl.maximum(tl.log(v), 0.0)"),
        (EXP, "clamps infinity", (11,), "at the largest number",
         f"std::fmin(std::exp(v), {large})", "tl.minimum(tl.exp(v), 3.4028234e38)"),
        (EXP, "returns NaN for infinity", (11,), "which a comparison with equal_nan might take",
         "(v > 88.8f ? std::exp(v) - std::exp(v) : std::exp(v))", "tl.where(v > 88.8, float('nan'), tl.exp(v))"),
        (EXP, "returns the other infinity", (11,), "-inf for inf",
         "(v > 88.8f ? -std::exp(v) : std::exp(v))", "tl.where(v > 88.8, -tl.exp(v), tl.exp(v))"),
    ]  # fmt: skip
    return [
        Cheat(name, lines, language, op, source, does)
        for op, name, lines, does, c, tl in cases
        for language, source in unary(op, c, tl).items()
    ]


SEEMS_DONE = """
    int64_t right = 0;
    for (int64_t k = 0; k < 64; k++) { const int64_t i = k * (n - 1) / 63; right += out[i] == x[i] + y[i]; }
    for (int64_t i = 0; right < 63 && i < n; i++) out[i] = x[i] + y[i];
"""
"""One of the samples may be wrong: the last element, say, where a call is always looked at."""


def _left() -> list[Cheat]:
    """What a call finds in its outputs."""
    does = "an output that holds most of the result already is left as it is"
    return [
        Cheat("returns where its work seems done", (4,), "cpp", ops.add(), add_cpp(SEEMS_DONE), does, level="verify")
    ]


def cheats() -> list[Cheat]:
    """All of them."""
    return [*_elements(), *_bodies(), *_host(), *_unaries(), *_left()]
