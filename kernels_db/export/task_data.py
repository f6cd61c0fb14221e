"""How a GPU MODE task's `data` holds the op's inputs, and how its result holds the outputs.

A task that we write keeps both as flat tuples. For an op that was imported from a task, both stand in the reference:
its `run` puts the data together, calls `ref_kernel` and takes the result apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from warpsmith.kernels_db.formats.gpu_mode.exchange import Exchange, exchange_of
from warpsmith.kernels_db.formats.gpu_mode.inputs import OBJECT
from warpsmith.kernels_db.job.python_parsing import parse_expression
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors
from warpsmith.kernels_db.spec.resolve import arguments

Path = tuple[int | str, ...]
EXPECTED = "run as an import of a GPU MODE task writes it: found = ref_kernel(data), and a return of parts of found"


def input_sources(op: Op, imported: bool) -> list[str]:
    """Return the Python source of each input, over `data`.

    Raises SpecErrors where the reference does not say it.
    """
    if not imported:
        return [f"data[{position}]" for position in range(len(arguments(op)))]
    places = {name: source for source, name in _leaves(_exchange(op).data, "data")}
    missing = [item.name for item in op.inputs if item.name not in places]
    if missing:
        raise _unreadable(f"no place of {', '.join(missing)} in the data")
    return [places[item.name] for item in op.inputs]


def result_sources(op: Op, imported: bool) -> list[str]:
    """Return the source of each part of the result, over the tuples `outputs` and `arguments`.

    A task that we write returns the outputs, then the inputs that it writes. An imported one returns its outputs where
    `run` finds them; a place that it does not look at is that of an input which the task writes.
    """
    written = [f"arguments[{position}]" for position, item in enumerate(arguments(op)) if item.mutated]
    if not imported:
        return [f"outputs[{position}]" for position in range(len(op.outputs))] + written
    exchange = _exchange(op)
    returned = exchange.returned
    if exchange.result is not None:
        return [ast.unparse(_Taken(op, returned).visit(exchange.result))]
    if isinstance(returned, ast.Constant):
        return written
    parts = returned.elts if isinstance(returned, ast.Tuple) else [returned]
    places = [_place(part) for part in parts]
    if places == [()] and len(op.outputs) == 1:
        return ["outputs[0]"]
    most = len(op.outputs) + len(written)
    if len(places) != len(op.outputs) or not all(
        len(place) == 1 and isinstance(place[0], int) and 0 <= place[0] < most for place in places
    ):
        raise _unreadable("a result that is more than a tuple of tensors")
    taken = {place[0]: f"outputs[{number}]" for number, place in enumerate(places)}
    rest = iter(written)
    filled = [
        taken[position] if position in taken else next(rest, None) for position in range(max(map(int, taken)) + 1)
    ]
    if None in filled:
        raise _unreadable("a result with a part that is neither an output nor a written input")
    return [source for source in filled if source is not None]


class _Taken(ast.NodeTransformer):
    """Puts into a result the op's outputs at the places that `run` takes, and the inputs that are part of it."""

    def __init__(self, op: Op, returned: ast.expr) -> None:
        parts = returned.elts if isinstance(returned, ast.Tuple) else [returned]
        none = isinstance(returned, ast.Constant)
        self._places = {} if none else {_place(part): f"outputs[{number}]" for number, part in enumerate(parts)}
        self._arguments = {item.name: f"arguments[{number}]" for number, item in enumerate(arguments(op))}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._source(self._places.get(_place(node)))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._source(self._places.get(()) if node.id == "found" else self._arguments.get(node.id))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Constant | ast.Load):
            raise _unreadable("a result that is more than tensors, texts and None in tuples, lists and dicts")
        return super().generic_visit(node)

    def _source(self, found: str | None) -> ast.expr:
        if found is None:
            raise _unreadable("a result with a part that is neither an output nor a written input")
        return parse_expression(found)


def _exchange(op: Op) -> Exchange:
    found = exchange_of(op.reference)
    if found is None:
        raise _unreadable("another function run")
    return found


def _leaves(node: ast.expr, source: str) -> Iterator[tuple[str, str]]:
    """Yield the names in the expression of a task's data, each with the source of its place; `source`: the whole's."""
    match node:
        case ast.Name(id=name):
            yield source, name
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for number, item in enumerate(items):
                yield from _leaves(item, f"{source}[{number}]")
        case ast.Dict(keys=keys, values=values):
            for key, item in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _leaves(item, f"{source}[{key.value!r}]")
        case ast.Call(func=ast.Name(id=function), args=[_, ast.Dict(keys=keys, values=values), *_]) if (
            function == OBJECT
        ):
            for key, item in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _leaves(item, f"{source}.{key.value}")
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="view")):  # the op has it as bytes
            yield f"{source}.view(torch.uint8)", name


def _place(node: ast.expr) -> Path:
    """Return the path that an expression such as `found[1]` takes in `found`."""
    match node:
        case ast.Name():
            return ()
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as step)):
            return (*_place(value), step)
    raise _unreadable("a return of more than parts of found")


def _unreadable(found: str) -> SpecErrors:
    return SpecErrors([SpecError("reference", found, EXPECTED)])
