"""Writes an export's `_spec.py`: the op's signature, and the code that binds its axes and computes its output shapes.

The axis arithmetic is written out as Python, so that its new owner can read what the guard checks.
"""

from __future__ import annotations

import ast
from typing import Any

from kernels_db import expr
from kernels_db.op import Input, Op, Output, Target
from kernels_db.resolve import arguments
from kernels_db.spec_tensors import ConstAxis, ExprAxis, VarAxis


def render_spec_module(op: Op, target: Target, module: str, envelope: dict[str, Any]) -> str:
    """Python source of `_spec.py`."""
    parameters = arguments(op)
    mutated = [i for i, parameter in enumerate(parameters) if parameter.mutated]
    contiguous = {i["name"]: i["contiguous"] for i in envelope["inputs"]}
    ranges = {name: (a["min"], a["max"]) for name, a in envelope["axes"].items()}
    names = ", ".join(i.name for i in parameters)
    lines = [
        '"""The op\'s signature and envelope; generated, no code of the kernel."""',
        "",
        "from __future__ import annotations",
        "",
        "import torch",
        "",
        f"NAME = {op.name!r}",
        f"NAMESPACE = {module!r}",
        f"DEVICE = {target.device!r}",
        f"SCHEMA = {schema(op)!r}",
        f"MUTATED = {mutated!r}",
        "PARAMETERS = [",
        *(_parameter(i, contiguous[i.name]) for i in parameters),
        "]",
        f"OUTPUTS = {[o.name for o in op.outputs]!r}",
        f"AXIS_RANGES: dict[str, tuple[int, int]] = {ranges!r}",
        "",
        "",
        f"def bind_axes({names}) -> dict[str, int] | str:",
        '    """The named axes of a call, or what does not fit."""',
        *_bind_axes(op),
        "",
        "",
        "def output_shapes(axes: dict[str, int]) -> list[tuple[tuple[int, ...], torch.dtype]]:",
        '    """Shape and dtype of each output."""',
        *_output_shapes(op),
    ]
    return "\n".join(lines) + "\n"


def schema(op: Op) -> str:
    """The op's schema in PyTorch's own language."""
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
    """The Python type of a scalar argument; PyTorch's schema language has the same names."""
    if dtype == "bool":
        return "bool"
    return "float" if "float" in dtype else "int"


def _parameter(parameter: Input, contiguous: bool) -> str:
    rank = None if parameter.shape is None else len(parameter.shape)
    facts = f"'name': {parameter.name!r}, 'dtype': torch.{parameter.dtype}, 'rank': {rank}, 'contiguous': {contiguous}"
    return f"    {{{facts}}},"


def _bind_axes(op: Op) -> list[str]:
    """Statements that bind each axis at its first appearance and compare it at every other."""
    lines: list[str] = []
    checks: list[str] = []
    bound: set[str] = set()
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
                checks += _unless(size, f"{axis}_", f"{size} is {{found}}", f"{axis} = ")
            else:
                checks += _unless(size, str(axis), f"{size} is {{found}}")
    for name in op.axes:
        if isinstance(op.axes[name], VarAxis) and name not in bound:
            return [*lines, f'    return "the axis {name} stands in no input\'s shape, so a call does not tell it"']
    lines += [f"    {name}_ = {axis.value}" for name, axis in op.axes.items() if isinstance(axis, ConstAxis)]
    lines += [f"    {name}_ = {_as_python(text)}" for name, text in _in_order(op)]
    for constraint in op.constraints:
        checks += [
            f"    if not ({_as_python(constraint)}):",
            f"        return {f'the constraint {constraint} is not met'!r}",
        ]
    values = ", ".join(f"{name!r}: {name}_" for name in op.axes)
    return [*lines, *checks, f"    return {{{values}}}"]


def _unless(found: str, expected: str, message: str, prefix: str = "") -> list[str]:
    """A check that `found` equals `expected` (source of both), returning `message` with the two values otherwise."""
    said = message.replace("{found}", "{" + found + "}")
    shown = expected if expected.isdigit() else "{" + expected + "}"
    return [f"    if {found} != {expected}:", f'        return f"{said}, expected {prefix}{shown}"']


def _in_order(op: Op) -> list[tuple[str, str]]:
    """The derived axes with their expressions, each after those that it reads; a checked spec has no cycle."""
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
    return ["    return [", *(f"        ({shape(o)}, torch.{o.dtype})," for o in op.outputs), "    ]"]


class _Suffix(ast.NodeTransformer):
    """Axis names become the generated function's locals; `ceil_div` becomes plain arithmetic."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=f"{node.id}_", ctx=node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        arguments = [self.visit(a) for a in node.args]
        if node.func.id == "ceil_div":
            return ast.UnaryOp(
                ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), arguments[0]), ast.FloorDiv(), arguments[1])
            )
        return ast.Call(func=node.func, args=arguments, keywords=[])


def _as_python(expression: str) -> str:
    """A checked axis expression as Python source over the generated locals."""
    return ast.unparse(ast.fix_missing_locations(_Suffix().visit(ast.parse(expression, mode="eval").body)))
