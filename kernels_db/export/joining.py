"""Which kernels may stand in one export: those of one op, each of them another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels_db.export.kernel import ExportedKernel, kernel_name
from kernels_db.op import SpecError, SpecErrors, parse_op


def joined(kernels: Sequence[ExportedKernel]) -> tuple[ExportedKernel, ...]:
    """The kernels in the order in which an export holds them, whatever order they are given in.

    They are of one op: what it computes is the same, apart from the dtypes of its tensors. Raises SpecErrors otherwise,
    whose fields are `kernels[1]` and so on, and where two are the same source with the same envelope.
    """
    errors: list[SpecError] = []
    first = kernels[0]
    meaning = _meaning(first)
    names: dict[str, str] = {}
    for position, kernel in enumerate(kernels):
        mine = _meaning(kernel)
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


def _meaning(kernel: ExportedKernel) -> dict[str, Any]:
    """What the op computes, whatever the dtypes of its tensors: dispatch looks at those at each call."""
    document = parse_op(kernel.spec).semantic_document()
    for field in ("inputs", "outputs", "state"):
        if field in document:
            document[field] = [_of_any_dtype(item) for item in document[field]]
    return document


def _of_any_dtype(item: dict[str, Any]) -> dict[str, Any]:
    is_number = item.get("shape") is None
    return item if is_number else {name: value for name, value in item.items() if name != "dtype"}
