"""Safe arithmetic over axis names: derived axes, constraints, operation counts.

An expression is parsed to Python's syntax tree and evaluated by walking an allow-list of nodes; nothing is ever executed.
Text, nesting, exponents and every intermediate value are bounded, so any text costs a bounded time.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

MAX_LENGTH = 500
MAX_DEPTH = 64
MAX_EXPONENT = 64
MAX_MAGNITUDE = 2**63 - 1

Kind = Literal["integer", "boolean"]

FUNCTIONS: Mapping[str, str] = {"min": "at least two", "max": "at least two", "ceil_div": "exactly two"}
"""The functions an expression may call, and how many arguments each takes. ceil_div(a, b) is a / b rounded up."""

_ALLOWED = "integers, names, + - * // % **, comparisons, and, or, not, min(), max(), ceil_div() and parentheses"
_TOKEN = re.compile(
    r"(?P<space>[ \t\n]+)|(?P<number>\d+(?![A-Za-z_0-9.]))|(?P<name>[A-Za-z_]\w*)|(?P<operator>\*\*|//|[<>=!]=|[-+*%<>(),])",
    re.ASCII,
)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISON: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ExprError(ValueError):
    """The one error of this module. `position` counts characters from 1 in `text`."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        super().__init__(text, position, problem)

    def __str__(self) -> str:
        return f"at position {self.position}: {self.problem}"


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `names` are the names it reads."""

    text: str
    kind: Kind
    names: frozenset[str]
    _tree: ast.expr

    def integer(self, values: Mapping[str, int]) -> int:
        """The value of an integer expression; raises ExprError (unknown name, division by zero, out of bounds)."""
        if self.kind != "integer":
            raise ExprError(self.text, 1, "a condition stands where a number is needed")
        return _integer(self.text, self._tree, values)

    def boolean(self, values: Mapping[str, int]) -> bool:
        """The value of a condition; raises ExprError as `integer` does."""
        if self.kind != "boolean":
            raise ExprError(self.text, 1, "a number stands where a condition is needed")
        return _boolean(self.text, self._tree, values)


def parse(text: str, kind: Kind) -> Expression:
    """Parse `text` as a number or a condition; raises ExprError and nothing else."""
    _check_text(text)
    # The tree of Python's own parser, so that precedence is what everybody expects.
    inner = text.strip(" \t\n")
    try:
        tree = ast.parse(inner, mode="eval").body
    except SyntaxError as error:
        raise ExprError(text, min(len(text), (error.offset or 1) + _offset(text)), "not a valid expression") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExprError(text, 1, "not a valid expression") from None
    names: set[str] = set()
    found = _check(text, tree, names, 0)
    if found != kind:
        _fail(text, tree, f"this is {_described(found)}, expected {_described(kind)}")
    return Expression(text, kind, frozenset(names), tree)


def _described(kind: Kind) -> str:
    return "a number" if kind == "integer" else "a condition such as 'a % 8 == 0'"


def _offset(text: str) -> int:
    return len(text) - len(text.lstrip(" \t\n"))


def _fail(text: str, node: ast.expr, problem: str) -> NoReturn:
    raise ExprError(text, min(len(text), node.col_offset + 1 + _offset(text)), problem)


def _check_text(text: str) -> None:
    """Refuse by characters first: what is left cannot make Python's tokenizer warn, nor hide anything in strings."""
    if not text.strip(" \t\n"):
        raise ExprError(text, 1, "the expression is empty")
    if len(text) > MAX_LENGTH:
        raise ExprError(text, MAX_LENGTH + 1, f"longer than {MAX_LENGTH} characters")
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ExprError(text, position + 1, f"unexpected {text[position]!r}; allowed are {_ALLOWED}")
        if token["number"] is not None and (len(token["number"]) > 19 or int(token["number"]) > MAX_MAGNITUDE):
            raise ExprError(text, position + 1, f"a number above {MAX_MAGNITUDE}")
        position = token.end()


def _check(text: str, node: ast.expr, names: set[str], depth: int) -> Kind:
    """The kind of `node`, after checking all below it; collects the names it reads."""
    if depth > MAX_DEPTH:
        _fail(text, node, f"nested deeper than {MAX_DEPTH}")

    def need(child: ast.expr, kind: Kind) -> None:
        found = _check(text, child, names, depth + 1)
        if found != kind:
            _fail(text, child, f"this is {_described(found)}, expected {_described(kind)}")

    match node:
        case ast.Constant(value=bool() | None):
            _fail(text, node, f"{node.value} is not allowed; allowed are {_ALLOWED}")
        case ast.Constant(value=int()):
            return "integer"
        case ast.Name(id=name):
            if name in FUNCTIONS:
                _fail(text, node, f"{name} is a function: it takes {FUNCTIONS[name]} arguments")
            names.add(name)
            return "integer"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            need(left, "integer")
            need(right, "integer")
            return "integer"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            need(operand, "integer")
            return "integer"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            need(operand, "boolean")
            return "boolean"
        case ast.BoolOp(values=values):
            for value in values:
                need(value, "boolean")
            return "boolean"
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARISON for op in ops):
            for value in (left, *comparators):
                need(value, "integer")
            return "boolean"
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) < 2 or (name == "ceil_div" and len(args) > 2):
                _fail(text, node, f"{name} takes {FUNCTIONS[name]} arguments, found {len(args)}")
            for argument in args:
                need(argument, "integer")
            return "integer"
        case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
            _fail(text, node, f"unknown function {name!r}; known are {', '.join(FUNCTIONS)}")
        case _:
            _fail(text, node, f"not allowed here; allowed are {_ALLOWED}")


def _integer(text: str, node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            if name not in values:
                _fail(text, node, f"unknown name {name!r}; known are {', '.join(sorted(values)) or 'none'}")
            return _bounded(text, node, values[name])
        case ast.UnaryOp(operand=operand):
            return -_integer(text, operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(text, node, op, _integer(text, left, values), _integer(text, right, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            numbers = [_integer(text, argument, values) for argument in args]
            if name == "min":
                return min(numbers)
            if name == "max":
                return max(numbers)
            return -_arithmetic(text, node, ast.FloorDiv(), -numbers[0], numbers[1])
    raise AssertionError(f"parse() let {ast.dump(node)} through")


def _arithmetic(text: str, node: ast.expr, op: ast.operator, left: int, right: int) -> int:
    if isinstance(op, ast.FloorDiv | ast.Mod) and right == 0:
        _fail(text, node, "division by zero")
    if isinstance(op, ast.Pow) and not 0 <= right <= MAX_EXPONENT:
        _fail(text, node, f"exponent {right} is not within 0 to {MAX_EXPONENT}")
    return _bounded(text, node, _ARITHMETIC[type(op)](left, right))


def _bounded(text: str, node: ast.expr, value: int) -> int:
    if abs(value) > MAX_MAGNITUDE:
        _fail(text, node, f"the value leaves the range of 64-bit integers (limit {MAX_MAGNITUDE})")
    return value


def _boolean(text: str, node: ast.expr, values: Mapping[str, int]) -> bool:
    match node:
        case ast.UnaryOp(operand=operand):
            return not _boolean(text, operand, values)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_boolean(text, part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_boolean(text, part, values) for part in parts)
        case ast.Compare(left=first, ops=ops, comparators=comparators):
            left = _integer(text, first, values)
            for op, comparator in zip(ops, comparators, strict=True):
                right = _integer(text, comparator, values)
                if not _COMPARISON[type(op)](left, right):
                    return False
                left = right
            return True
    raise AssertionError(f"parse() let {ast.dump(node)} through")
