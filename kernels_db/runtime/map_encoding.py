"""The 128 bytes of a tensor map, by CUDA's driver itself: cuda-core keeps those of its own to itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

DRIVER = "libcuda.so.1"
"""CUDA's driver, which a process with a GPU has loaded already."""
_TYPES = (
    "UINT8",
    "UINT16",
    "UINT32",
    "INT32",
    "UINT64",
    "INT64",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "BFLOAT16",
)
"""CUtensorMapDataType, in the order of its numbers."""
_SWIZZLES = (0, 32, 64, 128)
_PROMOTIONS = (0, 64, 128, 256)


def encoded(
    tensor: Any,
    element: str,
    box: Sequence[int],
    element_strides: Sequence[int] | None,
    swizzle: int,
    l2_promotion: int,
    driver: str | None = None,
) -> bytes:
    """Return the tensor map of `tensor`, its options as in `tensor_maps.tensor_map`.

    Args:
        element: the end of a CUtensorMapDataType's name, "FLOAT32" for one.
        driver: the library that encodes, where it is another than DRIVER.

    Raises:
        OSError: there is no such library. RuntimeError: the driver refuses.
    """
    size = tensor.element_size()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return encode(
        tensor.data_ptr(),
        _TYPES.index(element),
        shape[::-1],
        [stride * size for stride in reversed(strides[:-1])],
        tuple(box)[::-1],
        tuple(element_strides or (1,) * len(shape))[::-1],
        _SWIZZLES.index(swizzle),
        _PROMOTIONS.index(l2_promotion),
        driver,
    )


def encode(
    address: int,
    element: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int],
    swizzle: int,
    promotion: int,
    driver: str | None = None,
) -> bytes:
    """Return the tensor map of what lies at `address`, the innermost axis first, zeros outside of it.

    Args:
        element, swizzle, promotion: numbers of the driver's enums.
        strides: bytes, of every axis but the innermost.
        driver: the library that encodes, where it is another than DRIVER.

    Raises:
        OSError: there is no such library. RuntimeError: the driver refuses.
    """
    library = ctypes.CDLL(driver or DRIVER)
    rank = len(shape)
    room = ctypes.create_string_buffer(128 + 64)
    place = -(-ctypes.addressof(room) // 64) * 64  # the driver wants 64 bytes' alignment
    found = library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        ctypes.c_int(element),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*shape),
        (ctypes.c_uint64 * max(1, rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*steps),
        ctypes.c_int(0),  # no interleaving
        ctypes.c_int(swizzle),
        ctypes.c_int(promotion),
        ctypes.c_int(0),  # zeros outside of the tensor
    )
    if found:
        raise RuntimeError(f"cuTensorMapEncodeTiled: found status {found}, expected 0")
    return ctypes.string_at(place, 128)


def with_address(template: bytes, address: int, driver: str | None = None) -> bytes:
    """Return a tensor map with another address, as a replay makes it. Raises as `encoded` does."""
    library = ctypes.CDLL(driver or DRIVER)
    room = ctypes.create_string_buffer(128 + 64)
    place = -(-ctypes.addressof(room) // 64) * 64
    ctypes.memmove(place, template, 128)
    found = library.cuTensorMapReplaceAddress(ctypes.c_void_p(place), ctypes.c_void_p(address))
    if found:
        raise RuntimeError(f"cuTensorMapReplaceAddress: found status {found}, expected 0")
    return ctypes.string_at(place, 128)
