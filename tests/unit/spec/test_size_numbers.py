"""The numbers of a candidate at which it may take another way for another size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.native_numbers import MOST_BITS, Found, SizeNumbers, native_numbers
from warpsmith.kernels_db.job.size_numbers import size_numbers

CANDIDATE = """
import triton
import triton.language as tl

WIDE = 1 << 12
TILE, OTHER = 5, 6
HALF = WIDE // 2


@triton.jit
def double(x, y, n: tl.constexpr):
    i = tl.arange(0, 128).to(tl.uint8)
    if n > 99 or n & 31 == 7:
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


def test_comparisons_and_bounds_of_host_code_and_kernels_count_constants_by_their_names() -> None:
    numbers = size_numbers(CANDIDATE)
    assert numbers.compared == (7, 16, 99, 100, 2048, 2112, 4096)
    assert {128, 256} <= set(numbers.used)
    assert numbers.moduli == (32, 64)
    assert numbers.factors == (2,)


NATIVE = r"""
#define WIDE (1 << 12) // n > 901
#define ROWS (WIDE / 2 + 0x10)
/* if (n > 902) */
static const char* said = "n > 903";
constexpr int64_t TILE = 3 * 16, PAIR = 2 * TILE;
enum { FEW = 0b101, MANY = 1'000 };
extern "C" void each(const float* x, float* y, int64_t rows, int64_t n) {
    float kept[TILE + 1];
    if (n > 100 && WIDE >= n) return;
    for (int64_t r = 0; r < ROWS; r += 8) y[r] = x[r] < 0.5f ? 20.0f : 1e-5;
    if (n % 64 == 37 || rows / PAIR > FEW) y[0] = n < int64_t(MANY) * 3ull;
    const uint16_t at = std::min<int64_t>(rows, 2112) >> 5;
    switch (at & 15) { case 9: y[at] = rows < 1e6 ? -7 : 1; }
}
"""


def test_native_text_is_read_by_its_tokens() -> None:
    numbers = size_numbers(f"kernels = cpp.compile(r'''{NATIVE}''')\n")
    assert numbers.compared == (5, 9, 37, 100, 2064, 2112, 3000, 4096, 1000000)
    assert {48, 49, 96, 1 << 15, 1 << 16} <= set(numbers.used)
    assert numbers.moduli == (16, 64)
    assert {32, 96} <= set(numbers.factors)
    assert not {901, 902, 903, 20} & {number for kind in numbers for number in kind}


@pytest.mark.parametrize(
    "line",
    ["if n < 1 << 400: pass", "if n < 2 ** 2 ** 2 ** 2 ** 2: pass", "if n // (4 // 0): pass", "if n < 0x", "\0"],
)
def test_what_is_no_size_or_no_python_is_compared_with_nothing(line: str) -> None:
    assert not size_numbers(line).compared


def test_deep_nesting_gives_nothing_and_does_not_fail() -> None:
    assert size_numbers("x = " + "(" * 5000 + "1" + ")" * 5000) == SizeNumbers()
    for length in (300, 990, 20000):
        assert size_numbers("if n < " + "+".join(["1"] * length) + ": pass").compared in ((), (length,))
        nested = Found()
        native_numbers("if (n < " + "(" * 900 + "77" + ")" * 900 + ") {}", nested)
        assert 77 in nested.used | nested.compared


@given(st.text(max_size=200))
def test_any_text_gives_rising_sizes(text: str) -> None:
    native = Found()
    native_numbers(text, native)
    for found in (*size_numbers(text), *native.numbers()):
        assert list(found) == sorted(set(found))
        assert all(0 < number < 1 << MOST_BITS for number in found)


NUMBERS = st.integers(1, 1 << 40)
COMPARISONS = st.sampled_from(["<", "<=", "==", "!=", ">", ">="])
SPELLINGS = st.sampled_from([str, hex, oct, bin, "{}ULL".format, "({} + 0)".format, "int64_t{{{}}}".format])


@given(NUMBERS, COMPARISONS, SPELLINGS)
def test_either_side_counts_however_it_is_spelt(number: int, how: str, spell: Callable[[int], str]) -> None:
    assert size_numbers(f"def run(n):\n    return n {how} {number}").compared == (number,)
    assert size_numbers(f"def run(n):\n    return {number} {how} n").compared == (number,)
    spelt = spell(number).replace("0o", "0")
    for condition in (f"n {how} {spelt}", f"{spelt} {how} n"):
        assert size_numbers(f"run = 'void f() {{ if ({condition}) g(); }}'").compared == (number,)
