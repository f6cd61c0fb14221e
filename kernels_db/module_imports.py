"""What a Python file imports as it is loaded, read from its syntax. Standard library only: the judge asks, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_HANDLES_MISSING = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Import:
    """One module that is imported. `level` counts the dots of a relative import; `names` are what `from` takes."""

    line: int
    module: str
    names: tuple[str, ...] = ()
    level: int = 0

    @property
    def top(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]


def loaded_imports(tree: ast.Module) -> Iterator[Import]:
    """The imports that loading a module makes, in order. Those in functions are made later or never, and one under a
    `try` that handles its failure may fail: neither is among them.
    """
    left: list[ast.AST] = list(reversed(tree.body))
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", tuple(alias.name for alias in node.names), node.level)
        elif isinstance(node, ast.Try) and any(_handles_missing(handler) for handler in node.handlers):
            left += reversed(node.finalbody)
        elif isinstance(node, ast.If) and _for_type_checkers(node.test):
            left += reversed(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            left += reversed(list(ast.iter_child_nodes(node)))


def _for_type_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else None
    return name == "TYPE_CHECKING"


def _handles_missing(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(name, ast.Name) and name.id in _HANDLES_MISSING for name in names)
