"""A module with its inputs, as KernelBench writes it. Runs inside the sandbox."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from warpsmith.kernels_db.job.file_constants import literal, with_constants
from warpsmith.kernels_db.job.file_sizes import sizes_of, with_sizes
from warpsmith.kernels_db.job.stand_in import on
from warpsmith.workers.judge.analysis.leaves import (
    SEED,
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

SMALL = 1 << 18
"""Elements of inputs, state and results up to which sizes are small."""

AFFORDABLE = 1 << 26
"""Elements up to which a module may be given values to find out whether other sizes suit it."""

SEARCH_S = 10.0
"""Seconds for finding small sizes."""

LEAST_SIZES = (2, 16, 64)
"""Sizes below which none falls: the next where the results with those before are all rounding."""

ROUNDING = 1e-3
"""Relative L2 distance between the results in float32 and in float64 above which they are.

A deep network that normalises over a few elements makes the rounding of its first layer as large as its results: no
wrong answer can be told from a right one then.
"""


def analyse(request: dict[str, Any]) -> dict[str, Any]:
    """Find what the module in the file `text` takes, keeps and returns.

    init: the constructor's arguments, or None where JSON cannot carry them. inputs, outputs: as `leaves.described`.
    state: parameters and buffers with `attribute`, in the module's order; `plain` are tensors that it keeps as ordinary
    attributes. written: names of buffers, and positions of inputs, that a call changes. small: `sizes` of the file with
    which it computes on little, and the facts of the file with them; None where it does so already, or none were found.
    constants: Python source of the inputs that are no tensors or numbers, by position. They become part of the module
    (`file_constants`), of which all else is said.
    """
    constants = _constants(request["text"])
    text = with_constants(request["text"], constants)
    facts = _facts(text)
    return facts | {
        "small": _small(text, facts),
        "constants": [{"position": position, "source": source} for position, source in constants.items()],
    }


def _constants(text: str) -> dict[int, str]:
    """Return the source of each input that is a tuple, list, dict, text or None of plain values, by its position."""
    inputs = made(load("problem", text).get_inputs)[0]
    if not isinstance(inputs, list | tuple):
        return {}  # which `_facts` refuses
    found = {position: literal(value) for position, value in enumerate(inputs)}
    return {position: source for position, source in found.items() if source is not None}


def register_plain(model: torch.nn.Module) -> list[str]:
    """Make buffers of the tensors that a module keeps as plain attributes; return their names.

    As the reference of the spec does, so that its state can be given. Raises NotUnderstoodError where one shares its
    memory with another tensor of the module: given separately, the two would no longer agree.
    """
    owners = {int(tensor.untyped_storage()._cdata) for tensor in [*model.parameters(), *model.buffers()]}
    found = []
    for path, part in model.named_modules():
        for name, value in list(vars(part).items()):
            if not isinstance(value, torch.Tensor):
                continue
            where = f"{path}.{name}" if path else name
            memory = int(value.untyped_storage()._cdata)
            if memory in owners:
                expected = "memory of its own: as a plain attribute it cannot be given with what it shares it with"
                raise NotUnderstoodError(f"Model.{where}: found a view of another of its tensors, expected {expected}")
            owners.add(memory)
            delattr(part, name)
            part.register_buffer(name, value, persistent=False)
            found.append(where)
    return found


def _facts(text: str, *, values: bool = True) -> dict[str, Any]:
    """Return the facts of one text. `values`: whether it may have values where it needs them."""
    module = load("problem", text)
    arguments = list(getattr(module, "get_init_inputs", list)())
    inputs, recorder = made(module.get_inputs, values=values)
    if not isinstance(inputs, list | tuple):
        raise NotUnderstoodError(f"get_inputs: found {type(inputs).__name__}, expected a list")
    structure, leaves = flattened(list(inputs), "get_inputs()")
    if any("leaf" not in item for item in structure["list"]):
        raise NotUnderstoodError("get_inputs: found a list with tensors, expected tensors, numbers and plain values")
    found = [described(leaf, recorder) for leaf in leaves]
    once_each(leaves, found)
    model, drawn = made(lambda: module.Model(*arguments), values=values)
    if not isinstance(model, torch.nn.Module):
        raise NotUnderstoodError(f"Model: found {type(model).__name__}, expected a torch.nn.Module")
    plain = register_plain(model)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = list(state)

    def run(*given: Any) -> Any:
        # As the judge builds it: once, without storage, called with the state given.
        with torch.device("meta"):
            bare = module.Model(*arguments)
        bare.requires_grad_(False)
        register_plain(bare)
        kept = dict(zip(names, given[len(leaves) :], strict=True))
        return torch.func.functional_call(bare, kept, tuple(given[: len(leaves)]), strict=True)

    def with_values() -> list[Any]:
        data = flattened(list(made_with_values(module.get_inputs)), "get_inputs()")[1]
        real = made_with_values(lambda: module.Model(*arguments))
        register_plain(real)
        return [*data, *dict(real.named_parameters()).values(), *dict(real.named_buffers()).values()]

    result, given = computed(run, [*leaves, *state.values()], with_values, values=values)
    changed = written(given)
    return {
        "init": arguments if all(_plain(value) for value in arguments) else None,
        "inputs": found,
        "state": [_state(name, tensor, drawn, plain) for name, tensor in state.items()],
        "outputs": _outputs(result),
        "written": {
            "inputs": [number for number in changed if number < len(leaves)],
            "state": [names[number - len(leaves)] for number in changed if number >= len(leaves)],
        },
    }


def _small(text: str, facts: dict[str, Any]) -> dict[str, Any] | None:
    """Return sizes with which the file computes on little, and its facts with them; None where there are none."""
    end = time.monotonic() + SEARCH_S
    smallest = None
    for least in LEAST_SIZES:
        found = _lowered(text, facts, least, end)
        smallest = smallest or found
        if found is None or not _is_all_rounding(with_sizes(text, found["sizes"]), found["facts"]):
            return found or smallest
        if time.monotonic() > end:
            break
    return smallest


def _lowered(text: str, facts: dict[str, Any], least: int, end: float) -> dict[str, Any] | None:
    """Return sizes of at least `least`, and the facts with them.

    Sizes fall one after the other, the largest first, each as far as the module takes it, until the time `end`.
    """
    found = sizes_of(text)
    sizes: dict[str, int] = {}
    for names in _lowered_together(found):
        if all(name in sizes for name in names):
            continue
        # As many channels as groups, say, and each group has a single element: the results are zeros.
        others = {number for name, number in found.items() if name not in sizes and name not in names}
        for smaller in _smaller(found[names[0]]):
            if smaller in others or smaller < least:
                continue
            if _elements(facts) <= SMALL or time.monotonic() > end:
                break
            tried = sizes | dict.fromkeys(names, smaller)
            fresh = _facts_if_any(text, tried, values=_elements(facts) <= AFFORDABLE)
            if fresh is not None and _elements(fresh) < _elements(facts) and _same_kind(fresh, facts):
                sizes, facts = tried, fresh
                break
    return {"sizes": sizes, "facts": facts} if sizes else None


def _is_all_rounding(text: str, facts: dict[str, Any]) -> bool:
    """Check whether a module's results on its own inputs are all rounding; False where that cannot be seen."""
    if _elements(facts) > AFFORDABLE:
        return False
    try:
        module = load("problem", text)
        inputs = flattened(list(made_with_values(module.get_inputs)), "get_inputs()")[1]
        model = made_with_values(lambda: module.Model(*getattr(module, "get_init_inputs", list)()))
        narrow, wide = [
            _results(copy.deepcopy(model).to(dtype), inputs, dtype) for dtype in (torch.float32, torch.float64)
        ]
    except Exception:  # noqa: BLE001 - whatever it raises in float64
        return False
    return any(bool((one - other).norm() > ROUNDING * other.norm()) for one, other in zip(narrow, wide, strict=True))


def _results(model: torch.nn.Module, inputs: list[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the floating results of a module and inputs in `dtype`, in float64."""
    given = [
        value.to(dtype, copy=True) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in inputs
    ]
    torch.manual_seed(SEED)
    with torch.no_grad(), on(torch.device("cpu")):
        found = model(*given)
    results = found if isinstance(found, list | tuple) else [found]
    return [result.double() for result in results if result.is_floating_point()]


def _lowered_together(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Yield names of sizes that fall together, the largest first: each by itself, then those that are equal."""
    for size in sorted(set(sizes.values()), reverse=True):
        names = [name for name, number in sizes.items() if number == size]
        yield from ([name] for name in names)
        if len(names) > 1:
            yield names


def _facts_if_any(text: str, sizes: dict[str, int], *, values: bool) -> dict[str, Any] | None:
    """Return the facts of a text with other sizes; None where its module does not take them."""
    try:
        return _facts(with_sizes(text, sizes), values=values)
    except Exception:  # noqa: BLE001 - whatever it raises at them
        return None


def _smaller(size: int) -> Iterator[int]:
    """Yield sizes below one, the smallest first, halved while it is even: what divides it may have to divide them."""
    halves = [size]
    while halves[-1] % 2 == 0 and halves[-1] > 4:
        halves.append(halves[-1] // 2)
    if halves[-1] > 16:
        yield 7
    yield from reversed(halves[1:])
    if size > 2:
        yield 2


def _same_kind(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Check whether two facts are of one spec but for its sizes and the values of numbers."""

    def kind(facts: dict[str, Any]) -> Any:
        tensors = [*facts["inputs"], *facts["state"], *facts["outputs"]]
        return (
            facts["init"] is None,
            [(item["dtype"], None if item["shape"] is None else len(item["shape"])) for item in tensors],
            [len(facts[part]) for part in ("inputs", "state", "outputs")],
            facts["written"],
        )

    return bool(kind(one) == kind(other))


def _elements(facts: dict[str, Any]) -> int:
    tensors = [*facts["inputs"], *facts["state"], *facts["outputs"]]
    return sum(math.prod(item["shape"]) for item in tensors if item["shape"] is not None)


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _state(name: str, tensor: torch.Tensor, drawn: Recorder, plain: list[str]) -> dict[str, Any]:
    found = drawn.of(tensor)
    kind = {"attribute": name, "shape": list(tensor.shape), "dtype": dtype_name(tensor), "dist": found}
    return kind | {"plain": name in plain}


def _outputs(result: Any) -> list[dict[str, Any]]:
    returned = list(result) if isinstance(result, tuple | list) else [result]
    for number, item in enumerate(returned):
        if not isinstance(item, torch.Tensor):
            found = type(item).__name__
            raise NotUnderstoodError(f"Model.forward: result {number} is {found}, expected a tensor or several")
    return [described(item) for item in returned]
