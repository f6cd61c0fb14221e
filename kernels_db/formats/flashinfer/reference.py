"""Turns a Definition's reference into a spec's.

`run` then takes its inputs by position and returns a tensor or a tuple. The format lets `run` name its
parameters in another order than that of the inputs, and return a dict by output. Where a reference does so, or
leaves inputs out, a `run` that says it in the spec's way is added below it; otherwise it stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from warpsmith.kernels_db.formats.flashinfer import writes
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.job.python_parsing import parse_module

_ADDED = '''

_run = run


def run({parameters}):
    """As above, its inputs by position{returns}."""
    found = _run({arguments})
    {result}
'''
_FROM_DICT = "return tuple(found[name] for name in {outputs}) if isinstance(found, dict) else found"


def reference(source: str, field: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the spec's reference. Raises SpecErrors naming `field`."""
    run = _run(source, field)
    by_name = _by_name(run, inputs)
    passed = _read(run, inputs)
    source = with_math(source)
    returns_dict = any(
        isinstance(node, ast.Return) and isinstance(node.value, ast.Dict | ast.DictComp) for node in ast.walk(run)
    )
    if not by_name and not returns_dict:
        return source
    result = _FROM_DICT.format(outputs=f"({', '.join(map(repr, outputs))},)") if returns_dict else "return found"
    return (
        source.rstrip("\n")
        + "\n"
        + _ADDED.format(
            parameters=", ".join(inputs),
            arguments=", ".join(f"{name}={name}" if by_name else name for name in passed),
            returns=", and a tuple for the dict" if returns_dict else "",
            result=result,
        )
    )


def unread(source: str, field: str, inputs: Sequence[str]) -> list[str]:
    """Return the inputs that `run` does not take. Raises SpecErrors naming `field`."""
    passed = _read(_run(source, field), inputs)
    return [name for name in inputs if name not in passed]


def with_math(source: str) -> str:
    """Return a source that uses `math` with an import of it, at its end, where it has none; else the source itself."""
    nodes = list(ast.walk(parse_module(source)))
    uses = any(isinstance(node, ast.Name) and node.id == "math" for node in nodes)
    binds = any(
        isinstance(node, ast.Name) and node.id == "math" and not isinstance(node.ctx, ast.Load) for node in nodes
    )
    imports = any(
        isinstance(node, ast.Import | ast.ImportFrom)
        and any((item.asname or item.name).partition(".")[0] in ("math", "*") for item in node.names)
        for node in nodes
    )
    taken = any(isinstance(node, ast.arg) and node.arg == "math" for node in nodes)
    return f"{source.rstrip()}\n\n\nimport math\n" if uses and not (binds or imports or taken) else source


def written(source: str, field: str, inputs: Sequence[str]) -> set[str]:
    """Return the inputs that `run` surely writes to: `x[...] = y`, `x += y`, `x.add_(y)` (`writes.py`).

    Where it cannot be told, as in a function that `run` calls or in very deep expressions, it is none of them: the
    judge refuses a reference that writes to it all the same. Raises SpecErrors naming `field`.
    """
    run = _run(source, field)
    taken = inputs if _by_name(run, inputs) else _parameters(run)
    try:
        return writes.written_by(run, dict(zip(taken, inputs, strict=False)))
    except RecursionError:
        return set()  # too deep to follow, and thus not told


def _by_name(run: ast.FunctionDef, inputs: Sequence[str]) -> bool:
    """Check whether `run` takes its inputs by name, in an order of its own."""
    named = _parameters(run)
    if _read(run, inputs) != list(inputs):
        return True
    return set(inputs) <= set(named) and (named[: len(inputs)] != list(inputs) or bool(run.args.kwonlyargs))


def _read(run: ast.FunctionDef, inputs: Sequence[str]) -> list[str]:
    """Return the inputs that `run` takes: all, unless its parameters are some of their names and nothing else."""
    named = _parameters(run)
    whole = run.args.vararg is not None or run.args.kwarg is not None or not named or not set(named) < set(inputs)
    return list(inputs) if whole else [name for name in inputs if name in named]


def _parameters(run: ast.FunctionDef) -> list[str]:
    return [item.arg for item in [*run.args.posonlyargs, *run.args.args, *run.args.kwonlyargs]]


def _run(source: str, field: str) -> ast.FunctionDef:
    functions = python_source.top_level(python_source.parse(RawFile(field, source.encode("utf-8"))), ast.FunctionDef)
    if "run" not in functions:
        raise refused(field, f"no function run, but {', '.join(functions) or 'none'}", "a module with run(...)")
    return functions["run"]
