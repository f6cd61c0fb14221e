"""Checks that the parts of a spec agree.

It works on those that are well-formed, so that all errors are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from warpsmith.kernels_db.job.baselines import PYTORCH_BASELINES, experts_among
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES, is_float
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.binding import amount, bind_axes, bind_input, bind_shape, cyclic_axes, with_dtype
from warpsmith.kernels_db.spec.errors import MAX_ERRORS, SpecError, listed
from warpsmith.kernels_db.spec.experts import disagreements, presets_of
from warpsmith.kernels_db.spec.near_misses import suggest
from warpsmith.kernels_db.spec.parts import Parts, WorkloadList
from warpsmith.kernels_db.spec.schema import InputOverride, Workload
from warpsmith.kernels_db.spec.source_checks import check_run, check_sources
from warpsmith.kernels_db.spec.tensors import ExprAxis, IndicesCheck, VarAxis

MAX_BINDINGS = 16_384
"""Values that the workloads of a spec have in all: axes, constraints, tensors."""

CHARACTERS_A_VALUE = 40
"""Characters of expressions that count as one value: they take as long."""

_NO_OVERRIDE = InputOverride()


def check(parts: Parts) -> list[SpecError]:
    """Return every disagreement among `parts`, each field once, in the order of the checks."""
    errors: dict[str, SpecError] = {}
    for error in _disagreements(parts):
        errors.setdefault(error.field, error)
        if len(errors) > MAX_ERRORS:
            break
    return list(errors.values())


def _disagreements(parts: Parts) -> Iterator[SpecError]:
    yield from _check_names(parts)
    yield from _check_axis_references(parts)
    yield from _check_dtypes(parts)
    yield from _check_inputs(parts)
    yield from _check_indices(parts)
    yield from check_sources(parts)
    yield from _check_baselines(parts)
    yield from _check_experts(parts)
    for workloads in parts.workload_lists:
        yield from _check_bindings(parts, workloads)
    # Sizes mean something only where every axis has one.
    if parts.axes.keys() == parts.axis_names:
        if (error := _check_bindings_number(parts)) is not None:
            yield error
            return
        for workloads in parts.workload_lists:
            for field, workload in workloads.workloads:
                yield from _check_values(parts, field, workload)


def _check_bindings_number(parts: Parts) -> SpecError | None:
    """Refuse so many workloads of so many parts that working all of them out takes long."""
    workloads = sum(len(workload_list.workloads) for workload_list in parts.workload_lists)
    characters = sum(len(expression.text) for _, expression in parts.expressions())
    each = len(parts.axes) + len(parts.constraints) + len(parts.arguments()) + len(parts.outputs)
    each += characters // CHARACTERS_A_VALUE
    if workloads * each <= MAX_BINDINGS:
        return None
    return SpecError("workloads", f"{workloads} workloads of {each} values", f"at most {MAX_BINDINGS} values in all")


def _check_names(parts: Parts) -> Iterator[SpecError]:
    tensors = [(field, item.name) for field, item in parts.arguments()]
    tensors += [(field, output.name) for field, output in parts.outputs]
    yield from _repeated(tensors, "name")
    for field, workloads, complete in parts.workload_lists:
        yield from _repeated([(place, workload.id) for place, workload in workloads], "id")
        for place, workload in workloads:
            if workload.weight != 1.0 and workload.role != "bench":
                expected = f"nothing, for a workload of role {workload.role} has no part in the score"
                yield SpecError(f"{place}.weight", workload.weight, expected)
        if complete and not any(workload.role == "bench" for _, workload in workloads):
            yield SpecError(field, "no workload with role bench", "at least one, for a search is judged by it")


def _repeated(names: Iterable[tuple[str, str]], attribute: str) -> Iterator[SpecError]:
    owners: dict[str, str] = {}
    for field, name in names:
        if name in owners:
            yield SpecError(f"{field}.{attribute}", name, f"another {attribute}, for {owners[name]} bears it")
        owners.setdefault(name, field)


def _check_axis_references(parts: Parts) -> Iterator[SpecError]:
    names = sorted(parts.axis_names)
    known = f"an axis: one of {listed(names)}" if names else "a number, for the spec declares no axes"
    for field, shape in parts.shapes():
        for index, dimension in enumerate(shape):
            if isinstance(dimension, str) and dimension not in parts.axis_names:
                yield SpecError(f"{field}[{index}]", dimension, known + suggest(dimension, names))
    for field, expression in parts.expressions():
        unknown = sorted(expression.names - parts.axis_names)
        if unknown:
            meant = suggest(unknown[0], names) if len(unknown) == 1 else ""
            yield SpecError(field, expression.text, f"axes as names, not {listed(unknown)}; {known}{meant}")
    for name in cyclic_axes(parts.axes):
        axis = parts.axes[name]
        found = axis.expr if isinstance(axis, ExprAxis) else None
        yield SpecError(f"axes.{name}.expr", found, "an expression that does not depend on the axis itself")


def _check_dtypes(parts: Parts) -> Iterator[SpecError]:
    """Check that named dtypes are told from dtypes, are those of tensors, and are timed, each of them."""
    tensors = {item.dtype for _, item in parts.arguments() if item.shape is not None}
    tensors |= {output.dtype for _, output in parts.outputs}
    whole = (parts.input_count, parts.output_count or 0) == (len(parts.inputs), len(parts.outputs))
    for name, dtypes in parts.dtypes.items():
        if name in DTYPE_BYTES:
            yield SpecError(f"dtypes.{name}", name, "a name that no dtype has")
        elif whole and name not in tensors:
            yield SpecError(f"dtypes.{name}", name, "a name that the dtype of some tensor is")
        for index, dtype in enumerate(dtypes):
            if dtype in dtypes[:index]:
                yield SpecError(f"dtypes.{name}[{index}]", dtype, "each dtype once")
        for field, workloads, complete in parts.workload_lists:
            timed = {workload.dtypes.get(name) for _, workload in workloads if workload.role == "bench"}
            for index, dtype in enumerate(dtypes):
                if complete and dtype not in timed:
                    expected = f"a dtype that a bench workload of {field} has: candidates are judged on all of them"
                    yield SpecError(f"dtypes.{name}[{index}]", dtype, expected)
    for field, item in parts.inputs:
        if item.shape is None and item.dtype in parts.dtypes:
            yield SpecError(f"{field}.dtype", item.dtype, f"one of {', '.join(DTYPE_BYTES)}, for the input is a scalar")


def _check_inputs(parts: Parts) -> Iterator[SpecError]:
    for field, item in parts.inputs:
        if item.alignment is not None and item.alignment & (item.alignment - 1):
            yield SpecError(f"{field}.alignment", item.alignment, "a power of two")
        if item.shape is not None:
            if item.value is not None:
                yield SpecError(f"{field}.value", item.value, "nothing, for the input is a tensor; use dist constant")
            continue
        only_tensors = {
            "dist": item.dist and item.dist.kind,
            "strides": item.strides,
            "alignment": item.alignment,
            "mutated": item.mutated or None,
        }
        for attribute, value in only_tensors.items():
            if value is not None:
                yield SpecError(f"{field}.{attribute}", value, "nothing, for the input is a scalar (it has no shape)")
    written = parts.output_count or any(item.mutated for _, item in parts.inputs)
    if not written and parts.input_count == len(parts.inputs):
        yield SpecError("outputs", None, "at least one output, or an input with mutated: true")


def _check_indices(parts: Parts) -> Iterator[SpecError]:
    """Check what the outputs of the check `indices` say that they are indices into."""
    if parts.input_count != len(parts.inputs):
        return
    ranks = {
        item.name: len(item.shape)
        for _, item in parts.arguments()
        if item.shape and all(map(is_float, parts.dtypes.get(item.dtype, (item.dtype,))))
    }
    for field, output in parts.outputs:
        if not isinstance(output.check, IndicesCheck):
            continue
        of, axis = output.check.of, output.check.axis
        if of is None:
            if axis != -1:
                yield SpecError(f"{field}.check.axis", axis, "nothing without `of`, the input that has the axis")
        elif of not in ranks:
            expected = f"a floating input: one of {listed(sorted(ranks))}{suggest(of, ranks)}"
            yield SpecError(f"{field}.check.of", of, expected)
        elif not -ranks[of] <= axis < ranks[of]:
            yield SpecError(f"{field}.check.axis", axis, f"an axis of {of}, from {-ranks[of]} to {ranks[of] - 1}")


def _check_baselines(parts: Parts) -> Iterator[SpecError]:
    """Check that every baseline is PyTorch's or an expert's, named once, and every expert a baseline."""
    baselines, experts = parts.objective.baselines, parts.objective.experts
    for index, name in enumerate(baselines):
        field = f"objective.baselines[{index}]"
        if name in baselines[:index] and name in experts:
            yield SpecError(field, name, "each expert once")
        elif name not in PYTORCH_BASELINES and name not in experts:
            known = [*PYTORCH_BASELINES, *experts]
            expected = f"one of {listed(known)}{suggest(name, known)}; or an expert of this name in objective.experts"
            if ready := presets_of(name):
                expected += f", such as {ready[0]}"
            yield SpecError(field, name, expected)
    if len(experts_among(baselines)) == len(baselines):
        expected = f"at least one of {listed(PYTORCH_BASELINES)}, for an expert may not run everywhere"
        yield SpecError("objective.baselines", list(baselines), expected)
    for name in experts:
        if name not in baselines:
            yield SpecError(f"objective.experts.{name}", name, "a name among objective.baselines, to be timed")


def _check_experts(parts: Parts) -> Iterator[SpecError]:
    """Check that experts take the op's inputs."""
    names = [item.name for _, item in parts.arguments()]
    if parts.input_count != len(parts.inputs):
        return
    for name, text in parts.objective.experts.items():
        field = f"objective.experts.{name}"
        yield from (SpecError(field, *each) for each in disagreements(text, names))
        yield from check_run(field, text, len(names))


def _check_bindings(parts: Parts, workloads: WorkloadList) -> Iterator[SpecError]:
    variables = {name for name, axis in parts.axes.items() if isinstance(axis, VarAxis)}
    names = {item.name for _, item in parts.arguments()}
    for field, workload in workloads.workloads:
        for name in sorted(variables - workload.axes.keys()):
            yield SpecError(f"{field}.axes.{name}", None, "a size, for the axis is var")
        for name, size in workload.axes.items():
            if name not in parts.axis_names:
                known = f"one of {listed(sorted(variables))}{suggest(name, variables)}"
                expected = f"an axis of kind var: {known if variables else 'the spec declares none'}"
                yield SpecError(f"{field}.axes.{name}", size, expected)
            elif name in parts.axes and name not in variables:
                yield SpecError(f"{field}.axes.{name}", size, f"nothing, for the axis is {parts.axes[name].kind}")
        for name in sorted(parts.dtypes.keys() - workload.dtypes.keys()):
            yield SpecError(f"{field}.dtypes.{name}", None, f"one of {listed(parts.dtypes[name])}")
        for name, dtype in workload.dtypes.items():
            if name not in parts.dtypes:
                known = f"a name of dtypes: one of {listed(sorted(parts.dtypes))}" if parts.dtypes else "no dtypes"
                yield SpecError(f"{field}.dtypes.{name}", dtype, known + suggest(name, parts.dtypes))
            elif dtype not in parts.dtypes[name]:
                yield SpecError(f"{field}.dtypes.{name}", dtype, f"one of {listed(parts.dtypes[name])}")
        if parts.input_count == len(parts.inputs):
            for name in sorted(workload.inputs.keys() - names):
                expected = f"an input: one of {listed(sorted(names))}{suggest(name, names)}"
                yield SpecError(f"{field}.inputs.{name}", name, expected)


def _check_values(parts: Parts, field: str, workload: Workload) -> Iterator[SpecError]:
    """Bind everything for one workload."""
    variables = {name for name, axis in parts.axes.items() if isinstance(axis, VarAxis)}
    if not (variables <= workload.axes.keys() and parts.dtypes.keys() <= workload.dtypes.keys()):
        return
    try:
        bound = bind_axes(parts.axes, workload.axes)
    except SpecError as error:
        yield _for_workload(error, field, workload)
        return
    for place, text in parts.constraints:
        if (complaint := _broken(text, bound)) is not None:
            yield SpecError(f"{field}.axes", _sizes(bound), f"{complaint} ({place})")
    bindings: list[Callable[[], object]] = []
    for place, item in parts.arguments():
        override = workload.inputs.get(item.name, _NO_OVERRIDE)
        typed = with_dtype(item, workload.dtypes)
        bindings.append(partial(bind_input, place, typed, f"{field}.inputs.{item.name}", override, bound))
    for place, output in parts.outputs:
        bindings.append(partial(bind_shape, f"{place}.shape", output.shape, bound))
    for name, value in (("flops", parts.limits.flops), ("bytes", parts.limits.bytes)):
        if value is not None:
            bindings.append(partial(_positive, f"limits.{name}", value, bound))
    for bind in bindings:
        try:
            bind()
        except SpecError as error:
            yield _for_workload(error, field, workload)


def _broken(constraint: str, bound: Mapping[str, int]) -> str | None:
    """Return the expectation where `constraint` does not hold, otherwise None."""
    expression = expr.parse(constraint, "boolean")
    if not expression.names <= bound.keys():
        return None  # told as an unknown axis
    try:
        return None if expression.boolean(bound) else f"sizes that meet the constraint {constraint!r}"
    except expr.ExprError as error:
        return f"sizes for which the constraint {constraint!r} has a value ({error})"


def _positive(field: str, value: int | str, bound: Mapping[str, int]) -> None:
    number = amount(field, value, bound)
    if number < 1:
        raise SpecError(field, f"{value} = {number}", "a positive number")


def _for_workload(error: SpecError, field: str, workload: Workload) -> SpecError:
    if error.field.startswith(f"{field}."):
        return error
    return SpecError(error.field, error.found, f"{error.expected} (in {field}: {_sizes(workload.axes)})")


def _sizes(bound: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in bound.items()) or "no axes"
