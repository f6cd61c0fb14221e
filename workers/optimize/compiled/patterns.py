"""Traced references, kept in files: tracing one takes a tenth of a second and more, reading one a thousandth.

A file holds the patterns of one reference by its leads, as plain data: operators by name, arguments, and the shapes of
values. Nothing of it is code, and a file that does not read as such is traced anew.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from warpsmith.kernels_db.runtime.cache import cache_directory

from . import known
from .match import Pattern

FORMAT = 1
Lead = tuple[int, ...]
"""The sizes that stand where an op has its leading axis: an op of rows serves tensors of any rank by its last axes."""
_GETITEM = "getitem"
_TYPES = {torch.dtype: "dtype", torch.device: "device", torch.layout: "layout", torch.memory_format: "memory_format"}


class Kept:
    """The patterns of one reference, by lead. None: it has none there. Those of one digest are one object."""

    _open: dict[Path, Kept] = {}  # noqa: RUF012 - what is open in this process, by digest

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _parsed(known.reference(file.stem)) | _parsed(_documents(file))

    @classmethod
    def of(cls, facts: Sequence[Any]) -> Kept:
        """Return what is kept for all that decides what a reference looks like in a graph."""
        text = repr((FORMAT, torch.__version__, torch.version.cuda, *facts))
        file = cache_directory().parent / "patterns" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        found = cls._open.get(file)
        if found is None:
            found = cls._open[file] = cls(file)
        return found

    def __contains__(self, lead: Lead) -> bool:
        return _named(lead) in self._known

    def __getitem__(self, lead: Lead) -> Pattern | None:
        return self._known[_named(lead)]

    def add(self, lead: Lead, pattern: Pattern | None) -> None:
        """Keep a pattern, for other processes where it can be written."""
        self._known[_named(lead)] = pattern
        try:
            written = None if pattern is None else document(pattern)
        except ValueError:  # a target or an argument of another kind: it is traced in each process
            return
        keep(self._file, {**_documents(self._file), _named(lead): written})


def document(pattern: Pattern) -> dict[str, Any]:
    """Return a pattern as plain data. Raises ValueError where a node is of no kind that `parsed` makes again."""
    nodes = list(pattern.outputs[0].graph.nodes)
    if any(node.op not in ("placeholder", "call_function", "output") for node in nodes):
        raise ValueError("a node is neither an input, nor a call, nor the output")
    rows = [_row(node) for node in nodes if node.op != "output"]
    named = {"inputs": pattern.inputs, "outputs": pattern.outputs}
    return {
        "nodes": rows,
        **{key: [node.name for node in found] for key, found in named.items()},
        "numbers": list(pattern.numbers),
    }


def parsed(written: dict[str, Any]) -> Pattern:
    """Return the pattern of `document`. Raises ValueError, KeyError, TypeError, AttributeError where it is none."""
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for row in written["nodes"]:
        if row["op"] == "placeholder":
            node = graph.placeholder(row["name"])
        else:
            args, kwargs = _value(row["args"], nodes), _value(row["kwargs"], nodes)
            node = graph.create_node("call_function", _target(row["target"]), args, kwargs, name=row["name"])
        if row["shape"] is not None:
            node.meta["val"] = torch.empty(row["shape"], device="meta")  # its rank alone is asked for
        nodes[row["name"]] = node
    inputs, outputs = (tuple(nodes[name] for name in written[key]) for key in ("inputs", "outputs"))
    if not outputs:
        raise ValueError("outputs: found none")
    return Pattern(inputs, outputs, tuple(float(number) for number in written["numbers"]))


def keep(file: Path, document: Any) -> None:
    """Write a document as JSON in one go, for other processes to read; go without where that cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
            json.dump(document, written, indent=1)
        os.replace(written.name, file)
    except OSError:
        return


def _named(lead: Lead) -> str:
    return "x".join(map(str, lead))


def _documents(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _parsed(documents: dict[str, Any]) -> dict[str, Pattern | None]:
    """Return patterns by lead, without those that do not read as one."""
    found: dict[str, Pattern | None] = {}
    for lead, written in documents.items():
        try:
            found[lead] = None if written is None else parsed(written)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError):
            continue
    return found


def _row(node: fx.Node) -> dict[str, Any]:
    value = node.meta.get("val")
    shape = [int(size) for size in value.shape] if isinstance(value, torch.Tensor) else None
    row: dict[str, Any] = {"op": node.op, "name": node.name, "shape": shape}
    if node.op == "call_function":
        row |= {"target": _target_name(node.target), "args": _data(node.args), "kwargs": _data(dict(node.kwargs))}
    return row


def _target_name(target: Any) -> str:
    if target is operator.getitem:
        return _GETITEM
    if not isinstance(target, torch._ops.OpOverload):
        raise ValueError(f"target: found {target!r}, expected an operator")
    return str(target)


def _target(name: str) -> Any:
    if name == _GETITEM:
        return operator.getitem
    namespace, operators, overload = name.split(".")
    found = getattr(getattr(getattr(torch.ops, namespace), operators), overload)
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"target: found {name!r}, expected an operator")
    return found


def _data(value: Any) -> Any:
    """Return an argument as plain data; what is no number, text, list or None is a dict of its kind."""
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}  # infinities and NaN are none of JSON's
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [_data(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): _data(each) for key, each in value.items()}}
    for kind, named in _TYPES.items():
        if isinstance(value, kind):
            return {named: str(value).removeprefix("torch.")}
    raise ValueError(f"an argument: found a {type(value).__name__}")


def _value(data: Any, nodes: dict[str, fx.Node]) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, found),) = data.items()
    if kind == "node":
        return nodes[found]
    if kind == "float":
        return float(found)
    if kind in ("tuple", "list"):
        values = [_value(each, nodes) for each in found]
        return tuple(values) if kind == "tuple" else values
    if kind == "dict":
        return {key: _value(each, nodes) for key, each in found.items()}
    made = torch.device(found) if kind == "device" else getattr(torch, found)
    if kind not in _TYPES.values() or type(made) not in _TYPES:
        raise ValueError(f"an argument: found {data!r}")
    return made
