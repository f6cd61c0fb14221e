"""Sizes that a file sets at its top, read and replaced by its syntax."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.file_sizes import sizes_of, with_sizes

TEXT = """import os

batch = 128  # of a call
wide, high = 2 * 16, 7
side = other = 64
shape = (batch, 32, 5)
eps = 0.5
flag = True
twice = 1
twice = 2
one = 1
huge = 1 << 40


def function():
    inner = 9
"""


def test_whole_numbers_that_are_set_once_at_the_top_are_sizes() -> None:
    assert sizes_of(TEXT) == {"batch": 128, "wide": 32, "high": 7, "side": 64, "shape[1]": 32, "shape[2]": 5}
    assert sizes_of("not python (") == {}


def test_numbers_are_replaced_where_they_are_set() -> None:
    changed = with_sizes(TEXT, {"batch": 4, "wide": 3, "shape[2]": 1, "side": 8})
    namespace: dict[str, Any] = {}
    exec(changed, namespace)
    assert {name: namespace[name] for name in ("batch", "wide", "high", "side", "other", "shape")} == {
        "batch": 4,
        "wide": 3,
        "high": 7,
        "side": 8,
        "other": 8,
        "shape": (4, 32, 1),
    }
    assert "# of a call" in changed
    assert namespace["twice"] == 2


def test_a_name_that_is_no_size_is_told() -> None:
    with pytest.raises(ValueError, match="sizes: found 'eps', expected one of batch, wide"):
        with_sizes(TEXT, {"eps": 4})


def test_lines_that_end_otherwise_are_not_changed_in_the_wrong_place() -> None:
    windows = TEXT.replace("\n", "\r\n")
    assert sizes_of(with_sizes(windows, {"batch": 5})) == sizes_of(TEXT) | {"batch": 5}
    with pytest.raises(ValueError, match="found lines that end in another way"):
        with_sizes("first = 3\rsecond = 44\r", {"second": 5})


NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.integers(0, 2**33) | st.tuples(st.integers(0, 99), st.integers(0, 99))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.text(alphabet="é# x\t", max_size=5), st.integers(0, 10**6))
def test_whatever_is_replaced_nothing_else_changes(lines: list[tuple[str, Any]], said: str, number: int) -> None:
    text = "".join(f"{name} = {value!r}  # {said}\n" for name, value in lines)
    for name in sizes_of(text):
        changed = with_sizes(text, {name: number})
        assert changed.count("\n") == text.count("\n")
        expected = sizes_of(text) | {name: number}
        assert sizes_of(changed) == {name: size for name, size in expected.items() if size > 1}
