"""Checks of a candidate's launches: there is one, and its arguments fit the kernel.

They read the syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warpsmith.kernels_db.runtime import CompileError, Parameter
from warpsmith.kernels_db.runtime.signatures import signatures
from warpsmith.workers.gate.allowed import LAUNCHERS
from warpsmith.workers.gate.kinds import Kind, Kinds
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import Scope

_EXAMPLES = {
    "cpp": "kernels.NAME(x, out, out.numel())",
    "cuda": "kernels.NAME[grid, block](x, out, out.numel())",
    "triton": "kernel[grid](x, out, out.numel(), BLOCK=1024)",
    "cute": "launch(x, out) with launch = cutedsl.compile(function)",
    "tilelang": "launch(x, out) with launch = tilelang.compile(function)",
    "gluon": "kernel[grid](x, out, out.numel(), BLOCK=1024, num_warps=4)",
}


@dataclass(frozen=True)
class _Launch:
    """A launch in function `here`.

    kernel: its name as written; arguments: those of the kernel, not grid and block.
    """

    node: ast.Call
    here: str
    kernel: str
    arguments: list[ast.expr]


def launch_problems(scope: Scope, library: frozenset[str], given: Mapping[str, Kind]) -> list[Problem]:
    """List the problems of the candidate's launches; `given`: kinds of run's parameters."""
    reached = list(_reached(scope))
    launches = [launch for here, node in reached for launch in _launches(scope, here, node)]
    if not launches and not any(_calls_library(scope, library, node) for _, node in reached):
        found = f"expected at least one launch of a kernel of yours, such as {_EXAMPLES[scope.language]}"
        return [Problem(scope.functions["run"].lineno, f"run launches nothing: {found}")]
    if scope.decorators:
        return [problem for launch in launches for problem in _bound(scope, launch)]
    kinds = Kinds(scope, given, library)
    certain = {id(node) for node in _certain(scope, scope.functions["run"], set())}
    return [problem for launch in launches for problem in _fit(scope, kinds, launch, id(launch.node) in certain)]


def _reached(scope: Scope) -> Iterator[tuple[str, ast.AST]]:
    """Yield (function, node) of every node that may run when `run` is called.

    Statements after a return do not.
    """
    waiting, seen = ["run"], {"run"}
    while waiting:
        here = waiting.pop()
        for statement in _live(scope.functions[here].body):
            for node in _within(statement):
                yield here, node
                name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
                if name in scope.functions and name not in seen:
                    seen.add(name)
                    waiting.append(name)


def _live(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Return `statements` up to the first after which none runs."""
    for i, statement in enumerate(statements):
        if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return statements[: i + 1]
    return statements


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and all that may run inside it."""
    yield node
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and isinstance(node.test, ast.Constant):
        branch = node.body if node.test.value else node.orelse
        children: list[ast.AST] = list(_live(branch)) if isinstance(branch, list) else [branch]
    else:
        children = []
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [part for part in value if isinstance(part, ast.AST)]
                statements = [part for part in parts if isinstance(part, ast.stmt)]
                children += _live(statements) if statements else parts
            elif isinstance(value, ast.AST):
                children.append(value)
    for child in children:
        yield from _within(child)


def _launches(scope: Scope, here: str, node: ast.AST) -> Iterator[_Launch]:
    """Yield `node` where it is a launch of a kernel of the candidate's."""
    if not isinstance(node, ast.Call):
        return
    function = node.func
    if isinstance(function, ast.Name) and function.id in scope.launchers:
        yield _Launch(node, here, scope.launchers[function.id], node.args)
    elif isinstance(function, ast.Subscript):
        kernel = function.value
        if isinstance(kernel, ast.Name) and kernel.id in scope.jitted:
            yield _Launch(node, here, kernel.id, node.args)
        elif scope.language == "cuda" and _compiled(scope, kernel):
            yield _Launch(node, here, ast.unparse(kernel), node.args)
    elif scope.language == "cpp" and _compiled(scope, function):
        yield _Launch(node, here, ast.unparse(function), node.args)
    elif scope.language == "cuda" and isinstance(function, ast.Attribute) and _compiled(scope, function.value):
        yield _Launch(node, here, ast.unparse(function.value), node.args[2:])


def _compiled(scope: Scope, node: ast.expr) -> bool:
    """Check whether `node` is `kernels.name`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in scope.compiled


def _calls_library(scope: Scope, library: frozenset[str], node: ast.AST) -> bool:
    """Check whether `node` is a library call that the op allows."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    method = node.func.attr if isinstance(node.func, ast.Attribute) else None
    return scope.dotted(node.func) in library or method in library


def _certain(scope: Scope, function: ast.FunctionDef, inside: set[str]) -> Iterator[ast.Call]:
    """Yield the calls that run whenever `function` is called to its end."""
    for statement in function.body:
        if isinstance(statement, (ast.If, ast.For, ast.While)):
            leaves = (ast.Return, ast.Raise, ast.Continue, ast.Break)
            if any(isinstance(node, leaves) for node in ast.walk(statement)):
                return
            continue
        for node in ast.walk(statement):
            if isinstance(node, (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension)):
                break
        else:
            yield from _straight(scope, statement, inside)
        if isinstance(statement, (ast.Return, ast.Raise)):
            return


def _straight(scope: Scope, statement: ast.stmt, inside: set[str]) -> Iterator[ast.Call]:
    """Yield the calls of a statement without branches, and of the helpers that it calls."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield node
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in scope.functions and name not in inside:
                yield from _certain(scope, scope.functions[name], inside | {name})


def _fit(scope: Scope, kinds: Kinds, launch: _Launch, certain: bool) -> Iterator[Problem]:
    """Yield the arguments of a C++ or CUDA launch that its kernel cannot take."""
    root, _, name = launch.kernel.partition(".")
    try:
        parameters = signatures(scope.compiled[root] or "", cuda=scope.language == "cuda").get(name)
    except CompileError:
        return  # the compile gate says it
    if parameters is None:
        return
    starred = next((i for i, argument in enumerate(launch.arguments) if isinstance(argument, ast.Starred)), None)
    line = launch.node.lineno
    if starred is None and len(launch.arguments) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        yield Problem(line, f"{name} takes {len(parameters)} arguments ({names}), found {len(launch.arguments)}")
        return
    for argument, parameter in zip(launch.arguments[:starred], parameters, strict=False):
        kind = kinds.of(launch.here, argument)
        expected = _expected(parameter, kind, argument, certain)
        if expected is not None:
            spelled = ast.unparse(argument)[:60]
            where = f"parameter {parameter.name!r} ({parameter.type}) of {name!r}"
            yield Problem(argument.lineno, f"{where}: found `{spelled}`, {kind}, {expected}")


def _expected(  # noqa: PLR0911  one answer per kind of parameter
    parameter: Parameter, kind: Kind, argument: ast.expr, certain: bool
) -> str | None:
    """Say what a parameter takes instead of a value of `kind`.

    None where it takes the value, or that is not known. A dtype counts only where the launch is certain: another branch
    may be for another dtype.
    """
    if kind.word == "?":
        return None
    if parameter.kind == "pointer":
        if kind.word == "tensor":
            wrong = certain and kind.dtype and parameter.dtypes is not None and kind.dtype not in parameter.dtypes
            return f"expected a tensor of {' or '.join(sorted(parameter.dtypes or ()))}" if wrong else None
        address = isinstance(argument, ast.Call) and ast.unparse(argument.func).endswith(".data_ptr")
        remedy = ": pass the tensor itself, not its address" if address else ""
        return None if kind.word == "None" else f"expected a tensor{remedy}"
    if parameter.kind == "tensor_map":
        return None if kind.word == "map" else "expected a tensor map: cuda.tensor_map(tensor, box)"
    if kind.word in ("int", "bool") or (kind.word == "number" and parameter.kind != "boolean"):
        return None
    if parameter.kind == "floating":
        return None if kind.word == "float" else "expected a number"
    if parameter.kind == "boolean":
        return "expected a bool"
    return "expected an int" + (": `//` divides to one, int() rounds to one" if kind.word == "float" else "")


def _bound(scope: Scope, launch: _Launch) -> Iterator[Problem]:
    """Yield the arguments of a launch that its function has no parameters for, or lacks."""
    function = scope.jitted[launch.kernel]
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    given = launch.arguments
    if any(isinstance(argument, ast.Starred) for argument in given):
        return
    line, listed = launch.node.lineno, ", ".join(names)
    if len(given) > len(names):
        yield Problem(line, f"{launch.kernel} takes {len(names)} arguments ({listed}), found {len(given)}")
        return
    keywords = {keyword.arg for keyword in launch.node.keywords}
    twice = [name for name in names[: len(given)] if name in keywords]
    if twice:
        yield Problem(line, f"{launch.kernel} is given {', '.join(twice)} twice: by position and by name")
    if len(function.decorator_list) > 1 and scope.language not in LAUNCHERS:
        return  # autotune and heuristics give arguments, too
    required = names[: len(names) - len(function.args.defaults)]
    missing = [name for name in required[len(given) :] if name not in keywords]
    if missing:
        yield Problem(line, f"{launch.kernel} takes ({listed}), found no {', '.join(missing)}")
