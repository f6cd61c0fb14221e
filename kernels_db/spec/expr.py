"""Safe arithmetic over axis names: derived axes, constraints, operation counts.

An expression is parsed to Python's syntax tree and evaluated by walking an allow-list of nodes; nothing is ever
executed. Text, nesting, exponents and every intermediate value are bounded, so any text costs a bounded time.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NoReturn

from warpsmith.kernels_db.job.python_parsing import parse_expression
from warpsmith.kernels_db.spec.errors import listed

MAX_LENGTH = 500
MAX_DEPTH = 64
MAX_EXPONENT = 64
MAX_MAGNITUDE = 2**63 - 1

Kind = Literal["integer", "boolean"]

FUNCTIONS: Mapping[str, str] = {"min": "at least two", "max": "at least two", "ceil_div": "exactly two"}
"""The functions an expression may call, and how many arguments each takes.

ceil_div(a, b) is a / b rounded up.
"""

_ALLOWED = "integers, names, + - * // % **, comparisons, and, or, not, min(), max(), ceil_div() and parentheses"
_TOKEN = re.compile(
    r"(?P<space>[ \t\n]+)|(?P<number>\d+(?![A-Za-z_0-9.]))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|//|[<>=!]=|[-+*%<>(),])",
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
        """Return the value of an integer expression.

        Raises ExprError (unknown name, division by zero, out of bounds).
        """
        if self.kind != "integer":
            raise ExprError(self.text, 1, "a condition stands where a number is needed")
        return _integer(self.text, self._tree, values)

    def boolean(self, values: Mapping[str, int]) -> bool:
        """Return the value of a condition; raises ExprError as `integer` does."""
        if self.kind != "boolean":
            raise ExprError(self.text, 1, "a number stands where a condition is needed")
        return _boolean(self.text, self._tree, values)


@lru_cache(maxsize=1024)
def parse(text: str, kind: Kind) -> Expression:
    """Parse `text` as a number or a condition; raises ExprError and nothing else."""
    _check_text(text)
    # The tree of Python's own parser, so that precedence is what everybody expects.
    inner = text.replace("\n", " ").strip(" \t")
    try:
        tree = parse_expression(inner)
    except SyntaxError as error:
        raise ExprError(text, _offset(text) + (error.offset or len(inner)), "not a valid expression") from None
    except ValueError:
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
    raise ExprError(text, _offset(text) + node.col_offset + 1, problem)


def _check_text(text: str) -> None:
    """Refuse bad characters first.

    The rest cannot make Python's tokenizer warn, nor hide anything in strings.
    """
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
    """Return the kind of `node`, after checking all below it; collects the names it reads."""
    if depth > MAX_DEPTH:
        _fail(text, node, f"nested deeper than {MAX_DEPTH}")
    kind, parts, parts_kind = _taken_apart(text, node)
    if isinstance(node, ast.Name):
        names.add(node.id)
    for part in parts:
        found = _check(text, part, names, depth + 1)
        if found != parts_kind:
            _fail(text, part, f"this is {_described(found)}, expected {_described(parts_kind)}")
    return kind


def _taken_apart(text: str, node: ast.expr) -> tuple[Kind, Sequence[ast.expr], Kind]:
    """Return the kind that `node` yields, its operands, and the kind that each must yield.

    This is the allow-list.
    """
    kind: Kind = "integer"
    parts: Sequence[ast.expr] = ()
    parts_kind: Kind = "integer"
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            pass
        case ast.Name(id=name):
            if name in FUNCTIONS:
                _fail(text, node, f"{name} is a function: it takes {FUNCTIONS[name]} arguments")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            parts = (left, right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            parts = (operand,)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            kind, parts, parts_kind = "boolean", (operand,), "boolean"
        case ast.BoolOp(values=values):
            kind, parts, parts_kind = "boolean", values, "boolean"
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARISON for op in ops):
            kind, parts = "boolean", (left, *comparators)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            _check_call(text, node, name, len(arguments))
            parts = arguments
        case _:
            _fail(text, node, f"not allowed here; allowed are {_ALLOWED}")
    return kind, parts, parts_kind


def _check_call(text: str, node: ast.expr, name: str, count: int) -> None:
    if name not in FUNCTIONS:
        _fail(text, node, f"unknown function {name!r}; known are {', '.join(FUNCTIONS)}")
    if count < 2 or (name == "ceil_div" and count > 2):
        _fail(text, node, f"{name} takes {FUNCTIONS[name]} arguments, found {count}")


def _integer(text: str, node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            result = number
        case ast.Name(id=name):
            if name not in values:
                _fail(text, node, f"unknown name {name!r}; known are {listed(sorted(values))}")
            result = _bounded(text, node, values[name])
        case ast.UnaryOp(operand=operand):
            result = -_integer(text, operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            result = _arithmetic(text, node, op, _integer(text, left, values), _integer(text, right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            result = _call(text, node, name, [_integer(text, argument, values) for argument in arguments])
        case _:
            raise AssertionError(f"parse() let {ast.dump(node)} through")
    return result


def _call(text: str, node: ast.expr, name: str, numbers: Sequence[int]) -> int:
    if name == "ceil_div":
        return -_arithmetic(text, node, ast.FloorDiv(), -numbers[0], numbers[1])
    return min(numbers) if name == "min" else max(numbers)


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
