"""Checks of expressions that host functions, kernels and module constants share.

Node types, names and attributes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from warpsmith.kernels_db.job.python_parsing import parse_expression
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import Scope

_OPERATORS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
_PARTS = (ast.comprehension, ast.keyword, ast.Slice, ast.FormattedValue)
_PLAIN = (
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.IfExp,
    ast.List,
    ast.Set,
    ast.Starred,
    ast.Tuple,
    ast.UnaryOp,
)
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)

_CALLED = {
    "AsyncFor": "async",
    "Await": "await",
    "ClassDef": "a class",
    "GeneratorExp": "a generator",
    "Global": "global",
    "JoinedStr": "an f-string",
    "Lambda": "a lambda",
    "Match": "match",
    "NamedExpr": "an assignment inside an expression (:=)",
    "Nonlocal": "nonlocal",
    "With": "a with block",
    "Yield": "yield",
    "YieldFrom": "yield",
}


def spelled(node: ast.AST) -> str:
    """Spell `node` as a reader of the candidate knows it."""
    name = type(node).__name__
    if isinstance(node, (ast.Name, ast.Attribute)):
        return f"`{ast.unparse(node)[:80]}`"
    return _CALLED.get(name, name)


def short(names: Iterable[str]) -> str:
    """Write a list of names for a message."""
    return ", ".join(sorted(names))


class Expressions:
    """Base of the checkers of expressions.

    A subclass defines the meaning of names, attributes and calls in its part of the file; unknown ones are refused.
    """

    where = "here"
    comprehensions = True
    format_strings = True

    def __init__(self, scope: Scope, problems: list[Problem], library: frozenset[str] = frozenset()) -> None:
        self.scope = scope
        self.problems = problems
        self.library = library

    def refuse(self, node: ast.AST, message: str) -> None:
        """Note a problem at `node`."""
        self.problems.append(Problem(getattr(node, "lineno", 1), message))

    def expression(self, node: ast.AST | None) -> None:
        """Check `node` as a value."""
        if node is None or isinstance(node, _OPERATORS):
            return
        if isinstance(node, ast.Name):
            self.name(node)
        elif isinstance(node, ast.Attribute):
            self.attribute(node)
        elif isinstance(node, ast.Call):
            self.call(node)
        elif isinstance(node, ast.Subscript):
            self.expression(node.value)
            self.expression(node.slice)
        elif isinstance(node, ast.Lambda):
            self.refuse(
                node, "a lambda stands only as a launch grid or in @triton.heuristics: expected a helper function"
            )
        elif self._is_plain(node):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                self.matmul(node)
            if isinstance(node, ast.Compare):
                self._identity(node)
            if isinstance(node, ast.comprehension):
                self._variables(node.target)
            for child in ast.iter_child_nodes(node):
                self.expression(child)
        else:
            self.refuse(node, f"{spelled(node)} is not allowed {self.where}")

    def _identity(self, node: ast.Compare) -> None:
        """Check that `is` asks for None alone: which other things are one object is no business of a result."""
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            if isinstance(operator, ast.Is | ast.IsNot) and not any(
                isinstance(side, ast.Constant) and side.value is None for side in (left, right)
            ):
                self.refuse(node, "`is` between two values is not allowed: expected a comparison with None, or `==`")

    def _variables(self, node: ast.expr) -> None:
        """Check what a comprehension assigns: names of its own, so that nothing outlives it."""
        if isinstance(node, (ast.Tuple, ast.List)):
            for element in node.elts:
                self._variables(element)
        elif isinstance(node, ast.Starred):
            self._variables(node.value)
        elif not isinstance(node, ast.Name):
            self.refuse(node, f"assignment to {spelled(node)} is not allowed: expected a name in the comprehension")

    def _is_plain(self, node: ast.AST) -> bool:
        if isinstance(node, ast.comprehension) and node.is_async:
            return False
        if isinstance(node, COMPREHENSIONS):
            return self.comprehensions
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
            return self.format_strings
        return isinstance(node, (*_PLAIN, *_PARTS))

    def matmul(self, node: ast.BinOp) -> None:
        """Check `a @ b`."""
        if not {"torch.matmul", "torch.mm"} & self.library:
            self.refuse(node, "`@` is a library op: expected it inside a kernel of yours")

    def name(self, node: ast.Name) -> None:
        """Check a name that is read as a value."""
        raise NotImplementedError

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute that is read as a value."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> None:
        """Check a call."""
        raise NotImplementedError

    def arguments(self, node: ast.Call, keywords: frozenset[str] | None = None) -> None:
        """Check a call's arguments; `keywords` are those it may have, None for any but `**`."""
        for argument in node.args:
            self.expression(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "`**` hides what is passed: expected each argument by its own name")
            elif keywords is not None and keyword.arg not in keywords:
                self.refuse(keyword.value, f"keyword {keyword.arg!r} is not allowed: expected one of {short(keywords)}")
            self.expression(keyword.value)

    def annotation(self, node: ast.expr | None) -> None:
        """Check an annotation: Python evaluates it too, and CuTe DSL a string in it, and a string in that."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._quoted(node, node.value)
            return
        if node is None or isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Name) and node.id in ("int", "float", "bool", "str", "tuple", "list", "dict"):
            return
        dotted = self.scope.dotted(node)
        if dotted is not None and (dotted in allowed.ANNOTATIONS or dotted in self.scope.kernel_names):
            return
        if isinstance(node, (ast.Subscript, ast.Tuple, ast.BinOp)):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.annotation(child)
            return
        self.refuse(
            node,
            f"annotation {spelled(node)} is not allowed: "
            "expected torch.Tensor, the language's constexpr, int, float, bool or none at all",
        )

    def _quoted(self, node: ast.Constant, text: str) -> None:
        """Check an annotation that is a string."""
        try:
            meant = parse_expression(text.strip())
        except (SyntaxError, ValueError):
            self.refuse(node, f"annotation {spelled(node)} is not allowed: expected an expression in it")
            return
        parts = list(ast.walk(meant))
        if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
            self.refuse(node, "an annotation has a string inside a string: expected no quotes in it")
            return
        for part in parts:
            ast.copy_location(part, node)
        self.annotation(meant)
