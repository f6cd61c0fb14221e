"""The numbers with which a candidate's host code compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.compared_numbers import MOST_BITS, compared_numbers

CANDIDATE = """
import triton
import triton.language as tl

WIDE = 1 << 12
TILE, OTHER = 5, 6
HALF = WIDE // 2


@triton.jit
def double(x, y, n: tl.constexpr):
    if n > 99:
        pass


def _blocks(n):
    return 3 if n <= HALF else 4


def run(a, y):
    n = a.shape[1]
    rows = min(n, 2112)
    if 16 <= n < WIDE and n % 64 == 0 and n * rows != 10 * 10:
        double[_blocks(n), 7](a, y, n)
    while rows > TILE or n is True:
        rows //= 2
"""


def test_comparisons_minima_and_named_constants_of_host_code_count() -> None:
    assert compared_numbers(CANDIDATE) == [16, 100, 2048, 2112, 4096]


@pytest.mark.parametrize(
    "line",
    ["if n < 1 << 400: pass", "if n < 2 ** 2 ** 2 ** 2 ** 2: pass", "if n // (4 // 0): pass", "if n < 0x", "\0"],
)
def test_what_is_no_size_or_no_python_gives_nothing(line: str) -> None:
    assert compared_numbers(line) == []


def test_deep_nesting_gives_nothing_and_does_not_fail() -> None:
    assert compared_numbers("x = " + "(" * 5000 + "1" + ")" * 5000) == []
    for length in (300, 990, 20000):
        assert compared_numbers("if n < " + "+".join(["1"] * length) + ": pass") in ([], [length])


@given(st.text(max_size=200))
def test_any_text_gives_rising_sizes(text: str) -> None:
    found = compared_numbers(text)
    assert found == sorted(set(found))
    assert all(0 < number < 1 << MOST_BITS for number in found)


@given(st.integers(1, 1 << 40), st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
def test_either_side_counts(number: int, how: str) -> None:
    assert compared_numbers(f"def run(n):\n    return n {how} {number}") == [number]
    assert compared_numbers(f"def run(n):\n    return {number} {how} n") == [number]
