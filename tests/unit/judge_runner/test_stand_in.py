"""Names of a language's package in a runner whose builds came with the job: taken by the file, told to nobody."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from warpsmith.kernels_db.runtime.cutedsl_build import NOT_CARRIED
from warpsmith.kernels_db.runtime.errors import HostError
from warpsmith.workers.judge.runner.stand_in import Name


def test_names_are_asked_for_called_and_indexed_and_a_decorated_function_stays_itself() -> None:
    package = Name()
    assert package.Float32 is package.Float32
    assert package.Float32 is not package.Int32

    def kernel() -> None: ...

    assert package.jit(kernel) is kernel
    assert isinstance(package.Tensor[4, package.Float32] | None, Name)
    assert isinstance(package.cute.make_layout(4, stride=1), Name)


@pytest.mark.parametrize(
    "told",
    [
        lambda one: one.Float32 == one.Int32,
        lambda one: one.Float32 != one.Int32,
        lambda one: one.WARP_SIZE < 64,
        lambda one: max(one.WARP_SIZE, 16),
        lambda one: 4 * one.WARP_SIZE,
        lambda one: one.WARP_SIZE // 2,
        lambda one: -one.WARP_SIZE,
        lambda one: [0, 1][one.WARP_SIZE],
        lambda one: {one.Float32: 0},
        lambda one: 3 in one.Float32,
        lambda one: "yes" if one.Float32 else "no",
        lambda one: list(one.Float32),
        lambda one: len(one.Float32),
        lambda one: f"{one.Float32}",
        lambda one: str(one.Float32),
        lambda one: repr(one.Float32),
        lambda one: int(one.WARP_SIZE),
        lambda one: range(one.WARP_SIZE),
        lambda one: operator.index(one.WARP_SIZE),
    ],
)
def test_what_would_tell_a_name_or_compute_with_it_is_the_hosts_fault(told: Callable[[Any], Any]) -> None:
    with pytest.raises(HostError, match=NOT_CARRIED):
        told(Name())
