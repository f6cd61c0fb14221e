"""Analyse a GPU MODE task with its inputs: `generate_input`, `ref_kernel`.

Runs inside the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from warpsmith.kernels_db.job.file_objects import SOURCE
from warpsmith.kernels_db.job.stand_in import on
from warpsmith.workers.judge.analysis import shapes_of_ops
from warpsmith.workers.judge.analysis.first_use import FirstUse
from warpsmith.workers.judge.analysis.leaves import (
    SEED,
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
from warpsmith.workers.judge.analysis.task_sizes import (
    AFFORDABLE,
    LEAST_SIZE,
    SEARCH_S,
    elements,
    inferred,
    kind,
    sizes_of,
    smaller_calls,
)


def analyse(request: dict[str, Any]) -> dict[str, Any]:
    """Find what the module `reference` of `text` computes on, for each of `workloads`.

    `text` embeds the task's files; a workload holds the keyword arguments of `generate_input`. `values`: whether a
    workload that needs values gets them; where not, it is None in the answer.

    workloads: for each the structure and leaves of its data and of the result, `written` (leaves that a call changes),
    `unread` (leaves that it overwrites before it reads them, or does not touch) and `aliases` (for each output the leaf
    that it is, or None). inferred: the numbers of those whose results are too
    much to compute, and have sizes as smaller calls show (`task_sizes.inferred`).
    """
    task = _loaded(request, values=request["values"])
    found: list[dict[str, Any] | None] = []
    for number, arguments in enumerate(request["workloads"]):
        try:
            workload = task.analysed(arguments, f"workload {number}")
        except NotUnderstoodError:
            raise
        except Exception:  # whatever it needs values for
            if request["values"]:
                raise
            workload = None
        found.append(workload)
    return {
        "workloads": found,
        "inferred": [number for number, workload in enumerate(found) if id(workload) in task.inferred],
    }


def lower(request: dict[str, Any]) -> dict[str, Any]:
    """Find a call of a task, as in `analyse`, that computes on less than the one with these `arguments`.

    calls: the one found, with its `arguments` and its `workload`; empty where there is none.
    """
    found = next(_loaded(request, values=True).smaller(request["arguments"]), None)
    return {"calls": [] if found is None else [{"arguments": found[0], "workload": found[1]}]}


def _loaded(request: dict[str, Any], *, values: bool) -> _Task:
    shapes_of_ops.register()
    return _Task(load("task_files", request["text"])._embedded(request["reference"]), values)


CALLED_AGAIN = 1 << 22
"""Elements of a call up to which it is made a second time, to see that it does not read some of them."""


class _Task:
    """The functions of one task. `inferred`: identities of the workloads whose results were not computed."""

    def __init__(self, reference: Any, values: bool) -> None:
        self._reference = reference
        self._values = values
        self._object = load("objects", SOURCE)._object
        self._end: float | None = None
        self.inferred: set[int] = set()

    def analysed(self, arguments: dict[str, Any], where: str) -> dict[str, Any]:
        """Describe one workload. Raises what the task raises, and NotUnderstoodError."""
        data, structure, leaves = self._data(arguments, values=self._values)
        if elements(data) <= AFFORDABLE:
            return self._called(arguments, data, structure, leaves, where, values=self._values)
        try:
            return self._called(arguments, data, structure, leaves, where, values=False)
        except NotUnderstoodError:
            raise
        except Exception:  # it needs values, of which there are many
            found = inferred(data | {"structure": structure}, self.smaller(arguments))
            if found is None:
                if not self._values:
                    raise
                return self._called(arguments, data, structure, leaves, where, values=True)
        self.inferred.add(id(found))
        return found

    def smaller(self, arguments: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield smaller calls, the smallest first; all of a task have SEARCH_S seconds together."""
        self._end = self._end or time.monotonic() + SEARCH_S

        def call(smaller: dict[str, Any]) -> dict[str, Any] | None:
            try:
                data, structure, leaves = self._data(smaller, values=True)
                if elements(data) > AFFORDABLE:
                    return None
                return self._called(smaller, data, structure, leaves, "a smaller call", values=True)
            except Exception:  # noqa: BLE001 - whatever it raises at these sizes
                return None

        return smaller_calls(arguments, self._lowerable(arguments), call, self._end)

    def _lowerable(self, arguments: dict[str, Any]) -> dict[str, int]:
        """Return the sizes among the arguments that are not a number of tensors: with a lower one the data is alike."""
        whole = self._kind_of_data(arguments)
        found = {}
        for name, size in sizes_of(arguments).items():
            lowered = self._kind_of_data({**arguments, name: LEAST_SIZE})
            if lowered is None or lowered == whole:  # None: it takes it together with others, if at all
                found[name] = size
        return found

    def _kind_of_data(self, arguments: dict[str, Any]) -> Any:
        try:
            data, structure, _ = self._data(arguments, values=False)
        except Exception:  # noqa: BLE001 - whatever it raises at these sizes
            return None
        return kind(data | {"structure": structure})

    def _data(self, arguments: dict[str, Any], *, values: bool) -> tuple[dict[str, Any], Any, list[Any]]:
        """Return a description of the inputs, with the structure and the leaves of the data."""
        data, recorder = made(lambda: self._reference.generate_input(**arguments), values=values)
        structure, leaves = flattened(data, "generate_input()", self._reference)
        inputs = [as_bytes(described(leaf, recorder)) for leaf in leaves]
        once_each(leaves, inputs)
        return {"inputs": inputs}, structure, leaves

    def _called(
        self,
        arguments: dict[str, Any],
        data: dict[str, Any],
        structure: Any,
        leaves: list[Any],
        where: str,
        *,
        values: bool,
    ) -> dict[str, Any]:
        """Describe a workload whose data is known by calling `ref_kernel`, without values where possible."""

        def with_values() -> list[Any]:
            again = made_with_values(lambda: self._reference.generate_input(**arguments))
            return flattened(again, "generate_input()", self._reference)[1]

        first = FirstUse({})

        def run(*given: Any) -> Any:
            nonlocal first
            first = FirstUse({str(n): leaf for n, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)})
            with first:
                return self._reference.ref_kernel(self._rebuilt(structure, given))

        result, given = computed(run, leaves, with_values, values=values)
        shape_of_result, outputs = flattened(result, "ref_kernel()")
        if not all(isinstance(output, torch.Tensor) for output in outputs):
            raise NotUnderstoodError(f"{where}: ref_kernel() returned a number, expected tensors")
        memory = {_memory(leaf): n for n, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)}
        aliases = [memory.get(_memory(output)) for output in outputs]
        unread = _unread(first, aliases, given, run, outputs)
        return data | {
            "structure": structure,
            "result": shape_of_result,
            "outputs": [described(output) for output in outputs],
            "written": written(given),
            "unread": sorted(unread),
            "aliases": aliases,
        }

    def _rebuilt(self, structure: Any, leaves: Any) -> Any:
        """Rebuild the value that `flattened` took apart."""
        kind, content = next(iter(structure.items()))
        if kind == "leaf":
            return leaves[content]
        if kind == "dict":
            return {key: self._rebuilt(item, leaves) for key, item in content.items()}
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(self._rebuilt(item, leaves) for item in content)
        if kind == "object":
            attributes = {name: self._rebuilt(item, leaves) for name, item in content["attributes"].items()}
            made_of = getattr(self._reference, content["class"])
            return self._object(made_of, attributes, content["parameters"], content["buffers"])
        return content


def _unread(
    first: FirstUse,
    aliases: list[int | None],
    given: list[Any],
    run: Callable[..., Any],
    outputs: list[torch.Tensor],
) -> set[int]:
    """Return the leaves that a call overwrites before it reads them, and those that it does not touch.

    Where they have values, and not too many, it is called again with others: `tolist` reads what seems untouched.
    """
    overwritten = {int(name) for name in first.overwritten}
    both = overwritten | ({int(name) for name in first.untouched} - set(aliases))
    if not both or given[min(both)].device.type == "meta":
        return both
    if sum(tensor.numel() for tensor in [*given, *outputs] if isinstance(tensor, torch.Tensor)) > CALLED_AGAIN:
        return overwritten
    return next((each for each in (both, overwritten) if _has_same_results(each, given, run, outputs)), set())


def _has_same_results(
    changed: set[int], given: list[Any], run: Callable[..., Any], outputs: list[torch.Tensor]
) -> bool:
    """Check whether the results are the same with other values of these leaves."""
    torch.manual_seed(SEED)
    try:
        again = [_other(leaf) if number in changed else leaf for number, leaf in enumerate(given)]
        with torch.no_grad(), on(torch.device("cpu")):
            found = flattened(run(*again), "ref_kernel()")[1]
        return all(torch.equal(_bits(one), _bits(other)) for one, other in zip(found, outputs, strict=True))
    except Exception:  # noqa: BLE001 - it reads them, or cannot be called twice
        return False


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Return other values, each of them: a mask of ones would be the same as ones."""
    small = tensor.is_floating_point() and tensor.dtype.itemsize == 1  # which have no comparison of their own
    return ((tensor.float() if small else tensor) == 0).to(tensor.dtype)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
