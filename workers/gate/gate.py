"""The gate: reads a candidate before anything runs it.

An allow-list of syntax, imports, names, attributes and calls. What a candidate may do (`allowed` holds the names):

- its text: what every reader takes for the same code (`text`).
- module level: imports; constants (numbers, strings, tuples, tables, `triton.Config` lists); `@triton.jit` functions
  under `@triton.autotune` or `@triton.heuristics`; plain helper functions; `kernels = cpp.compile(<constant>)`; one
  `run`; an optional import in try/except ImportError.
- `run` and helpers: shape arithmetic, scratch memory, views, branches, `for` and `while` (the judge's clock ends one
  that does not end), assert and raise, launches of its own kernels. Assignments bind local names alone, and `+=` and
  its like change nothing that the module keeps (`kept`), so nothing outlives a call.
- a tensor is viewed or passed to a kernel; arithmetic, comparison or truth of a tensor on the host is a library op
  (`tensors`).
- `run` launches a kernel, and what it passes fits the kernel's parameters (`launches`).
- `TUNE` names numbers that the judge may choose (`tunables`).
- with `library_calls`, also the torch functions and methods of that list.

The gate runs nothing, needs the standard library alone, and answers any text with a list of problems.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.kept import kept_problems
from warpsmith.workers.gate.kinds import Kind
from warpsmith.workers.gate.launches import launch_problems
from warpsmith.workers.gate.module import Module
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import read_scope
from warpsmith.workers.gate.tensors import tensor_problems
from warpsmith.workers.gate.text import encoding_problem, separator_problem
from warpsmith.workers.gate.tunables import tunable_problems

__all__ = ["Problem", "check"]


def check(
    source: str,
    language: str,
    library_calls: Sequence[str] = (),
    parameters: Sequence[str] | None = None,
    scalars: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> list[Problem]:
    """List what `source` does and may not do, by line; an empty list passes.

    Args:
        source: the candidate, any text.
        language: a gated one of `kernels_db.job.languages`.
        library_calls: torch functions that the op lets it call: "torch.mm", "torch.nn.functional.conv2d", or short,
            "mm", "conv2d"; a short name also means the method.
        parameters: names that `run` must take, the op's inputs, then its outputs; None leaves them open.
        scalars: those of them that are numbers; all others are taken for tensors, which the host may not compute with.
        kinds: by parameter, its kind in every workload: a tensor's dtype by torch's name, a scalar's "int", "float"
            or "bool". A parameter that is absent is not known.
    """
    if language not in allowed.LANGUAGES:
        return [Problem(1, f"language: found {language!r}, expected one of {', '.join(allowed.LANGUAGES)}")]
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > allowed.MAX_BYTES:
        return [Problem(1, f"the candidate has {size} bytes, expected at most {allowed.MAX_BYTES}")]
    misread = encoding_problem(source) or separator_problem(source)
    if misread is not None:
        return [misread]
    try:
        tree = parse(source)
    except SyntaxError as error:
        return [Problem(error.lineno or 1, f"this is not Python: {error.msg}")]
    if depth(tree) > allowed.MAX_DEPTH:
        return [Problem(1, f"the syntax is nested more than {allowed.MAX_DEPTH} levels deep: expected flatter code")]
    scope = read_scope(tree, language)
    library = _library(library_calls)
    problems: list[Problem] = []
    Module(scope, problems, library).check(tree, parameters)
    problems += tunable_problems(tree)
    if not problems:
        problems = tensor_problems(tree, scope, library, frozenset(scalars)) + kept_problems(scope)
    if not problems:
        problems = launch_problems(scope, library, _given(parameters, scalars, kinds or {}))
    return sorted(set(problems))


def parse(source: str) -> ast.Module:
    """Parse `source` into its syntax tree.

    Raises:
        SyntaxError: it is not Python, or nested more deeply than the parser goes.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape sequence is not the gate's business
            return parse_module(source)
    except (ValueError, OverflowError) as error:
        raise SyntaxError(str(error)) from error


def depth(tree: ast.AST) -> int:
    """Count the levels of a syntax tree, without recursion."""
    level: list[ast.AST] = [tree]
    count = 0
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        count += 1
    return count


def _given(parameters: Sequence[str] | None, scalars: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Kind]:
    """Return the kinds of run's parameters.

    A tensor's dtype may be unknown, a scalar's type too, which is then left out.
    """
    known = {name: Kind(kinds[name]) for name in scalars if name in kinds}
    return known | {name: Kind("tensor", kinds.get(name)) for name in parameters or () if name not in scalars}


def _library(calls: Sequence[str]) -> frozenset[str]:
    """Add to `calls` every way to spell them.

    "mm" is also torch.mm, torch.nn.functional.mm and the method.
    """
    names = set(calls)
    for name in calls:
        if "." not in name:
            names |= {f"torch.{name}", f"torch.nn.functional.{name}"}
    return frozenset(names)
