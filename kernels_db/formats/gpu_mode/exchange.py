"""How `run` of a spec that was a task holds the data and the result: read from what `inputs.run` wrote."""

from __future__ import annotations

import ast
from typing import NamedTuple

from warpsmith.kernels_db.job.python_parsing import parse_expression, parse_module

KERNEL = "_ref_kernel"
"""The task's own function, as a spec's source calls it."""


RESULT = "_RESULT"
"""A name in a spec's source: the whole of what the task's function returns, as a text of `found` and the inputs.

It is there where inputs that the function writes are part of that."""


class Exchange(NamedTuple):
    """`data`: what the task's function is given, of the op's inputs. `returned`: what is taken, of `found`.

    `result`: the text of `RESULT`, parsed; None without.
    """

    data: ast.expr
    returned: ast.expr
    result: ast.expr | None


def exchange_of(reference: str) -> Exchange | None:
    """Return the exchange in a spec's reference; None where its `run` is another than an import writes."""
    try:
        body = parse_module(reference).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    match next((node.body for node in reversed(functions) if node.name == "run"), []):
        case [first, ast.Return(value=ast.expr() as returned)]:
            # Of a task that puts tensors on a GPU: with one, it is called as it stands.
            called = first.body[0] if isinstance(first, ast.If) and len(first.body) == 1 else first
            match called:
                case ast.Assign(value=ast.Call(func=ast.Name(id=name), args=[data])) if name == KERNEL:
                    return Exchange(data, returned, _result(body))
    return None


def _result(body: list[ast.stmt]) -> ast.expr | None:
    for statement in reversed(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if name == RESULT:
                try:
                    return parse_expression(text)
                except (SyntaxError, ValueError, RecursionError):
                    return None
    return None
