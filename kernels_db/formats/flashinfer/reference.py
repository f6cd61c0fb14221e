"""Turns a Definition's reference into a spec's.

`run` then takes its inputs by position and returns a tensor or a tuple. The format lets `run` name its
parameters in another order than that of the inputs, and return a dict by output. Where a reference does so, a
`run` that says it in the spec's way is added below it; otherwise it stays as it is. An input that `run` writes to is
given as a copy: the format's inputs are only read, and what is written there is no result.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile, refused

_ADDED = '''

_run = run


def run({parameters}):
    """As above, its inputs by position{returns}."""
    found = _run({arguments})
    {result}
'''
_FROM_DICT = "return tuple(found[name] for name in {outputs}) if isinstance(found, dict) else found"


def reference(source: str, field: str, inputs: Sequence[str], outputs: Sequence[str], scalars: Sequence[str]) -> str:
    """Return the spec's reference. `scalars`: inputs that are numbers. Raises SpecErrors naming `field`."""
    functions = python_source.top_level(python_source.parse(RawFile(field, source.encode("utf-8"))), ast.FunctionDef)
    run = functions.get("run")
    if run is None:
        raise refused(field, f"no function run, but {', '.join(functions) or 'none'}", "a module with run(...)")
    named = [item.arg for item in [*run.args.posonlyargs, *run.args.args, *run.args.kwonlyargs]]
    by_name = set(inputs) <= set(named) and (named[: len(inputs)] != list(inputs) or bool(run.args.kwonlyargs))
    returns_dict = any(
        isinstance(node, ast.Return) and isinstance(node.value, ast.Dict | ast.DictComp) for node in ast.walk(run)
    )
    copied = _written(run, inputs) - set(scalars)
    if not by_name and not returns_dict and not copied:
        return source
    result = _FROM_DICT.format(outputs=f"({', '.join(map(repr, outputs))},)") if returns_dict else "return found"
    return (
        source.rstrip("\n")
        + "\n"
        + _ADDED.format(
            parameters=", ".join(inputs),
            arguments=", ".join(
                (f"{name}=" if by_name else "") + name + (".clone()" if name in copied else "") for name in inputs
            ),
            returns=", and a tuple for the dict" if returns_dict else "",
            result=result,
        )
    )


def _written(run: ast.FunctionDef, inputs: Sequence[str]) -> set[str]:
    """Return the inputs that `run` writes to by their names: `x[...] = y`, `x += y`, `x.add_(y)`."""
    found = set()
    for node in ast.walk(run):
        places: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            places = [target for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.AugAssign):
            places = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            places = [node.func.value] if name.endswith("_") and not name.endswith("__") else []
        for place in places:
            owner = place
            while isinstance(owner, ast.Subscript):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in inputs:
                found.add(owner.id)
    return found
