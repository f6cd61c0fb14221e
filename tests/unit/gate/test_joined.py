"""Several candidates in one file, chosen by size."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from warpsmith.workers.gate import check
from warpsmith.workers.gate.joined import Choice, Part, Unjoinable, choose_by_size, join

ONE = '''"""The first."""
import torch
import triton
import triton.language as tl

TUNE = {"BLOCK": [256, 512]}
BLOCK = 512  # of a program


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2.0 * tl.load(x + i, i < n), i < n)


def run(x, y):
    n = x.numel()
    scale[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
'''
TWO = """import triton
import triton.language as tl

SMALL = 64


@triton.jit
def scale(x, y, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, 2.0 * tl.load(x + i, i < n), i < n)


def blocks(n):
    return triton.cdiv(n, SMALL)


def run(x, y):
    scale[(blocks(x.numel()),)](x, y, x.numel(), SIZE=SMALL)
"""
BY_ROWS = Choice("x.shape[0]", ((724, 7), (None, 3)))


def workload(name: str, *shape: int, other: tuple[int, ...] | None = None) -> dict[str, Any]:
    """A resolved workload with one input and one output."""
    return {
        "id": name,
        "inputs": [{"name": "x", "shape": list(shape)}, {"name": "scale", "shape": None}],
        "outputs": [{"name": "y", "shape": list(other or shape)}],
    }


def test_a_join_passes_the_gate_and_keeps_both_kernels_as_they_were_written() -> None:
    source = join([Part(3, ONE), Part(7, TWO)], BY_ROWS, "triton")
    assert check(source, "triton", (), ["x", "y"]) == []
    assert "def scale_3(x, y, n, BLOCK: tl.constexpr):" in source
    assert "scale_3[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)" in source
    assert "scale_7[(blocks(x.numel()),)]" in source
    assert "BLOCK = 512  # of a program" in source
    assert source.count("import triton.language as tl") == 1
    assert "TUNE" not in source, "its numbers were chosen"
    assert source.endswith(
        "def run(x, y):\n    if x.shape[0] <= 724:\n        run_7(x, y)\n    else:\n        run_3(x, y)\n"
    )


def test_locals_and_keywords_of_a_clashing_name_stay() -> None:
    one = "import triton\nSIZE = 4\n\n\ndef run(x, y):\n    k[1](x, SIZE=SIZE)\n"
    two = (
        "import triton\nSIZE = 8\n\n\ndef helper(SIZE):\n    return SIZE\n\n\ndef run(x, y):\n    k[helper(SIZE)](x)\n"
    )
    source = join([Part(3, one), Part(7, two)], BY_ROWS, "triton")
    assert "k[1](x, SIZE=SIZE_3)" in source
    assert "def helper(SIZE):\n    return SIZE\n" in source
    assert "k[helper(SIZE_7)](x)" in source
    assert "SIZE_3 = 4" in source
    assert "SIZE_7 = 8" in source


def test_three_parts_and_sources_in_c_are_not_touched() -> None:
    def part(number: int) -> Part:
        text = f'from kernels_db.runtime import cpp\nkernels = cpp.compile(r"""// run kernels {number}\n""")\n\n\n'
        return Part(number, text + "def run(x, y):\n    kernels.f(x, y, x.numel())\n")

    choice = Choice("x.numel()", ((10, 1), (20, 2), (None, 3)))
    source = join([part(1), part(2), part(3)], choice, "cpp")
    ast.parse(source)
    assert [f"// run kernels {number}\n" in source for number in (1, 2, 3)] == [True] * 3
    assert "    elif x.numel() <= 20:\n        run_2(x, y)\n" in source
    assert choice.describe() == "#1 up to x.numel() = 10, #2 up to x.numel() = 20, then #3"


@pytest.mark.parametrize(
    ("one", "two", "language", "told"),
    [
        ("def run(x:\n", TWO, "triton", "#3 is not Python"),
        ("if True:\n    pass\n\n\ndef run(x, y):\n    pass\n", TWO, "triton", "#3 has a If in line 1"),
        ("import tl\n\n\ndef run(x, y):\n    pass\n", TWO, "triton", "the name 'tl' is imported"),
        ("triton = 3\n\n\ndef run(x, y):\n    pass\n", TWO, "triton", "the name 'triton' is imported"),
        ("A = 1; B = 2\n\n\ndef run(x, y):\n    pass\n", TWO, "triton", "two statements in line 1"),
        ("def run(x):\n    pass\n", TWO, "triton", "other parameters"),
        ("A = 1\n", TWO, "triton", "has 0 functions `run`"),
        ("run_7 = 1\n\n\ndef run(x, y):\n    pass\n", TWO, "triton", "cannot be told apart"),
        (ONE, TWO, "python", "are not read"),
    ],
)
def test_what_makes_no_file_together_says_why(one: str, two: str, language: str, told: str) -> None:
    with pytest.raises(Unjoinable, match=r".*".join(told.split())):
        join([Part(3, one), Part(7, two)], BY_ROWS, language)


def test_the_choice_has_the_fewest_changes_and_lies_between_the_sizes() -> None:
    bench = [workload("decode", 64, 8192), workload("chunk", 512, 8192), workload("prefill", 8192, 8192)]
    assert choose_by_size(bench, {"decode": 7, "chunk": 7, "prefill": 3}) == Choice(
        "x.shape[0]", ((2048, 7), (None, 3))
    )
    assert choose_by_size(bench, {"decode": 7, "chunk": 3, "prefill": 7}) == Choice(
        "x.shape[0]", ((181, 7), (2048, 3), (None, 7))
    )


def test_a_count_of_elements_tells_apart_what_no_dimension_does() -> None:
    bench = [workload("a", 4, 10), workload("b", 10, 4), workload("c", 10, 10)]
    assert choose_by_size(bench, {"a": 1, "b": 1, "c": 2}).quantity == "x.numel()"


def test_an_output_tells_apart_what_no_input_does() -> None:
    bench = [workload("a", 8, other=(2,)), workload("b", 8, other=(4,))]
    assert choose_by_size(bench, {"a": 1, "b": 2}) == Choice("y.shape[0]", ((2, 1), (None, 2)))


def test_workloads_of_one_size_are_not_told_apart() -> None:
    with pytest.raises(Unjoinable, match="no size of a tensor"):
        choose_by_size([workload("a", 8), workload("b", 8)], {"a": 1, "b": 2})


def test_tensors_of_another_rank_on_each_workload_are_passed_over() -> None:
    bench = [workload("a", 8, 2, other=(1,)), workload("b", 8, other=(2,))]
    assert choose_by_size(bench, {"a": 1, "b": 2}).quantity == "y.shape[0]"


def test_defaults_and_annotations_are_read_among_the_modules_names() -> None:
    helper = "def helper(n, BLOCK: tl.constexpr = BLOCK):\n    return n // BLOCK\n\n\n"
    parts = [Part(7, ONE.replace("def run", helper + "def run")), Part(3, TWO.replace("SMALL", "BLOCK"))]
    made = join(parts, BY_ROWS, "triton")
    assert "def helper(n, BLOCK: tl.constexpr = BLOCK_7):\n    return n // BLOCK" in made


def test_positional_parameters_are_parameters() -> None:
    parts = [Part(7, ONE.replace("run(x, y)", "run(x, y, /)")), Part(3, TWO)]
    assert "def run(x, y):" in join(parts, BY_ROWS, "triton")


def test_blank_lines_within_texts_stay() -> None:
    text = 'NOTE = """a\n\n\n\n\nb"""\n\n\n'
    made = join([Part(7, ONE.replace("def run", text + "def run")), Part(3, TWO)], BY_ROWS, "triton")
    assert "a\n\n\n\n\nb" in made


def test_one_that_wins_everywhere_needs_no_choice() -> None:
    with pytest.raises(Unjoinable, match="one of them wins on every workload"):
        choose_by_size([workload("a", 4), workload("b", 8)], {"a": 3, "b": 3})
