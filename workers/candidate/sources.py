"""The C++ and CUDA sources inside a candidate, read from its syntax tree without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from workers.candidate import allowed
from workers.candidate.gate import parse
from workers.candidate.scope import Scope, compile_call, constant_text, read_scope


@dataclass(frozen=True)
class KernelSource:
    """One constant source: the module's name for it, its text, its flags, and the line where the text begins."""

    name: str
    language: str
    source: str
    flags: tuple[str, ...]
    line: int


def kernel_sources(source: str) -> list[KernelSource]:
    """The arguments of each module-level `cpp.compile` and `cuda.compile` with a constant source, in order.

    Raises:
        SyntaxError: `source` is not Python.
    """
    tree = parse(source)
    found = []
    for language in allowed.COMPILERS:
        scope = read_scope(tree, language)
        for node in tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                found += _compiled(node, node.value, scope, language)
    return sorted(found, key=lambda entry: entry.line)


def _compiled(node: ast.Assign | ast.AnnAssign, value: ast.expr, scope: Scope, language: str) -> list[KernelSource]:
    call = compile_call(scope, value)
    if call is None or scope.dotted(call.func) != allowed.COMPILERS[language]:
        return []
    arguments = dict(zip(("source", "flags"), call.args, strict=False))
    arguments.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in ("source", "flags")})
    text = constant_text(scope, arguments["source"]) if "source" in arguments else None
    if text is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    name = next((target.id for target in targets if isinstance(target, ast.Name)), "kernels")
    flags = _strings(scope, arguments.get("flags"))
    return [KernelSource(name, language, text, flags, arguments["source"].lineno)]


def _strings(scope: Scope, node: ast.expr | None) -> tuple[str, ...]:
    """The constant strings of a tuple or list, or of the module constant that names one."""
    if isinstance(node, ast.Name):
        node = scope.constants.get(node.id)
    entries = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
    return tuple(entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str))
