"""The names of what a reference calls: how alike two are, and what one needs, is told from them."""

from __future__ import annotations

import ast

from warpsmith.kernels_db.job.python_parsing import parse_module

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}


def operations(reference: str) -> frozenset[str]:
    """Return the names of a reference's calls and operators.

    {"add", "relu"} of `torch.relu(x + y)`. A method in place counts as the one that is not.
    """
    try:
        tree = parse_module(reference)
    except (SyntaxError, ValueError):
        return frozenset()
    found = set()
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found.add(name.rstrip("_"))
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
            found.add(_OPERATORS[type(node.op)])
    return frozenset(found - own - {""})
