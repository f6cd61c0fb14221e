"""The gate: what honest candidates do passes, and every text is answered with problems, never with an exception."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import REPOSITORY
from warpsmith import IMPORT_ROOT
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.csource import source_problems
from warpsmith.workers.gate.gate import Problem, check

CANDIDATES = REPOSITORY / "tests" / "candidates"
EXAMPLES = REPOSITORY / "prompts" / "examples"

HONEST_CPP = '''
"""A docstring may say eval, exec, __import__('os') and torch.matmul."""
from __future__ import annotations

import math

import torch

from kernels_db.runtime import cpp

# os.system and subprocess stand only in this comment.
TILE = 64
SHAPES = {1: (16, 16), 2: (32, 8)}
FLAGS = ("-ffast-math", "-mprefer-vector-width=512")
SOURCE = r"""
#include <algorithm>
#define TILE 64
// system("rm -rf /") is a comment
static inline float relu(float v) { return std::max(v, 0.0f); }
extern "C" void rows(const float* x, float* out, int64_t n, float scale) {
    #pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) out[i] = relu(x[i]) * scale;
}
"""
kernels = cpp.compile(SOURCE, flags=FLAGS)


def blocks(n: int, tile: int = TILE) -> int:
    """Blocks of a row."""
    return (n + tile - 1) // tile


def run(x: torch.Tensor, out: torch.Tensor, eps: float) -> None:
    n, width = x.numel(), x.shape[-1]
    if x.dim() < 2 or not x.is_contiguous():
        raise ValueError(f"found {tuple(x.shape)}, expected rows")
    assert out.dtype == torch.float32, "float32"
    scratch = torch.empty((blocks(n), width), dtype=x.dtype, device=x.device)
    rows = x.view(-1, width)
    step = SHAPES.get(x.dim(), (8, 8))[0]
    sizes = [size for size in x.shape if size > 1]
    for start in range(0, n, max(n, 1)):
        while step > 1:
            step //= 2
        kernels.rows(rows[start:], scratch, 0, math.sqrt(eps + 1.0))
    bias = None if len(sizes) > 9 else x
    if bias is not None and x.data_ptr() % 64 == 0:
        kernels.rows(bias, out, n, 1.0 / (1.0 + eps))
'''
HONEST_TRITON = '''
import torch
import triton
import triton.language as tl

try:
    from triton.language.extra import libdevice
except ImportError:
    libdevice = None

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w, num_stages=2) for b in (256, 1024) for w in (4, 8)]
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def combine(a, b):
    return a + b


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def softplus(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
    """exec in a docstring."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        v = tl.load(x + i)
    else:
        v = tl.load(x + i, mask=i < n, other=0.0)
    total = tl.reduce(v.to(DTYPE), 0, combine)
    for k in tl.static_range(2):
        v = libdevice.tanh(v) * LOG2E + total * k
    while total > 3.0:
        total = total * 0.5
    high = v.to(tl.bfloat16).to(tl.float32)
    tl.store(out + i, tl.where(v > 0, high, -v), mask=i < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def run(x, out):
    n = out.numel()
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count * 4
    softplus[grid](x, out, n)
    softplus[lambda meta: (min(blocks, triton.cdiv(n, meta["BLOCK"])),)](x.view(-1), out, n, DTYPE=tl.float32)
    combined = lambda meta: (triton.next_power_of_2(meta["n"]),)
    softplus[combined](x, out, n)
'''
HONEST_CUDA = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_fp16.h>
extern "C" __global__ void half_add(const __half* x, __half* out, int n) {
    extern __shared__ float shared[];
    asm volatile("griddepcontrol.wait;");
}
extern "C" __global__ void tiled(const __grid_constant__ CUtensorMap map, float* out) {}
""", flags=("--use_fast_math", "--maxrregcount=128"))


def run(x, out):
    n = out.numel()
    kernels.half_add[(n + 255) // 256, 256](x, out, n)
    kernels.half_add.launch((n // 256, 1), 256, x, out, n, shared_bytes=65536, cluster=2, cooperative=True)
    kernels.tiled[1, 32](cuda.tensor_map(x, (64, 64), swizzle=128), out)
'''


@pytest.mark.parametrize(
    ("language", "source", "scalars"),
    [("cpp", HONEST_CPP, ("eps",)), ("triton", HONEST_TRITON, ()), ("cuda", HONEST_CUDA, ())],
)
def test_what_honest_candidates_do_passes(language: str, source: str, scalars: tuple[str, ...]) -> None:
    assert check(source, language, scalars=scalars) == []


@pytest.mark.parametrize("path", sorted(CANDIDATES.glob("*.py")), ids=lambda path: path.stem)
def test_the_shared_candidates_pass(path: Path) -> None:
    language = next(part for part in path.stem.split("_") if part in allowed.LANGUAGES)
    assert check(path.read_text(), language) == []


@pytest.mark.parametrize("language", allowed.LANGUAGES)
def test_the_example_of_each_language_passes(language: str) -> None:
    assert check((EXAMPLES / f"{language}.py").read_text(), language, parameters=["x", "y", "out"]) == []


def test_the_parameters_of_run_are_the_ops() -> None:
    source = (EXAMPLES / "cpp.py").read_text()
    (problem,) = check(source, "cpp", parameters=["x", "weight", "out"])
    assert "run takes (x, y, out), expected (x, weight, out)" in problem.message
    assert source.splitlines()[problem.line - 1].startswith("def run")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("def run(x, *, out):", "keyword-only"),
        ("def run(x, out=None):", "defaults"),
        ("def run(*args):", "`*args`"),
        ("def run(x, **rest):", "`*rest`"),
        ("@staticmethod\ndef run(x, out):", "decorator"),
        ("def runs(x, out):", "no function `run`"),
    ],
)
def test_run_has_plain_positional_parameters(head: str, said: str) -> None:
    problems = check(f"{head}\n    pass\n", "cpp")
    assert any(said in problem.message for problem in problems), problems


@pytest.mark.parametrize(
    "constant", ["FASTER = cutlass.Float32 is cutlass.Int32", "FASTER = 1 if COUNT is not 2 else 3"]
)
def test_identity_is_asked_of_none_alone(constant: str) -> None:
    """In a runner that has no compiler two of a language's names are two objects, whatever they are elsewhere."""
    source = (EXAMPLES / "cute.py").read_text("utf-8") + "\n\nCOUNT = 2\nFAST = COUNT is None\n"
    assert not check(source, "cute")
    problems = check(source + constant + "\n", "cute")
    assert any("`is` between two values is not allowed" in str(problem) for problem in problems)


def test_there_is_one_run() -> None:
    assert any("defined twice" in p.message for p in check("def run(x):\n    pass\ndef run(x):\n    pass\n", "cpp"))


def test_a_scalar_may_be_computed_with_and_a_tensor_may_not() -> None:
    source = HONEST_CPP.replace("n, width =", "t = eps * 2\n    n, width =")
    assert check(source, "cpp", scalars=["eps"]) == []
    (problem, *_) = check(source, "cpp")
    assert problem == Problem(source[: source.index("t = eps")].count("\n") + 1, problem.message)
    assert "arithmetic on a tensor" in problem.message


LIBRARY = """
import torch
import torch.nn.functional as F

def run(x, w, out):
    t = torch.mm(x, w)
    u = F.conv2d(x, w)
    v = x.contiguous()
    z = x @ w
"""


PROPAGATING = """
import triton
import triton.language as tl

@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(y + i, tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL), i < n)

def run(x, y):
    n = y.numel()
    relu[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
"""


@pytest.mark.parametrize("member", ["ALL", "NONE"])
def test_a_kernel_may_say_what_becomes_of_nan(member: str) -> None:
    source = PROPAGATING.replace("PropagateNan.ALL", f"PropagateNan.{member}")
    assert check(source, "triton", parameters=["x", "y"]) == []


@pytest.mark.parametrize(
    "text",
    ["PropagateNan", "PropagateNan.ANY", "PropagateNan.mro", "PropagateNan.ALL.name", "PropagateNan.ALL()", "ALL"],
)
def test_of_that_enum_its_two_members_alone_are_allowed(text: str) -> None:
    problems = check(PROPAGATING.replace("PropagateNan.ALL", text), "triton", parameters=["x", "y"])
    assert [problem.line for problem in problems] == [9], problems
    assert "is not allowed in a kernel" in problems[0].message


def test_library_calls_open_what_they_name_and_no_more() -> None:
    assert check(LIBRARY, "triton", ["torch.mm", "conv2d", "contiguous"]) == []
    found = {problem.line for problem in check(LIBRARY, "triton", ["torch.mm"])}
    assert found == {7, 8}
    assert {problem.line for problem in check(LIBRARY, "triton")} == {3, 6, 7, 8, 9}
    (problem,) = check("import torch\ndef run(x, w):\n    t = torch.mm(x, w) * 2\n", "cpp", ["torch.mm"])
    assert "arithmetic on a tensor" in problem.message


def test_an_unknown_language_is_a_problem() -> None:
    (problem,) = check("", "rust")
    assert "found 'rust', expected one of cpp, triton, cuda" in problem.message


def test_a_syntax_error_has_its_line() -> None:
    (problem,) = check("import math\n\ndef run(x:\n", "cpp")
    assert problem.line == 3
    assert problem.message.startswith("this is not Python")


def test_the_line_of_a_c_source_is_the_candidates() -> None:
    text = "\n\n#include <fstream>\n"
    source = f'from kernels_db.runtime import cpp\nkernels = cpp.compile(r"""{text}""")\ndef run(x):\n    pass\n'
    (problem,) = check(source, "cpp")
    assert problem.line == 4


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "(" * 150 + "1" + ")" * 150,
        "x = " + "-" * 20_000 + "1",
        "x = a" + ".b" * 20_000,
        "x = " + "[" * 5_000,
        "x = 1" + " + 1" * 20_000,
        "if x:\n" + "".join(" " * i + "if x:\n" for i in range(1, 99)) + " " * 99 + "pass",
        "x = 1\x00",
        "\ud800",
        "x = 0x" + "f" * 9_000,
        "x = " + "9" * 9_000,
        "# coding: latin-1\nx = 1",
        "\ufeffx = 1",
        "x" * (allowed.MAX_BYTES + 1),
    ],
    ids=range(13),
)
def test_a_hostile_text_is_answered(source: str) -> None:
    problems = check(source, "cpp")
    assert problems
    assert all(isinstance(problem.line, int) and problem.message for problem in problems)


WORDS = st.sampled_from(
    [
        *HONEST_CPP.split(),
        *HONEST_TRITON.split(),
        "class",
        "lambda",
        "async",
        "await",
        "yield",
        "match",
        "del",
        "with",
        ":=",
        "**",
        "@",
        "...",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(max_size=300), st.lists(WORDS, max_size=40).map(" ".join), st.lists(WORDS, max_size=40).map("\n".join)
    )
)
@example("def run(): pass\nkernels = cpp.compile()")
@example("from kernels_db.runtime import cpp\nkernels = cpp.compile()\ndef run(): pass")
@example("from kernels_db.runtime import cpp\na, b = cpp.compile('')\ndef run(): pass")
@example("import triton\n@triton.jit\ndef run(): pass")
@example("try:\n    pass\nexcept:\n    pass")
def test_any_text_gets_a_list_of_problems(text: str) -> None:
    for language in allowed.LANGUAGES:
        problems = check(text, language, ["torch.mm"], ["x"])
        assert isinstance(problems, list)
        assert all(isinstance(problem, Problem) for problem in problems)


SNIPPETS = [
    ast.unparse(node)
    for source in (HONEST_CPP, HONEST_TRITON, HONEST_CUDA)
    for node in ast.walk(ast.parse(source))
    if isinstance(node, (ast.stmt, ast.expr))
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(SNIPPETS), max_size=6), st.lists(st.sampled_from(SNIPPETS), max_size=6))
def test_any_mix_of_python_gets_a_list_of_problems(module: list[str], body: list[str]) -> None:
    indented = "\n".join(f"    {line}" for part in body for line in part.splitlines())
    for language in allowed.LANGUAGES:
        assert isinstance(check("\n".join(module) + f"\ndef run(x):\n{indented}\n    pass\n", language), list)


C_WORDS = st.sampled_from(
    [
        *[
            "#define",
            "#include",
            "#if",
            "#elif",
            "#pragma",
            "#error",
            "#embed",
            "##",
            "#",
            "%:",
            "%:%:",
            "(",
            ")",
            "{",
            "}",
            "<",
            ">",
            '"',
            "\\",
            "\n",
            ",",
            ";",
            "//",
            "/*",
            "*/",
            'R"(',
            ')"',
        ],
        *[
            "_Pragma",
            "__has_include",
            "__has_include(",
            "asm",
            "__asm__",
            "omp",
            "<cmath>",
            "<cuda/barrier>",
            '"x.h"',
            "a",
            "b",
            "extern",
            '"C"',
            "void",
            "f",
        ],
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(C_WORDS, max_size=40).map(" ".join), st.lists(C_WORDS).map("".join)))
def test_any_c_text_gets_a_list_of_problems(text: str) -> None:
    for language in ("cpp", "cuda"):
        found = source_problems(text, language, 7)
        assert all(problem.line >= 7 and problem.message for problem in found)


def test_the_gate_needs_the_standard_library_alone() -> None:
    script = (
        "import sys; from warpsmith.workers.gate import gate, normalise, sources\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded - sys.stdlib_module_names - {'warpsmith', '__main__'}))"
    )
    # -S leaves out what the environment's own start-up files import.
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(IMPORT_ROOT)},
    )
    assert done.stdout.strip() == "[]"
