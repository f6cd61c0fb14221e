"""Write docs/op-spec.md from the models: `python -m warpsmith.kernels_db.spec.docs`."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic_core import PydanticUndefined

from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.spec import basic_types, dist, experts, expr, schema, tensors
from warpsmith.kernels_db.spec.document import MAX_BYTES, MAX_DEPTH

PAGE = Path(__file__).resolve().parents[2] / "docs" / "op-spec.md"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "add_rms_norm.yaml"

_NAMED: Sequence[tuple[Any, str]] = (
    (basic_types.Python, "Python source"),
    (basic_types.IntegerExpr, "expression"),
    (basic_types.BooleanExpr, "condition"),
    (basic_types.Amount, "integer or expression"),
    (basic_types.Dimension, "axis name or integer"),
    (basic_types.Number, "number or boolean"),
    (basic_types.CallName, "dotted name"),
    (basic_types.Weight, "number above 0"),
    (basic_types.Size, "integer from 1 to 2^48"),
    (basic_types.ElementType, "dtype, or a name of `dtypes`"),
    (basic_types.Dtype, "dtype"),
    (basic_types.Label, "label"),
    (basic_types.Name, "name"),
    (experts.ExpertName, "name"),
    (experts.Expert, "[expert](experts.md)"),
    (basic_types.Text, "text"),
    (tensors.Shape, "list of axis names and integers"),
    (tensors.Axis, "axis"),
    (dist.Dist, "distribution"),
)
"""The types that have a name of their own, tried before an annotation is taken apart."""

_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any value", types.NoneType: "null"}

_SECTIONS: Sequence[tuple[str, str, Sequence[type[basic_types.Spec]]]] = (
    ("The document", "", (schema.Op,)),
    ("Axes", "", (tensors.ConstAxis, tensors.VarAxis, tensors.ExprAxis)),
    ("Inputs and state", "", (tensors.Input, tensors.State, tensors.Values)),
    (
        "Distributions",
        inspect.cleandoc(dist.__doc__ or "").partition("\n\n")[2],
        (
            dist.Normal,
            dist.Uniform,
            dist.Constant,
            dist.RandInt,
            dist.Permutation,
            dist.Indptr,
            dist.Ends,
            dist.Spd,
            dist.Bernoulli,
            dist.Code,
        ),
    ),
    (
        "Outputs",
        "",
        (
            tensors.Output,
            tensors.Tolerance,
            tensors.DerivedCheck,
            tensors.ExactCheck,
            tensors.IndicesCheck,
            tensors.CodeCheck,
        ),
    ),
    ("Workloads and targets", "", (schema.Workload, schema.InputOverride, schema.Targets, schema.TargetSection)),
    ("Objective and limits", "", (schema.Objective, schema.Limits)),
    ("Origin", "", (schema.Origin, schema.OriginFile)),
)

_INTRODUCTION = """# The op spec

<!-- Written by `python -m warpsmith.kernels_db.spec.docs` from the models; a test holds the two together. -->

An op spec says what to compute, on which shapes, and what counts as right. It is one YAML or JSON document; see
`examples/` for ready ones. Submit it with `warpsmith search OP.yaml`, or judge a kernel of your own against it with
`warpsmith judge OP.yaml FILE.py`. An op that is stored or ships goes by its name: [op names](guide.md#names-of-ops).

An op has named **axes**, typed **inputs** and **outputs**, and a **reference** in PyTorch that is the truth. Each
**workload** binds the axes to sizes. Those with the role `bench` are timed and rank the kernels; `test` and `holdout`
ones are checked for right results only, the latter without the search ever seeing them. Choose test sizes that are no
multiples of anything, and at least one that is small.

A bad spec is refused with all its errors at once, each with the field, its line where the spec came as text, what was
found and what was expected:

```
inputs[1].dtype (line 9): found 'fp32', expected one of float64, float32, ...; did you mean float32?
```

## An example

```yaml
{example}```

## Loading

A document that starts with a brace is read as JSON, any other as YAML. It may have at most {max_mib} MiB and
{max_depth} levels of nesting, no aliases, no tags and no key twice. Numbers such as `1e-5` are numbers, dates are text.

Values are taken as they are written: `"8"` is no integer, and `1` no boolean. A *name* is a Python identifier of at
most 128 ASCII characters. A *label* has up to 128 letters, digits, `_`, `.` and `-`. A *dtype* is one of
{dtypes}. No tensor may have more than 2^48 elements.

## Expressions

Derived axes, constraints, strides, some fields of distributions, and limits may be expressions over the axes: integers,
axis names, `+ - * // % **`, comparisons (also chained), `and`, `or`, `not`, `min(a, b, ...)`, `max(a, b, ...)`,
`ceil_div(a, b)` and parentheses, with Python's precedence. Numbers and conditions do not mix: `(a < b) + 1` is refused.
An expression has at most {max_length} characters, an exponent is from 0 to {max_exponent}, and every value on the
way fits a signed 64-bit integer. Expressions are evaluated by Warpsmith's own code, never by Python's `eval`.

## In-place ops

An input with `mutated: true` is written by `run`. It is then compared with what the reference leaves in it, and filled
again before every call. `outputs` may be empty, and the reference returns None. See `examples/fused_add_mul_relu.yaml`.

## Several dtypes

`dtypes` names dtypes, each name with those that it may be. A tensor whose `dtype` is such a name has the one that
the workload says, so one search with one budget judges every candidate on all of them:

```yaml
dtypes:
  elem: [float32, bfloat16]
inputs:
  - {{name: x, shape: [rows, columns], dtype: elem}}
workloads:
  - {{id: wide, role: bench, axes: {{rows: 64, columns: 512}}, dtypes: {{elem: float32}}}}
  - {{id: wide_bf16, role: bench, axes: {{rows: 64, columns: 512}}, dtypes: {{elem: bfloat16}}}}
```

Every dtype is that of a bench workload in each list of workloads: the score is the mean over all of them, by their
weights. `run` tells them apart by the tensors that it gets (`if x.dtype == torch.float32:`). Hold-outs are derived for
each choice of dtypes. Numbers have one dtype.

## Modules with state

Where the reference is a torch.nn.Module rather than a function, give `init` (the constructor's arguments) and `state`
(its parameters and buffers, each with the name under which `run` gets it and the key in `state_dict()`). Candidates get
the state after the inputs. Every parameter and buffer of the module must be listed.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    introduction = _INTRODUCTION.format(
        example=EXAMPLE.read_text(encoding="utf-8"),
        max_mib=MAX_BYTES // 2**20,
        max_depth=MAX_DEPTH,
        dtypes=", ".join(f"`{name}`" for name in DTYPE_BYTES),
        max_length=expr.MAX_LENGTH,
        max_exponent=expr.MAX_EXPONENT,
    )
    return "\n".join([introduction, *(_section(*section) for section in _SECTIONS)])


def _section(title: str, prose: str, models: Sequence[type[basic_types.Spec]]) -> str:
    return "\n".join([f"## {title}\n", *([f"{prose}\n"] if prose else []), *(_model(model) for model in models)])


def _model(model: type[basic_types.Spec]) -> str:
    kind = model.model_fields.get("kind")
    heading = model.__name__ if kind is None else f"{model.__name__}: `kind: {get_args(kind.annotation)[0]}`"
    hints = get_type_hints(model, include_extras=True)
    rows = [
        f"| `{name}` | {type_text(hints[name])} | {_default(field)} | {_cell(field.description or '')} |"
        for name, field in model.model_fields.items()
        if name != "kind"
    ]
    table = "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""]) if rows else ""
    return f"### {heading}\n\n{_one_line(inspect.cleandoc(model.__doc__ or ''))}\n\n{table}"


def type_text(annotation: Any) -> str:
    """Return an annotation in words."""
    for known, words in _NAMED:
        if annotation == known:
            return words
    origin = get_origin(annotation)
    if origin is None:
        return _WORDS.get(annotation) or str(annotation.__name__)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    return _composed(origin, get_args(annotation))


def _composed(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    texts = [type_text(argument) for argument in arguments]
    if origin is dict:
        return f"mapping of {texts[0]} to {texts[1]}"
    return (", or " if texts[-1] == "null" else " or ").join(texts)


def _default(field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, basic_types.Spec):
        return f"`kind: {default.kind}`" if hasattr(default, "kind") else "its defaults"
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "null" if default is None else "empty" if default == "" else f"`{default}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
