"""A candidate's identity: the same under other comments, docstrings and layout.

Names are kept: a renamed variable makes another candidate, which costs a compile but never hides a difference.
"""

from __future__ import annotations

import ast
import hashlib
import sys

from warpsmith.kernels_db.runtime.ctext import canonical
from warpsmith.workers.gate.allowed import MAX_DEPTH
from warpsmith.workers.gate.gate import depth, parse
from warpsmith.workers.gate.scope import read_scope
from warpsmith.workers.gate.sources import kernel_sources_of

_Documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def normalised_digest(source: str) -> str:
    """Compute the SHA-256 (hex) of a candidate without docstrings, comments and layout.

    Of its syntax tree without docstrings, its C sources without comments and layout. Text that is not Python (or too
    deeply nested to walk) is its own identity, trailing white space aside.
    """
    return hashlib.sha256(_normal_form(source).encode("utf-8", "surrogatepass")).hexdigest()


def host_digest(source: str) -> str:
    """Compute `normalised_digest` of the host code alone.

    Kernels' sources and the bodies of Triton kernels do not count.
    """
    return hashlib.sha256(_normal_form(source, kernels=False).encode("utf-8", "surrogatepass")).hexdigest()


def _normal_form(source: str, *, kernels: bool = True) -> str:
    try:
        tree = parse(source)
    except SyntaxError:
        tree = None
    if tree is None or depth(tree) > MAX_DEPTH:
        return "text\n" + "\n".join(line.rstrip() for line in source.strip().splitlines())
    sources = {entry.source for entry in kernel_sources_of(tree)}
    jitted = {} if kernels else read_scope(tree, "triton").jitted
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in jitted:
            node.body = [ast.Pass()]
        elif isinstance(node, _Documented):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in sources:
            node.value = canonical(node.value) if kernels else ""
    return "tree\n" + _dumped(tree)


def _dumped(tree: ast.AST) -> str:
    """Write the tree as Python 3.11 does, so that an identity is the same under every Python.

    Later ones have a field for type parameters, and from 3.13 on leave out what is empty.
    """
    for node in ast.walk(tree):
        if not getattr(node, "type_params", None):
            vars(node)["_fields"] = tuple(name for name in node._fields if name != "type_params")
    if sys.version_info >= (3, 13):
        return ast.dump(tree, show_empty=True)
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    """Check whether a statement is a string alone, which does nothing at any place."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
