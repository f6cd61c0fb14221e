"""Tensors in safetensors files, read without a library: a length, a JSON header, the bytes."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.spec.basic_types import MAX_ELEMENTS, MAX_RANK

MOST_BYTES = 64 * 1024
"""Of one tensor: its values become part of the spec."""

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}

_SOURCE = '''import base64

import torch

VALUES = "{values}"


def make(shape, dtype, generator):
    """The values of {key} in {path}."""
    raw = bytearray(base64.b64decode(VALUES))
    return torch.frombuffer(raw, dtype=torch.{dtype}).reshape({shape})
'''


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file."""

    dtype: str
    shape: list[int]
    data: bytes

    def source(self, path: str, key: str) -> str:
        """Return the source of a distribution that always has these values."""
        values = base64.b64encode(self.data).decode("ascii")
        named = {"path": json.dumps(path), "key": json.dumps(key)}
        named = {name: text.replace("\\", "/").replace('"""', "") for name, text in named.items()}
        return _SOURCE.format(values=values, dtype=self.dtype, shape=self.shape, **named)


def read(file: RawFile, key: str, field: str) -> StoredTensor:
    """Read the tensor `key` of a file.

    Raises SpecErrors naming `field`: no such tensor, not safetensors, too large.
    """
    header, start = _header(file, field)
    entry = header.get(key)
    if not isinstance(entry, dict):
        names = ", ".join(sorted(name for name in header if name != "__metadata__"))
        raise refused(f"{field}.tensor_key", key, f"a tensor of {file.path}: one of {names[:200] or 'none'}")
    shape, offsets, stored = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets")), entry.get("dtype")
    dtype = _DTYPES.get(stored) if isinstance(stored, str) else None
    if dtype is None:
        raise refused(field, f"{key} of dtype {stored!r}", f"one of {', '.join(_DTYPES)}")
    if shape is None or offsets is None or len(offsets) != 2 or len(shape) > MAX_RANK:
        raise refused(
            field, json.dumps({key: entry}), f"a shape and two data_offsets, lists of sizes of at most {MAX_ELEMENTS}"
        )
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    data = file.data[start + offsets[0] : start + offsets[1]]
    if size > MOST_BYTES:
        raise refused(field, f"{key}: {size} bytes", f"at most {MOST_BYTES} bytes: its values become part of the spec")
    if len(data) != size:
        raise refused(field, f"{key}: {len(data)} bytes for {shape} of {dtype}", f"{size} bytes within the file")
    return StoredTensor(dtype, shape, data)


def _sizes(value: Any) -> list[int] | None:
    """Return the value where it is a list of plausible sizes."""
    fits = isinstance(value, list) and all(type(number) is int and 0 <= number <= MAX_ELEMENTS for number in value)
    return value if fits else None


def _header(file: RawFile, field: str) -> tuple[dict[str, Any], int]:
    if file.data.startswith(b"version https://git-lfs"):
        raise refused(field, f"{file.path}, a Git LFS pointer", "the file itself (git lfs pull)")
    length = int.from_bytes(file.data[:8], "little")
    try:
        header = json.loads(file.data[8 : 8 + length]) if 0 < length <= len(file.data) - 8 else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise refused(field, f"{file.path}, which has no readable header", "a safetensors file")
    return header, 8 + length
