"""The safe arithmetic agrees with Python's on what it accepts, and refuses the rest with its own error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.kernels_db.spec import expr

VALUES = {"a": 1, "b": 7, "tokens": 64, "hidden": 4096}


def ceil_div(left: int, right: int) -> int:
    return -(-left // right)


def joined(parts: list[str], operators: list[str]) -> str:
    text = parts[0]
    for operator, part in zip(operators, parts[1:], strict=False):
        text += f" {operator} {part}"
    return text


ATOMS = st.one_of(
    st.integers(0, 20).map(str),
    st.sampled_from(sorted(VALUES)),
    st.builds("{} ** {}".format, st.sampled_from(["a", "b", "3"]), st.integers(0, 3)),
)


def _integers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operand = st.one_of(
        inner,
        inner.map("({})".format),
        inner.map("-({})".format),
        ATOMS.map("-{}".format),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max", "ceil_div"]), inner, inner),
    )
    operators = st.lists(st.sampled_from(["+", "-", "*", "//", "%"]), min_size=3, max_size=3)
    return st.builds(joined, st.lists(operand, min_size=1, max_size=4), operators)


INTEGERS = st.recursive(ATOMS, _integers, max_leaves=8)
COMPARISONS = st.builds(
    joined,
    st.lists(INTEGERS, min_size=2, max_size=3),
    st.lists(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), min_size=2, max_size=2),
)


def _conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operand = st.one_of(inner, inner.map("not {}".format), inner.map("({})".format))
    return st.builds(
        joined,
        st.lists(operand, min_size=1, max_size=3),
        st.lists(st.sampled_from(["and", "or"]), min_size=2, max_size=2),
    )


CONDITIONS = st.recursive(COMPARISONS, _conditions, max_leaves=5)


def agrees_with_python(text: str, kind: expr.Kind) -> None:
    if len(text) > expr.MAX_LENGTH:
        return
    expression = expr.parse(text, kind)
    names = {"min": min, "max": max, "ceil_div": ceil_div, **VALUES}
    problem = None
    try:
        found = expression.integer(VALUES) if kind == "integer" else expression.boolean(VALUES)
    except expr.ExprError as error:
        problem = error.problem
    if problem is None:
        expected = eval(text, {"__builtins__": {}}, names)
        assert found == expected
        assert type(found) is type(expected)
    elif problem == "division by zero":
        with pytest.raises(ZeroDivisionError):
            eval(text, {"__builtins__": {}}, names)
    else:
        assert "64-bit" in problem


@given(INTEGERS)
@settings(deadline=None)
def test_integers_agree_with_python(text: str) -> None:
    agrees_with_python(text, "integer")


@given(CONDITIONS)
@settings(deadline=None)
def test_conditions_agree_with_python(text: str) -> None:
    agrees_with_python(text, "boolean")


WORDS = [
    "a",
    "b",
    "1",
    "0",
    "99999999999999999999",
    "(",
    ")",
    "+",
    "-",
    "*",
    "**",
    "//",
    "/",
    "%",
    "<",
    "==",
    "=",
    "and",
]
WORDS += [
    "not",
    "or",
    "if",
    "else",
    "lambda",
    "min",
    "max",
    "ceil_div",
    ",",
    ".",
    "[",
    "]",
    "'",
    '"',
    "0x",
    "1e5",
    ":=",
    "é",
]


@given(
    st.one_of(
        st.text(max_size=600),
        st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
        st.lists(st.sampled_from(WORDS), max_size=40).map("".join),
    )
)
@settings(deadline=None)
def test_any_text_gives_a_value_or_the_one_error(text: str) -> None:
    for kind in ("integer", "boolean"):
        position, value = 1, 0
        try:
            expression = expr.parse(text, kind)  # type: ignore[arg-type]
            value = expression.integer(VALUES) if kind == "integer" else expression.boolean(VALUES)
        except expr.ExprError as error:
            position = error.position
        assert 1 <= position <= len(text) + 1
        assert abs(value) <= expr.MAX_MAGNITUDE


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 1, "empty"),
        ("   ", 1, "empty"),
        ("tokens +", 8, "not a valid expression"),
        ("tokens + ?", 10, "unexpected '?'"),
        ("  tokens / 2", 10, "unexpected '/'"),
        ("1.5 * a", 1, "unexpected '1'"),
        ("1e5", 1, "unexpected '1'"),
        ("0x10", 1, "unexpected '0'"),
        ("3and 4", 1, "unexpected '3'"),
        ("a.b", 2, "unexpected '.'"),
        ("a[0]", 2, "unexpected '['"),
        ("__import__('os')", 12, "unexpected"),
        ("foo(1, 2)", 1, "unknown function 'foo'"),
        ("min(1)", 1, "at least two"),
        ("ceil_div(1, 2, 3)", 1, "exactly two"),
        ("min + 1", 1, "is a function"),
        ("a + (b < 3)", 6, "this is a condition"),
        ("a < 3", 1, "this is a condition"),
        ("lambda: 1", 7, "unexpected ':'"),
        ("1 if a else 2", 1, "not allowed here"),
        ("(a, b)", 1, "not allowed here"),
        ("a is b", 1, "not allowed here"),
        ("True + 1", 1, "not allowed here"),
        ("a + 9223372036854775808", 5, "a number above"),
        ("+".join(["1"] * 300), 501, "longer than 500"),
        ("+".join(["1"] * 200), 1, "nested deeper"),
        ("(" * 240 + "1" + ")" * 240, 200, "not a valid expression"),
    ],
)  # fmt: skip
def test_refusals_name_the_position(text: str, position: int, problem: str) -> None:
    with pytest.raises(expr.ExprError) as caught:
        expr.parse(text, "integer")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("at position ")
    if "nested" not in problem and not text.startswith("(("):
        assert caught.value.position == position


def test_a_condition_needs_to_be_one() -> None:
    with pytest.raises(expr.ExprError, match="this is a number, expected a condition"):
        expr.parse("a + 1", "boolean")
    with pytest.raises(expr.ExprError, match="this is a number, expected a condition"):
        expr.parse("a and b", "boolean")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tokens // (a - 1)", "at position 1: division by zero"),
        ("tokens % (b - 7)", "division by zero"),
        ("ceil_div(tokens, a - 1)", "division by zero"),
        ("2 ** 65", "exponent 65 is not within 0 to 64"),
        ("2 ** (1 - 2)", "exponent -1 is not within 0 to 64"),
        ("hidden ** 8", "leaves the range of 64-bit integers"),
        ("unknown + 1", "unknown name 'unknown'; known are a, b, hidden, tokens"),
    ],
)
def test_values_out_of_bounds_are_errors(text: str, problem: str) -> None:
    expression = expr.parse(text, "integer")
    with pytest.raises(expr.ExprError) as caught:
        expression.integer(VALUES)
    assert problem in str(caught.value)


def test_what_is_not_reached_is_not_evaluated() -> None:
    assert expr.parse("a == 1 or tokens // (a - 1) > 3", "boolean").boolean(VALUES)
    assert not expr.parse("0 > a > tokens // (a - 1)", "boolean").boolean(VALUES)


def test_names_are_collected() -> None:
    assert expr.parse("min(tokens, 3) + 2 * hidden", "integer").names == {"tokens", "hidden"}


def test_the_kind_is_held_to() -> None:
    with pytest.raises(expr.ExprError, match="a number is needed"):
        expr.parse("a < b", "boolean").integer(VALUES)
    with pytest.raises(expr.ExprError, match="a condition is needed"):
        expr.parse("a + b", "integer").boolean(VALUES)
