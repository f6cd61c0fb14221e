"""Free Python candidates: nothing is compiled, and nothing of them runs here.

Some faults show without running them and are reported at once: a file that does not parse, a missing or misfit `run`,
an import of a module that is not installed, an encoding by which Python would read other text.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db import candidate_import
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.module_imports import loaded_imports
from warpsmith.kernels_db.runtime import CompileError
from warpsmith.workers.gate.gate import parse
from warpsmith.workers.gate.text import encoding_problem
from warpsmith.workers.judge.languages.prepared import CompileLimits, Prepared

MAX_BYTES = 2 << 20


def prepare(
    source: str,
    *,
    target_arch: str,  # nothing is built for it
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),
    library_calls: Sequence[str] = (),  # free Python may call whatever there is
) -> Prepared:
    """See `Language`. There are no binaries and no kernels to report."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise CompileError(f"the candidate has {size} bytes, expected at most {MAX_BYTES}")
    misread = encoding_problem(source)
    if misread is not None:
        raise CompileError(f"line {misread.line}: {misread.message}")
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise CompileError(f"line {error.lineno or 1}: this is not Python: {error.msg}") from error
    _check_imports(tree, source)
    if workloads:
        first = workloads[0]
        _check_run(tree, [item["name"] for item in (*first["inputs"], *first["outputs"])])
    return {"seconds": 0.0, "log": "", "cached": False, "kernels": [], "binaries": []}


def _check_imports(tree: ast.Module, source: str) -> None:
    """Raise CompileError for the first imported module that is not installed here.

    Only imports that happen as the file is loaded count.
    """
    for found in loaded_imports(tree):
        if found.level:
            expected = "absolute ones: a candidate is one file"
            raise CompileError(f"line {found.line}: a relative import, expected {expected}")
        if not _installed(found.top):
            line = re.split(r"\r\n|\r|\n", source)[found.line - 1].strip()
            raise CompileError(f"line {found.line}: imports {found.top!r}, which is not installed here ({line:.200})")


def _installed(name: str) -> bool:
    """Check whether there is a top-level module of that name.

    Looks for its file and imports nothing.
    """
    if name == candidate_import.NAME:  # the runner provides it
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # ValueError: it is loaded and has no spec, as __main__
        return name == "__main__"


def _check_run(tree: ast.Module, names: Sequence[str]) -> None:
    """Raise CompileError where the file binds no `run`, or one of the wrong form.

    A `run` must take inputs and outputs.
    """
    found = [node for node in tree.body if "run" in _bound(node)]
    if not found:
        raise CompileError(f"no function `run` is defined, expected def run({', '.join(names)})")
    last = found[-1]
    if not isinstance(last, ast.FunctionDef) or last.name != "run" or last.decorator_list:
        return  # what is bound there, or what a decorator makes of it, only running it tells
    given = last.args
    most = len(given.posonlyargs) + len(given.args)
    least = most - len(given.defaults)
    keywords = [item.arg for item, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    if keywords or len(names) < least or (len(names) > most and given.vararg is None):
        taken = ", ".join(item.arg for item in [*given.posonlyargs, *given.args, *given.kwonlyargs])
        raise CompileError(
            f"line {last.lineno}: found run({taken}), expected {len(names)} positional parameters: "
            f"run({', '.join(names)})"
        )


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module may bind in it, at any depth.

    Of functions only the names that they declare global. `from ... import *` may bind `run`.
    """
    names: set[str] = set()
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            names.update(name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
        elif isinstance(node, ast.alias):
            names.add("run" if node.name == "*" else node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name):
            names |= {node.id} if isinstance(node.ctx, ast.Store) else set()
        elif isinstance(node, ast.comprehension):  # its targets are its own
            left += [node.iter, *node.ifs]
        elif not isinstance(node, ast.Lambda):
            left += ast.iter_child_nodes(node)
    return names
