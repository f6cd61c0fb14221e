"""A small op spec for tests to change."""

from __future__ import annotations

import copy
from typing import Any

SPEC: dict[str, Any] = {
    "schema_version": 1,
    "name": "scaled_add",
    "axes": {
        "tokens": {"kind": "var"},
        "hidden": {"kind": "const", "value": 16},
        "twice": {"kind": "expr", "expr": "2 * hidden"},
    },
    "constraints": ["tokens * hidden <= 2 ** 40"],
    "inputs": [
        {"name": "x", "shape": ["tokens", "twice"], "dtype": "float32", "mutated": True},
        {"name": "rows", "shape": ["tokens"], "dtype": "int64", "dist": {"kind": "randint", "high": "tokens"}},
        {"name": "m", "dtype": "float32", "value": 0.5},
    ],
    "outputs": [{"name": "y", "shape": ["tokens", 3], "dtype": "bfloat16"}],
    "reference": "def run(x, rows, m):\n    return x[rows, :3].bfloat16() * m\n",
    "limits": {"flops": "tokens * 3"},
    "workloads": [
        {"id": "decode", "role": "bench", "axes": {"tokens": 64}},
        {"id": "ragged", "role": "test", "axes": {"tokens": 1021}, "inputs": {"m": {"value": -1.5}}},
    ],
}


def spec(**fields: Any) -> dict[str, Any]:
    """A copy of SPEC with other values for some fields."""
    return copy.deepcopy(SPEC | fields)
