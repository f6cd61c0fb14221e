"""The gate on launches: that there is one, and that what it passes fits the kernel, where the text can tell."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.gate import Problem, check
from warpsmith.workers.gate.kinds import BOOL, FLOAT, INT, INTS, NONE, NUMBER, TENSOR, UNKNOWN, UNSET, Kind, joined

PARAMETERS = ["x", "y", "eps", "count", "out"]
KINDS = {"x": "float32", "y": "float16", "eps": "float", "count": "int", "out": "float32"}

CPP = '''
import math
import torch
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add(const float* x, float* out, int64_t n, float eps, bool exact) {}
extern "C" void half(const uint16_t* y, float* out, int64_t n) {}
extern "C" void any(const void* p) {}
""")
SIZES = (16, 32)
TILE = 64


def blocks(n, tile=TILE):
    return (n + tile - 1) // tile


def pair(a):
    return a, a


def launch_half(t, out, n):
    kernels.half(t, out, n)


def run(x, y, eps, count, out):
    n = out.numel()
    BODY
'''
CUDA = '''
import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void add(const float* x, float* out, int n, float eps) {}
extern "C" __global__ void tiled(const __grid_constant__ CUtensorMap map, float* out) {}
""")


def run(x, y, eps, count, out):
    n = out.numel()
    BODY
'''
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def plain(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = True):
    pass


@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    pass


def run(x, y, eps, count, out):
    n = out.numel()
    BODY
"""
GLUON = (
    TRITON.replace("triton.language as tl", "triton.experimental.gluon as gluon")
    .replace("@triton.jit", "@gluon.jit")
    .replace("tl.constexpr", "gluon.language.constexpr")
)
CUTE = """
import torch
import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl


@cute.kernel
def scaled(x: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr):
    pass


@cute.jit
def launch_scaled(x: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr, factor: cutlass.Constexpr = 2):
    scaled(x, out, n).launch(grid=[1, 1, 1], block=[32, 1, 1])


launch = cutedsl.compile(launch_scaled)


def run(x, y, eps, count, out):
    n = out.numel()
    BODY
"""
TILELANG = """
import tilelang.language as T
from kernels_db.runtime import tilelang

N = T.dynamic("n")


@T.prim_func
def scaled(x: T.Tensor((N,), "float32"), out: T.Tensor((N,), "float32"), factor: T.float32):
    with T.Kernel(T.ceildiv(N, 128), threads=128) as block:
        for i in T.Parallel(128):
            out[block * 128 + i] = x[block * 128 + i] * factor


launch = tilelang.compile(scaled)


def run(x, y, eps, count, out):
    n = out.numel()
    BODY
"""
SOURCES = {"cpp": CPP, "cuda": CUDA, "triton": TRITON, "gluon": GLUON, "cute": CUTE, "tilelang": TILELANG}


def problems(language: str, body: str) -> list[Problem]:
    """What the gate says of `body` in the candidate of a language."""
    source = SOURCES[language].replace("BODY", body.replace("\n", "\n    "))
    return check(source, language, (), PARAMETERS, ["eps", "count"], KINDS)


ADD = "kernels.add(x, out, n, eps, True)"


@pytest.mark.parametrize(
    ("language", "body", "said"),
    [
        ("cpp", "pass", "run launches nothing: expected at least one launch of a kernel of yours, such as kernels.N"),
        ("cuda", "pass", "such as kernels.NAME[grid, block]("),
        ("triton", "pass", "such as kernel[grid]("),
        ("cpp", f"return\n{ADD}", "run launches nothing"),
        ("cpp", f"if False:\n    {ADD}", "run launches nothing"),
        ("cpp", f"while 0:\n    {ADD}", "run launches nothing"),
        ("cpp", f"raise ValueError('no')\n{ADD}", "run launches nothing"),
        ("cpp", "blocks(n)", "run launches nothing"),
        ("cpp", "kernels.add(x, out, n, eps)", "add takes 5 arguments (x, out, n, eps, exact), found 4"),
        ("cpp", "kernels.add(x, out, n, eps, True, 1)", "found 6"),
        ("cuda", "kernels.add[1, 1](x, out, n)", "add takes 4 arguments (x, out, n, eps), found 3"),
        ("cuda", "kernels.add.launch(1, 1, x, out, n, shared_bytes=0)", "found 3"),
        ("cpp", "kernels.add(n, out, n, eps, True)", "parameter 'x' (float*) of 'add': found `n`, an int, expected"),
        ("cpp", "kernels.add(eps, out, n, eps, True)", "found `eps`, a float, expected a tensor"),
        ("cpp", "kernels.add(x.shape, out, n, eps, True)", "found `x.shape`, a shape, expected a tensor"),
        ("cpp", "kernels.add(x.data_ptr(), out, n, eps, True)", "expected a tensor: pass the tensor itself"),
        ("cpp", "kernels.add(x, out, x, eps, True)", "parameter 'n' (int64_t) of 'add': found `x`, a tensor"),
        ("cpp", "kernels.add(x, out, n / 2, eps, True)", "found `n / 2`, a float, expected an int: `//`"),
        ("cpp", "kernels.add(x, out, eps, eps, True)", "found `eps`, a float, expected an int"),
        ("cpp", "kernels.add(x, out, math.sqrt(n), eps, True)", "a float, expected an int"),
        ("cpp", "kernels.add(x, out, None, eps, True)", "found `None`, None, expected an int"),
        ("cpp", "kernels.add(x, out, n, x, True)", "a tensor of float32, expected a number"),
        ("cpp", "kernels.add(x, out, n, 'fast', True)", "a string, expected a number"),
        ("cpp", "kernels.add(x, out, n, eps, 0.5)", "parameter 'exact' (bool) of 'add': found `0.5`, a float"),
        ("cpp", "kernels.add(x, out, n, eps, x)", "expected a bool"),
        ("cpp", "kernels.add(y, out, n, eps, True)", "found `y`, a tensor of float16, expected a tensor of float32"),
        ("cpp", "kernels.half(x, out, n)", "a tensor of float32, expected a tensor of bfloat16 or float16 or uint16"),
        ("cpp", "t = torch.empty(n, dtype=torch.int32)\nkernels.add(t, out, n, eps, True)", "a tensor of int32"),
        ("cpp", "t = torch.empty(n)\nkernels.half(t, out, n)", "a tensor of float32"),
        ("cpp", "t = torch.empty_like(y).view(-1)[1:]\nkernels.add(t, out, n, eps, True)", "a tensor of float16"),
        ("cpp", "t = x.view(torch.int32)\nkernels.add(t, out, n, eps, True)", "a tensor of int32"),
        ("cpp", "launch_half(x, out, n)", "a tensor of float32"),
        ("cpp", f"for i in range(n):\n    kernels.add(i, out, n, eps, True)\n{ADD}", "found `i`, an int"),
        ("cpp", f"if n > 3:\n    kernels.add(x, out, x, eps, True)\n{ADD}", "found `x`, a tensor"),
        ("cuda", "kernels.tiled[1, 32](x, out)", "a tensor of float32, expected a tensor map: cuda.te"),
        ("cuda", "kernels.add[1, 32](cuda.tensor_map(x, (8, 8)), out, n, eps)", "a tensor map, expected a tensor"),
        ("gluon", "pass", "such as kernel[grid]("),
        ("cute", "pass", "such as launch(x, out) with launch = cutedsl.compile(function)"),
        ("cute", "launch(x, out)", "launch_scaled takes (x, out, n, factor), found no n"),
        ("cute", "launch(x, out, n, 2, 3)", "launch_scaled takes 4 arguments (x, out, n, factor), found 5"),
        ("cute", "launch_scaled(x, out, n)", "expected a call of what `cutedsl.compile(launch_scaled)` gives"),
        ("cute", "scaled[(1,)](x, out, n)", "a launch of `scaled` is not allowed"),
        ("cute", "launch(x, out, n=n)", "keyword 'n' is not allowed"),
        ("tilelang", "pass", "such as launch(x, out) with launch = tilelang.compile(function)"),
        ("tilelang", "launch(x, out)", "scaled takes (x, out, factor), found no factor"),
        ("tilelang", "launch(x, out, eps, 3)", "scaled takes 3 arguments (x, out, factor), found 4"),
        ("tilelang", "scaled(x, out, eps)", "expected a call of what `tilelang.compile(scaled)` gives"),
        ("tilelang", "scaled[(1,)](x, out, eps)", "a launch of `scaled` is not allowed"),
        ("tilelang", "launch(x, out, factor=eps)", "keyword 'factor' is not allowed"),
        ("gluon", "plain[(1,)](x, out)", "plain takes (x, out, n, BLOCK, EVEN), found no n, BLOCK"),
        ("triton", "plain[(1,)](x, out)", "plain takes (x, out, n, BLOCK, EVEN), found no n, BLOCK"),
        ("triton", "plain[(1,)](x, out, n, 64, True, 1)", "plain takes 5 arguments (x, out, n, BLOCK, EVEN), found 6"),
        ("triton", "plain[(1,)](x, out, n, 64, n=3)", "plain is given n twice"),
        ("triton", "tuned[(1,)](x, out, n, 64, 5)", "tuned takes 4 arguments"),
    ],
)  # fmt: skip
def test_a_launch_that_does_not_fit_is_refused_with_what_would(language: str, body: str, said: str) -> None:
    found = problems(language, body)
    assert found, body
    assert said in found[0].message, found
    source = SOURCES[language]
    first = source[: source.index("def run")].count("\n") + 1
    helper = source.find("kernels.half(t, out, n)")
    inside = [source[:helper].count("\n") + 1] if helper > 0 else []
    assert all(problem.line >= first or problem.line in inside for problem in found)


@pytest.mark.parametrize(
    ("language", "body"),
    [
        ("cpp", ADD),
        ("cpp", "kernels.add(None, out, True, 1, n > 3)"),
        ("cpp", "kernels.add(x, out, blocks(n), count, count)"),
        ("cpp", "kernels.add(x, out, SIZES[0] * TILE, math.floor(eps), False)"),
        ("cpp", "kernels.add(x.view(-1)[1:], out.T, x.shape[0] - 1, eps if n else 1, bool(n))"),
        ("cpp", "a, b = x.shape\nkernels.add(x, out, a * b // 2, 1.0 / b, True)"),
        ("cpp", "t = x\nt = pair(x)[0]\nkernels.add(t, out, n, eps, True)"),
        ("cpp", "args = (x, out, n, eps, True)\nkernels.add(*args)"),
        ("cpp", "for i in range(3):\n    for size in x.shape:\n        kernels.add(x, out, size + i, eps, True)"),
        (
            "cpp",
            "if x.dtype == torch.float16:\n    kernels.half(x, out, n)\nelse:\n    kernels.add(x, out, n, eps, True)",
        ),
        (
            "cpp",
            "if x.dtype == torch.float16:\n    kernels.half(x, out, n)\n    return\nkernels.add(y, out, n, eps, True)",
        ),
        ("cpp", "t = x if n > 3 else y\nkernels.half(t, out, n)"),
        ("cpp", "t = torch.empty(n, dtype=x.dtype)\nkernels.add(t, out, n, eps, True)"),
        ("cpp", "t = torch.full((n,), 1)\nkernels.half(t, out, n)"),
        ("cpp", "launch_half(y.view(torch.int16).view(torch.uint16), out, n)"),
        ("cpp", "launch_half(y, out=out, n=count)"),
        ("cpp", "kernels.any(x)\nkernels.any(y)"),
        ("cpp", "s = n\ns = s * 0.5\nkernels.add(x, out, s, eps, True)"),  # an int or a float: no telling
        ("cuda", "kernels.add[(n + 255) // 256, 256](x, out, n, eps)"),
        ("cuda", "kernels.add.launch((n, 1), 32, x, out, n, 2, shared_bytes=99, cluster=2)"),
        ("cuda", "m = cuda.tensor_map(x, (8, 8))\nkernels.tiled[1, 32](m, out)"),
        ("gluon", "plain[(1,)](x, out, n, 64, num_warps=4)"),
        ("cute", "launch(x, out, n)"),
        ("cute", "launch(*(x, out), 2 * n, eps)"),
        ("tilelang", "launch(x.view(-1), out.view(-1), eps)"),
        ("triton", "plain[(1,)](x, out, n, 64)"),
        ("triton", "plain[lambda meta: (n,)](x, out, n=n, BLOCK=64, num_warps=4)"),
        ("triton", "tuned[(1,)](x, out, n)"),
        ("triton", "a = (x, out)\nplain[(1,)](*a, n, 64)"),
        ("cpp", f"if n > 3:\n    return\n{ADD}"),
        ("cpp", f"while n > 3:\n    n = n - 1\n    if n == 5:\n        {ADD}\n        break"),
    ],
)
def test_an_honest_launch_passes(language: str, body: str) -> None:
    assert problems(language, body) == []


def test_an_ops_library_calls_count_as_launches() -> None:
    source = "import torch\n\ndef run(x, w, out):\n    t = torch.mm(x, w)\n"
    assert check(source, "cpp", ["torch.mm"]) == []
    assert "launches nothing" in check("def run(x):\n    t = x.view(-1)\n", "cpp", ["torch.mm"])[0].message


def test_the_arity_of_run_is_named() -> None:
    source = CPP.replace("def run(x, y, eps, count, out)", "def run(x, y, out)").replace("BODY", "pass")
    (problem,) = check(source, "cpp", (), PARAMETERS)
    assert "run takes 3 parameters (x, y, out), expected 5 (x, y, eps, count, out)" in problem.message


def test_a_dtype_that_is_not_known_is_not_held_against_a_launch() -> None:
    source = CPP.replace("BODY", "kernels.half(x, x, n)")
    assert check(source, "cpp", (), PARAMETERS, ["eps", "count"]) == []
    assert check(source, "cpp") == []


ANY = st.sampled_from([UNSET, UNKNOWN, TENSOR, Kind("tensor", "float32"), INT, FLOAT, NUMBER, BOOL, NONE, INTS])


@given(ANY, ANY, ANY)
def test_joining_is_a_lattice(a: Kind, b: Kind, c: Kind) -> None:
    assert joined(a, b) == joined(b, a)
    assert joined(a, a) == a
    assert joined(UNSET, a) == a
    assert joined(UNKNOWN, a) == UNKNOWN
    if "None" not in (a.word, b.word, c.word):  # with None a tensor stays one, whatever comes third
        assert joined(joined(a, b), c) == joined(a, joined(b, c))


STATEMENTS = [
    ast.unparse(node)
    for source in (CPP, CUDA, TRITON)
    for node in ast.walk(ast.parse(source.replace("BODY", ADD if source is CPP else "pass")))
    if isinstance(node, (ast.stmt, ast.expr)) and not isinstance(node, ast.FunctionDef)
]
MORE = [
    "n = n / 2",
    "n += eps",
    "x = y",
    "kernels.add(n, x)",
    "kernels.add(*x)",
    "kernels.add[n](x)",
    "t = (x, n)",
    "a, (b, *c) = x.shape, n",
    "for n in x:\n    pass",
    "t = [n for n in x.shape]",
    "n = blocks(n, tile=x)",
    "blocks(*x)",
    "t = blocks",
    "return n",
    "if n:\n    return x",
    "kernels.add.launch()",
    "plain[(1,)]()",
    "t = n if x is None else y",
    "t = x.view()",
    "t = x.view(dtype=torch.int32)",
    "t = min()",
    "t = -x",
    "t = n ** n",
    "t = kernels.missing(1)",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS + MORE), max_size=8), st.sampled_from(allowed.LANGUAGES))
def test_any_body_is_answered(body: list[str], language: str) -> None:
    found = problems(language, "\n".join([*body, "pass"]))
    assert all(isinstance(problem, Problem) and problem.line > 0 for problem in found)
