"""The small types of the op spec.

Names, dimensions, expressions, numbers, Python sources, dtypes.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo
from pydantic_core import PydanticCustomError

from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.near_misses import suggest

MAX_ELEMENTS = 2**48
"""Elements of the largest plausible tensor: 256 Ti.

Whether memory is enough, the judge decides.
"""

MAX_RANK = 16
MAX_SOURCE = 64 * 1024
MAX_PYTHON = 256 * 1024
"""Characters of all Python in one spec: its parser takes up to a second for them, and no other thread runs then."""

MAX_F_STRING = 8 * 1024
"""Characters of an f-string: before Python 3.12 its parser takes time that grows with their square."""

_F_STRING = re.compile(
    r"""(?i)\b(?:f|fr|rf)(?:('''|\"\"\")(?:\\.|(?!\1).)*|(['\"])(?:\\.|(?!\2)[^\\\n])*)""", re.DOTALL
)

MAX_AXES = 128

MAX_ITEMS = 1024
"""Of any list: workloads, state, strides."""

MAX_WEIGHT = 1e12
"""Of one workload: sums and products of weights stay finite."""

MAX_TENSORS = 64
"""Inputs of one op, and outputs."""

DTYPE_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("fp32", "f32", "float", "single", "tf32"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16", "brain_float16"), "bfloat16"),
    **dict.fromkeys(("fp8", "e4m3", "e4m3fn", "fp8_e4m3", "fp8_e4m3fn", "fp8e4m3", "float8"), "float8_e4m3fn"),
    **dict.fromkeys(("e5m2", "fp8_e5m2", "fp8e5m2"), "float8_e5m2"),
    **dict.fromkeys(("i64", "long", "longlong"), "int64"),
    **dict.fromkeys(("i32", "int"), "int32"),
    **dict.fromkeys(("i16", "short"), "int16"),
    **dict.fromkeys(("i8", "char"), "int8"),
    **dict.fromkeys(("u8", "byte"), "uint8"),
    **dict.fromkeys(("i1", "boolean"), "bool"),
    **{f"torch.{name}": name for name in DTYPE_BYTES},
}
"""What other tools call these dtypes: none is accepted, an error suggests the right one."""

INTEGER_RANGE: Mapping[str, tuple[int, int]] = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
}


class Spec(BaseModel):
    """Base of every part of a spec: unknown fields are refused, values not coerced, and nothing changes later."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def refuse(expected: str) -> PydanticCustomError:
    """Return the error of a field validator; `expected` goes into the SpecError as it is."""
    return PydanticCustomError("spec", "{expected}", {"expected": expected})


def _name(text: str) -> str:
    if not text.isidentifier() or not text.isascii() or keyword.iskeyword(text) or text in expr.FUNCTIONS:
        raise refuse("a name: letters, digits and _, not starting with a digit, and no word of the language")
    if len(text) > 128:
        raise refuse(f"a name of at most 128 characters, not {len(text)}")
    return text


def _dtype(text: str) -> str:
    if text not in DTYPE_BYTES:
        raise refuse(f"one of {', '.join(DTYPE_BYTES)}{suggest(text, DTYPE_BYTES, DTYPE_ALIASES)}")
    return text


def _element_type(text: str, info: ValidationInfo) -> str:
    """Check a dtype, or a name among those of the document, which `context["dtypes"]` holds."""
    named = (info.context or {}).get("dtypes", ())
    if text in DTYPE_BYTES or text in named:
        return text
    among = f"{', '.join(DTYPE_BYTES)}{', or one of dtypes: ' if named else ''}{', '.join(named)}"
    raise refuse(f"one of {among}{suggest(text, [*DTYPE_BYTES, *named], DTYPE_ALIASES)}")


def _dimension(value: Any) -> Any:
    if isinstance(value, str):
        return _name(value)
    return _size(value, "an axis name or a positive integer")


def _size(value: Any, described: str = "a positive integer") -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(described)
    if value > MAX_ELEMENTS:
        raise refuse(f"at most {MAX_ELEMENTS} (2**48)")
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, int | float) or not -math.inf < value < math.inf:
        raise refuse("a finite number or a boolean")
    return value


def _weight(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_WEIGHT:
        raise refuse(f"a number above 0, at most {MAX_WEIGHT:g}")
    return float(value)


def _amount(value: Any) -> Any:
    if isinstance(value, str):
        return _expression(value, "integer")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > expr.MAX_MAGNITUDE:
        raise refuse("a 64-bit integer or an expression over the axes")
    return value


def _expression(text: str, kind: expr.Kind) -> str:
    try:
        expr.parse(text, kind)
    except expr.ExprError as error:
        raise refuse(
            f"a safe {'condition' if kind == 'boolean' else 'integer expression'} over the axes ({error})"
        ) from None
    return text


def _integer_expression(text: str) -> str:
    return _expression(text, "integer")


def _boolean_expression(text: str) -> str:
    return _expression(text, "boolean")


@lru_cache(maxsize=4)
def python_tree(source: str) -> ast.Module:
    """Parse a source, which is read several times, once. The tree is shared: do not change it.

    Raises SyntaxError, ValueError.
    """
    if len(source) > MAX_SOURCE:
        raise ValueError(f"more than {MAX_SOURCE} characters")
    if any(len(found[0]) > MAX_F_STRING for found in _F_STRING.finditer(source)):
        raise ValueError(f"an f-string of more than {MAX_F_STRING} characters")
    return parse_module(source)


def python_source(source: str) -> str:
    """Return a source that parses; otherwise raise the error of a field."""
    if len(source) > MAX_SOURCE:
        raise refuse(f"at most {MAX_SOURCE} characters of Python, not {len(source)}")
    try:
        python_tree(source)
    except SyntaxError as error:
        raise refuse(f"Python that parses (line {error.lineno}: {error.msg})") from None
    except ValueError as error:
        raise refuse(f"Python that parses ({error})") from None
    return source


T = TypeVar("T")
Items = Annotated[tuple[T, ...], Strict(False), Field(max_length=MAX_ITEMS)]
"""A list in the document, a tuple in the model."""

Text = Annotated[str, Field(max_length=4000)]
"""Prose."""

Name = Annotated[str, AfterValidator(_name)]
"""A Python identifier of at most 128 ASCII characters."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
"""Up to 128 letters, digits, `_`, `.` and `-`."""

CallName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=256)]
"""A function or a class, with as many dotted parts before it as tell it from others."""

Dtype = Annotated[str, AfterValidator(_dtype)]
"""A dtype by torch's name."""

ElementType = Annotated[str, AfterValidator(_element_type)]
"""A dtype, or a name of the op's `dtypes`."""

Dimension = Annotated[int | str, BeforeValidator(_dimension)]
"""An axis name or a positive integer."""

Size = Annotated[int, BeforeValidator(_size)]
"""A positive integer of at most 2**48."""

Number = Annotated[bool | int | float, BeforeValidator(_number)]
"""A finite number or a boolean."""

Weight = Annotated[float, BeforeValidator(_weight)]
"""How often something occurs, relative to others: a positive number of at most 1e12."""

Amount = Annotated[int | str, BeforeValidator(_amount)]
"""An integer, or an integer expression over the axes."""

IntegerExpr = Annotated[str, AfterValidator(_integer_expression)]
"""An integer expression over the axes."""

BooleanExpr = Annotated[str, AfterValidator(_boolean_expression)]
"""A condition over the axes."""

Python = Annotated[str, AfterValidator(python_source)]
"""Python source that parses; it is not run here."""
