"""The `gpu-mode` format: `submission.py`, and a task unless the op came from one.

GPU MODE (https://github.com/gpu-mode/reference-kernels) calls `custom_kernel(generate_input(**case))` of
`submission.py` and gives the result to `check_implementation`. A task that we write names the `eval.py` and
`utils.py` of its directory, as the tasks there do. Its `data` is the tuple of the op's inputs; the result is
the op's outputs and the inputs that it writes, one tensor or a tuple.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from warpsmith.kernels_db.export.drawing import UNDRAWN, draw_source, strided_source
from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, docstring, summary
from warpsmith.kernels_db.export.fold import fold
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, write_project
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.export.spec_module import as_python, derived_axes
from warpsmith.kernels_db.export.stand_in_source import inlined
from warpsmith.kernels_db.export.task_data import input_sources, result_sources
from warpsmith.kernels_db.spec.dist import amounts, default_dist
from warpsmith.kernels_db.spec.op import Input, Op, SpecError, SpecErrors, Target, Workload
from warpsmith.kernels_db.spec.resolve import arguments, reference_source
from warpsmith.kernels_db.spec.tensors import CodeCheck, ConstAxis, ExactCheck, VarAxis

NAME = "gpu-mode"
TAKEN = ("seed", "torch", "DEVICE", "run")
"""Names that generate_input uses otherwise."""
TIMEOUTS = {"test_timeout": 180, "benchmark_timeout": 180, "ranked_timeout": 420}
"""Seconds, as the tasks of GPU MODE have them."""

CHECK = '''

def check_implementation(data, output):
    """Whether `output` is right, and what is wrong with it.

    An output passes within the op's own tolerance, or, where it sets none, within three times the error that PyTorch
    itself may have against float64: a single seed says less about it than the several of Warpsmith's judge.
    """
    wide = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in _copies(data))
    exact, eager = _as_tuple(ref_kernel(wide)), _as_tuple(ref_kernel(_copies(data)))
    found = _as_tuple(output)
    if len(found) != len(exact):
        return False, f"found {len(found)} outputs, expected {len(exact)}"
    for name, tolerance, mine, wanted, own in zip(RESULTS, TOLERANCES, found, exact, eager, strict=True):
        if not isinstance(mine, torch.Tensor) or mine.shape != own.shape or mine.dtype != own.dtype:
            return False, f"{name}: found {_described(mine)}, expected {_described(own)}"
        if tolerance is not None:
            if not any(tolerance.values()):  # exact: what PyTorch computes in float64, rounded once
                wanted = wanted.to(mine.dtype)
            right = torch.isclose(mine.to(wanted.dtype), wanted, **tolerance, equal_nan=True)
            if not right.all():
                return False, f"{name}: {int((~right).sum())} elements are beyond {tolerance}"
        elif not mine.is_floating_point():
            if not torch.equal(mine, own):
                return False, f"{name}: {int((mine != own).sum())} elements differ"
        else:
            least = (8 if mine.dtype.itemsize >= 4 else 1) * torch.finfo(mine.dtype).eps / 2
            error, limit = _error(mine, wanted), 3 * max(4 * _error(own, wanted), least)
            if not error <= limit:
                return False, f"{name}: the relative error is {error:.2e}, the limit {limit:.2e}"
    return True, ""


def _copies(data):
    return tuple(_copy(a) if isinstance(a, torch.Tensor) else a for a in data)


def _copy(tensor):
    # clone() would make some strides dense
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _as_tuple(result):
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _described(value):
    return f"{value.dtype} of {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def _error(found, exact):
    exact = exact.double()
    difference = (found.double() - exact).norm()
    return float(difference / exact.norm()) if exact.norm() > 0 else float(difference)
'''


def build(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the files into a new directory below `directory` and return that.

    Raises FileExistsError where it exists, SpecErrors with every part of the spec that the format cannot say.
    """
    op = kernel.op
    module = name or module_name(kernel)
    taken, given, task = said(kernel)
    files = {"submission.py": _submission(kernel, op, module, taken, given)}
    return write_project(directory, f"{module}-{NAME}", files | task)


def said(kernel: ExportedKernel) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the sources of the op's inputs and of its results, and the files of a task unless it came from one.

    Raises SpecErrors with every part of the spec that the format cannot say.
    """
    op = kernel.op
    imported = is_imported(op)
    task = {} if imported else task_files(kernel)
    return input_sources(op, imported), result_sources(op, imported), task


def is_imported(op: Op) -> bool:
    """Check whether an op came from a task of this format."""
    return op.origin is not None and op.origin.format == NAME


def task_files(kernel: ExportedKernel) -> dict[str, str]:
    """Return the files of a task for the kernel's op. Raises SpecErrors with every part that no task can say."""
    op, target = kernel.op, Target.parse(kernel.target)
    workloads = op.workloads_for(target)
    errors = _unsaid(op, workloads)
    if errors:
        raise SpecErrors(errors)
    return {"task.yml": _task(op, workloads), "task.py": _types(op), "reference.py": _reference(op, target)}


def _submission(kernel: ExportedKernel, op: Op, module: str, taken: Sequence[str], given: Sequence[str]) -> str:
    return "\n\n".join(
        [
            LICENSE_HEADER + docstring(op.name, op.description, summary(kernel)),
            fold(module, importable_files([kernel], module)),
            *(["import torch"] if any("torch." in source for source in taken) else []),
            f'''
_package.watch(every=None)  # what is submitted to a benchmark is the kernel alone


def custom_kernel(data):
    """The kernel where it was verified, PyTorch elsewhere."""
    arguments = ({", ".join(taken)},)
    result = _package.{op.name}(*arguments)
    outputs = () if result is None else result if isinstance(result, tuple) else (result,)
    return {given[0] if len(given) == 1 else f"({', '.join(given)})"}
''',
        ]
    )


def _unsaid(op: Op, workloads: list[Workload]) -> list[SpecError]:
    """Return the parts of the spec that a task cannot say."""
    errors = []
    for position, item in enumerate(arguments(op)):
        dist = item.dist or default_dist(item.dtype)
        if item.shape is not None and (dist is None or dist.kind in UNDRAWN):
            expected = "another distribution: generate_input draws with expressions alone"
            errors.append(SpecError(f"inputs[{position}].dist.kind", dist and dist.kind, expected))
        if 0 in (item.strides or ()):
            expected = "no broadcast axis: eval.py copies the inputs, which makes them dense"
            errors.append(SpecError(f"inputs[{position}].strides", list(item.strides or ()), expected))
    for position, output in enumerate(op.outputs):
        if isinstance(output.check, CodeCheck):
            expected = "derived or exact: the task compares with the reference"
            errors.append(SpecError(f"outputs[{position}].check.kind", "code", expected))
    for workload in workloads:
        if workload.inputs:
            expected = "none: a case of a task has sizes and a seed, and draws all inputs the same way"
            errors.append(SpecError(f"workloads.{workload.id}.inputs", sorted(workload.inputs), expected))
    return errors


def _keywords(op: Op) -> dict[str, str]:
    """Return the argument of generate_input for each var axis.

    The file eval.py reads names of letters alone.
    """
    names: dict[str, str] = {}
    for axis in [name for name, kind in op.axes.items() if isinstance(kind, VarAxis)]:
        spelled = re.sub(r"\d", lambda digit: "abcdefghij"[int(digit.group())], axis).replace("_", "") or "axis"
        while spelled in names.values() or spelled in TAKEN or keyword.iskeyword(spelled):
            spelled += "x"
        names[axis] = spelled
    return names


def _task(op: Op, workloads: list[Workload]) -> str:
    keywords = _keywords(op)

    def cases(chosen: list[Workload]) -> list[dict[str, int]]:
        return [
            {word: item.axes[axis] for axis, word in keywords.items()} | {"seed": 1000 + number}
            for number, item in enumerate(chosen)
        ]

    document = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            {"name": "task.py", "source": "task.py"},
            {"name": "utils.py", "source": "../utils.py"},
            {"name": "reference.py", "source": "reference.py"},
            {"name": "eval.py", "source": "../eval.py"},
        ],
        "lang": "py",
        "description": f"{op.name}: {op.description}",
        "config": {"main": "eval.py"},
        "tests": cases(workloads),
        "benchmarks": cases([item for item in workloads if item.role == "bench"]),
        **TIMEOUTS,
        "ranking_by": "geom",
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _types(op: Op) -> str:
    results = len(op.outputs) + sum(item.mutated for item in op.inputs)
    inputs = ", ".join("torch.Tensor" if item.shape is not None else "float" for item in arguments(op))
    output = "torch.Tensor" if results == 1 else f"tuple[{', '.join(['torch.Tensor'] * results)}]"
    fields = [f"    {word}: int" for word in [*_keywords(op).values(), "seed"]]
    return "\n".join(
        [
            f"{LICENSE_HEADER}from typing import TypedDict, TypeVar",
            "",
            "import torch",
            "",
            f'input_t = TypeVar("input_t", bound=tuple[{inputs}])',
            f'output_t = TypeVar("output_t", bound={output})',
            "",
            "",
            "class TestSpec(TypedDict):",
            *fields,
            "",
        ]
    )


def _reference(op: Op, target: Target) -> str:
    taken = arguments(op)
    names = [f"{item.name}_" for item in taken]
    results = ["*outputs", *(f"{item.name}_" for item in taken if item.mutated)]
    lines = [
        inlined(reference_source(op)).rstrip(),
        "",
        "",
        "import torch",
        "",
        f"DEVICE = {target.device!r}",
        f"RESULTS = {[*(o.name for o in op.outputs), *(i.name for i in taken if i.mutated)]!r}",
        f"TOLERANCES = {_tolerances(op, taken)!r}",
        "",
        "",
        "def ref_kernel(data):",
        f"    {', '.join(names)}, = data",
        f"    result = run({', '.join(names)})",
        "    outputs = () if result is None else tuple(result) if isinstance(result, (tuple, list)) else (result,)",
        f"    results = ({', '.join(results)},)",
        "    return results[0] if len(results) == 1 else results",
        "",
        "",
        f"def generate_input({', '.join(f'{word}: int' for word in [*_keywords(op).values(), 'seed'])}):",
        *_bound(op),
        "    generator = torch.Generator(device=DEVICE).manual_seed(seed)",
        "    return (",
        *(f"        {_drawn(item)}," for item in taken),
        "    )",
    ]
    return LICENSE_HEADER + "\n".join(lines) + "\n" + CHECK


def _bound(op: Op) -> list[str]:
    """Return statements that give every axis its value.

    The local of an axis has its name and a `_`.
    """
    lines = [f"    {axis}_ = {word}" for axis, word in _keywords(op).items()]
    lines += [f"    {name}_ = {axis.value}" for name, axis in op.axes.items() if isinstance(axis, ConstAxis)]
    return lines + [f"    {name}_ = {as_python(text)}" for name, text in derived_axes(op)]


def _tolerances(op: Op, taken: list[Input]) -> list[dict[str, float] | None]:
    own: list[dict[str, float] | None] = []
    for output in op.outputs:
        if isinstance(output.check, ExactCheck):
            own.append({"rtol": 0.0, "atol": 0.0})
        else:
            own.append(output.tolerance.model_dump() if output.tolerance is not None else None)
    return own + [None for item in taken if item.mutated]


def _drawn(item: Input) -> str:
    if item.shape is None:
        return repr(item.value)
    dist = item.dist or default_dist(item.dtype)
    assert dist is not None, f"{item.name} has no distribution"
    amounts_of = {name: _amount(value) for name, value in amounts(dist).items()}
    sizes = [f"{size}_" if isinstance(size, str) else str(size) for size in item.shape]
    drawn = draw_source(dist.model_dump() | amounts_of, sizes, item.dtype, generator="generator", device="DEVICE")
    if item.strides is None:
        return drawn
    return strided_source(drawn, sizes, [_amount(step) for step in item.strides], item.dtype, device="DEVICE")


def _amount(value: int | str) -> str:
    """Return an amount as source: an expression's axes become the locals that hold them."""
    return as_python(value) if isinstance(value, str) else str(value)
