"""The `gpu-mode-bare` and `kernelbench-bare` formats: the kernel alone, for benchmarks that read what is submitted.

GPU MODE's kernelbot refuses a file with the word `stream`, KernelBench's static checker one with `try`, `except`,
threads or `pass` outside of comments. A package has all of these: its guards, fallback and switches. Here is the
kernel's source as it was judged, without comments and docstrings, and a function that allocates the outputs and calls
it. Nothing is checked: a call that the kernel was not verified for is wrong, or fails.

Languages whose kernels need no runtime of ours have this form: Triton and Gluon.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.export import gpu_mode, kernelbench
from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, summary
from warpsmith.kernels_db.export.kernel import ExportedKernel, attribute_source, module_name, write_project
from warpsmith.kernels_db.export.spec_module import as_python, derived_axes, number_of_axis
from warpsmith.kernels_db.export.stand_in_source import inlined
from warpsmith.kernels_db.formats.shared.adapted_kernel import tuple_of
from warpsmith.kernels_db.formats.shared.python_source import without_comments
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors
from warpsmith.kernels_db.spec.resolve import arguments
from warpsmith.kernels_db.spec.tensors import ConstAxis, VarAxis

GPU_MODE, KERNELBENCH = "gpu-mode-bare", "kernelbench-bare"
LANGUAGES = ("triton", "gluon")
WORD = "stream"
"""What kernelbot refuses anywhere in a submission, in whatever case (`libkernelbot/backend.py`)."""
OTHER_WORD = "flow"
"""What takes its place in a kernel's own names."""
REFUSED = re.compile(r"\btry\s*:|\bexcept\s*:|\bexcept\s+\w+|\bpass\b|\bimport\s+threading|_make_subclass")
"""What KernelBench refuses outside of comments (`kernel_static_checker.py`), as far as a kernel's source has it."""

_SIZES = (*range(1, 70), 127, 1_000, 4_099)
"""Sizes on which a derived axis is tried: what divides by up to 64 shows it there."""


def build_gpu_mode(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the submission, and a task unless the op came from one, into a new directory below `directory`; return it.

    Raises FileExistsError where it exists, SpecErrors with every part of the kernel or spec that has no such form.
    """
    return write_project(directory, f"{name or module_name(kernel)}-{GPU_MODE}", gpu_mode_files(kernel))


def gpu_mode_files(kernel: ExportedKernel) -> dict[str, str]:
    """Return the files that `build_gpu_mode` writes. Raises SpecErrors as it does."""
    op = kernel.op
    source = _without_word(_source(kernel, {"custom_kernel", "torch"}))
    taken, given, files = gpu_mode.said(kernel)
    sizes, errors = _sizes(op)
    if errors:
        raise SpecErrors(errors)
    text = f"""{source}

import torch


def custom_kernel(data):
    arguments = ({", ".join(taken)},)
{"".join(f"    {line}{chr(10)}" for line in sizes)}    outputs = ({_allocated(op)})
    run(*arguments, *outputs)
    return {given[0] if len(given) == 1 else f"({', '.join(given)})"}
"""
    if WORD in text.lower():
        line = next(number for number, line in enumerate(text.splitlines(), 1) if WORD in line.lower())
        expected = f"a kernel without it: GPU MODE refuses every submission that has it (line {line} of submission.py)"
        raise SpecErrors([SpecError("source", f"the word {WORD}", expected)])
    header = "".join(line for line in _header(kernel).splitlines(keepends=True) if WORD not in line.lower())
    return files | {"submission.py": header + text}


def build_kernelbench(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write `problem.py` and `solution.py` into a new directory below `directory` and return that.

    KernelBench runs the two apart: the first has `Model` and its inputs, the second `ModelNew`, with the constructor of
    `Model` where it has weights. Raises as `build_gpu_mode` does.
    """
    return write_project(directory, f"{name or module_name(kernel)}-{KERNELBENCH}", kernelbench_files(kernel))


def kernelbench_files(kernel: ExportedKernel) -> dict[str, str]:
    """Return the files that `build_kernelbench` writes. Raises SpecErrors as it does."""
    op = kernel.op
    problem, workload = kernelbench.problem_of(kernel)
    model = inlined(op.reference).rstrip() if op.state else ""
    source = _source(kernel, {"ModelNew", "torch", *_bound(model)})
    names = kernelbench.forward_names(op)
    state = {item.name: attribute_source(item.attribute) for item in op.state}
    (output,) = workload["outputs"]
    device = next(item.name for item in op.inputs if item.shape is not None)
    given = ", ".join([*(item.name for item in op.inputs), *state.values()])
    lines = [
        without_comments(model) if model else "",
        source,
        "",
        "import torch",
        "",
        "",
        f"class ModelNew({'Model' if model else 'torch.nn.Module'}):",
        *([] if model else ["    def __init__(self, *settings):", "        super().__init__()", ""]),
        f"    def forward(self, {', '.join(names)}):",
        f"        outputs = ({_empty(output['shape'], output['dtype'], f'{device}.device')},)",
        f"        run({given}, *outputs)",
        "        return outputs[0]",
        "",
    ]
    text = "\n".join(lines).lstrip("\n")
    if (found := REFUSED.search(text)) is not None:
        expected = "a kernel without it: KernelBench's static checker refuses it"
        raise SpecErrors([SpecError("source", found.group(), expected)])
    return {"problem.py": problem, "solution.py": _header(kernel) + text}


def _source(kernel: ExportedKernel, taken: set[str]) -> str:
    """Return the kernel's source without comments.

    Raises SpecErrors for a language that has no such form, and where the source defines one of the names `taken`.
    """
    if kernel.language not in LANGUAGES:
        expected = (
            f"{' or '.join(LANGUAGES)}: kernels of other languages are launched by Warpsmith's runtime, with guards"
        )
        raise SpecErrors([SpecError("language", kernel.language, expected)])
    text = without_comments(kernel.source).replace("from __future__ import annotations\n", "")
    if clash := sorted((_bound(text) & taken) - {"torch", "triton", "tl", "math"}):
        raise SpecErrors([SpecError("source", ", ".join(clash), "names that the benchmark's own file does not have")])
    return text.strip()


class _Renamed(ast.NodeTransformer):
    """Gives names of a kernel that have WORD in them another one."""

    def visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and WORD in name.lower() and not isinstance(node, ast.alias):
                setattr(node, field, re.sub(WORD, OTHER_WORD, name, flags=re.IGNORECASE))
        return self.generic_visit(node)


def _without_word(text: str) -> str:
    """Return the source with its own names free of WORD, unless one of them has OTHER_WORD already."""
    if WORD not in text.lower() or OTHER_WORD in text.lower():
        return text
    return ast.unparse(_Renamed().visit(parse_module(text)))


def _bound(text: str) -> set[str]:
    found = set()
    for node in parse_module(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    return found


def _sizes(op: Op) -> tuple[list[str], list[SpecError]]:
    """Return statements that give each axis its size, as a local of its name and a `_`, and what no input tells."""
    lines, errors = [], []
    for name, axis in op.axes.items():
        if isinstance(axis, ConstAxis):
            lines.append(f"{name}_ = {axis.value}")
        elif isinstance(axis, VarAxis):
            place = _place_of(op, name) or _number_of(op, name) or _solved(op, name)
            if place is None:
                errors.append(SpecError(f"axes.{name}", "in no input's shape", "a size that a call tells"))
            else:
                lines.append(f"{name}_ = {place}")
    return lines + [f"{name}_ = {as_python(text)}" for name, text in derived_axes(op)], errors


def _solved(op: Op, name: str) -> str | None:
    """Return the source of a var axis that a derived axis alone tells, such as `2 * hidden`; None where none does.

    The derived axis is one of const axes and this one, and a straight line in it: `size // 2` does not tell a size.
    """
    known = {other: axis.value for other, axis in op.axes.items() if isinstance(axis, ConstAxis)}
    for other, text in derived_axes(op):
        parsed, place = expr.parse(text, "integer"), _place_of(op, other)
        if place is None or parsed.names - known.keys() != {name}:
            continue
        first, *rest = (parsed.integer({**known, name: size}) for size in _SIZES)
        slope = rest[0] - first
        if slope != 0 and all(first + slope * (size - 1) == each for size, each in zip(_SIZES[1:], rest, strict=True)):
            return f"1 + ({place} - {first}) // {slope}"
    return None


def _place_of(op: Op, axis: str) -> str | None:
    for number, item in enumerate(arguments(op)):
        for position, size in enumerate(item.shape or ()):
            if size == axis:
                return f"arguments[{number}].shape[{position}]"
    return None


def _number_of(op: Op, axis: str) -> str | None:
    number = number_of_axis(op, axis)
    found = [position for position, item in enumerate(arguments(op)) if item.name == number]
    return f"arguments[{found[0]}]" if found else None


def _allocated(op: Op) -> str:
    number = next(number for number, item in enumerate(arguments(op)) if item.shape is not None)
    return "".join(f"{_empty(out.shape, out.dtype, f'arguments[{number}].device')}, " for out in op.outputs).rstrip()


def _empty(shape: Sequence[int | str], dtype: str, device: str) -> str:
    sizes = [f"{size}_" if isinstance(size, str) else str(size) for size in shape]
    return f"torch.empty({tuple_of(sizes)}, dtype=torch.{dtype}, device={device})"


def _header(kernel: ExportedKernel) -> str:
    """Return the evidence as comments, which KernelBench's checker does not read."""
    told = [line.replace("every other call goes to PyTorch", "no other call is checked") for line in summary(kernel)]
    said = [kernel.op.name, *kernel.op.description.splitlines(), "", *told]
    plain = [re.sub(r"[^\x20-\x7e]", " ", part) for line in said for part in (line.splitlines() or [""])]
    return LICENSE_HEADER + "".join(f"# {line}".rstrip() + "\n" for line in plain) + "\n"
