"""Makes one Workload of a Definition that comes without: sizes, scalars, and indices that stay within bounds.

What the caller does not say is chosen here, and told: an axis that a constraint gives from others (`len_indptr ==
batch_size + 1`), else one of DEFAULT_SIZE or as much more as the constraints demand; a scalar by its name and dtype;
tensors as `random`. What the format's own random values would not fit is of the type `drawn`, with a distribution of
the spec. These are offsets (`total_q == qo_indptr[-1].item()`, names that end in `indptr` or `seqlens`), the indices,
lengths and ids whose names the format's data set has (BELOW), and probabilities (SHARES).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.formats.flashinfer.objects import Found, objects, undeclared
from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.near_misses import one_of

DEFAULT_SIZE = 64
MOST_DOUBLINGS = 16

DRAWN = "drawn"
"""The type of an input that has a distribution of the spec; no type of the format's own."""

INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32")

BELOW: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "kv_indices": (0, ("num_pages",)),
    "page_table": (0, ("num_pages",)),
    "block_table": (0, ("num_pages",)),
    "sparse_indices": (0, ("num_pages * page_size", "num_pages")),
    "kv_last_page_len": (1, ("page_size + 1",)),
    "last_page_len": (1, ("page_size + 1",)),
    "kv_len_arr": (1, ("num_kv_indices + 1", "num_pages + 1")),
    "weight_indices": (0, ("num_experts",)),
    "seq_lens": (1, ("max_num_pages * page_size + 1", "max_seq_len + 1")),
    "positions": (0, ("max_seq_len",)),
    "initial_state_indices": (0, ("pool_size",)),
    "state_batch_indices": (0, ("state_cache_size",)),
    "input_ids": (0, ("vocab_size",)),
    "topk_ids": (0, ("num_experts",)),
    "top_k": (1, ("vocab_size + 1",)),
}
"""Integer inputs by name: the smallest value, and expressions for the end of the range.

The first whose axes the Definition has is taken.
"""

SHARES = ("probs",)
"""Float inputs whose rows are shares: at least 0, and 1 together."""

_LAST = re.compile(r"\s*([A-Za-z_]\w*)\s*==\s*([A-Za-z_]\w*)\s*\[\s*-1\s*\](?:\.item\(\))?\s*", re.ASCII)


@dataclass(frozen=True)
class MadeWorkload:
    """A file with one Workload. `chosen`: the sizes and values in it that the caller did not say."""

    file: RawFile
    chosen: dict[str, int | float | bool]


def made_workload(files: Sequence[RawFile], given: Mapping[str, int | float]) -> MadeWorkload:
    """Make a Workload of the Definition among `files`.

    `given`: sizes of var axes and values of scalar inputs by name. Raises SpecErrors where the Definition has none of
    that name, a size is none, or the constraints are not met.
    """
    definitions = [item for file in files for item in objects(file) if item.kind == "Definition"]
    if len(definitions) != 1:
        raise refused("--axes", f"{len(definitions)} Definitions", "one Definition")
    definition = definitions[0]
    axes, inputs = definition.members("axes"), definition.members("inputs")
    free = [name for name, axis in axes.items() if axis.get("type") == "var"]
    free += [name for name in undeclared(definition) if name in given]
    scalars = [name for name, item in inputs.items() if item.get("shape") is None]
    for name in given:
        if name not in (*free, *scalars):
            choices = one_of(name, [*free, *scalars]) if free or scalars else "the Definition has neither"
            raise refused("--axes", name, f"a var axis or a scalar input: {choices}")
    for name in free:
        if name in given and (not isinstance(given[name], int) or given[name] < 1):
            raise refused(f"--axes {name}", given[name], "a whole number above 0")
    known = {name: axis["value"] for name, axis in axes.items() if type(axis.get("value")) is int}
    named = {name: int(given[name]) for name in free if name in given}
    sizes = _sizes(_texts(definition), known, named, free)
    values = {
        name: given.get(name, _scalar(name, inputs[name], inputs, known)) for name in scalars
    }  # a size that is no scalar's is in `sizes`
    drawn = _drawn(definition, {**known, **sizes})
    said = {
        name: {"type": "scalar", "value": values[name]}
        if name in values
        else {"type": DRAWN, "dist": drawn[name]}
        if name in drawn
        else {"type": "random"}
        for name in inputs
    }
    workload = {"uuid": "axes", "axes": sizes, "inputs": said}
    file = RawFile("workloads-by-axes.jsonl", json.dumps(workload).encode() + b"\n")
    return MadeWorkload(file, {name: value for name, value in (sizes | values).items() if name not in given})


def _texts(definition: Found) -> list[str]:
    """Return the Definition's constraints; what is wrong with them the import says."""
    found = definition.content.get("constraints") or []
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _sizes(
    constraints: Sequence[str], known: Mapping[str, int], named: Mapping[str, int], free: Sequence[str]
) -> dict[str, int]:
    """Return a size for each free axis: named, from a constraint, or DEFAULT_SIZE doubled until constraints hold."""
    said = [parsed for text in constraints if (parsed := _over(text, {*known, *free})) is not None]
    chosen = dict.fromkeys((name for name in free if name not in named), DEFAULT_SIZE)
    for _ in range(MOST_DOUBLINGS):
        sizes = {**chosen, **named}
        _work_out(constraints, known, named, sizes)
        broken = [parsed for parsed in said if not _holds(parsed, {**known, **sizes})]
        if not broken:
            return {name: sizes[name] for name in free}
        for name in {name for parsed in broken for name in parsed.names if name in chosen}:
            chosen[name] *= 2
    raise refused("--axes", json.dumps(sizes), f"sizes that meet the constraint {broken[0].text}")


def _over(text: str, names: set[str]) -> expr.Expression | None:
    try:
        parsed = expr.parse(text, "boolean")
    except expr.ExprError:
        return None
    return parsed if parsed.names <= names else None


def _holds(constraint: expr.Expression, sizes: Mapping[str, int]) -> bool:
    """Check a constraint; one that these sizes give no value (a division by zero) does not hold."""
    try:
        return constraint.boolean(sizes)
    except expr.ExprError:
        return False


def _work_out(
    constraints: Sequence[str], known: Mapping[str, int], named: Mapping[str, int], sizes: dict[str, int]
) -> None:
    """Set in `sizes` the axes that a constraint gives: `axis == expression`, or `axis == other + n` by `axis`."""
    for text in constraints:
        left, equal, right = text.partition("==")
        name = left.strip()
        if not equal or name not in sizes:
            continue
        other, _, step = right.partition("+")
        if name in named and other.strip() in sizes and other.strip() not in named and step.strip().isdigit():
            sizes[other.strip()] = max(1, sizes[name] - int(step))
        elif name not in named:
            try:
                sizes[name] = max(1, expr.parse(right.strip(), "integer").integer({**known, **sizes}))
            except expr.ExprError:
                continue  # it speaks of more than axes


def _scalar(
    name: str, item: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Any]], known: Mapping[str, int]
) -> int | float | bool:
    """Return a scalar's value.

    It is that of the const axis of its name, true, 0 for an offset, 1/sqrt(d) for a scale of attention, else 1.
    """
    dtype = str(item.get("dtype"))
    if name in known:
        return known[name]
    if dtype == "bool":
        return True
    if "int" in dtype:
        return 0 if name.endswith("offset") else 1
    if name in ("sm_scale", "scale"):
        shape = next((each["shape"] for each in inputs.values() if isinstance(each.get("shape"), list)), None)
        size = known.get(str(shape[-1])) if shape else None
        return float(size**-0.5) if size is not None and size > 0 else 1.0
    return 1.0


def _drawn(definition: Found, sizes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the distributions of offsets, indices and probabilities, by input."""
    totals = {
        match[2]: match[1] for text in _texts(definition) if (match := _LAST.fullmatch(text)) and match[1] in sizes
    }
    tensors = {
        name: item["shape"]
        for name, item in definition.members("inputs").items()
        if isinstance(item.get("shape"), list) and item.get("dtype") in INTEGERS
    }
    offsets = {name: totals[name] for name in tensors if name in totals} | {
        name: total
        for name, shape in tensors.items()
        if name not in totals and (total := _total(name, len(shape), sizes)) is not None
    }
    # Offsets of one batch are drawn apart, and queries beyond the keys of their sequence have no result: even steps.
    paired = len(offsets) > 1
    found: dict[str, dict[str, Any]] = {
        name: {"kind": "code", "source": _EVEN.format(total=sizes[total])} if paired else _indptr(total)
        for name, total in offsets.items()
    }
    for name in tensors:
        low, ends = BELOW.get(name, (0, ()))
        end = next((text for text in ends if expr.parse(text, "integer").names <= sizes.keys()), None)
        if end is not None and name not in found:
            found[name] = {"kind": "randint", "low": low, "high": end}
    inputs = definition.members("inputs")
    shares = [name for name in SHARES if name in inputs and str(inputs[name].get("dtype")) in FLOATS]
    return found | {name: {"kind": "code", "source": _SHARES} for name in shares if inputs[name].get("shape")}


def _indptr(total: str) -> dict[str, Any]:
    return {"kind": "indptr", "total": total}


def _total(name: str, rank: int, sizes: Mapping[str, int]) -> str | None:
    """Return the axis whose size offsets end at where no constraint says so."""
    if rank != 1 or not name.endswith(("indptr", "seqlens")):
        return None
    wanted = (
        ("total_q", "total_num_tokens")
        if name.startswith("q")
        else ("num_kv_indices", "total_kv", "total_seq_len", "M")
    )
    return next((axis for axis in wanted if axis in sizes), None)


_EVEN = '''"""Offsets in even steps, the last of which is the total."""


def make(shape, dtype, generator):
    import torch

    return (torch.arange(shape[0]) * {total} // max(1, shape[0] - 1)).to(dtype)
'''

_SHARES = '''"""Rows of probabilities, which sum to one."""


def make(shape, dtype, generator):
    import torch

    return torch.softmax(torch.randn(shape, generator=generator), -1).to(dtype)
'''
