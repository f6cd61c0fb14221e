"""Inputs of a module that are no tensors or numbers: tuples, lists, texts, None. Standard library only.

A spec has no such input, and what a file gives is the same in every call: it becomes part of the module.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from warpsmith.kernels_db.job.python_parsing import parse_expression, parse_module

LONGEST = 1000
"""Characters of one value."""

_CONSTANT = '''

_CONSTANTS = {constants}
_all_inputs = get_inputs


def get_inputs():
    """The inputs that are tensors or numbers."""
    return [value for number, value in enumerate(_all_inputs()) if number not in _CONSTANTS]


_Whole, _compute = Model, Model.forward


def _given(shown):
    """Give the module itself, which may name its class, the `forward` of `shown`."""
    _Whole.forward = shown.forward
    return _Whole


@_given
class Model:
    def forward(self, *given):
        left = iter(given)
        count = len(given) + len(_CONSTANTS)
        return _compute(self, *(_CONSTANTS[n] if n in _CONSTANTS else next(left) for n in range(count)))
'''


def literal(value: object) -> str | None:
    """Return Python source of a tuple, list, dict, text or None of plain values; None for anything else."""
    if not (value is None or isinstance(value, str | tuple | list | dict)):
        return None
    text = repr(value)
    return text if len(text) <= LONGEST and is_literal(text) else None


def is_literal(text: str) -> bool:
    """Check whether a text is the source of one plain value, as `repr` writes it."""
    try:
        return repr(ast.literal_eval(parse_expression(text))) == text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def with_constants(text: str, constants: Mapping[int, str]) -> str:
    """Return the text of a module whose inputs at these positions are the values with these sources."""
    if not constants:
        return text
    said = "{" + ", ".join(f"{number}: {source}" for number, source in sorted(constants.items())) + "}"
    return text.rstrip("\n") + "\n" + _CONSTANT.replace("{constants}", said)


def constants_of(text: str) -> dict[int, str]:
    """Return the source of each input that `with_constants` made part of a text, by position.

    There are none where nothing was made part of it.
    """
    if _CONSTANT.partition("{constants}")[0] not in text:
        return {}
    for statement in reversed(parse_module(text).body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_CONSTANTS":
            constants = {number: repr(value) for number, value in ast.literal_eval(statement.value).items()}
            return constants if with_constants("", constants).strip() in text else {}
    return {}


def all_inputs(names: Sequence[str], constants: Mapping[int, str]) -> list[str]:
    """Return the inputs of a module in its own order: the names, and the constants at their positions."""
    left = iter(names)
    count = len(names) + len(constants)
    return [constants[number] if number in constants else next(left) for number in range(count)]
