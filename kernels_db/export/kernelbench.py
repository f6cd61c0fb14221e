"""The `kernelbench` format: one problem file with `Model`, its inputs and our `ModelNew`.

The inputs are `get_inputs` and `get_init_inputs`. KernelBench
(https://github.com/ScalingIntelligence/KernelBench) executes a problem and a solution, seeds before each
constructor so that both have the same weights, and compares the results of their `forward`. This file serves
as both. `ModelNew` derives from `Model`, so it draws the same weights.

Its harness casts every input and weight to one precision, float32 unless told otherwise. A call whose dtypes were not
verified goes to PyTorch, as in every export.
"""

from __future__ import annotations

import ast
from pathlib import Path

from warpsmith.kernels_db.export.drawing import UNDRAWN, draw_source, strided_source
from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, docstring, summary
from warpsmith.kernels_db.export.fold import fold
from warpsmith.kernels_db.export.kernel import (
    ExportedKernel,
    attribute_source,
    module_name,
    verified_workloads,
    write_project,
)
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.export.stand_in_source import inlined
from warpsmith.kernels_db.formats.kernelbench import kernelbook
from warpsmith.kernels_db.formats.shared.adapted_kernel import tuple_of
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.formats.shared.python_source import parse
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload
from warpsmith.kernels_db.job.file_constants import all_inputs, constants_of
from warpsmith.kernels_db.spec.names import unique
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors

NAME = "kernelbench"
PROBLEM_NAMES = {"Model", "get_inputs", "get_init_inputs"}


def build(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the file into a new directory below `directory` and return that.

    Raises FileExistsError where it exists, SpecErrors with every part of the spec that the format cannot say.
    """
    op = kernel.op
    problem, workload = problem_of(kernel)
    module = name or module_name(kernel)
    note = f"The inputs are those of the workload {workload['id']}: the format has room for one."
    parts = [
        LICENSE_HEADER + docstring(op.name, op.description, [note, "", *summary(kernel)]),
        problem,
        fold(module, importable_files([kernel], module)),
        _model_new(op),
    ]
    return write_project(directory, f"{module}-{NAME}", {f"{module.removeprefix('warpsmith_')}.py": "\n\n".join(parts)})


def problem_of(kernel: ExportedKernel) -> tuple[str, ResolvedWorkload]:
    """Return the source of the problem, and the workload that it has.

    Raises SpecErrors with every part of the spec that the format cannot say.
    """
    workload = _largest(verified_workloads(kernel))
    problem = _imported_problem(kernel.op)
    errors = _unsaid(kernel.op, workload, imported=problem is not None)
    if errors:
        raise SpecErrors(errors)
    return problem or _problem(kernel.op, workload), workload


def forward_names(op: Op) -> list[str]:
    """Return the parameters of `forward`: the op's inputs, and those that became part of the op."""
    names = [item.name for item in op.inputs]
    return list(all_inputs(names, _constant_names(names, constants_of(op.reference))))


def _constant_names(names: list[str], constants: dict[int, str]) -> dict[int, str]:
    taken = unique([*names, *(f"constant_{n}" for n in constants)])[len(names) :]
    return dict(zip(constants, taken, strict=True))


def _largest(workloads: list[ResolvedWorkload]) -> ResolvedWorkload:
    """Return the bench workload that moves most bytes."""
    return max((w for w in workloads if w["role"] == "bench"), key=lambda w: w["min_bytes"])


def _imported_problem(op: Op) -> str | None:
    """Return the problem file that the op was imported from, as it came; None where KernelBench cannot construct it."""
    if op.origin is None or op.origin.format != NAME:
        return None
    for file in raw_files(op.origin):
        if file.path.endswith(".py") and _is_problem(file):
            return file.text().removeprefix("\ufeff")
    return None


def _is_problem(file: RawFile) -> bool:
    """Check whether a file is a problem of KernelBench's form, and not of KernelBook's."""
    try:
        tree = parse(file)
    except SpecErrors:
        return False
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return names >= PROBLEM_NAMES and kernelbook.module_of(file, tree) is None


def _unsaid(op: Op, workload: ResolvedWorkload, imported: bool) -> list[SpecError]:
    """Return the parts of the spec that a problem file cannot say."""
    errors = []
    if len(op.outputs) != 1:
        errors.append(SpecError("outputs", f"{len(op.outputs)} outputs", "one: KernelBench compares a single tensor"))
    for position, item in enumerate(op.inputs):
        if item.mutated:
            expected = "false: KernelBench compares what forward returns, never what it wrote into"
            errors.append(SpecError(f"inputs[{position}].mutated", True, expected))
        if item.name == "self":
            errors.append(SpecError(f"inputs[{position}].name", "self", "another name: forward has one of that name"))
    taken = {state.name for state in op.state}
    for drawn in workload["inputs"]:
        if imported or drawn["shape"] is None or drawn["name"] in taken:
            continue
        if drawn["dist"]["kind"] in UNDRAWN:
            expected = "another distribution: get_inputs has no room for a module of its own"
            errors.append(SpecError(f"inputs.{drawn['name']}.dist.kind", drawn["dist"]["kind"], expected))
        if 0 in (drawn["strides"] or ()):
            expected = "no broadcast axis: KernelBench's harness copies inputs, which makes them dense"
            errors.append(SpecError(f"inputs.{drawn['name']}.strides", drawn["strides"], expected))
    return errors


def _problem(op: Op, workload: ResolvedWorkload) -> str:
    """Return the source of `Model` and its inputs.

    A reference that is a module is `Model` already; its weights are drawn by its constructor, so state is no
    input.
    """
    state = {item.name for item in op.state}
    drawn = [_drawn(item) for item in workload["inputs"] if item["name"] not in state]
    names = [item.name for item in op.inputs]
    lines = [inlined(op.reference).rstrip(), "", "", "import torch", ""]
    if op.init is None and not op.state:
        lines += [
            "",
            "class Model(torch.nn.Module):",
            f"    def forward(self, {', '.join(names)}):",
            f"        return run({', '.join(names)})",
            "",
        ]
    lines += [
        "",
        "def get_inputs():",
        "    return [",
        *(f"        {source}," for source in drawn),
        "    ]",
        "",
        "",
        "def get_init_inputs():",
        f"    return {op.document().get('init', [])!r}",
    ]
    return "\n".join(lines)


def _drawn(item: ResolvedInput) -> str:
    if item["shape"] is None:
        return repr(item["value"])
    sizes = [str(size) for size in item["shape"]]
    drawn = draw_source(item["dist"], sizes, item["dtype"])
    if item["strides"] is None:
        return drawn
    return strided_source(drawn, sizes, [str(step) for step in item["strides"]], item["dtype"])


def _model_new(op: Op) -> str:
    names = [item.name for item in op.inputs]
    arguments = [*names, *(attribute_source(state.attribute) for state in op.state)]
    constants = constants_of(op.reference)
    fixed = _constant_names(names, constants)
    given = ", ".join(all_inputs(names, fixed))
    other = f"{tuple_of(list(fixed.values()))} != {tuple_of(list(constants.values()))}"
    lines = [
        "",
        "_package.watch(every=None)  # what is submitted to a benchmark is the kernel alone",
        "",
        "",
        "class ModelNew(Model):",
        '    """`Model` with the same weights; the kernel serves what it was verified on, PyTorch the rest."""',
        "",
        f"    def forward(self, {given}):",
        *(
            [f"        if {other}:  # the kernel is for these alone", f"            return super().forward({given})"]
            if constants
            else []
        ),
        f"        return _package.{op.name}({', '.join(arguments)})",
    ]
    return "\n".join(lines) + "\n"
