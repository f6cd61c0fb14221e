"""Workloads of FlashInfer-Bench as those of a spec."""

from __future__ import annotations

import ast
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.formats.flashinfer import safetensors
from warpsmith.kernels_db.formats.flashinfer.made_workload import DRAWN
from warpsmith.kernels_db.formats.flashinfer.objects import Found, kind_of, tensor
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.formats.shared.source_room import SourceRoom
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.basic_types import MAX_ITEMS
from warpsmith.kernels_db.spec.names import unique


def workloads(definition: Found, found: Sequence[Found], files: Sequence[RawFile]) -> list[dict[str, Any]]:
    """Return the spec's workloads.

    Raises SpecErrors: another Definition's, none where some are needed, or a bad input.
    """
    by_content: dict[str, Found] = {}
    for item in (_workload_of(definition, each) for each in found):
        if item is not None:  # a Trace repeats its Workload
            by_content.setdefault(json.dumps(item.content, sort_keys=True), item)
    given = list(by_content.values())
    if len(given) > MAX_ITEMS:
        raise refused("workloads", f"{len(given)} Workloads", f"at most {MAX_ITEMS}")
    axes = definition.members("axes")
    free = [name for name, axis in axes.items() if axis.get("type") == "var"]
    scalars = [name for name, entry in definition.members("inputs").items() if entry.get("shape") is None]
    if not given:
        if free or scalars:
            missing = f"sizes for {', '.join(free) or 'none'} and values for {', '.join(scalars) or 'none'}"
            raise refused("workloads", "no Workload", f"a file with Workloads as JSON lines, which give {missing}")
        return [{"id": "workload", "role": "bench"}]
    ids = unique(_label(item.content["uuid"], number) for number, item in enumerate(given))
    room = SourceRoom()
    return [
        {"id": name, "role": "bench", "axes": item.content["axes"], "inputs": _values(definition, item, files, room)}
        for name, item in zip(ids, given, strict=True)
    ]


def _workload_of(definition: Found, item: Found) -> Found | None:
    """Return the Workload that an object is or has.

    Raises SpecErrors where it is another Definition's.
    """
    if item.kind == "Trace":
        named, workload = item.content["definition"], item.content["workload"]
        if named != definition.content["name"]:
            raise refused(f"{item.field}: definition", named, f"{definition.content['name']}, whose workload it is")
        if kind_of(workload) != "Workload":
            raise refused(f"{item.field}: workload", workload, "an object with axes, inputs and uuid")
        return Found("Workload", f"{item.field}: workload", workload)
    return item if item.kind == "Workload" else None


def _label(text: Any, number: int) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in str(text))[:100].lstrip("_.-")
    return kept or f"workload-{number}"


def _values(definition: Found, workload: Found, files: Sequence[RawFile], room: SourceRoom) -> dict[str, Any]:
    """Return a workload's details of each input that is more than random."""
    field, given = workload.field, workload.content["inputs"]
    if not isinstance(given, dict):
        raise refused(f"{field}: inputs", given, "an object")
    declared = definition.members("inputs")
    found: dict[str, Any] = {}
    for name, item in given.items():
        where = f"{field}: inputs.{name}"
        kind = item.get("type") if isinstance(item, dict) else None
        if name not in declared:
            raise refused(where, name, f"an input of the Definition: one of {', '.join(declared)}")
        if kind == "scalar":
            found[name] = {"value": item.get("value")}
        elif kind == "safetensors":
            source = _stored_values(definition, where, name, item, workload.content["axes"], files)
            found[name] = {"dist": room.code(source)}
        elif kind == "custom":
            found[name] = {"dist": room.code(_custom_values(definition, where, name, workload))}
        elif kind == DRAWN:
            found[name] = {"dist": item.get("dist")}
        elif kind != "random":
            raise refused(f"{where}.type", json.dumps(kind), "random, scalar, safetensors or custom")
    return found


_CUSTOM = """

def make(shape, dtype, generator):
    import torch

    torch.manual_seed(generator.initial_seed())
    return {entry}({sizes!r}, torch.device("cpu"))[{name!r}].contiguous()
"""


def inputs_of_types(found: Sequence[Found], types: Sequence[str]) -> list[str]:
    """Return the inputs that are of these types in some workload, in the order of their first.

    Those of type `custom` a Definition's own function makes.
    """
    names: dict[str, None] = {}
    for item in found:
        workload = item.content.get("workload") if item.kind == "Trace" else item.content
        given = workload.get("inputs") if item.kind in ("Trace", "Workload") and isinstance(workload, dict) else None
        for name, one in given.items() if isinstance(given, dict) else ():
            if isinstance(one, dict) and one.get("type") in types:
                names[name] = None
    return list(names)


def _custom_values(definition: Found, where: str, name: str, workload: Found) -> str:
    """Return source of a distribution by the Definition's own function. Raises SpecErrors."""
    entry = definition.content.get("custom_inputs_entrypoint")
    source = definition.text("reference")
    functions = python_source.top_level(
        python_source.parse(RawFile(f"{definition.field}: reference", source.encode())), ast.FunctionDef
    )
    if not isinstance(entry, str) or entry not in functions:
        field, expected = f"{definition.field}: custom_inputs_entrypoint", ", ".join(functions) or "none"
        raise refused(field, entry, f"a function of the reference, for {where} is custom: one of {expected}")
    sizes = _bound(definition, workload)
    return source.rstrip("\n") + "\n" + _CUSTOM.format(entry=entry, sizes=sizes, name=name)


def _bound(definition: Found, workload: Found) -> dict[str, Any]:
    """Return the axes and scalars of a workload by name, derived axes as far as they can be worked out."""
    axes, given = definition.members("axes"), workload.content["inputs"]
    known = workload.content["axes"] if isinstance(workload.content["axes"], dict) else {}
    bound = {name: axis.get("value") for name, axis in axes.items() if axis.get("type") == "const"} | known
    sizes = {name: size for name, size in bound.items() if type(size) is int}
    for name, axis in axes.items():
        if axis.get("type") == "expr":
            try:
                sizes[name] = expr.parse(str(axis.get("expression", axis.get("expr"))), "integer").integer(sizes)
            except expr.ExprError:
                continue  # the spec's own reading of the axis says what is wrong with it
    scalars = {
        name: item.get("value")
        for name, item in given.items()
        if isinstance(item, dict) and item.get("type") == "scalar"
    }
    return sizes | scalars


def _stored_values(
    definition: Found,
    where: str,
    name: str,
    item: Mapping[str, Any],
    sizes: Any,
    files: Sequence[RawFile],
) -> str:
    """Return source of a distribution with a safetensors file's values. Raises SpecErrors."""
    path, key = item.get("path"), item.get("tensor_key")
    if not isinstance(path, str) or not isinstance(key, str):
        raise refused(where, json.dumps(item), "a path and a tensor_key")
    wanted = posixpath.normpath(path)
    at_hand = [file for file in files if file.path == wanted or file.path.endswith("/" + wanted)]
    if len(at_hand) != 1:
        found = "several files" if at_hand else "no such file"
        raise refused(
            where, f"{found} {path}", f"the safetensors file {path} (tensor {key}) among the files of the import"
        )
    stored = safetensors.read(at_hand[0], key, where)
    declared = definition.members("inputs")[name]
    axes = definition.members("axes")
    bound = {axis: entry.get("value") for axis, entry in axes.items()} | (sizes if isinstance(sizes, dict) else {})
    said = tensor(definition, "inputs", name, declared)
    shape, dtype = [bound.get(axis, axis) for axis in said["shape"] or []], said["dtype"]
    if (stored.shape, stored.dtype) != (shape, dtype):
        raise refused(where, f"{key}: {stored.shape} of {stored.dtype}", f"{shape} of {dtype}")
    return stored.source(path, key)
