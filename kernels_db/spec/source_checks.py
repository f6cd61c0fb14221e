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
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _last(body: Sequence[ast.stmt], name: str, kind: type[Definition]) -> Definition | None:
    """Return the last definition of `name`, the one that Python would use."""
    found = [node for node in body if isinstance(node, kind) and node.name == name]
    return found[-1] if found else None
