"""Take what a file's functions accept and return apart into tensors and numbers.

Runs inside the sandbox.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from warpsmith.kernels_db.job.stand_in import on
from warpsmith.workers.judge.analysis.recording import Recorder

MOST_LEAVES = 256
LONGEST_TEXT = 1000
SEED = 0

BYTE_DTYPES = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")
"""Dtypes of torch of one byte that no spec has: a task's input of these is one of bytes."""


class NotUnderstoodError(Exception):
    """A file that runs and means something that no op spec says."""


def load(name: str, text: str) -> types.ModuleType:
    """Load the source `text` as a module on the CPU."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    with on(torch.device("cpu")):
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 - inside the sandbox
    return module


def made(make: Callable[[], Any], *, values: bool = True) -> tuple[Any, Recorder]:
    """Call `make` without values where possible; return the result and a record of the draws.

    `values`: whether it may have them where it needs them; where not, what it raises is raised.
    """
    try:
        return _made(make, torch.device("meta"))
    except Exception:  # whatever it needs values for, it gets them now
        if not values:
            raise
        return _made(make, torch.device("cpu"))


def made_with_values(make: Callable[[], Any]) -> Any:
    """Call `make` on the CPU and return the result."""
    return _made(make, torch.device("cpu"))[0]


def _made(make: Callable[[], Any], device: torch.device) -> tuple[Any, Recorder]:
    torch.manual_seed(SEED)
    recorder = Recorder()
    with on(device), recorder, _without_checks(device):
        return make(), recorder


@contextmanager
def _without_checks(device: torch.device) -> Iterator[None]:
    """Keep torch's distributions from looking at the values of their arguments, where there are none."""
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(checked and device.type != "meta")
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)


def flattened(value: Any, what: str, classes: types.ModuleType | None = None) -> tuple[Any, list[Any]]:
    """Return the structure of a value and its leaves, tensors and numbers, in order.

    A structure is {"leaf": number}, {"tuple": [...]}, {"list": [...]}, {"dict": {...}}, {"constant": None or text} or,
    for an object of a class that the module `classes` names, {"object": {"class", "attributes", "parameters",
    "buffers"}}, the last two names among the attributes. Raises NotUnderstoodError.
    """
    leaves: list[Any] = []
    structure = _flattened(value, what, leaves, 0, classes)
    if len(leaves) > MOST_LEAVES:
        raise NotUnderstoodError(f"{what}: {len(leaves)} tensors and numbers, at most {MOST_LEAVES}")
    return structure, leaves


def _flattened(value: Any, what: str, leaves: list[Any], depth: int, classes: types.ModuleType | None) -> Any:
    def inner(item: Any, where: str) -> Any:
        return _flattened(item, f"{what}{where}", leaves, depth + 1, classes)

    if depth > 8:
        raise NotUnderstoodError(f"{what}: more than 8 levels of nesting")
    if value is None or isinstance(value, str):
        return {"constant": value if value is None else value[:LONGEST_TEXT]}
    if isinstance(value, torch.Tensor | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        leaves.append(value)
        return {"leaf": len(leaves) - 1}
    if isinstance(value, tuple | list):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [inner(item, f"[{n}]") for n, item in enumerate(value)]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: inner(item, f"[{key!r}]") for key, item in value.items()}}
    if classes is not None and getattr(classes, type(value).__name__, None) is type(value):
        attributes, parameters, buffers = _attributes(value, what)
        said = {name: inner(item, f".{name}") for name, item in attributes.items()}
        found = {"class": type(value).__name__, "attributes": said, "parameters": parameters, "buffers": buffers}
        return {"object": found}
    expected = "a tensor, a finite number, a text, None, or a tuple, list or dict of these"
    own = "" if classes is None else ", or an object of a class at the top of the file that generates it"
    raise NotUnderstoodError(f"{what}: found {type(value).__name__}, expected {expected}{own}")


def _attributes(value: Any, what: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return an object's attributes, and the names of those that are a module's parameters and buffers.

    Raises NotUnderstoodError where it has others, which would be lost.
    """
    if not hasattr(value, "__dict__") or any(getattr(kind, "__slots__", ()) for kind in type(value).__mro__):
        raise NotUnderstoodError(f"{what}: found {type(value).__name__} with slots, expected attributes in __dict__")
    if not isinstance(value, torch.nn.Module):
        return dict(vars(value)), [], []
    if parts := [name for name, part in value.named_children() if part is not None]:
        raise NotUnderstoodError(f"{what}: found a module with a module of its own, {parts[0]}, expected tensors")
    plain = {name: item for name, item in vars(value).items() if name not in vars(torch.nn.Module())}
    parameters = {name: item for name, item in value._parameters.items() if item is not None}
    buffers = {name: item for name, item in value._buffers.items() if item is not None}
    return plain | parameters | buffers, list(parameters), list(buffers)


def described(leaf: Any, recorder: Recorder | None = None) -> dict[str, Any]:
    """Describe a leaf as JSON: a tensor's shape, strides, dtype and distribution, or a number."""
    if not isinstance(leaf, torch.Tensor):
        kind = {bool: "bool", int: "int64", float: "float64"}[type(leaf)]
        return {"shape": None, "dtype": kind, "value": leaf}
    found: dict[str, Any] = {"shape": list(leaf.shape), "strides": list(leaf.stride()), "dtype": dtype_name(leaf)}
    if recorder is not None:
        found["dist"] = recorder.of(leaf)
    return found


def as_bytes(described_leaf: dict[str, Any]) -> dict[str, Any]:
    """Return a leaf of a dtype of one byte that no spec has as its bytes, of dtype uint8 and unknown distribution."""
    if described_leaf["dtype"] not in BYTE_DTYPES:
        return described_leaf
    return described_leaf | {"dtype": "uint8", "bytes_of": described_leaf["dtype"], "dist": None}


def dtype_name(tensor: torch.Tensor) -> str:
    """Return torch's name of the dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def once_each(leaves: Sequence[Any], described_leaves: list[dict[str, Any]]) -> None:
    """Forget the distribution of tensors that share memory: they are not drawn independently."""
    owners: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            first = owners.setdefault(int(leaf.untyped_storage()._cdata), number)
            if first != number:
                described_leaves[first]["dist"] = described_leaves[number]["dist"] = None


def computed(
    run: Callable[..., Any], arguments: Sequence[Any], again: Callable[[], Sequence[Any]], *, values: bool = True
) -> tuple[Any, list[Any]]:
    """Call `run` without values where possible; return the result and the arguments after it.

    Its arguments are `arguments`. Where `run` needs values, it gets those that `again` makes, with values; unless
    `values` is false: then what it raises is raised.
    """
    try:
        return _computed(run, arguments, torch.device("meta"))
    except Exception:  # whatever it needs values for, it gets them now
        if not values:
            raise
        return _computed(run, again(), torch.device("cpu"))


def _computed(run: Callable[..., Any], arguments: Sequence[Any], device: torch.device) -> tuple[Any, list[Any]]:
    torch.manual_seed(SEED)
    given = [_on(value, device) for value in arguments]
    with torch.no_grad(), on(device):
        return run(*given), given


def _on(value: Any, device: torch.device) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return moved if device.type == "meta" else moved.copy_(value.detach())


def written(arguments: Sequence[Any]) -> list[int]:
    """Return the positions of arguments that a computation wrote to.

    Each argument must have been made by one operation or by a copy.
    """
    return [
        number
        for number, value in enumerate(arguments)
        if isinstance(value, torch.Tensor) and value._version > (0 if value.device.type == "meta" else 1)
    ]
