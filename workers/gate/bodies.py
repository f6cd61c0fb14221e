"""The bodies of functions: which statements they may have, and which names are local."""

from __future__ import annotations

import ast

from warpsmith.workers.gate.expressions import COMPREHENSIONS, Expressions, spelled

_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.Call, *COMPREHENSIONS)


def bound_name(node: ast.AST) -> str | None:
    """Return the name that `node` binds."""
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


class Body(Expressions):
    """A checker of one function. A subclass defines which names its expressions may use."""

    locals: frozenset[str] = frozenset()

    def function(self, function: ast.FunctionDef) -> None:
        """Check the head and every statement of `function`."""
        self.bind(function)
        self._head(function.args)
        self.annotation(function.returns)
        self.block(function.body)

    def bind(self, function: ast.FunctionDef | ast.Lambda) -> None:
        """Take every name that `function` binds as local.

        Parameters, targets, comprehension variables.
        """
        bound = [name for node in ast.walk(function) if (name := bound_name(node)) is not None]
        self.locals = frozenset(bound)
        for name in sorted(self.locals):
            if name.startswith("__"):
                self.refuse(function, f"name {name!r} is not allowed: expected one without leading double underscore")
            elif self.scope.fixed(name):
                self.refuse(function, f"local {name!r} hides a name of the module: expected another name")

    def _head(self, arguments: ast.arguments) -> None:
        for starred in (arguments.vararg, arguments.kwarg):
            if starred is not None:
                self.refuse(starred, f"`*{starred.arg}` is not allowed: expected each parameter by its own name")
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.annotation(argument.annotation)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None and any(isinstance(part, _MUTABLE) for part in ast.walk(default)):
                self.refuse(
                    default, "a default value lives from call to call: expected a constant or a tuple of constants"
                )
            self.expression(default)

    def block(self, statements: list[ast.stmt]) -> None:
        """Check statements in order."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Check one statement."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.target(target)
            self.value(node.value)
        elif isinstance(node, ast.AnnAssign):
            self.target(node.target)
            self.annotation(node.annotation)
            self.value(node.value)
        elif isinstance(node, ast.AugAssign):
            self.target(node.target)
            if isinstance(node.op, ast.MatMult):
                self.refuse(node, "`@=` is a library op: expected it inside a kernel of yours")
            self.expression(node.value)
        elif isinstance(node, ast.For):
            self.target(node.target)
            self.expression(node.iter)
            self.block(node.body)
            self.block(node.orelse)
        elif isinstance(node, (ast.While, ast.If)):
            self.expression(node.test)
            self.block(node.body)
            self.block(node.orelse)
        elif isinstance(node, ast.Expr):
            self._bare(node)
        elif isinstance(node, ast.Return):
            self.expression(node.value)
        elif isinstance(node, ast.Assert):
            self.expression(node.test)
            self.expression(node.msg)
        elif isinstance(node, ast.Raise):
            self.raised(node)
        elif not isinstance(node, (ast.Pass, ast.Break, ast.Continue)):
            self.refuse(
                node,
                f"{_named(node)} is not allowed {self.where}: "
                "expected assignments, if, for, while, assert, raise, return and calls",
            )

    def _bare(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, *COMPREHENSIONS)):
            self.expression(node.value)
        else:
            self.refuse(node, f"{spelled(node.value)} alone does nothing: expected a call")

    def target(self, node: ast.expr) -> None:
        """Check what an assignment writes: local names alone, so that nothing outlives a call."""
        if isinstance(node, (ast.Tuple, ast.List)):
            for element in node.elts:
                self.target(element)
        elif isinstance(node, ast.Starred):
            self.target(node.value)
        elif not isinstance(node, ast.Name):
            self.refuse(
                node, f"assignment to {spelled(node)} is not allowed: expected a local name; only kernels write memory"
            )

    def value(self, node: ast.expr | None) -> None:
        """Check the right side of an assignment."""
        self.expression(node)

    def raised(self, node: ast.Raise) -> None:
        """Check a raise statement."""
        self.refuse(node, f"raise is not allowed {self.where}")


def _named(node: ast.stmt) -> str:
    """Name a statement that is not allowed, in words."""
    words = {
        "AsyncFunctionDef": "an async function",
        "ClassDef": "a class",
        "Delete": "del",
        "FunctionDef": "a function inside a function",
        "Global": "global",
        "Import": "import",
        "ImportFrom": "import",
        "Match": "match",
        "Nonlocal": "nonlocal",
        "Try": "try",
        "TryStar": "try",
        "With": "a with block",
        "AsyncWith": "a with block",
        "AsyncFor": "async for",
    }
    return words.get(type(node).__name__, type(node).__name__)
