"""The dtypes of tensors: their names, their bytes, and which are floating."""

from __future__ import annotations

from collections.abc import Mapping

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""The dtypes a tensor may have, by torch's names, and the bytes of one element."""


def is_float(dtype: str) -> bool:
    """Check whether `dtype` names a floating-point type."""
    return "float" in dtype
