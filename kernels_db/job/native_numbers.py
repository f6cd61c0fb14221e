"""The whole numbers of C++ and CUDA text, by what is done with them.

Nothing is preprocessed or parsed as C++ is: constant expressions are folded where they stand among the tokens, and what
stands beside them says what they are for. A number that is taken for a size and is none costs a hold-out and does no
harm.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from warpsmith.kernels_db.runtime.ctext import directives, tokens

MOST_BITS = 63
"""Of a number that counts: no size is larger, and no shift may be."""
MOST_NUMBERS = 256
"""Of each kind, the smallest: a table in a source is no list of branches."""

_BYTE, _SHORT = (128, 256), (1 << 15, 1 << 16)
NARROW: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("int8", "uint8", "int8_t", "uint8_t", "char", "uchar"), _BYTE),
    **dict.fromkeys(("int16", "uint16", "int16_t", "uint16_t", "short", "ushort"), _SHORT),
}
"""Integer types that an index outgrows, and the counts at which a signed and an unsigned one does."""

_LITERAL = re.compile(
    r"(?P<hex>0[xX][0-9a-fA-F]+)|(?P<bits>0[bB][01]+)|(?P<octal>0[0-7]+)|(?P<decimal>[0-9]+)", re.ASCII
)
_SUFFIX = re.compile(r"(?:[uU]?(?:ll|LL|[lLzZ])?|(?:ll|LL|[lLzZ])[uU])", re.ASCII)
_WHOLE_FLOAT = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]{1,2})?", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPERAND_END = re.compile(r"[\w)\]]+", re.ASCII)
_TYPES = frozenset(["unsigned", "signed", "long", "int", "size_t", "ssize_t", "ptrdiff_t", "auto"])
_COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "!="})
_BOUNDS = frozenset({"min", "max", "minimum", "maximum", "clamp", "umin", "umax"})
_PAIRS = frozenset(
    {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|="}
)
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "|": (1, operator.or_),
    "&": (2, operator.and_),
    "<<": (3, operator.lshift),
    ">>": (3, operator.rshift),
    "+": (4, operator.add),
    "-": (4, operator.sub),
    "*": (5, operator.mul),
    "/": (5, operator.floordiv),
    "%": (5, operator.mod),
}
_CLOSED = {"(": ")", "{": "}"}
_DEEPEST = 40


class SizeNumbers(NamedTuple):
    """Numbers of a candidate, each once, rising.

    compared: compared with, a case, a bound of `min` or `max`. used: all others, the ends of narrow integer types
    among them. moduli: of remainders and masks. factors: multiplied with or divided by. addends: added or subtracted.
    """

    compared: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    moduli: tuple[int, ...] = ()
    factors: tuple[int, ...] = ()
    addends: tuple[int, ...] = ()


@dataclass
class Found:
    """The numbers found so far."""

    compared: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    moduli: set[int] = field(default_factory=set)
    factors: set[int] = field(default_factory=set)
    addends: set[int] = field(default_factory=set)

    def modulus(self, value: int) -> None:
        """Note what a size is taken modulo."""
        self.moduli.add(value)
        self.used.add(value)

    def factor(self, value: int) -> None:
        """Note what a size is multiplied with or divided by."""
        self.factors.add(value)
        self.used.add(value)

    def addend(self, value: int) -> None:
        """Note what is added to a size, or subtracted."""
        self.addends.add(value)
        self.used.add(value)

    def numbers(self) -> SizeNumbers:
        """Return what counts of them."""
        kinds = (self.compared, self.used - self.compared, self.moduli - {1}, self.factors - {1}, self.addends)
        able = (sorted(value for value in kind if 0 < value < 1 << MOST_BITS) for kind in kinds)
        return SizeNumbers(*(tuple(kind[:MOST_NUMBERS]) for kind in able))


def native_numbers(text: str, found: Found) -> None:
    """Note the numbers of a C++ or CUDA source in `found`. Linear in its length."""
    known: dict[str, int] = {}
    streams = []
    for directive in directives(text):
        if directive.name == "define":
            name, *body = tokens(directive.text) or [""]
            body = _joined(body)
            streams.append(body)
            folded = _fold(body, 0, known)
            if folded is not None and folded[1] == len(body):
                known[name] = folded[0]
    stream = _joined(tokens(text))
    known |= _named(stream, known)
    for one in (*streams, stream):
        _read(one, known, found)


def _joined(marks: Sequence[str]) -> list[str]:
    """Return tokens with operators of two characters as one."""
    found: list[str] = []
    for mark in marks:
        if found and found[-1] + mark in _PAIRS:
            found[-1] += mark
        else:
            found.append(mark)
    return found


def _named(stream: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """Return the constants and enumerators of a source by their names; one that has two values has none."""
    names = dict(known)
    several: set[str] = set()
    constant = False
    for at, mark in enumerate(stream):
        if mark in ("const", "constexpr", "enum"):
            constant = True
        elif mark in (";", "}", "(", ")"):
            constant = False
        elif mark == "=" and constant and at and _WORD.fullmatch(stream[at - 1]):
            folded = _fold(stream, at + 1, names)
            if folded is None or names.setdefault(stream[at - 1], folded[0]) != folded[0]:
                several.add(stream[at - 1])
    return {name: value for name, value in names.items() if name not in several}


def _read(stream: Sequence[str], known: Mapping[str, int], found: Found) -> None:
    calls: list[str] = []  # of each open parenthesis, what is called
    at = 0
    while at < len(stream):
        mark, before = stream[at], stream[at - 1] if at else ""
        if mark in NARROW:
            found.used.update(NARROW[mark])
        if mark == "(":
            calls.append(_called(stream, at))
        elif mark == ")" and calls:
            calls.pop()
        level = _BINARY[before][0] + 1 if before in _BINARY else 0
        continues = before == "." or (mark in ("-", "(", "{") and _OPERAND_END.fullmatch(before) is not None)
        folded = None if continues else _fold(stream, at, known, level)
        after = stream[at + 1] if at + 1 < len(stream) else ""
        if folded is None:
            whole = _whole_float(mark) if before in _COMPARISONS or after in _COMPARISONS else None
            if whole is not None:
                found.compared.add(whole)
            at += 1
            continue
        value, end = folded
        _note(value, before, stream[end] if end < len(stream) else "", calls[-1] if calls else "", found)
        at = end


def _note(value: int, before: str, after: str, call: str, found: Found) -> None:
    whole_side = after in _COMPARISONS and before not in _BINARY
    if whole_side or before in _COMPARISONS or before == "case" or call in _BOUNDS:
        found.compared.add(value)
    if before in ("%", "%="):
        found.modulus(value)
    elif before in ("&", "&=") or after == "&":
        found.modulus(value + 1)
    elif before in ("*", "/", "*=", "/=") or after == "*":
        found.factor(value)
    elif before in ("<<", ">>"):
        found.factor(1 << value if 0 <= value < MOST_BITS else 0)
    elif before in ("+", "-", "+=", "-=") or after in ("+", "-"):
        found.addend(value)
    else:
        found.used.add(value)


def _called(stream: Sequence[str], at: int) -> str:
    """Return the name before a parenthesis, also before its arguments of a template."""
    depth = 0
    for place in range(at - 1, max(-1, at - 16), -1):
        mark = stream[place]
        depth += (mark == ">") + 2 * (mark == ">>") - (mark == "<")
        if depth == 0 and mark != "<":
            return mark
    return ""


def _fold(
    stream: Sequence[str], at: int, known: Mapping[str, int], level: int = 0, depth: int = 0
) -> tuple[int, int] | None:
    """Return the value of the longest constant expression that begins at a place, and where it ends.

    Its operators bind at least as `level` says.
    """
    first = _operand(stream, at, known, depth)
    if first is None:
        return None
    value, end = first
    while end < len(stream) and stream[end] in _BINARY and _BINARY[stream[end]][0] >= level:
        binds, compute = _BINARY[stream[end]]
        other = _fold(stream, end + 1, known, binds + 1, depth + 1)
        if other is None or not _is_small(value, stream[end], other[0]):
            break
        value, end = compute(value, other[0]), other[1]
    return value, end


def _operand(stream: Sequence[str], at: int, known: Mapping[str, int], depth: int) -> tuple[int, int] | None:
    """Return the value of a number, a known name, or a constant expression in parentheses, cast or negated."""
    mark, after = (*stream[at : at + 2], "", "")[:2]
    if depth > _DEEPEST:
        return None
    if mark == "-":
        inner = _operand(stream, at + 1, known, depth + 1)
        return None if inner is None else (-inner[0], inner[1])
    if mark in _CLOSED:
        inner = _fold(stream, at + 1, known, 0, depth + 1)
        if inner is not None and stream[inner[1] : inner[1] + 1] == [_CLOSED[mark]]:
            return inner[0], inner[1] + 1
        is_cast = mark == "(" and stream[at + 2 : at + 3] == [")"] and _is_type(after)
        return _operand(stream, at + 3, known, depth + 1) if is_cast else None
    if _is_type(mark) and after in _CLOSED:
        return _operand(stream, at + 1, known, depth + 1)
    value = _literal(mark) if mark[:1].isdigit() else known.get(mark)
    return None if value is None else (value, at + 1)


def _is_type(mark: str) -> bool:
    return mark in _TYPES or mark in NARROW or (mark.startswith(("int", "uint")) and mark.endswith("_t"))


def _literal(mark: str) -> int | None:
    """Return the value of an integer literal, with its separators and suffix; None for every other."""
    text = mark.replace("'", "")
    match = _LITERAL.match(text)
    if match is None or len(text) > MOST_BITS + 8 or not _SUFFIX.fullmatch(text, match.end()):
        return None
    base = {"hex": 16, "bits": 2, "octal": 8, "decimal": 10}[str(match.lastgroup)]
    digits = match[0][2:] if base in (16, 2) else match[0]
    return int(digits, base)


def _whole_float(mark: str) -> int | None:
    """Return the value of a literal such as `1e6` or `4096.0`; None where it is single precision or no whole number."""
    if not _WHOLE_FLOAT.fullmatch(mark) or len(mark) > MOST_BITS:
        return None
    value = float(mark)
    return int(value) if value.is_integer() else None


def _is_small(one: int, how: str, other: int) -> bool:
    """Check that a result is a number, of bounded length."""
    if abs(one) >> MOST_BITS or abs(other) >> MOST_BITS:
        return False
    if how in ("<<", ">>"):
        return 0 <= other <= MOST_BITS
    return how not in ("/", "%") or (other != 0 and one >= 0 and other > 0)
