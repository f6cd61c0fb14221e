"""The objects in FlashInfer-Bench's files, told apart by their fields.

They are Definitions, Workloads, Traces and Solutions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.formats.shared.files import RawFile, beside, refused
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.document import read_document
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors

_DEFINITION = {"axes", "inputs", "outputs"}
MOST_LINES = 10_000
_OLD_DTYPES = {"float8_e4m3": "float8_e4m3fn"}


@dataclass(frozen=True)
class Found:
    """One object of a set: its kind, the field that names it in errors, and the object."""

    kind: str
    field: str
    content: dict[str, Any]

    def text(self, key: str) -> str:
        """Return a field that must be a text. Raises SpecErrors."""
        value = self.content.get(key)
        if not isinstance(value, str) or not value.strip():
            expected = "the source of a Python module with run(...)" if key == "reference" else "a text"
            raise refused(f"{self.field}: {key}", value, expected)
        return value

    def members(self, key: str) -> dict[str, dict[str, Any]]:
        """Return a field that must be an object of objects. Raises SpecErrors."""
        value = self.content.get(key)
        if not isinstance(value, dict):
            raise refused(f"{self.field}: {key}", value, "an object")
        for name, item in value.items():
            if not isinstance(item, dict):
                raise refused(f"{self.field}: {key}.{name}", item, "an object")
        return value


def kind_of(content: Any) -> str | None:
    """Return Definition, Solution, Trace or Workload, or None for anything else.

    Each has fields that no other has.
    """
    if not isinstance(content, dict):
        return None
    if content.keys() >= _DEFINITION:
        return "Definition"
    if "sources" in content and "spec" in content:
        return "Solution"
    if "workload" in content and "definition" in content:
        return "Trace"
    return "Workload" if {"axes", "inputs", "uuid"} <= content.keys() else None


def references(files: Sequence[RawFile]) -> list[str]:
    """Return the paths of further files that belong to the import where they are there.

    A set lays out definitions, workloads and blobs so.
    """
    paths = []
    for file in files:
        for found in objects(file):
            if found.kind == "Definition":
                paths += list(_workload_files(file.path, found.content))
            paths += [beside(_root(file.path), path) for path, _ in _stored(found)]
    return paths


def _workload_files(path: str, definition: Mapping[str, Any]) -> Iterator[str]:
    yield beside(path, "workload.jsonl")  # as SOL-ExecBench has a problem: both in a directory of its own
    name, kind = definition.get("name"), definition.get("op_type")
    for directory in ([str(kind)] if isinstance(kind, str) else []) + [""]:
        yield posixpath.normpath(
            posixpath.join(posixpath.dirname(_root(path)), "workloads", directory, f"{name}.jsonl")
        )


def _root(path: str) -> str:
    """Return the path beside which the set's directories lie.

    It is that of `definitions` or `workloads`, or the file's own.
    """
    parts = path.split("/")
    for name in ("definitions", "workloads", "solutions", "traces"):
        if name in parts[:-1]:
            return "/".join([*parts[: parts.index(name)], name])
    return path


def _stored(found: Found) -> Iterator[tuple[str, str]]:
    workload = found.content.get("workload") if found.kind == "Trace" else found.content
    inputs = workload.get("inputs") if found.kind in ("Trace", "Workload") and isinstance(workload, dict) else None
    for item in inputs.values() if isinstance(inputs, dict) else ():
        if isinstance(item, dict) and item.get("type") == "safetensors" and isinstance(item.get("path"), str):
            yield item["path"], str(item.get("tensor_key"))


def objects(file: RawFile) -> Iterator[Found]:
    """Yield the objects of a JSON file, or of one with JSON lines.

    Raises SpecErrors where it is no JSON; a file of another ending has none.
    """
    if file.path.endswith(".json"):
        content = _json(file.data, file.path)
        if (kind := kind_of(content)) is not None:
            yield Found(kind, file.path, content)
    elif file.path.endswith(".jsonl"):
        if (lines := file.data.count(b"\n")) > MOST_LINES:
            raise refused(file.path, f"{lines} lines", f"at most {MOST_LINES} lines")
        for number, line in enumerate(file.data.split(b"\n"), 1):
            if line.strip():
                field = f"{file.path}: line {number}"
                content = _json(line, field)
                if (kind := kind_of(content)) is not None:
                    yield Found(kind, field, content)


def _json(data: bytes, field: str) -> Any:
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise refused(field, data[:60].decode("utf-8", "replace"), "a JSON object")
    try:
        return read_document(data)
    except SpecErrors as error:
        raise SpecErrors(
            [SpecError(f"{field}: {item.field}", item.found, item.expected) for item in error.errors]
        ) from None


def tensor(definition: Found, kind: str, name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, shape, dtype and description of an input or output. Raises SpecErrors."""
    where, dtype = f"{definition.field}: {kind}.{name}", item.get("dtype")
    described = {"description": str(item["description"])[:4000]} if item.get("description") else {}
    shape = item.get("shape", False)
    if shape is not None and not (isinstance(shape, list) and all(type(axis) in (str, int) for axis in shape)):
        raise refused(f"{where}.shape", item.get("shape"), "a list of axes, or null for a scalar")
    if not isinstance(dtype, str):
        raise refused(f"{where}.dtype", dtype, "the name of a dtype")
    if shape is None and kind == "outputs":
        shape = []  # the format's harness makes a tensor of a returned number
    if shape is not None:
        shape = [_size(definition, axis) for axis in shape]
    return {"name": name, "shape": shape, "dtype": _OLD_DTYPES.get(dtype, dtype), **described}


def _size(definition: Found, axis: str | int) -> str | int:
    """Return an axis, or the number that stands for it: `128`, `"1"`, or `"hidden_size / 2"` of constant axes."""
    if isinstance(axis, int) or (axis.isascii() and axis.isdigit()):
        return int(axis)
    if axis.isidentifier():
        return axis
    sizes = {name: each["value"] for name, each in definition.members("axes").items() if type(each.get("value")) is int}
    try:
        return expr.parse(re.sub(r"(?<!/)/(?!/)", "//", axis), "integer").integer(sizes)
    except expr.ExprError:
        return axis  # the spec's own reading of a shape says what is wrong with it


def undeclared(definition: Found) -> list[str]:
    """Return the names in the shapes of a Definition that are none of its axes."""
    axes = definition.members("axes")
    items = [*definition.members("inputs").values(), *definition.members("outputs").values()]
    shapes = [shape for item in items if isinstance(shape := item.get("shape"), list)]
    names = [size for shape in shapes for size in shape if isinstance(size, str) and size.isidentifier()]
    return [name for name in dict.fromkeys(names) if name not in axes]
