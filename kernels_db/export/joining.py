"""Which kernels may stand in one export: those of one op, each of them another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel, kernel_name
from warpsmith.kernels_db.spec.op import SpecError, SpecErrors


def joined(kernels: Sequence[ExportedKernel]) -> tuple[ExportedKernel, ...]:
    """Return the kernels in an export's order, whatever order they are given in.

    They are of one op: they compute the same, apart from the dtypes of its tensors. Raises SpecErrors otherwise,
    whose fields are `kernels[1]` and so on, also where two are the same source with the same envelope and where
    this version refuses the spec of one. A kernel alone is joined with nothing, and not looked at.
    """
    if len(kernels) == 1:
        return tuple(kernels)
    errors: list[SpecError] = []
    first = kernels[0]
    meanings = _meanings(kernels)
    meaning = meanings[0]
    names: dict[str, str] = {}
    for position, (kernel, mine) in enumerate(zip(kernels, meanings, strict=True)):
        other = sorted(field for field in {*mine, *meaning} if mine.get(field) != meaning.get(field))
        if other:
            found = f"{kernel.id} of the op {kernel.spec['name']}, which differs in {', '.join(other)}"
            expected = f"a kernel of the op of {first.id}, {first.spec['name']}"
            errors.append(SpecError(f"kernels[{position}]", found, expected))
        name = kernel_name(kernel)
        if name in names:
            found = f"{kernel.id} with the source and the envelope of {names[name]}"
            expected = "kernels that differ in their source or in what they were verified on"
            errors.append(SpecError(f"kernels[{position}]", found, expected))
        names[name] = kernel.id
    if errors:
        raise SpecErrors(errors)
    return tuple(sorted(kernels, key=lambda kernel: (kernel.target, kernel_name(kernel))))


def _meanings(kernels: Sequence[ExportedKernel]) -> list[dict[str, Any]]:
    """Return `_meaning` of each.

    Raises SpecErrors that name each kernel whose spec, stored by another version, is refused.
    """
    meanings: list[dict[str, Any]] = []
    errors: list[SpecError] = []
    for position, kernel in enumerate(kernels):
        try:
            meanings.append(_meaning(kernel))
        except SpecErrors as refused:
            expected = f"a kernel of an op whose spec this version takes; {refused.errors[0]}"
            errors.append(SpecError(f"kernels[{position}]", kernel.id, expected))
    if errors:
        raise SpecErrors(errors)
    return meanings


def _meaning(kernel: ExportedKernel) -> dict[str, Any]:
    """Return the op's computation without the dtypes of its tensors.

    Dispatch looks at those at each call.
    """
    document = kernel.op.semantic_document()
    for field in ("inputs", "outputs", "state"):
        if field in document:
            document[field] = [_of_any_dtype(item) for item in document[field]]
    return document


def _of_any_dtype(item: dict[str, Any]) -> dict[str, Any]:
    is_number = item.get("shape") is None
    return item if is_number else {name: value for name, value in item.items() if name != "dtype"}
