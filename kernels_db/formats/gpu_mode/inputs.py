"""The data of a task as inputs of a spec.

These are their names, how their values are made, and `run`, which puts them together again for `ref_kernel`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.formats.gpu_mode.axes import Axes
from warpsmith.kernels_db.formats.gpu_mode.exchange import KERNEL, RESULT
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.facts import Leaf, TaskFacts
from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.formats.shared.source_room import SourceRoom
from warpsmith.kernels_db.formats.shared.tensors import dist_of, is_contiguous, permutation_of
from warpsmith.kernels_db.job.file_objects import SOURCE
from warpsmith.kernels_db.spec.names import identifier, unique

MODULE = "task_reference"
"""The name of reference.py in a spec.

A spec's own source is a module `reference` in the judge.
"""

OBJECT, CLASSES = "_object", "_reference"
"""Names in a spec's source: what makes an object of the task's (`file_objects`), and the module of its class."""

_RUN = """

{kernel} = _embedded("task_reference").ref_kernel


def run({parameters}):
    {found}
    return {outputs}
"""
_FOUND = "found = {kernel}({data})"
_FOUND_ANYWHERE = """if {tensor}.is_cuda:
        found = {kernel}({data})
    else:
        from kernels_db.formats.stand_in import gpu_as_cpu

        with gpu_as_cpu():
            found = {kernel}({data})"""
"""For a `ref_kernel` that puts tensors on a GPU: without one they go to the CPU."""
_MAKE = '''

def make(shape, dtype, generator):
    """One of the tensors of generate_input."""
    import torch
    from kernels_db.formats.stand_in import on

    generate_input = _embedded("task_reference").generate_input
    seed = generator.initial_seed() % (1 << 31)
    torch.manual_seed(seed)
    with on(torch.device("cpu")):
        return generate_input({arguments}){path}.contiguous()
'''


_ZEROS = {"kind": "constant", "value": 0}


@dataclass(frozen=True)
class Inputs:
    """The spec's inputs, the changes of each workload, and the inputs' kinds of distribution."""

    declared: list[dict[str, Any]]
    overrides: list[dict[str, Any]]
    kinds: set[str]


@dataclass(frozen=True)
class _Made:
    """A distribution by code: its function, without the text of the files before it."""

    make: str


def names(facts: TaskFacts, ref_kernel: ast.FunctionDef) -> list[str]:
    """Return a name for each leaf of the data: as `ref_kernel` unpacks it, or x, x_2 ..."""
    unpacked = _unpacked(ref_kernel)
    found: list[str] = []
    for path in _paths(facts.understood[0].structure):
        first = unpacked[path[0]] if path and isinstance(path[0], int) and path[0] < len(unpacked) else "x"
        found.append(identifier("_".join([first, *(str(step) for step in path[1:])]), "x"))
    return unique(found)


def _unpacked(ref_kernel: ast.FunctionDef) -> list[str]:
    """Return the names in `a, b = data`, where `data` is the parameter."""
    parameter = python_source.parameters(ref_kernel)[:1]
    for node in ast.walk(ref_kernel):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and [node.value.id] == parameter:
            for target in node.targets:
                if isinstance(target, ast.Tuple | ast.List) and all(isinstance(item, ast.Name) for item in target.elts):
                    return [item.id for item in target.elts if isinstance(item, ast.Name)]
    return parameter


def unread(facts: TaskFacts, ref_kernel: ast.FunctionDef) -> set[int]:
    """Return the leaves of the data whose values `ref_kernel` does not read.

    These are those that it was seen to overwrite first, or not to touch, in each workload; and those that it unpacks to
    a name that it never reads, unless it reads the data in another way than by one unpacking.
    """
    seen = set.intersection(*(set(workload.unread) for workload in facts.understood))
    unpacked = _unpacked(ref_kernel)
    parameter = python_source.parameters(ref_kernel)[:1]
    read = [node.id for node in ast.walk(ref_kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    if unpacked == parameter or read.count(parameter[0]) != 1:
        return seen
    first = [path[0] if path else None for path in _paths(facts.understood[0].structure)]
    return seen | {
        number
        for number, place in enumerate(first)
        if isinstance(place, int) and place < len(unpacked) and unpacked[place] not in read
    }


def _paths(structure: Mapping[str, Any]) -> Iterator[tuple[int | str, ...]]:
    """Yield the path of each leaf, in order."""
    kind, content = next(iter(structure.items()))
    if kind == "leaf":
        yield ()
    elif kind in ("tuple", "list"):
        for number, item in enumerate(content):
            yield from ((number, *path) for path in _paths(item))
    elif kind == "dict":
        for key, item in content.items():
            yield from ((key, *path) for path in _paths(item))
    elif kind == "object":
        for name, item in content["attributes"].items():
            yield from ((_Attribute(name), *path) for path in _paths(item))


class _Attribute(str):
    """A step of a path that is an object's attribute, not a key."""

    __slots__ = ()


def _step(step: int | str) -> str:
    """Return a step of a path as Python source, to follow that of the value it starts at."""
    return f".{step}" if isinstance(step, _Attribute) else f"[{step!r}]"


def inputs(
    facts: TaskFacts,
    wanted: Sequence[str],
    axes: Axes,
    text: str,
    generate_input: ast.FunctionDef,
    calls: Sequence[Mapping[str, Any]],
    free: Collection[int] = (),
) -> Inputs:
    """Return the inputs of a task. Raises SpecErrors.

    `text` embeds its files; `calls` are the arguments of each workload. `free`: those of any values, which are zeros.
    """
    declared: list[dict[str, Any]] = []
    overrides: list[dict[str, Any]] = [{} for _ in calls]
    kinds: set[str] = set()
    room = SourceRoom()

    def stated(value: Any) -> Any:
        """Return a value as the spec has it: a distribution by code gets the text of the files."""
        return room.code(text, value.make) if isinstance(value, _Made) else value

    written = facts.understood[0].written
    paths = list(_paths(facts.understood[0].structure))
    for number, (name, path) in enumerate(zip(wanted, paths, strict=True)):
        leaves = [workload.inputs[number] for workload in facts.understood]
        item: dict[str, Any] = {"name": name, "dtype": leaves[0].dtype}
        values: list[Any]
        if leaves[0].shape is None:
            key, values = "value", [leaf.value for leaf in leaves]
        else:
            item["shape"] = axes.shape(name, [leaf.shape or [] for leaf in leaves])
            item |= _strides(name, leaves, item["shape"])
            if number in written:
                item["mutated"] = True
            key = "dist"
            values = [
                dist_of(_ZEROS if number in free else leaf.dist, leaf.dtype)
                or _Made(_make(generate_input, call, path, leaf))
                for leaf, call in zip(leaves, calls, strict=True)
            ]
            kinds |= {"code" if isinstance(value, _Made) else value["kind"] for value in values}
        declared.append(item | {key: stated(values[-1])})
        for workload, value in zip(overrides, values, strict=True):
            if value != values[-1]:
                workload[name] = {key: stated(value)}
    return Inputs(declared, overrides, kinds)


def _make(generate_input: ast.FunctionDef, call: Mapping[str, Any], path: Sequence[int | str], leaf: Leaf) -> str:
    taken = [*python_source.parameters(generate_input), *(item.arg for item in generate_input.args.kwonlyargs)]
    given = {name: repr(value) for name, value in call.items() if name != "seed"}
    if "seed" in taken:
        given["seed"] = "seed"
    arguments = "**{" + ", ".join(f"{name!r}: {value}" for name, value in given.items()) + "}"
    taken_out = "".join(map(_step, path)) + (".view(torch.uint8)" if leaf.bytes_of else "")
    return _MAKE.format(arguments=arguments, path=taken_out)


def _strides(name: str, leaves: Sequence[Leaf], shape: Sequence[int | str]) -> dict[str, Any]:
    """Return the `strides` of an input that is not laid out in order, as products of its axes."""
    if all(is_contiguous(leaf.shape or [], leaf.strides) for leaf in leaves):
        return {}
    orders = [permutation_of(leaf.shape or [], leaf.strides or []) for leaf in leaves]
    # An axis of size 1 may stand anywhere in the order: one that suits all is that of the workload without such.
    chosen = next((one for one in orders if one and all(_is_laid_out(leaf, one) for leaf in leaves)), None)
    if chosen is None:
        raise refused(
            f"input {name}: strides", leaves[0].strides, "a dense tensor, its axes in one order in all workloads"
        )
    strides: list[int | str] = [1] * len(shape)
    inner: list[str] = []
    for axis in reversed(chosen):
        strides[axis] = " * ".join(inner) if inner else 1
        inner.insert(0, str(shape[axis]))
    return {"strides": strides}


def _is_laid_out(leaf: Leaf, order: Sequence[int]) -> bool:
    """Check whether a leaf is dense with its axes in this order, from the outermost in memory."""
    shape, strides = leaf.shape or [], leaf.strides or []
    return is_contiguous([shape[axis] for axis in order], [strides[axis] for axis in order])


def run(facts: TaskFacts, wanted: Sequence[str], taken: Sequence[int], *, names_gpu: bool) -> str:
    """Return Python source of `run`, to follow an embedding of the files.

    `taken` are the outputs that are no written input; `names_gpu`: whether `ref_kernel` puts tensors on a GPU.
    """
    paths = list(_paths(facts.understood[0].result))
    found = [f"found{''.join(f'[{step!r}]' for step in paths[number])}" for number in taken]
    outputs = "None" if not found else found[0] if len(found) == 1 else f"({', '.join(found)})"
    given = [
        f"{name}.view(torch.{leaf.bytes_of})" if leaf.bytes_of else name
        for name, leaf in zip(wanted, facts.understood[0].inputs, strict=True)
    ]
    tensor = next(
        (name for name, leaf in zip(wanted, facts.understood[0].inputs, strict=True) if leaf.shape is not None), None
    )
    data = _expression(facts.understood[0].structure, given)
    computing = _FOUND if tensor is None or not names_gpu else _FOUND_ANYWHERE
    before = "\n\nimport torch\n" if given != list(wanted) else ""
    if f"{OBJECT}(" in data:
        before += SOURCE + f"\n\n{CLASSES} = _embedded({MODULE!r})\n"
    computed = computing.format(tensor=tensor, data=data, kernel=KERNEL)
    text = before + _RUN.format(parameters=", ".join(wanted), found=computed, outputs=outputs, kernel=KERNEL)
    result = _whole_result(facts, wanted)
    return text if result is None else f"{text}\n\n{RESULT} = {result!r}\n"


def _whole_result(facts: TaskFacts, wanted: Sequence[str]) -> str | None:
    """Return Python source of what `ref_kernel` returns, where inputs that it writes are part of that.

    None where none is, or where such a part is not the whole input.
    """
    first, paths = facts.understood[0], list(_paths(facts.understood[0].result))
    parts, some = [], False
    for number, alias in enumerate(first.aliases):
        if alias is None or alias not in first.written:
            parts.append(f"found{''.join(f'[{step!r}]' for step in paths[number])}")
        elif first.inputs[alias].bytes_of is None and all(
            each.outputs[number].shape == each.inputs[alias].shape for each in facts.understood
        ):
            parts.append(wanted[alias])
            some = True
        else:
            return None
    return _expression(first.result, parts) if some else None


def _expression(structure: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """Return Python source of the data, made of names."""
    kind, content = next(iter(structure.items()))
    if kind == "leaf":
        return str(wanted[content])
    if kind == "constant":
        return repr(content)
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {_expression(item, wanted)}" for key, item in content.items()) + "}"
    if kind == "object":
        attributes = _expression({"dict": content["attributes"]}, wanted)
        marked = f"{content['parameters']!r}, {content['buffers']!r}"
        return f"{OBJECT}({CLASSES}.{content['class']}, {attributes}, {marked})"
    items = [_expression(item, wanted) for item in content]
    if kind == "list":
        return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
