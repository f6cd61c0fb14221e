"""Check a region's spec.

It loads, its reference gives the results that the region gave, and its workloads can be drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.draws import draw
from warpsmith.kernels_db.spec.op import Op, SpecErrors, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.optimize.reference import Unspeakable

SEED = 0
_MOST_ROWS = 64
_SAME_ROWS = 0.02
"""Relative L2 difference up to which rows are the same: products of other sizes add in another order."""


def checked(document: dict[str, Any], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Op:
    """Return the op that the document's file will be read as, after checking `run`.

    `run` is held against one call of the model: its region's `inputs` and `outputs`. A test workload on which `run`
    cannot be called is taken out of the document. Raises Unspeakable.
    """
    run = run_of(document["reference"])
    try:
        with torch.no_grad():
            found = _listed(run(*inputs))
            for mine, theirs in zip(found, outputs, strict=True):
                torch.testing.assert_close(mine, theirs, equal_nan=True)
    except Exception as error:
        raise Unspeakable(f"its reference does not give what the model gave: {first_line(error)}") from error
    op = loaded(document)
    kept = []
    for item in op.workloads:
        problem = _unusable(run, resolve_workload(op, item), inputs[0].device)
        if problem is None:
            kept.append(item.id)
        elif item.role == "bench":
            raise Unspeakable(f"values drawn for it are no inputs of it: {problem}")
    document["workloads"] = [item for item in document["workloads"] if item["id"] in kept]
    return loaded(document)


def check_rows(run: Any, inputs: Sequence[torch.Tensor], rows: Sequence[bool], given: Sequence[bool]) -> None:
    """Check that each row of the results follows from the same row of the inputs, whatever the other rows are.

    rows, given: which inputs, and which results, have rows. `run` is called on some of the rows, among others. Raises
    Unspeakable.
    """
    if not all(given):
        raise Unspeakable("a result has no rows")
    count = next(len(value) for value, has in zip(inputs, rows, strict=True) if has)
    some = slice(count // 2, count // 2 + _MOST_ROWS)
    among = [torch.cat([v[some], _others(v[some])]) if has else v for v, has in zip(inputs, rows, strict=True)]
    try:
        with torch.no_grad():
            whole, part = _listed(run(*inputs)), _listed(run(*among))
    except Exception as error:
        raise Unspeakable(f"other rows are none for it: {first_line(error)}") from error
    for mine, theirs in zip(part, (value[some] for value in whole), strict=True):
        same = mine[: len(theirs)]
        size, difference = float(theirs.double().norm()), float((same.double() - theirs.double()).norm())
        if same.shape != theirs.shape or difference > _SAME_ROWS * max(size, 1e-30):
            raise Unspeakable("its rows depend on one another")


def _others(rows: torch.Tensor) -> torch.Tensor:
    """Return other rows of the same kind: of numbers that are no indices, other numbers."""
    return rows.flip(0) * -2 + 1 if rows.is_floating_point() else rows.flip(0)


def loaded(document: dict[str, Any]) -> Op:
    """Return the op that the document's file will be read as. Raises Unspeakable."""
    try:
        return load_op(as_yaml(document))
    except SpecErrors as errors:
        raise Unspeakable(f"the spec would not be valid: {errors}") from errors


def _unusable(run: Any, workload: ResolvedWorkload, device: torch.device) -> str | None:
    """Say why `run` cannot be called on values drawn for a workload.

    None where it gives the declared outputs.
    """
    generator = torch.Generator(device).manual_seed(SEED)
    try:
        values = [
            draw(dict(item["dist"] or {}), tuple(item["shape"] or ()), getattr(torch, item["dtype"]), generator)
            for item in workload["inputs"]
        ]
        with torch.no_grad():
            found = _listed(run(*values))
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises for sizes or values that do not go together
        return first_line(error)
    declared = [(list(item["shape"]), f"torch.{item['dtype']}") for item in workload["outputs"]]
    if [(list(item.shape), str(item.dtype)) for item in found] != declared:
        return f"it returns {[tuple(item.shape) for item in found]}, declared are {declared}"
    if any(item.is_floating_point() and not bool(item.isfinite().all()) for item in found):
        return "its results are not finite"
    return None


def run_of(source: str) -> Any:
    """Return the function that a reference written by `reference.write` defines."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "reference", "exec"), namespace)  # noqa: S102 - written by `reference.write` a moment ago
    return namespace["run"]


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or what it is called."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
