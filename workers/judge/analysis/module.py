"""A module with its inputs, as KernelBench writes it. Runs inside the sandbox."""

from __future__ import annotations

import math
from typing import Any

import torch

from warpsmith.workers.judge.analysis.leaves import (
    NotUnderstoodError,
    computed,
    described,
    dtype_name,
    flattened,
    load,
    made,
    made_with_values,
    once_each,
    written,
)
from warpsmith.workers.judge.analysis.recording import Recorder


def analyse(request: dict[str, Any]) -> dict[str, Any]:
    """Find what the module in the file `text` takes, keeps and returns.

    init: the constructor's arguments, or None where JSON cannot carry them. inputs, outputs: as `leaves.described`.
    state: parameters and buffers with `attribute`, in the module's order. written: names of buffers, and positions of
    inputs, that a call changes.
    """
    module = load("problem", request["text"])
    arguments = list(getattr(module, "get_init_inputs", list)())
    inputs, recorder = made(module.get_inputs)
    if not isinstance(inputs, list | tuple):
        raise NotUnderstoodError(f"get_inputs: found {type(inputs).__name__}, expected a list")
    structure, leaves = flattened(list(inputs), "get_inputs()")
    if any("leaf" not in item for item in structure["list"]):
        raise NotUnderstoodError("get_inputs: found a list, text or None, expected tensors and numbers alone")
    found = [described(leaf, recorder) for leaf in leaves]
    once_each(leaves, found)
    model, drawn = made(lambda: module.Model(*arguments))
    if not isinstance(model, torch.nn.Module):
        raise NotUnderstoodError(f"Model: found {type(model).__name__}, expected a torch.nn.Module")
    _check_registered(model)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = list(state)

    def run(*values: Any) -> Any:
        # As the judge builds it: once, without storage, called with the state given.
        with torch.device("meta"):
            bare = module.Model(*arguments)
        bare.requires_grad_(False)
        kept = dict(zip(names, values[len(leaves) :], strict=True))
        return torch.func.functional_call(bare, kept, tuple(values[: len(leaves)]), strict=True)

    def with_values() -> list[Any]:
        data = flattened(list(made_with_values(module.get_inputs)), "get_inputs()")[1]
        real = made_with_values(lambda: module.Model(*arguments))
        return [*data, *dict(real.named_parameters()).values(), *dict(real.named_buffers()).values()]

    result, given = computed(run, [*leaves, *state.values()], with_values)
    changed = written(given)
    return {
        "init": arguments if all(_plain(value) for value in arguments) else None,
        "inputs": found,
        "state": [_state(name, tensor, drawn) for name, tensor in state.items()],
        "outputs": _outputs(result),
        "written": {
            "inputs": [number for number in changed if number < len(leaves)],
            "state": [names[number - len(leaves)] for number in changed if number >= len(leaves)],
        },
    }


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _state(name: str, tensor: torch.Tensor, drawn: Recorder) -> dict[str, Any]:
    found = drawn.of(tensor)
    return {"attribute": name, "shape": list(tensor.shape), "dtype": dtype_name(tensor), "dist": found}


def _outputs(result: Any) -> list[dict[str, Any]]:
    returned = list(result) if isinstance(result, tuple | list) else [result]
    for number, item in enumerate(returned):
        if not isinstance(item, torch.Tensor):
            found = type(item).__name__
            raise NotUnderstoodError(f"Model.forward: result {number} is {found}, expected a tensor or several")
    return [described(item) for item in returned]


def _check_registered(model: torch.nn.Module) -> None:
    """Raise NotUnderstoodError where a module keeps an unregistered tensor.

    A tensor that is neither a parameter nor a buffer could not be given to any candidate.
    """
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                where = f"Model.{path}.{name}" if path else f"Model.{name}"
                raise NotUnderstoodError(f"{where}: found a plain tensor, expected a parameter or register_buffer")
