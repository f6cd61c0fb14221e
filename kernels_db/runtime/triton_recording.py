"""Launches of Triton's kernels, noted through the compiled kernel itself while `run` is recorded.

Triton hands the compiled kernel, the grid and the bound arguments to `CompiledKernel.launch_metadata` right before it
launches; that method is replaced for the time of a recording, and passes other threads through.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import recording
from .map_encoding import with_address
from .recording import COOPERATIVE, PROGRAMMATIC, Attribute, Launch, Map, Number, Pointer, Recorder

_SCALARS: dict[str, type] = {
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float,
    "f32": ctypes.c_float,
    "fp64": ctypes.c_double,
}
"""How a number of each of Triton's types lies in the kernel's parameters. A scalar in half precision is left out: how
it is rounded there differs between versions of Triton.
"""
_TRAILING = (Number(0), Number(0))
"""Addresses of Triton's own scratch memory, none here. The driver reads as many parameters as the kernel has."""
_lock = threading.Lock()
_depth = 0
_original: Any = None


@contextmanager
def noted() -> Iterator[None]:
    """Note the Triton launches of threads that record; nothing where Triton is not loaded."""
    compiler = sys.modules.get("triton.compiler.compiler")
    if compiler is None:
        yield
        return
    _begin(compiler.CompiledKernel)
    try:
        yield
    finally:
        _end(compiler.CompiledKernel)


def _begin(kernel_type: Any) -> None:
    global _depth, _original  # noqa: PLW0603 - one Triton a process
    with _lock:
        _depth += 1
        if _depth == 1:
            _original = original = kernel_type.launch_metadata

            def launch_metadata(kernel: Any, grid: Any, stream: Any, *arguments: Any) -> Any:
                recorder = recording.current()
                if recorder is not None:
                    note(recorder, kernel, grid, arguments)
                return original(kernel, grid, stream, *arguments)

            kernel_type.launch_metadata = launch_metadata


def _end(kernel_type: Any) -> None:
    global _depth  # noqa: PLW0603
    with _lock:
        _depth -= 1
        if _depth == 0:
            kernel_type.launch_metadata = _original


def note(recorder: Recorder, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
    """Note one launch. kernel: Triton's CompiledKernel; arguments: all of the function's, constants among them."""
    kernel._init_handles()
    facts = kernel.metadata
    reason = _obstacle(facts)
    if reason is not None:
        recorder.refuse(f"{kernel.name}: {reason}")
        return
    packed: list[Number | Pointer | Map] = []
    sizes: list[int] = []
    descriptors = iter(getattr(facts, "tensordesc_meta", None) or ())
    for (name, kind), value in zip(kernel.src.signature.items(), arguments, strict=True):
        if kind == "constexpr":
            continue
        if isinstance(kind, str) and kind.startswith("tensordesc"):
            parts = _descriptor(recorder, kernel.name, value, next(descriptors, None))
            if parts is None:
                return
            packed += parts[0]
            sizes += parts[1]
            continue
        found = _packed(kind, value)
        if found is None:
            recorder.refuse(f"{kernel.name}: argument {name} is of Triton's type {kind}, which plans do not hold")
            return
        packed.append(found)
        sizes.append(8 if isinstance(found, Pointer) else ctypes.sizeof(_SCALARS[kind]))
    attributes: list[Attribute] = [(PROGRAMMATIC, 1, 0, 0)] if getattr(facts, "launch_pdl", False) else []
    if getattr(facts, "launch_cooperative_grid", False):
        attributes.append((COOPERATIVE, 1, 0, 0))
    x, y, z = (*(int(size) for size in grid), 1, 1)[:3]
    if x * y * z == 0:
        return  # Triton launches nothing either
    block = (32 * facts.num_warps, 1, 1)
    recorder.events.append(
        Launch(
            "cuda",
            kernel.name,
            int(kernel.function),
            (*packed, *_TRAILING),
            (x, y, z),
            block,
            facts.shared,
            tuple(attributes),
            (*sizes, *(8 for _ in _TRAILING)),
            len(_TRAILING),
            "function",
        )
    )


def _obstacle(facts: Any) -> str | None:
    """Why a launch of a kernel with this metadata cannot be repeated by its parameters alone."""
    hooks = sys.modules["triton"].knobs.runtime
    if _set(hooks.launch_enter_hook) or _set(hooks.launch_exit_hook):
        return "a launch hook of Triton's is set"
    if facts.num_ctas != 1 or tuple(getattr(facts, "cluster_dims", (1, 1, 1))) != (1, 1, 1):
        return "it runs in clusters of Triton's"
    if getattr(facts, "global_scratch_size", 0) or getattr(facts, "profile_scratch_size", 0):
        return "Triton allocates scratch memory for it"
    return None


def _descriptor(recorder: Recorder, name: str, value: Any, facts: Any) -> tuple[list[Number | Map], list[int]] | None:
    """A tensor descriptor as the kernel takes it: a tensor map, sizes, strides.

    None where the recorder was told why there is none. facts: what Triton's compiler says of the descriptor, None where
    the kernel does without a tensor map. The map is Triton's own, and what the driver does with its address in a replay
    must change nothing else.
    """
    make = getattr(sys.modules.get("triton.backends.nvidia.driver"), "make_tensordesc_arg", None)
    if facts is None or make is None:
        recorder.refuse(f"{name}: a tensor descriptor is no tensor map here")
        return None
    made, *numbers = make(value, facts)
    address, rank = value.base.data_ptr(), len(value.shape)
    template = map_bytes(made)
    if len(numbers) != 2 * rank or with_address(template, address) != template:
        recorder.refuse(f"{name}: a tensor descriptor is not made as this version of the recorder knows it")
        return None
    options = (tuple(value.shape), tuple(value.strides), tuple(value.block_shape), value.padding, *_sorted(facts))
    scalars = [ctypes.c_int32] * rank + [ctypes.c_int64] * rank
    values = [recording.number(each, scalar) for each, scalar in zip(numbers, scalars, strict=True)]
    return [Map(address, template, options), *values], [128, *map(ctypes.sizeof, scalars)]


def _sorted(facts: Any) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in facts.items())


def map_bytes(made: Any) -> bytes:
    """Return the bytes of Triton's tensor map, an object that ends in them. Raises TypeError where it has no room."""
    start = type(made).__basicsize__ - 128
    if start < object.__basicsize__:
        raise TypeError(f"found a {type(made).__name__} of {start + 128} bytes, expected one that holds a tensor map")
    return ctypes.string_at(id(made) + start, 128)


def _set(hook: Any) -> bool:
    """Whether a hook is there: a function, or a chain of Triton's that holds any."""
    return bool(getattr(hook, "calls", True)) if hook is not None else False


def _packed(kind: Any, value: Any) -> Number | Pointer | None:
    """The argument as the kernel's parameter holds it; None for a type that is not known here."""
    if not isinstance(kind, str):
        return None
    if kind.startswith("*"):
        return Pointer(value if isinstance(value, int) else value.data_ptr()) if value is not None else Pointer(0)
    scalar = _SCALARS.get(kind)
    return None if scalar is None else recording.number(value, scalar)
