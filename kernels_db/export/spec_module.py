"""Writes an export's `_spec.py`: the op's signature, its axes and its output shapes.

The axes are bound and the shapes computed by code. The axis arithmetic is written out as Python, so that its
new owner can read the guard's checks.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.export.kernel_facts import numbers, render_kernels
from warpsmith.kernels_db.job.python_parsing import parse_expression
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.basic_types import INTEGER_RANGE
from warpsmith.kernels_db.spec.dist import default_dist
from warpsmith.kernels_db.spec.op import Input, Op, Output, Target
from warpsmith.kernels_db.spec.resolve import arguments
from warpsmith.kernels_db.spec.tensors import ConstAxis, ExactCheck, ExprAxis, IndicesCheck, VarAxis

ALIGNMENT = 64
"""Bytes: the least alignment of torch's allocators.

A candidate was verified with it where its spec does not promise less. No instruction asks for more.
"""


def render_spec_module(kernels: Sequence[ExportedKernel], module: str) -> str:
    """Return the Python source of `_spec.py`; the kernels are of one op."""
    op = kernels[0].op
    parameters = arguments(op)
    mutated = [i for i, parameter in enumerate(parameters) if parameter.mutated]
    alignments = [(i, p.alignment or ALIGNMENT) for i, p in enumerate(parameters) if p.shape is not None]
    names = ", ".join(i.name for i in parameters)
    lines = [
        '"""The op\'s signature and its kernels\' envelopes; generated, no code of a kernel."""',
        "",
        "from __future__ import annotations",
        "",
        "from types import ModuleType",
        "from typing import Any",
        "",
        "import torch",
        "",
        f"NAME = {op.name!r}",
        f"NAMESPACE = {module!r}",
        f"DEVICES = {tuple(dict.fromkeys(Target.parse(kernel.target).device for kernel in kernels))!r}",
        f"MATH = {op.math!r}",
        f"SCHEMA = {schema(op)!r}",
        f"MUTATED = {mutated!r}",
        f"STRIDED = {any(parameter.strides is not None for parameter in parameters)!r}",
        f"NUMBERS: list[int] = {numbers(op)!r}",
        "PARAMETERS = [",
        *(_parameter(i) for i in parameters),
        "]",
        f"ALIGNMENTS = {alignments!r}",
        f"OUTPUTS = {[o.name for o in op.outputs]!r}",
        f"TOLERANCES: list[tuple[float, float] | None] = {_tolerances(op, len(mutated))!r}",
        f"ANY_OF_EQUALS: list[bool] = {_any_of_equals(op, len(mutated))!r}",
        f"VARIABLE_AXES = {[name for name, axis in op.axes.items() if isinstance(axis, VarAxis)]!r}",
        *render_kernels(kernels),
        "",
        "",
        f"def bind_axes({names}) -> dict[str, int] | str:",
        '    """The named axes of a call, or what does not fit."""',
        *_bind_axes(op),
        "",
        "",
        "def strides(axes: dict[str, int]) -> list[tuple[int, ...] | None]:",
        '    """Strides of each parameter, in elements; None for a contiguous tensor and for a number."""',
        f"    return [{', '.join(_strides(i) for i in parameters)}]",
        "",
        "",
        "def output_shapes(axes: dict[str, int]) -> list[tuple[int, ...]]:",
        '    """Shape of each output."""',
        *_output_shapes(op),
    ]
    return "\n".join(lines) + "\n"


def schema(op: Op) -> str:
    """Return the op's schema in PyTorch's own language."""
    parameters = []
    for position, parameter in enumerate(arguments(op)):
        if parameter.shape is None:
            kind = scalar_type(parameter.dtype)
        else:
            kind = f"Tensor(a{position}!)" if parameter.mutated else "Tensor"
        parameters.append(f"{kind}{'?' if parameter.optional else ''} {parameter.name}")
    outputs = "Tensor" if len(op.outputs) == 1 else f"({', '.join(['Tensor'] * len(op.outputs))})"
    return f"({', '.join(parameters)}) -> {outputs}"


def scalar_type(dtype: str) -> str:
    """Return the Python type of a scalar argument; PyTorch's schema language has the same names."""
    if dtype == "bool":
        return "bool"
    return "float" if "float" in dtype else "int"


def _parameter(parameter: Input) -> str:
    dist = parameter.dist or default_dist(parameter.dtype)
    facts = {
        "rank": None if parameter.shape is None else len(parameter.shape),
        "shape": None if parameter.shape is None else list(parameter.shape),
        "dist": None if parameter.shape is None or dist is None else dist.kind,
    }
    return f"    {{'name': {parameter.name!r}, {repr(facts)[1:-1]}}},"


def _tolerances(op: Op, mutated: int) -> list[tuple[float, float] | None]:
    """Return (rtol, atol) of each output and each mutated input; None where the op sets none."""
    own: list[tuple[float, float] | None] = []
    for output in op.outputs:
        if isinstance(output.check, ExactCheck):
            own.append((0.0, 0.0))
        else:
            own.append(None if output.tolerance is None else (output.tolerance.rtol, output.tolerance.atol))
    return own + [None] * mutated


def _any_of_equals(op: Op, mutated: int) -> list[bool]:
    """Return of each output and each mutated input whether integers may be any of the indices that select equals."""
    return [_is_open(output) for output in op.outputs] + [False] * mutated


def _is_open(output: Output) -> bool:
    if isinstance(output.check, IndicesCheck):
        return output.check.ties == "any"
    return output.dtype in INTEGER_RANGE and not isinstance(output.check, ExactCheck)


def _strides(parameter: Input) -> str:
    if parameter.shape is None or parameter.strides is None:
        return "None"
    steps = [str(s) if isinstance(s, int) else as_python(s, 'axes["{}"]') for s in parameter.strides]
    return f"({', '.join(steps)}{',' if len(steps) == 1 else ''})"


def _bind_axes(op: Op) -> list[str]:
    """Return statements that bind each axis where it first appears and compare it elsewhere."""
    lines: list[str] = []
    checks: list[str] = []
    bound: set[str] = set()
    derived: dict[str, str] = {}
    for tensor in arguments(op):
        if tensor.shape is None:
            continue
        lines += _unless(f"{tensor.name}.dim()", str(len(tensor.shape)), f"{tensor.name} has {{found}} dimensions")
        for position, axis in enumerate(tensor.shape):
            size = f"{tensor.name}.shape[{position}]"
            if isinstance(axis, str) and axis not in bound and isinstance(op.axes[axis], VarAxis):
                bound.add(axis)
                lines.append(f"    {axis}_ = {size}")
            elif isinstance(axis, str):
                derived.setdefault(axis, size)
                checks += _unless(size, f"{axis}_", f"{size} is {{found}}", f"{axis} = ")
            else:
                checks += _unless(size, str(axis), f"{size} is {{found}}")
    lines += [f"    {name}_ = {axis.value}" for name, axis in op.axes.items() if isinstance(axis, ConstAxis)]
    for name in op.axes:
        if isinstance(op.axes[name], VarAxis) and name not in bound:
            known = bound | {each for each, axis in op.axes.items() if isinstance(axis, ConstAxis)}
            number = number_of_axis(op, name)
            solved = [f"    {name}_ = {number}"] if number else _solve(op, name, derived, known)
            if not solved:
                return [*lines, f'    return "the axis {name} stands in no input\'s shape, so a call does not tell it"']
            bound.add(name)
            lines += solved
    lines += [f"    {name}_ = {as_python(text)}" for name, text in derived_axes(op)]
    for constraint in op.constraints:
        checks += [
            f"    if not ({as_python(constraint)}):",
            f"        return {f'the constraint {constraint} is not met'!r}",
        ]
    values = ", ".join(f"{name!r}: {name}_" for name in op.axes)
    return [*lines, *checks, f"    return {{{values}}}"]


def number_of_axis(op: Op, axis: str) -> str | None:
    """Return the integer input that tells a var axis in no input's shape, such as the k of a top-k; None without one.

    Its value is the axis's size in every workload of the op, of which there are two sizes at least: one alone may be
    the same by chance.
    """
    workloads = [workload for listed in op.workloads_by_device().values() for workload in listed]
    sizes = [workload.axes[axis] for workload in workloads]
    for parameter in op.inputs:
        if parameter.shape is not None or parameter.optional or "int" not in parameter.dtype:
            continue
        changed = [workload.inputs.get(parameter.name) for workload in workloads]
        values = [parameter.value if each is None or each.value is None else each.value for each in changed]
        if values == sizes and len(set(sizes)) > 1:
            return parameter.name
    return None


def _solve(op: Op, name: str, derived: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return statements that find a var axis from a derived one, such as `2 * hidden`; none where no input has one.

    `derived`: where a call has the sizes of derived axes. The straight line through the sizes for 1 and 2 is taken; the
    check of the derived axis itself finds out where it is none.
    """
    for other, size in derived.items():
        axis = op.axes[other]
        if isinstance(axis, ExprAxis) and expr.parse(axis.expr, "integer").names - set(known) == {name}:
            return [
                f"    def {other}_of({name}_: int) -> int:",
                f"        return {as_python(axis.expr)}",
                "",
                f"    step = {other}_of(2) - {other}_of(1)",
                f"    if not step or ({size} - {other}_of(1)) % step or ({size} - {other}_of(1)) // step < 0:",
                f'        return f"{size} is {{{size}}}, expected {axis.expr} for some {name}"',
                f"    {name}_ = 1 + ({size} - {other}_of(1)) // step",
            ]
    return []


def _unless(found: str, expected: str, message: str, prefix: str = "") -> list[str]:
    """Return source that checks that `found` equals `expected`, both given as source.

    Otherwise it returns `message` with the two values.
    """
    said = message.replace("{found}", "{" + found + "}")
    shown = expected if expected.isdigit() else "{" + expected + "}"
    return [f"    if {found} != {expected}:", f'        return f"{said}, expected {prefix}{shown}"']


def derived_axes(op: Op) -> list[tuple[str, str]]:
    """Return the derived axes with their expressions, each after those that it reads.

    A checked spec has no cycle.
    """
    pending = {name: axis.expr for name, axis in op.axes.items() if isinstance(axis, ExprAxis)}
    ordered: list[tuple[str, str]] = []
    while pending:
        ready = [name for name, text in pending.items() if not expr.parse(text, "integer").names & pending.keys()]
        assert ready, f"a cycle among {sorted(pending)}"
        ordered += [(name, pending.pop(name)) for name in ready]
    return ordered


def _output_shapes(op: Op) -> list[str]:
    def shape(output: Output) -> str:
        sizes = [str(s) if isinstance(s, int) else f'axes["{s}"]' for s in output.shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    if not op.outputs:
        return ["    return []"]
    return ["    return [", *(f"        {shape(o)}," for o in op.outputs), "    ]"]


class _Renamed(ast.NodeTransformer):
    """Writes axis names by `pattern` and `ceil_div` as plain arithmetic."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return parse_expression(self._pattern.format(node.id))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        arguments = [self.visit(a) for a in node.args]
        if node.func.id == "ceil_div":
            return ast.UnaryOp(
                ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), arguments[0]), ast.FloorDiv(), arguments[1])
            )
        return ast.Call(func=node.func, args=arguments, keywords=[])


def as_python(expression: str, pattern: str = "{}_") -> str:
    """Return a checked axis expression as Python source.

    It is over the generated locals where `pattern` is not given.
    """
    return ast.unparse(ast.fix_missing_locations(_Renamed(pattern).visit(parse_expression(expression))))
