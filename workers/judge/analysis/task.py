"""Analyse a GPU MODE task with its inputs: `generate_input`, `ref_kernel`.

Runs inside the sandbox.
"""

from __future__ import annotations

from typing import Any

import torch

from warpsmith.workers.judge.analysis import shapes_of_ops
from warpsmith.workers.judge.analysis.leaves import (
    NotUnderstoodError,
    as_bytes,
    computed,
    described,
    flattened,
    load,
    made,
    made_with_values,
    once_each,
    written,
)


def analyse(request: dict[str, Any]) -> dict[str, Any]:
    """Find what the module `reference` of `text` computes on, for each of `workloads`.

    `text` embeds the task's files; a workload holds the keyword arguments of `generate_input`. `values`: whether a
    workload that needs values gets them; where not, it is None in the answer.

    workloads: for each the structure and leaves of its data and of the result, `written` (leaves that a call changes)
    and `aliases` (for each output the leaf that it is, or None).
    """
    shapes_of_ops.register()
    reference = load("task_files", request["text"])._embedded(request["reference"])
    found: list[dict[str, Any] | None] = []
    for number, arguments in enumerate(request["workloads"]):
        try:
            workload = _analysed(reference, arguments, f"workload {number}", values=request["values"])
        except NotUnderstoodError:
            raise
        except Exception:  # whatever it needs values for
            if request["values"]:
                raise
            workload = None
        found.append(workload)
    return {"workloads": found}


def _analysed(reference: Any, arguments: dict[str, Any], where: str, *, values: bool) -> dict[str, Any]:
    data, recorder = made(lambda: reference.generate_input(**arguments), values=values)
    structure, leaves = flattened(data, "generate_input()")
    inputs = [as_bytes(described(leaf, recorder)) for leaf in leaves]
    once_each(leaves, inputs)

    def with_values() -> list[Any]:
        data = made_with_values(lambda: reference.generate_input(**arguments))
        return flattened(data, "generate_input()")[1]

    result, given = computed(
        lambda *given: reference.ref_kernel(rebuilt(structure, given)), leaves, with_values, values=values
    )
    shape_of_result, outputs = flattened(result, "ref_kernel()")
    if not all(isinstance(output, torch.Tensor) for output in outputs):
        raise NotUnderstoodError(f"{where}: ref_kernel() returned a number, expected tensors")
    memory = {int(leaf.untyped_storage()._cdata): n for n, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)}
    return {
        "structure": structure,
        "result": shape_of_result,
        "inputs": inputs,
        "outputs": [described(output) for output in outputs],
        "written": written(given),
        "aliases": [memory.get(int(output.untyped_storage()._cdata)) for output in outputs],
    }


def rebuilt(structure: Any, leaves: Any) -> Any:
    """Rebuild the value that `flattened` took apart."""
    kind, content = next(iter(structure.items()))
    if kind == "leaf":
        return leaves[content]
    if kind == "dict":
        return {key: rebuilt(item, leaves) for key, item in content.items()}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(rebuilt(item, leaves) for item in content)
    return content
