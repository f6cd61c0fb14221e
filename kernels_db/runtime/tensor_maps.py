"""Tensor maps: what the tensor memory accelerator (TMA, compute capability 9.0 and above) is told of a tensor."""

from __future__ import annotations

import sys
from typing import Any

from . import recording
from .calls import Argument
from .cuda_build import core
from .map_encoding import encoded

_MAP_TYPES = {
    **{name: name.upper() for name in ("uint8", "uint16", "uint32", "uint64", "int32", "int64")},
    **{name: name.upper() for name in ("float16", "float32", "float64", "bfloat16")},
    **dict.fromkeys(("int8", "bool", "float8_e4m3fn", "float8_e5m2"), "UINT8"),
    "int16": "UINT16",
}
"""A tensor map's element type by torch's dtype: signs and bytes of narrow floats make no difference to a copy."""
_PLAIN = {1: "uint8", 2: "int16"}
"""The dtype by which a tensor of a dtype that NumPy lacks is handed to cuda-core, by bytes of an element."""
_SWIZZLES = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}
_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}


def tensor_map(
    tensor: Argument,
    box: tuple[int, ...],
    *,
    swizzle: int = 0,
    element_strides: tuple[int, ...] | None = None,
    l2_promotion: int = 0,
) -> Any:
    """A tensor map (TMA descriptor) of `tensor`, for a parameter `const __grid_constant__ CUtensorMap`.

    Args:
        tensor: on the GPU, 16-byte aligned, 1 to 5 axes, the last one dense, each other stride a multiple of 16 bytes.
        box: elements of one tile, per axis, in the tensor's own order of axes; each from 1 to 256.
        swizzle: bytes of the shared-memory swizzle: 0, 32, 64 or 128; a row of the box has at most as many.
        element_strides: step between elements, per axis; None steps by one.
        l2_promotion: bytes that a miss brings into the L2 cache: 0 (what is asked for), 64, 128 or 256.

    Raises:
        TypeError, ValueError: one of these does not hold.
    """
    check_tensor_map(tensor, box, swizzle, l2_promotion)
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind in ("bfloat16", "bool", "float8_e4m3fn", "float8_e5m2"):
        tensor = tensor.view(getattr(sys.modules["torch"], _PLAIN[tensor.element_size()]))
    maps = core()._tensor_map
    made = (
        core()
        .utils.StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
        .as_tensor_map(
            box_dim=tuple(box),
            element_strides=element_strides,
            data_type=getattr(maps.TensorMapDataType, _MAP_TYPES[kind]),
            swizzle=getattr(maps.TensorMapSwizzle, _SWIZZLES[swizzle]),
            l2_promotion=getattr(maps.TensorMapL2Promotion, _PROMOTIONS[l2_promotion]),
        )
    )
    recorder = recording.current() if recording.active else None
    if recorder is not None:
        try:
            template = encoded(tensor, _MAP_TYPES[kind], box, element_strides, swizzle, l2_promotion)
        except (OSError, RuntimeError) as error:
            recorder.refuse(f"a tensor map cannot be made of the driver: {error}")
        else:
            layout = kind, tuple(tensor.shape), tuple(tensor.stride())
            options = *layout, tuple(box), swizzle, tuple(element_strides or ()), l2_promotion
            recorder.maps[id(made)] = made, recording.Map(tensor.data_ptr(), template, options)
    return made


def check_tensor_map(tensor: Argument, box: tuple[int, ...], swizzle: int, l2_promotion: int = 0) -> None:
    """Raise TypeError or ValueError where `tensor_map` cannot be made of these; each names what to change."""
    if not hasattr(tensor, "data_ptr") or not tensor.is_cuda:
        raise TypeError(f"tensor_map: found {type(tensor).__name__}, expected a tensor on the GPU")
    kind, rank, size = str(tensor.dtype).removeprefix("torch."), tensor.dim(), tensor.element_size()
    if kind not in _MAP_TYPES:
        raise TypeError(f"tensor_map: found a tensor of {kind}, expected one of {', '.join(sorted(_MAP_TYPES))}")
    if not 1 <= rank <= 5:
        raise ValueError(f"tensor_map: found a tensor of {rank} axes, expected 1 to 5")
    if not isinstance(box, tuple) or len(box) != rank:
        raise ValueError(f"box: found {box!r}, expected a tuple of {rank} sizes, one per axis")
    if not all(isinstance(side, int) and 1 <= side <= 256 for side in box):
        raise ValueError(f"box: found {box!r}, expected sizes from 1 to 256")
    for name, value, known in (("swizzle", swizzle, _SWIZZLES), ("l2_promotion", l2_promotion, _PROMOTIONS)):
        if value not in known:
            raise ValueError(f"{name}: found {value!r}, expected {', '.join(map(str, known))}")
    row = box[-1] * size
    if row % 16:
        raise ValueError(f"box: found rows of {row} bytes, expected a multiple of 16")
    if swizzle and row > swizzle:
        raise ValueError(f"box: found rows of {row} bytes, expected at most swizzle's {swizzle}")
    strides = tensor.stride()
    if strides[-1] != 1 or any(stride * size % 16 for stride in strides[:-1]):
        raise ValueError(
            f"tensor_map: found strides {tuple(strides)} of {size} bytes, "
            "expected 1 for the last axis and multiples of 16 bytes for the others"
        )
    if tensor.data_ptr() % 16:
        raise ValueError("tensor_map: found a tensor that is not 16-byte aligned")
