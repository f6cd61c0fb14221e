"""Whether a spec's reference computes what the file computes that it was made from. Runs inside the sandbox."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from warpsmith.kernels_db.candidate_import import provide_short_names
from warpsmith.kernels_db.job import draws
from warpsmith.kernels_db.job.float64 import in_float64
from warpsmith.kernels_db.job.stand_in import gpu_as_cpu, on
from warpsmith.workers.judge.analysis.first_use import FirstUse
from warpsmith.workers.judge.analysis.leaves import NotUnderstoodError, load
from warpsmith.workers.judge.analysis.module import AFFORDABLE, register_plain

ROUNDING = 1e-4
"""Relative L2 distance below which two results are those of the same computation.

The same operations in the same order differ by nothing; a thread more in a sum, by units of roundoff.
"""
SEED = 1

NOTHING = 1e-9
"""Relative L2 distance of two float64 results that are the same but for rounding."""

REPEATS = 3
"""Calls in which a module is seen to repeat its results, where the reference gave others."""

UNREAD_S = 5.0
"""Seconds for finding state that is not read."""

MOST_ELEMENTS = 200_000_000
"""Elements of inputs, state and results of a call that is compared on values: 0.8 GB of float32, held three times."""


def compare(request: dict[str, Any]) -> dict[str, Any]:
    """Compare the module in `text` with the `reference` of the spec that it became.

    Both are given the same inputs and state: first the file's own, then such as the spec draws them. Before that,
    `whole`, the reference at the sizes of the spec, must be built and give results of the declared shapes and dtypes,
    on tensors without values where it needs none. Raises NotUnderstoodError where they differ, and what either raises.

    compared: `values`, or `shapes` where a call takes more than MOST_ELEMENTS. unread: floating state that does not
    show in the results (a bias that a normalisation takes out), as far as there was time to look.
    """
    provide_short_names()
    _check_whole(request["whole"])
    workload = request["workload"]
    elements = _elements(workload)
    if elements > MOST_ELEMENTS:
        return {"compared": "shapes", "unread": []}
    with gpu_as_cpu():
        run = _loaded("reference", request["reference"]).run
        values = _own_values(request)
        _check_alike(request, run, values, "its own inputs")
        if elements > AFFORDABLE:
            return {"compared": "values", "unread": []}  # once is seconds enough
        drawn = _drawn_values(request)
        try:
            _check_alike(request, run, drawn, "inputs as the spec draws them")
        except NotUnderstoodError:
            raise
        except Exception:
            # Inputs that the file draws together need not fit once each is drawn for itself: a note says so.
            if not request["together"]:
                raise
        return {"compared": "values", "unread": _unread(request, run, values)}


def _loaded(name: str, text: str) -> Any:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), namespace)  # noqa: S102 - inside the sandbox
    return type("Module", (), {key: staticmethod(value) for key, value in namespace.items() if callable(value)})


def _original(request: dict[str, Any]) -> tuple[Any, torch.nn.Module]:
    """Return the file as a module, and its model with values."""
    module = load("problem", request["text"])
    torch.manual_seed(SEED)
    with on(torch.device("cpu")):
        model: torch.nn.Module = module.Model(*getattr(module, "get_init_inputs", list)())
    model.requires_grad_(False)
    return module, model


def _own_values(request: dict[str, Any]) -> list[Any]:
    module, model = _original(request)
    with on(torch.device("cpu")):
        inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in module.get_inputs()]
    register_plain(model)
    return [*inputs, *(_attribute(model, name).detach().clone() for name in request["state"])]


def _drawn_values(request: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for number, item in enumerate(request["workload"]["inputs"]):
        if item["shape"] is None:
            found.append(item["value"])
            continue
        dtype: torch.dtype = getattr(torch, item["dtype"])
        generator = torch.Generator().manual_seed(SEED + number)
        if item["dist"]["kind"] != "code":
            found.append(draws.draw(item["dist"], tuple(item["shape"]), dtype, generator))
            continue
        made = _loaded("generator", item["dist"]["source"]).make(item["shape"], dtype, generator)
        if list(made.shape) != item["shape"] or made.dtype != dtype:
            kind = f"{list(made.shape)} {made.dtype}"
            raise NotUnderstoodError(f"the generator of {item['name']}: found {kind}, expected {item['shape']} {dtype}")
        found.append(made)
    return found


def _check_alike(request: dict[str, Any], run: Callable[..., Any], values: Sequence[Any], what: str) -> None:
    """Raise NotUnderstoodError where module and reference differ on these values of inputs and state."""
    count = len(values) - len(request["state"])
    _, model = _original(request)
    plain = {name for name in request["state"] if name not in dict(_registered(model))}
    for name, value in zip(request["state"], values[count:], strict=True):
        if name in plain:
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, value.clone())
        else:
            _attribute(model, name).data.copy_(value)
    one, other = _copied(values[:count]), [*_copied(values[:count]), *values[count:]]
    expected = _called(model, one)
    found = _called(run, other)
    if len(found) != len(expected):
        raise NotUnderstoodError(f"the spec's reference: found {len(found)} results, Model.forward {len(expected)}")
    pairs = [(f"result {number}", *pair) for number, pair in enumerate(zip(found, expected, strict=True))]
    pairs += [(f"input {position} after the call", other[position], one[position]) for position in request["mutated"]]
    for name, mine, wanted in pairs:
        if (mine.shape, mine.dtype) != (wanted.shape, wanted.dtype):
            kinds = f"{list(mine.shape)} {mine.dtype}, Model {list(wanted.shape)} {wanted.dtype}"
            raise NotUnderstoodError(f"the spec's reference on {what}: {name} is {kinds}")
        if (distance := _distance(mine, wanted)) > ROUNDING:
            _check_repeats(model, _copied(values[:count]), expected, what)
            raise NotUnderstoodError(
                f"the spec's reference on {what}: {name} is off by {distance:.3g} of the norm of Model's"
            )


def _check_repeats(model: torch.nn.Module, inputs: list[Any], first: Sequence[Any], what: str) -> None:
    """Raise NotUnderstoodError where a module gives other results when it is called again on the same inputs."""
    for _ in range(REPEATS):
        for number, (one, again) in enumerate(zip(first, _called(model, _copied(inputs)), strict=True)):
            if (distance := _distance(again, one)) > ROUNDING:
                raise NotUnderstoodError(
                    f"Model itself on {what}, called again: result {number} is off by {distance:.3g} of its norm, "
                    "expected the same in every call (writes to one place, by indices that repeat, have no order)"
                )


def _unread(request: dict[str, Any], run: Callable[..., Any], values: Sequence[Any]) -> list[str]:
    """Return the floating state of which other values leave the results in float64 as they are.

    None where a matrix of weights seems to be among it: the sizes are then too small to tell (a normalisation of single
    elements). A matrix may be that a call overwrites (the hidden state of a recurrent network), and of results that are
    `gradients` any: they leave parameters aside as a matter of course.
    """
    wide = in_float64(run)
    given = [value.double() if _is_floating(value) else value for value in values]
    try:
        right = _called(wide, _copied(given))
    except Exception:  # noqa: BLE001 - no float64 for it: nothing is known
        return []
    apart = _apart(wide, given) | _overwritten(request, values)
    found, end = [], time.monotonic() + UNREAD_S
    for position, name in enumerate(request["state"], len(values) - len(request["state"])):
        if time.monotonic() > end:
            break
        if not _is_floating(values[position]):
            continue
        changed = _copied(given)
        changed[position] = torch.randn_like(changed[position]) + changed[position].abs()
        if _is_same(wide, changed, right):
            matrix = sum(size > 1 for size in values[position].shape) > 1
            if matrix and not request.get("gradients") and position not in apart:
                return []
            found.append(name)
    return found


def _overwritten(request: dict[str, Any], values: Sequence[Any]) -> set[int]:
    """Return the positions of state that a call of the module overwrites before it reads it."""
    count = len(values) - len(request["state"])
    _, model = _original(request)
    register_plain(model)
    first = FirstUse({name: _attribute(model, name) for name in request["state"]})
    with first:
        _called(model, _copied(values[:count]))
    return {count + number for number, name in enumerate(request["state"]) if name in first.overwritten}


def _apart(run: Callable[..., Any], values: Sequence[Any]) -> set[int]:
    """Return the positions of floating values from which nothing leads to the results, as autograd sees it.

    That holds at any size. Empty where autograd cannot say: a result that leads back to nothing, an error.
    """
    given = [value.detach().clone().requires_grad_() if _is_floating(value) else value for value in values]
    positions = [position for position, value in enumerate(given) if _is_floating(value)]
    try:
        torch.manual_seed(SEED)
        with torch.enable_grad():
            found = run(*(value.clone() if isinstance(value, torch.Tensor) else value for value in given))
            results = list(found) if isinstance(found, tuple | list) else [found]
            if not all(_is_floating(result) and result.requires_grad for result in results):
                return set()
            total = sum((result.sum() for result in results), torch.zeros((), dtype=torch.float64))
            gradients = torch.autograd.grad(total, [given[position] for position in positions], allow_unused=True)
    except Exception:  # noqa: BLE001 - a module that autograd cannot follow: nothing is known
        return set()
    return {position for position, gradient in zip(positions, gradients, strict=True) if gradient is None}


def _is_same(run: Callable[..., Any], values: list[Any], right: Sequence[torch.Tensor]) -> bool:
    """Check whether a call gives the same results but for rounding; one that fails does not."""
    try:
        results = _called(run, values)
    except Exception:  # noqa: BLE001 - whatever it raises on these values
        return False
    return all(_distance(one, other) <= NOTHING for one, other in zip(results, right, strict=True))


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _called(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    torch.manual_seed(SEED)  # a module that draws in its call draws the same
    with torch.no_grad():
        result = function(*arguments)
    return list(result) if isinstance(result, tuple | list) else [result]


def _copied(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the relative L2 distance; infinity where they differ in a place that is no finite number."""
    if not (one.is_floating_point() or one.is_complex()):
        return 0.0 if torch.equal(one, other) else math.inf
    wide = torch.complex128 if one.is_complex() else torch.float64
    mine, wanted = one.to(wide), other.to(wide)
    finite = torch.isfinite(mine) & torch.isfinite(wanted)
    if not torch.equal(torch.nan_to_num(mine[~finite]), torch.nan_to_num(wanted[~finite])):
        return math.inf
    norm = float(torch.linalg.vector_norm(wanted[finite]))
    distance = float(torch.linalg.vector_norm(mine[finite] - wanted[finite]))
    return distance / norm if norm else distance


def _check_whole(whole: dict[str, Any]) -> None:
    """Raise where the spec's own reference cannot be built, or gives results that the spec does not declare."""
    with gpu_as_cpu():
        run = _loaded("whole", whole["reference"]).run
    workload = whole["workload"]
    arguments = [
        item["value"]
        if item["shape"] is None
        else torch.empty(item["shape"], dtype=getattr(torch, item["dtype"]), device="meta")
        for item in workload["inputs"]
    ]
    try:
        with gpu_as_cpu(), torch.device("meta"):
            results = _called(run, arguments)
    except Exception:  # noqa: BLE001 - it needs values, which the comparison gives it
        return
    found = [(list(result.shape), str(result.dtype).removeprefix("torch.")) for result in results]
    expected = [(item["shape"], item["dtype"]) for item in workload["outputs"]]
    if found != expected:
        raise NotUnderstoodError(f"the spec's reference: found results of {found}, expected {expected}")


def _attribute(model: torch.nn.Module, name: str) -> torch.Tensor:
    found: torch.Tensor = dict(_registered(model))[name]
    return found


def _registered(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _elements(workload: dict[str, Any]) -> int:
    tensors = [*workload["inputs"], *workload["outputs"]]
    return sum(math.prod(item["shape"]) for item in tensors if item["shape"] is not None)
