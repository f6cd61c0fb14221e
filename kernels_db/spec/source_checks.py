"""Checks of a spec's Python sources by their syntax alone.

They check whether the function is there, and whether it takes its arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

from warpsmith.kernels_db.spec.basic_types import python_tree
from warpsmith.kernels_db.spec.dist import Code
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.experts import read_call
from warpsmith.kernels_db.spec.parts import Parts
from warpsmith.kernels_db.spec.tensors import CodeCheck

Definition = TypeVar("Definition", ast.FunctionDef, ast.ClassDef)


def check_sources(parts: Parts) -> Iterator[SpecError]:
    """Check the reference, coded distributions and coded checks.

    Sources that do not parse are reported by their own fields.
    """
    if parts.reference is not None and parts.input_count is not None:
        yield from _check_reference(parts.reference, parts.input_count, parts.has_model)
        names = [each.name for _, each in parts.inputs]
        if len(names) == parts.input_count:
            yield from _check_order(parts.reference, names, parts.has_model)
    for field, dist in parts.dists():
        if isinstance(dist, Code):
            yield from _check_function(f"{field}.source", dist.source, "make", 3, "shape, dtype and generator")
    for field, output in parts.outputs:
        if isinstance(output.check, CodeCheck):
            source = output.check.source
            yield from _check_function(f"{field}.check.source", source, "check", 3, "inputs, expected and found")


def check_run(field: str, expert: str, inputs: int) -> Iterator[SpecError]:
    """Check that an expert which is a module has `run`, and that this takes the op's inputs."""
    if read_call(expert) is None:
        yield from _check_function(field, expert, "run", inputs, "one for each input, then the state")


def _check_reference(source: str, inputs: int, has_model: bool) -> Iterator[SpecError]:
    if not has_model:
        yield from _check_function("reference", source, "run", inputs, "one for each input")
        return
    body = _body(source)
    if body is None:
        return
    model = _last(body, "Model", ast.ClassDef)
    if model is None:
        expected = "a class Model (a torch.nn.Module), because the op has init or state"
        yield SpecError("reference", "no class Model", expected)
        return
    forward = _last(model.body, "forward", ast.FunctionDef)
    yield from _check_parameters("reference", forward, "Model.forward", inputs + 1, "self and one for each input")


def _check_order(source: str, names: Sequence[str], has_model: bool) -> Iterator[SpecError]:
    """Check that no parameter of the reference has the name of an input at another place.

    Arguments go by position: swapped, the op would compute something else than its text says, and be admitted.
    """
    body = _body(source) or []
    model = _last(body, "Model", ast.ClassDef) if has_model else None
    entry, scope = ("forward", [] if model is None else model.body) if has_model else ("run", body)
    function = _last(scope, entry, ast.FunctionDef)
    if function is None:
        return
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][1 if has_model else 0 :]
    if any(found != name and found in names for found, name in zip(parameters, names, strict=False)):
        found = f"{entry}({ast.unparse(function.args)}) in line {function.lineno}"
        yield SpecError("reference", found, f"the inputs in their order, for they go by position: {', '.join(names)}")


def _check_function(field: str, source: str, name: str, count: int, described: str) -> Iterator[SpecError]:
    body = _body(source)
    if body is not None:
        yield from _check_parameters(field, _last(body, name, ast.FunctionDef), name, count, described)


def _check_parameters(
    field: str, function: ast.FunctionDef | None, name: str, count: int, described: str
) -> Iterator[SpecError]:
    expected = f"a function {name} with {count} positional parameters ({described})"
    if function is None:
        yield SpecError(field, f"no function {name}", expected)
        return
    parameters = function.args
    most = len(parameters.posonlyargs) + len(parameters.args)
    least = most - len(parameters.defaults)
    keywords_needed = any(default is None for default in parameters.kw_defaults)
    if keywords_needed or count < least or (count > most and parameters.vararg is None):
        yield SpecError(field, f"{name}({ast.unparse(parameters)}) in line {function.lineno}", expected)


def _body(source: str) -> list[ast.stmt] | None:
    try:
        return python_tree(source).body
    except (SyntaxError, ValueError):
        return None


def _last(body: Sequence[ast.stmt], name: str, kind: type[Definition]) -> Definition | None:
    """Return the last definition of `name`, the one that Python would use."""
    found = [node for node in body if isinstance(node, kind) and node.name == name]
    return found[-1] if found else None
