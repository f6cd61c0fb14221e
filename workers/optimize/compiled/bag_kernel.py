"""Embedding bags of several tables, and what is concatenated with them, written by one launch where they belong.

What is computed is what PyTorch's `EmbeddingBag.cu` computes, in its order: rows are added from a bag's first to its
last, in float32 whatever the tables' dtype, from zero; a weight is multiplied and added in one rounding; a mean is
divided once, at the end. The first bag begins at 0 and the last one ends with the indices, whatever the offsets say. A
row of the padding index is none. A bag that ends before it begins and an index outside of its table end the process's
use of the device, by an assertion on it.

Addresses of tables, indices, offsets and weights are the kernel's arguments themselves: a CUDA graph has nothing else
of them, as of any other kernel's arguments.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import triton
import triton.language as tl
from triton import knobs

INTERPRETED = bool(knobs.runtime.interpret)
"""Whether Triton interprets this module's kernel, which it decides where the kernel is defined."""
Mode = Literal["sum", "mean", "max", "row", "copy"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""The first three are those of embedding bags, by PyTorch's numbers. "row": one row a bag, as it is; "copy": a tensor
with a row for each bag."""
MEAN, MAX, COPY = (tl.constexpr(MODES.index(mode)) for mode in ("mean", "max", "copy"))
MOST_PARTS = 64
"""Parts of one launch: their addresses are five of its arguments each, and CUDA takes 4 KiB of them everywhere."""
ELEMENTS = 4096
"""Of a result, for each program: 128 threads have 32 each, in vectors of 16 bytes where tables are of 16 bits."""


@dataclass(frozen=True)
class Part:
    """A part of a concatenation: `mode` says what is done with the rows of a table.

    table, indices, offsets, weights: which of the operator's tensors; the table of "copy" is what is copied. length: of
    each bag, where no offsets say it. padding: the index that counts for nothing, -1 for none. last: the offsets end
    with where the last bag ends. width: elements of a row.
    """

    mode: Mode
    table: int
    width: int
    indices: int | None = None
    offsets: int | None = None
    weights: int | None = None
    length: int = 1
    padding: int = -1
    last: bool = False

    def bags(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the number of bags, as the operator's tensors say it."""
        if self.offsets is not None:
            return tensors[self.offsets].shape[0] - int(self.last)
        return tensors[self.table if self.indices is None else self.indices].shape[0] // self.length


@dataclass(frozen=True)
class Plan:
    """Parts in their order. stacked: they lie one behind the other, otherwise side by side."""

    parts: tuple[Part, ...]
    stacked: bool

    def written(self) -> str:
        """Return the plan as the operator takes it: a part's values that are none of the defaults."""
        parts = [
            {name: value for name, value in asdict(part).items() if value != _DEFAULTS[name]} for part in self.parts
        ]
        return json.dumps({"parts": parts, "stacked": self.stacked}, separators=(",", ":"))


_DEFAULTS = {each.name: each.default for each in fields(Part)}


@functools.cache
def read(plan: str) -> Plan:
    """Return the plan of `Plan.written`."""
    found = json.loads(plan)
    return Plan(tuple(Part(**part) for part in found["parts"]), found["stacked"])


@triton.jit  # type: ignore[untyped-decorator]
def _of(values, part, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the value of a part: a tuple of arguments has no index that is known on the device alone."""
    found = values[0]
    for at in tl.static_range(1, PARTS):
        found = tl.where(part == at, values[at], found)
    return found


@triton.jit
def _larger(one, other):  # type: ignore[no-untyped-def]
    return tl.maximum(one, other)


@triton.jit  # type: ignore[untyped-decorator]
def _list(addresses, part, PARTS: tl.constexpr, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where a part's list is: `_addresses` has odd numbers for them."""
    address = _of(addresses, part, PARTS).to(tl.int64) - 1
    return address.to(tl.pointer_type(TYPE), bitcast=False)


@triton.jit
def _told(offsets, count, length, bag, bags):  # type: ignore[no-untyped-def]
    """Return where bags begin and end: by offsets where the length is negative."""
    told = (bag < bags) & (length < 0)
    first = tl.load(offsets + bag, mask=told & (bag > 0), other=0).to(tl.int64)
    last = tl.load(offsets + bag + 1, mask=told & (bag < bags - 1), other=0).to(tl.int64)
    last = tl.where(bag < bags - 1, last, count)
    tl.device_assert((last >= first) | ~told, "a bag ends before it begins")
    return tl.where(told, first, bag * length), tl.where(told, last, bag * length + length)


@triton.jit(do_not_specialize=["bags"])  # type: ignore[untyped-decorator]
def _write(  # type: ignore[no-untyped-def]
    output,
    tables,
    indices,
    offsets,
    weights,
    counts,
    bags,
    PARTS: tl.constexpr,
    FIRST: tl.constexpr,
    INDEX: tl.constexpr,
    OFFSET: tl.constexpr,
    MODE: tl.constexpr,
    WIDTH: tl.constexpr,
    START: tl.constexpr,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDING: tl.constexpr,
    STEP: tl.constexpr,
    WEIGHT_STEP: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_MAX: tl.constexpr,
    HAS_ROWS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    STACKED: tl.constexpr,
    PITCH: tl.constexpr,
    BAGS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write BAGS bags of one part. A tuple has a value for each part: LENGTH -1 where offsets say it, WEIGHT_STEP -1
    where it has no weights; indices, offsets and weights are as `_list` takes them; counts are the numbers of indices,
    twice that and three.
    """
    part = tl.program_id(1)
    bag = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    column = tl.arange(0, COLUMNS)
    mode, width, length = _of(MODE, part, PARTS), _of(WIDTH, part, PARTS), _of(LENGTH, part, PARTS)
    table, rows, padding = _of(tables, part, PARTS), _of(ROWS, part, PARTS), _of(PADDING, part, PARTS)
    step = _of(STEP, part, PARTS)
    wide = (column < width)[None, :]
    begin, end = bag * length, bag * length + length
    if HAS_OFFSETS:
        count = (_of(counts, part, PARTS).to(tl.int64) - 3) // 2
        begin, end = _told(_list(offsets, part, PARTS, OFFSET), count, length, bag, bags)
    size = tl.where(bag < bags, end - begin, 0)
    index = _list(indices, part, PARTS, INDEX) + begin * step
    if HAS_WEIGHTS:
        weight_step = _of(WEIGHT_STEP, part, PARTS)
        weight_of = _list(weights, part, PARTS, output.dtype.element_ty) + begin * weight_step

    total = tl.full((BAGS, COLUMNS), 0.0, tl.float32)
    counted = tl.full((BAGS,), 0, tl.int32)
    for at in range(tl.reduce(size, 0, _larger)):
        here = at < size
        listed = here & (mode != COPY)
        row = tl.load(index + at * step, mask=listed, other=0).to(tl.int64)
        tl.device_assert(((row >= 0) & (row < rows)) | ~listed, "an index is out of range")
        row = tl.where(mode == COPY, bag, row)
        where = table + row[:, None] * width + column[None, :]
        found = tl.load(where, mask=here[:, None] & wide, other=0.0).to(tl.float32)
        is_row = here & (row != padding)
        value = tl.where(is_row[:, None], found, 0.0)
        if HAS_WEIGHTS:
            weight = tl.load(weight_of + at * weight_step, mask=here & (weight_step >= 0), other=1.0).to(tl.float32)
            weight = tl.where(weight_step >= 0, weight, 1.0)
            added = tl.fma(tl.broadcast_to(weight[:, None], (BAGS, COLUMNS)), value, total)
        else:
            added = total + value
        if HAS_ROWS:
            added = tl.where(mode > MAX, found, added)
        if HAS_MAX:
            larger = is_row[:, None] & ((counted == 0)[:, None] | (found > total))
            added = tl.where(mode == MAX, tl.where(larger, found, total), added)
        total = tl.where(here[:, None], added, total)
        counted += is_row.to(tl.int32)
    if HAS_MEAN:
        several = tl.broadcast_to(tl.maximum(counted, 1).to(tl.float32)[:, None], (BAGS, COLUMNS))
        total = tl.where(mode == MEAN, tl.div_rn(total, several), total)
    begun = (part + FIRST).to(tl.int64) * bags * PITCH if STACKED else _of(START, part, PARTS).to(tl.int64)
    to = output + begun + bag[:, None] * PITCH + column[None, :]
    tl.store(to, total.to(output.dtype.element_ty), mask=(bag < bags)[:, None] & wide)


@dataclass(frozen=True)
class _Launch:
    """One launch of a plan: the arguments of it that no call changes."""

    parts: tuple[Part, ...]
    constants: dict[str, Any]


@functools.cache
def _launches(plan: str) -> tuple[_Launch, ...]:
    parts, stacked = read(plan).parts, read(plan).stacked
    starts = tuple(itertools.accumulate((part.width for part in parts[:-1]), initial=0))
    columns = triton.next_power_of_2(max(part.width for part in parts))
    found = []
    for first in range(0, len(parts), MOST_PARTS):
        some = parts[first : first + MOST_PARTS]
        modes = {part.mode for part in some}
        constants = {
            "PARTS": len(some),
            "FIRST": first,
            "MODE": tuple(MODES.index(part.mode) for part in some),
            "WIDTH": tuple(part.width for part in some),
            "START": starts[first : first + MOST_PARTS],
            "LENGTH": tuple(part.length if part.offsets is None else -1 for part in some),
            "PADDING": tuple(part.padding for part in some),
            "HAS_MEAN": "mean" in modes,
            "HAS_MAX": "max" in modes,
            "HAS_ROWS": bool(modes & {"row", "copy"}),
            "HAS_OFFSETS": any(part.offsets is not None for part in some),
            "HAS_WEIGHTS": any(part.weights is not None for part in some),
            "STACKED": stacked,
            "PITCH": parts[0].width if stacked else sum(part.width for part in parts),
            "BAGS": max(1, ELEMENTS // columns),
            "COLUMNS": columns,
        }
        found.append(_Launch(some, constants))
    return tuple(found)


def launch(tensors: Sequence[torch.Tensor], plan: str, output: torch.Tensor) -> None:
    """Write what a plan says of these tensors to the output. Raises what Triton raises."""
    bags = read(plan).parts[0].bags(tensors)
    lists = {at: tensors[at].contiguous() for part in read(plan).parts if (at := part.offsets) is not None}
    tensors = [lists.get(at, each) for at, each in enumerate(tensors)]  # held until all is launched
    for one in _launches(plan):
        arguments, constants = _arguments(tensors, one)
        grid = (triton.cdiv(bags, one.constants["BAGS"]), len(one.parts))
        # Asserted is what PyTorch asserts; Triton would also check every sum of integers.
        options = {"debug": True, "sanitize_overflow": False}
        _write[grid](output, *arguments, bags, **constants, **options)


def _arguments(tensors: Sequence[torch.Tensor], one: _Launch) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a launch between the output and the number of bags, and its constants.

    Lists are their addresses: a batch decides where those lie that are rows of one tensor, and Triton would compile
    anew for pointers that 16 divides.
    """
    parts = one.parts
    tables = [tensors[part.table] for part in parts]
    # Each part has a value in each tuple, and all of a tuple are of one dtype: what a part lacks is another's.
    indices = _filled([None if part.indices is None else tensors[part.indices] for part in parts], tables)
    offsets = _filled([None if part.offsets is None else tensors[part.offsets] for part in parts], indices)
    weights = _filled([None if part.weights is None else tensors[part.weights] for part in parts], tables)
    # Odd and never 1: Triton compiles anew for numbers that 16 divides and for 1, and batches have any.
    counts = tuple(2 * each.shape[0] + 3 for each in indices)
    constants = one.constants | {
        "INDEX": _type(indices[0]),
        "OFFSET": _type(offsets[0]),
        "ROWS": tuple(0 if part.mode == "copy" else tensors[part.table].shape[0] for part in parts),
        "STEP": tuple(_step(each) for each in indices),
        "WEIGHT_STEP": tuple(
            -1 if part.weights is None else _step(each) for part, each in zip(parts, weights, strict=True)
        ),
    }
    lists = (tuple(each.data_ptr() + 1 for each in some) for some in (indices, offsets, weights))
    return [tuple(tables), *lists, counts], constants


def _type(tensor: torch.Tensor) -> tl.dtype:
    """Return the dtype of a tensor's elements as Triton has it."""
    found: tl.dtype = getattr(tl, str(tensor.dtype).removeprefix("torch."))
    return found


def _filled(values: Sequence[torch.Tensor | None], others: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return values with another in the place of each that is None; of the others where all are."""
    some = next((value for value in values if value is not None), others[0])
    return tuple(some if value is None else value for value in values)


def _step(tensor: torch.Tensor) -> int:
    """Return the elements from one value to the next; a single one has none, and its stride may be any."""
    return int(tensor.stride(0)) if tensor.shape[0] > 1 else 1


def plain(tensors: Sequence[torch.Tensor], plan: str) -> torch.Tensor:
    """Return what a plan says of these tensors, computed by PyTorch's operators."""
    found, given = [], read(plan)
    for part in given.parts:
        table = tensors[part.table]
        if part.indices is None:
            found.append(table.flatten(1))
            continue
        indices = tensors[part.indices].contiguous()
        if part.mode == "row":
            found.append(torch.nn.functional.embedding(indices, table))
            continue
        if part.offsets is None:
            offsets = torch.arange(0, indices.shape[0], part.length, dtype=indices.dtype, device=indices.device)
        else:
            offsets = tensors[part.offsets].contiguous()
        weights = None if part.weights is None else tensors[part.weights].contiguous()
        mode = MODES.index(part.mode)
        found.append(
            torch.ops.aten._embedding_bag_forward_only(
                table, indices, offsets, False, mode, False, weights, part.last, part.padding
            )[0]
        )
    return torch.cat(found, 0 if given.stacked else 1)


def allocated(tensors: Sequence[torch.Tensor], plan: str) -> torch.Tensor:
    """Return a tensor for what a plan says of these tensors: (bags, columns), or (parts x bags, columns)."""
    given = read(plan)
    bags, widths = given.parts[0].bags(tensors), [part.width for part in given.parts]
    shape = (len(widths) * bags, widths[0]) if given.stacked else (bags, sum(widths))
    return tensors[given.parts[0].table].new_empty(shape)


_failed: list[str] = []
"""Why the kernel serves no call of this process any longer, where a launch raised."""


def failure() -> str | None:
    """Return why the kernel serves no call of this process; None where it does."""
    return _failed[0] if _failed else None


def bags(tensors: list[torch.Tensor], plan: str) -> torch.Tensor:
    """Return what a plan says of these tensors.

    After a launch that raised, PyTorch's operators serve this call and all that follow, and a warning says so.
    """
    device = tensors[0].device
    if _failed or not (device.type == "cuda" or INTERPRETED):
        return plain(tensors, plan)
    output = allocated(tensors, plan)
    if not output.numel():
        return output
    elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    try:
        with torch.cuda.device(device) if elsewhere else contextlib.nullcontext():
            launch(tensors, plan, output)
    except Exception as error:  # noqa: BLE001 - a compiler's or a driver's: PyTorch serves whatever it raises
        _failed.append(f"the launch raised {type(error).__name__}: {error}")
        warnings.warn(f"embedding bags go to PyTorch from now on: {_failed[0]}", RuntimeWarning, stacklevel=2)
        return plain(tensors, plan)
    return output


NAME = f"embedding_bags_{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"
"""The operator's: by its code, so that copies in exported packages are one where they are alike, and else two."""
_library: Any = torch.library.Library("warpsmith", "FRAGMENT")  # type: ignore[no-untyped-call]


def _registered() -> torch._ops.OpOverload:
    if not hasattr(torch.ops.warpsmith, NAME):
        _library.define(f"{NAME}(Tensor[] tensors, str plan) -> Tensor", tags=(torch.Tag.needs_exact_strides,))
        _library.impl(NAME, bags, "CompositeExplicitAutograd")
        # As `inductor.register_fake`: this module is imported by itself, too.
        inspect.modulesbyfile[os.path.normcase(os.path.abspath(__file__))] = __name__
        torch.library.register_fake(f"warpsmith::{NAME}", allocated, lib=_library)
    found: torch._ops.OpOverload = getattr(torch.ops.warpsmith, NAME).default
    return found


operator = _registered()
"""The operator: `bags`, without gradients. Inductor gives it tensors with the strides that the graph has."""
