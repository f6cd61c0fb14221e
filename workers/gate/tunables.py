"""Tunables: numbers that a candidate leaves to the judge, and its source under one choice of them.

    TUNE = {"ROWS": [1, 4, 16], "WIDTH": [256, 512, 1024]}
    TUNE_WHERE = ("ROWS * WIDTH <= 8192",)
    ROWS = 4
    kernels = cpp.compile(SOURCE, flags=("-DWIDTH=512",))

Each name is a whole number of the module (`ROWS = 4`), a flag (`"-DWIDTH=512"`), or both; what stands there is the
default. A configuration is the same file with other numbers in these places: a candidate like any other, which passes
the same gates. Everything is read from the syntax tree; nothing runs.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels_db.job.python_parsing import parse_expression, parse_module
from warpsmith.kernels_db.runtime.ctext import tokens
from warpsmith.workers.gate.problems import Problem

TUNE, WHERE = "TUNE", "TUNE_WHERE"
MOST_NAMES, MOST_VALUES, MOST_CONFIGURATIONS, MOST_PRODUCT = 6, 16, 64, 4096
MOST_CONDITIONS, LONGEST_CONDITION = 8, 200
LARGEST = 2**31 - 1

_FLAG = re.compile(r"-D([A-Za-z_]\w{0,63})=(\d{1,10})")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")

Configuration = dict[str, int]
"""One value for each name."""


class BadTunables(ValueError):  # noqa: N818 - named for what was found
    """Tunables that cannot be read; `problem` has the line."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"line {problem.line}: {problem.message}")
        self.problem = problem


@dataclass(frozen=True)
class Tunables:
    """The names with their values, the default, and the configurations that the conditions admit, the default first."""

    values: Mapping[str, tuple[int, ...]]
    default: Configuration
    configurations: tuple[Configuration, ...]


def read_tunables(tree: ast.Module) -> Tunables | None:
    """Read what a module leaves open; None where it declares nothing. Raises BadTunables."""
    node = _assigned(tree, TUNE)
    if node is None:
        if (where := _assigned(tree, WHERE)) is not None:
            raise _bad(where, f"{WHERE}: found without {TUNE}")
        return None
    values = _read_values(node)
    default = {name: _read_default(tree, name, values[name], node) for name in values}
    _refuse_template_parameters(tree, values)
    conditions = _read_conditions(_assigned(tree, WHERE), values)
    product = 1
    for choices in values.values():
        product *= len(choices)
    if product > MOST_PRODUCT:
        raise _bad(node, f"{TUNE}: found {product} combinations, expected at most {MOST_PRODUCT}")
    every = (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))
    admitted = [found for found in every if all(_holds(condition, found) for condition in conditions)]
    if default not in admitted:
        raise _bad(node, f"{WHERE}: the numbers in the file, {describe(default)}, break a condition")
    if len(admitted) > MOST_CONFIGURATIONS:
        raise _bad(
            node, f"{TUNE}: found {len(admitted)} configurations, expected at most {MOST_CONFIGURATIONS}: fewer values"
        )
    admitted.remove(default)
    return Tunables(values, default, (default, *admitted))


def tunable_problems(tree: ast.Module) -> list[Problem]:
    """List what is wrong with a module's tunables: nothing, or the first."""
    try:
        read_tunables(tree)
    except BadTunables as bad:
        return [bad.problem]
    return []


@lru_cache(maxsize=1024)  # each of the steps that wait is looked at again for every other that is taken
def has_configurations(source: str) -> bool:
    """Check whether a sweep of `source` has something to choose from."""
    if TUNE not in source:
        return False
    try:
        found = read_tunables(parse_module(source))
    except (SyntaxError, ValueError):  # the gate says what is wrong with it
        return False
    return found is not None and len(found.configurations) > 1


def specialise(source: str, chosen: Mapping[str, int]) -> str:
    """Return `source` with the numbers of `chosen` as its defaults.

    Raises:
        SyntaxError: `source` is not Python.
        ValueError: it has no such configuration.
    """
    tree = parse_module(source)
    found = read_tunables(tree)
    if found is None or dict(chosen) not in found.configurations:
        raise ValueError(f"configuration: found {describe(chosen)}, expected one of the candidate's own")
    data = source.encode("utf-8", "surrogatepass")
    starts = [match.start() for match in _LINE.finditer(data)]
    changes = sorted(
        (starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or node.lineno) - 1] + end, text)
        for node, text in _places(tree, chosen)
        if (end := node.end_col_offset) is not None
    )
    for start, end, text in reversed(changes):
        data = data[:start] + text.encode() + data[end:]
    return data.decode("utf-8", "surrogatepass")


def describe(configuration: Mapping[str, int]) -> str:
    """Write a configuration as `ROWS=4, WIDTH=512`."""
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def _places(tree: ast.Module, chosen: Mapping[str, int]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the literals that hold a chosen number, with their new text."""
    for name, value in chosen.items():
        constant = _assigned(tree, name)
        if constant is not None:
            yield constant, str(value)
        for node, flagged, _ in _flags(tree):
            if flagged == name:
                yield node, f'"-D{name}={value}"'


def _flags(tree: ast.Module) -> Iterator[tuple[ast.Constant, str, int]]:
    """Yield the flags `-DNAME=NUMBER` of a module's compile calls, and of the constants that they may name."""
    for statement in tree.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = _FLAG.fullmatch(node.value)
                if match is not None:
                    yield node, match[1], int(match[2])


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return what the module assigns to `name`."""
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return statement.value
    return None


def _read_values(node: ast.expr) -> dict[str, tuple[int, ...]]:
    expected = 'expected a dict such as {"BLOCK": [64, 128, 256]}'
    if not isinstance(node, ast.Dict) or not node.keys:
        raise _bad(node, f"{TUNE}: {expected}")
    if len(node.keys) > MOST_NAMES:
        raise _bad(node, f"{TUNE}: found {len(node.keys)} names, expected at most {MOST_NAMES}")
    found: dict[str, tuple[int, ...]] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()):
            raise _bad(node, f"{TUNE}: a key is no name: {expected}")
        numbers = [_whole(entry) for entry in value.elts] if isinstance(value, (ast.List, ast.Tuple)) else []
        whole = tuple(number for number in numbers if number is not None)
        if not numbers or len(whole) < len(numbers) or len(set(whole)) < len(whole) or len(whole) > MOST_VALUES:
            raise _bad(
                value,
                f"{TUNE}[{key.value!r}]: expected a list of 1 to {MOST_VALUES} different whole numbers "
                f"from 0 to {LARGEST}",
            )
        if key.value in found or key.value in (TUNE, WHERE):
            raise _bad(value, f"{TUNE}: found {key.value!r} twice, expected each name once")
        found[key.value] = whole
    return found


def _read_default(tree: ast.Module, name: str, values: tuple[int, ...], tune: ast.expr) -> int:
    """Return the number that the file has for `name`."""
    constant = _assigned(tree, name)
    places = [] if constant is None else [(constant, _whole(constant))]
    places += [(node, value) for node, flagged, value in _flags(tree) if flagged == name]
    if not places:
        raise _bad(tune, f"{TUNE}[{name!r}]: expected `{name} = {values[0]}` in the module, or a flag -D{name}=...")
    first = places[0][1]
    for node, value in places:
        if value is None or value != first or value not in values:
            found = "no whole number" if value is None else str(value)
            raise _bad(node, f"{name}: found {found}, expected the same number everywhere, one of {list(values)}")
    assert first is not None
    return first


def _refuse_template_parameters(tree: ast.Module, names: Mapping[str, object]) -> None:
    """Refuse a flag whose name a template of the source has as a parameter: the number would take the name's place."""
    flags = [(node, flagged) for node, flagged, _ in _flags(tree) if flagged in names]
    parameters = _template_parameters(tree) if flags else set()
    for node, flagged in flags:
        if flagged in parameters:
            raise _bad(
                node,
                f"{TUNE}[{flagged!r}]: found a template parameter {flagged!r} in the source beside the flag "
                f"-D{flagged}=..., which puts its number in the parameter's place: expected another name for one",
            )


def _template_parameters(tree: ast.Module) -> set[str]:
    """Return the names of all template parameters in the texts of a module that may be C++."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "template" in node.value:
            found |= _parameter_names(tokens(node.value))
    return found


@dataclass
class _ParameterList:
    """A template's parameter list that is being read: its open angles and brackets, and the parameter's last word."""

    angles: int = 1
    brackets: int = 0
    word: str = ""
    in_default: bool = False


def _parameter_names(stream: Sequence[str]) -> set[str]:
    """Return the names in the parameter lists of a text: of each parameter the last word before its default.

    Each lexeme is looked at once, so that the time does not grow with the lists that are open: one in another, or one
    that nothing closes. A `;` outside of brackets ends them all, since a `<` of a default may be a comparison.
    """
    found, lists, before = set[str](), list[_ParameterList](), ""
    for lexeme in stream:
        if before == "template" and lexeme == "<":
            lists.append(_ParameterList())
        elif lists:
            _read_lexeme(lists, lexeme, found)
        before = lexeme
    return found - {""}


def _read_lexeme(lists: list[_ParameterList], lexeme: str, found: set[str]) -> None:
    """Read one lexeme of the innermost open list; a list that it closes goes."""
    innermost = lists[-1]
    if lexeme in ("(", "[", "{", "[["):
        innermost.brackets += len(lexeme)
    elif innermost.brackets:
        innermost.brackets -= len(lexeme) if lexeme in (")", "]", "}", "]]") else 0
    elif lexeme == ";":
        lists.clear()
    elif lexeme == "<":
        innermost.angles += 1
    elif lexeme == ">":
        innermost.angles -= 1
        if not innermost.angles:
            found.add(lists.pop().word)
    elif innermost.angles == 1 and lexeme == ",":
        found.add(innermost.word)
        innermost.word, innermost.in_default = "", False
    elif innermost.angles == 1 and lexeme == "=":
        innermost.in_default = True
    elif innermost.angles == 1 and not innermost.in_default and lexeme.isidentifier():
        innermost.word = lexeme


def _read_conditions(node: ast.expr | None, names: Mapping[str, object]) -> list[ast.expr]:
    if node is None:
        return []
    entries = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    texts = [entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)]
    if len(texts) < len(entries) or not 0 < len(texts) <= MOST_CONDITIONS:
        raise _bad(node, f'{WHERE}: expected 1 to {MOST_CONDITIONS} texts such as "BLOCK * UNROLL <= 1024"')
    return [_read_condition(node, text, names) for text in texts]


def _read_condition(node: ast.expr, text: str, names: Mapping[str, object]) -> ast.expr:
    wrong = f"{WHERE}: found {text[:60]!r}, expected comparisons of the tunables: + - * // %, and, or, not, numbers"
    try:
        parsed = parse_expression(text) if len(text) <= LONGEST_CONDITION else None
    except (SyntaxError, ValueError):
        parsed = None
    if parsed is None or not isinstance(parsed, (ast.Compare, ast.BoolOp, ast.UnaryOp)) or not _plain(parsed, names):
        raise _bad(node, wrong)
    return parsed


_PARTS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.And, ast.Or, ast.Not, ast.USub, ast.Load)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def _plain(condition: ast.expr, names: Mapping[str, object]) -> bool:
    """Check that a condition holds nothing but what `_value` computes."""
    for node in ast.walk(condition):
        match node:
            case ast.Constant():
                plain = _whole(node) is not None
            case ast.Name():
                plain = node.id in names
            case _:
                plain = isinstance(node, (*_PARTS, *_OPERATORS, *_COMPARISONS))
        if not plain:
            return False
    return True


def _holds(condition: ast.expr, configuration: Configuration) -> bool:
    try:
        return bool(_value(condition, configuration))
    except ZeroDivisionError:
        return False


def _value(node: ast.expr, given: Configuration) -> int:
    """Compute a condition that `_plain` admits. Raises ZeroDivisionError."""
    match node:
        case ast.Constant():
            return int(node.value)  # type: ignore[arg-type]  # a whole number
        case ast.Name():
            return given[node.id]
        case ast.UnaryOp():
            value = _value(node.operand, given)
            return int(not value) if isinstance(node.op, ast.Not) else -value
        case ast.BoolOp():
            parts = [_value(value, given) for value in node.values]
            return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
        case ast.Compare():
            sides = [_value(part, given) for part in (node.left, *node.comparators)]
            return int(all(_compare(op, *pair) for op, pair in zip(node.ops, itertools.pairwise(sides), strict=True)))
        case ast.BinOp():
            return _operate(node.op, _value(node.left, given), _value(node.right, given))
    raise AssertionError(f"an admitted condition holds {type(node).__name__}")


def _operate(operator: ast.operator, left: int, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return left // right
    return left % right


def _compare(operator: ast.cmpop, left: int, right: int) -> bool:
    match operator:
        case ast.Lt():
            return left < right
        case ast.LtE():
            return left <= right
        case ast.Gt():
            return left > right
        case ast.GtE():
            return left >= right
        case ast.Eq():
            return left == right
    return left != right


def _whole(node: ast.expr) -> int | None:
    """Return the whole number that a literal is."""
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= LARGEST:
        return node.value
    return None


def _bad(node: ast.expr, message: str) -> BadTunables:
    return BadTunables(Problem(node.lineno, message))
