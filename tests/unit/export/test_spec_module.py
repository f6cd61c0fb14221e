"""How an exported package binds a call's axes: as its spec says, also where an axis is in no input's shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warpsmith.kernels_db.export.spec_module import _bind_axes
from warpsmith.kernels_db.spec.op import parse_op


def bind(derived: str, *shape: int) -> Any:
    """The axes of a call of an op whose input has the derived axis alone."""
    op = parse_op(
        {
            "schema_version": 1,
            "name": "halves",
            "axes": {
                "tokens": {"kind": "var"},
                "hidden": {"kind": "var"},
                "heads": {"kind": "const", "value": 3},
                "packed": {"kind": "expr", "expr": derived},
            },
            "inputs": [{"name": "x", "shape": ["tokens", "packed"], "dtype": "float32"}],
            "outputs": [{"name": "y", "shape": ["tokens", "hidden"], "dtype": "float32"}],
            "reference": "def run(x):\n    return x\n",
            "workloads": [{"id": "one", "role": "bench", "axes": {"tokens": 2, "hidden": 8}}],
        }
    )
    space: dict[str, Any] = {}
    exec("\n".join(["def bind_axes(x):", *_bind_axes(op)]), space)
    return space["bind_axes"](SimpleNamespace(shape=shape, dim=lambda: len(shape)))


@pytest.mark.parametrize(
    ("derived", "size", "hidden"), [("2 * hidden", 128, 64), ("heads * hidden + 1", 16, 5), ("hidden - 1", 1, 2)]
)
def test_an_axis_is_found_from_one_that_depends_on_it(derived: str, size: int, hidden: int) -> None:
    assert bind(derived, 4, size) == {"tokens": 4, "hidden": hidden, "heads": 3, "packed": size}


@pytest.mark.parametrize(
    ("derived", "size", "told"),
    [
        ("2 * hidden", 127, "x.shape[1] is 127, expected 2 * hidden for some hidden"),
        ("2 * hidden", 0, "x.shape[1] is 0, expected 2 * hidden for some hidden"),
        ("hidden * hidden", 16, "x.shape[1] is 16, expected"),
        ("hidden // hidden", 1, "x.shape[1] is 1, expected hidden // hidden for some hidden"),
    ],
)
def test_a_size_that_no_axis_gives_is_told(derived: str, size: int, told: str) -> None:
    found = bind(derived, 4, size)
    assert isinstance(found, str)
    assert told in found


def test_an_axis_that_nothing_depends_on_stays_unknown() -> None:
    assert "stands in no input's shape" in bind("heads * 2", 4, 6)
