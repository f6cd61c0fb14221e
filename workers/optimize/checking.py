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


def checked(document: dict[str, Any], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Op:
    """Return the op that the document's file will be read as, after checking `run`.

    `run` is held against one call of the model: its region's `inputs` and `outputs`. A test workload on which `run`
    cannot be called is taken out of the document. Raises Unspeakable.
    """
    run = _run(document["reference"])
    try:
        with torch.no_grad():
            found = _listed(run(*inputs))
            for mine, theirs in zip(found, outputs, strict=True):
                torch.testing.assert_close(mine, theirs, equal_nan=True)
    except Exception as error:
        raise Unspeakable(f"its reference does not give what the model gave: {_first_line(error)}") from error
    op = _loaded(document)
    kept = []
    for item in op.workloads:
        problem = _unusable(run, resolve_workload(op, item), inputs[0].device)
        if problem is None:
            kept.append(item.id)
        elif item.role == "bench":
            raise Unspeakable(f"values drawn for it are no inputs of it: {problem}")
    document["workloads"] = [item for item in document["workloads"] if item["id"] in kept]
    return _loaded(document)


def _loaded(document: dict[str, Any]) -> Op:
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
        return _first_line(error)
    declared = [(list(item["shape"]), f"torch.{item['dtype']}") for item in workload["outputs"]]
    if [(list(item.shape), str(item.dtype)) for item in found] != declared:
        return f"it returns {[tuple(item.shape) for item in found]}, declared are {declared}"
    if any(item.is_floating_point() and not bool(item.isfinite().all()) for item in found):
        return "its results are not finite"
    return None


def _run(source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(source, "reference", "exec"), namespace)  # noqa: S102 - written by `reference.write` a moment ago
    return namespace["run"]


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
