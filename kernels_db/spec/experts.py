"""Experts: baselines that are calls of installed libraries, as a spec writes them and as a job carries them.

An expert is one text, in one of three forms:

- `liger.rms_norm(x, weight, eps=1e-6)`: a preset, of the libraries in PRESETS, on the op's inputs.
- `torch.nn.functional:rms_norm(x, weight.shape, weight)`: a call of anything, `MODULE:NAME(...)`. What is called comes
  from the module; the arguments are expressions over the op's inputs (its state after them) and `torch`.
- a Python module with `run(*inputs)`, as a reference is.

Its result is the op's outputs, or None where every result is a mutated input. Nothing of it is run here:
`expert_source` turns it into a module with `run`, and the judge runs that as it runs the reference.
"""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator

from warpsmith.kernels_db.job.baselines import RESERVED_NAMES
from warpsmith.kernels_db.job.python_parsing import parse_expression, parse_module
from warpsmith.kernels_db.spec.basic_types import MAX_SOURCE, Name, python_source, refuse
from warpsmith.kernels_db.spec.near_misses import one_of

LIBRARIES: Mapping[str, str] = MappingProxyType(
    {"liger": "liger-kernel", "quack": "quack-kernels", "flashinfer": "flashinfer-python", "pytorch": "torch"}
)
"""The libraries that presets are for, and the distribution of each on PyPI."""

_CALLED = "_expert"
"""What a job's module calls the thing that is called, so that an input may bear its name."""

_MODULE = re.compile(r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*:(?!=)\s*(.+)", re.DOTALL)

MAX_CALL = 1000
"""Characters of an expert that is one call."""

_FORM = "one call on the op's inputs, LIBRARY.PRESET(...) or MODULE:NAME(...), or a Python module with run(*inputs)"


@dataclass(frozen=True)
class Preset:
    """A ready-made expert.

    parameters: in order, those with a default after `required` others. summary: what it computes. source: its function.
    """

    name: str
    parameters: tuple[str, ...]
    required: int
    signature: str
    summary: str
    source: str


@dataclass(frozen=True)
class ExpertCall:
    """An expert that is one call.

    module: of what is called; empty for a preset. called: its dotted name. expression: the whole, with `_CALLED` in its
    place. call: the call of it.
    """

    module: str
    called: str
    expression: ast.expr
    call: ast.Call


class NotACall(ValueError):  # noqa: N818 - named for what was found
    """An expression whose beginning is no call of a named thing."""


@functools.cache
def presets() -> Mapping[str, Preset]:
    """Return the presets by `LIBRARY.NAME`, read from their source texts."""
    found: dict[str, Preset] = {}
    folder = resources.files("warpsmith.kernels_db.spec.presets")
    for library in LIBRARIES:
        text = (folder / f"{library}.py").read_text(encoding="utf-8")
        for node in parse_module(text).body:
            if isinstance(node, ast.FunctionDef):
                names = tuple(parameter.arg for parameter in node.args.args)
                signature = f"{library}.{node.name}({ast.unparse(node.args)})"
                source = ast.get_source_segment(text, node) or ""
                summary = ast.get_docstring(node) or ""
                preset = Preset(
                    node.name, names, len(names) - len(node.args.defaults), signature, summary, f"{source}\n"
                )
                found[f"{library}.{node.name}"] = preset
    return MappingProxyType(found)


def presets_of(library: str) -> list[str]:
    """Return the signatures of a library's presets; empty for a library that has none."""
    return [preset.signature for name, preset in presets().items() if name.startswith(f"{library}.")]


def read_call(text: str) -> ExpertCall | None:
    """Read an expert that is one call; None where it is a module. Raises NotACall."""
    if len(text) > MAX_CALL:
        return None
    found = _MODULE.fullmatch(text)
    module, rest = ("", text)
    if found is not None and not keyword.iskeyword(found[1]):
        module, rest = found[1], found[2]
    try:
        expression = parse_expression(rest.strip())
    except (SyntaxError, ValueError):
        return None
    return _split(module, expression)


def _split(module: str, expression: ast.expr) -> ExpertCall:
    """Find what is called at the beginning of an expression, and put `_CALLED` in its place."""
    node, above = expression, expression
    call: ast.Call | None = None
    while not isinstance(node, ast.Name):
        if not isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            raise NotACall(_FORM)
        if isinstance(node, ast.Call):
            call = node
        above = node
        node = node.func if isinstance(node, ast.Call) else node.value
    if call is None:
        raise NotACall(_FORM)
    called = ast.unparse(call.func)
    if module:
        node.id = _CALLED
        return ExpertCall(module, called, expression, call)
    if not isinstance(above, ast.Attribute) or call.func is not above:
        raise NotACall(f"{_FORM}; {called} is in no module")
    call.func = ast.Name(_CALLED, ast.Load())
    return ExpertCall(module, called, expression, call)


def _expert(text: str) -> str:
    if len(text) > MAX_SOURCE:
        raise refuse(f"at most {MAX_SOURCE} characters, not {len(text)}")
    try:
        call = read_call(text)
    except NotACall as error:
        raise refuse(str(error)) from None
    if call is None:
        if "\n" not in text.strip():
            raise refuse(_FORM)
        return python_source(text)
    if not call.module and call.called not in presets():
        library = call.called.partition(".")[0]
        known = [name for name in presets() if library not in LIBRARIES or name.startswith(f"{library}.")]
        raise refuse(f"a preset: {one_of(call.called, known)}; or MODULE:NAME(...), to call anything else")
    try:
        ast.unparse(call.expression)
    except RecursionError:
        raise refuse("a call that is nested less deeply") from None
    return text


def _expert_name(name: str) -> str:
    if name in RESERVED_NAMES:
        raise refuse(f"another name, for {name} means something else in a verdict")
    return name


Expert = Annotated[str, AfterValidator(_expert)]
"""An expert as a spec writes it."""

ExpertName = Annotated[Name, AfterValidator(_expert_name)]
"""A name of an expert: no name of PyTorch's baselines."""


def disagreements(text: str, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a call's arguments and the op's inputs disagree about: what was found, and what was expected."""
    call = read_call(text)
    if call is None:
        return
    known = {*inputs, "torch", _CALLED, *dir(builtins)}
    bound = {node.id for node in ast.walk(call.expression) if isinstance(node, ast.Name) and _is_store(node)}
    bound |= {node.arg for node in ast.walk(call.expression) if isinstance(node, ast.arg)}
    used = {node.id for node in ast.walk(call.expression) if isinstance(node, ast.Name)}
    for name in sorted(used - known - bound):
        yield name, f"an input of the op: {one_of(name, inputs)}"
    if not call.module:
        yield from _misfits(call, presets()[call.called])


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _misfits(call: ExpertCall, preset: Preset) -> Iterator[tuple[str, str]]:
    given = len(call.call.args)
    keywords = [item.arg for item in call.call.keywords if item.arg is not None]
    if any(isinstance(item, ast.Starred) for item in call.call.args) or len(keywords) < len(call.call.keywords):
        return  # what it takes shows when it is called
    expected = preset.signature
    for name in keywords:
        if name not in preset.parameters[given:]:
            yield f"argument {name}", expected
    missing = [name for name in preset.parameters[given : preset.required] if name not in keywords]
    if given > len(preset.parameters) or missing:
        yield f"{given + len(keywords)} arguments", expected


def expert_source(text: str, inputs: Sequence[str]) -> str:
    """Return a Python module with `run(*inputs)` for an expert. `text` was accepted as an `Expert`."""
    call = read_call(text)
    if call is None:
        return text
    if call.module:
        begins = f"from {call.module} import {call.called.partition('.')[0]} as {_CALLED}\n"
    else:
        preset = presets()[call.called]
        begins = f"{preset.source}\n\n{_CALLED} = {preset.name}\n"
    run = f"def run({', '.join(inputs)}):\n    return {ast.unparse(call.expression)}\n"
    return f"import torch\n\n\n{begins}\n\n{run}"
