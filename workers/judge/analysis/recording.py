"""Find the distribution a tensor was drawn from, by watching PyTorch. Needs only PyTorch.

Works on meta tensors as on real ones, because it records the calls, not the values. A tensor that was drawn and then
only copied, cast, scaled, shifted or viewed keeps its distribution; whatever else writes to it makes it unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

EMPTY = {"kind": "empty"}
"""Memory that nothing was written to."""

Dist = dict[str, Any]


def _uniform(low: float, high: float) -> Dist | None:
    return {"kind": "uniform", "low": float(low), "high": float(high)} if low < high else None


def _normal(mean: float, std: float) -> Dist:
    return {"kind": "normal", "mean": float(mean), "std": float(std)}


def _constant(value: Any) -> Dist | None:
    return {"kind": "constant", "value": value} if isinstance(value, bool | int | float) else None


def _randint(low: Any, high: Any) -> Dist | None:
    if isinstance(low, int) and isinstance(high, int) and low < high:
        return {"kind": "randint", "low": low, "high": high}
    return None


def _random(arguments: dict[str, Any]) -> Dist | None:
    if "to" not in arguments:
        return None
    return _randint(arguments.get("from", 0), arguments["to"])


_DRAWS: dict[str, Callable[[dict[str, Any]], Dist | None]] = {
    "rand": lambda a: _uniform(0.0, 1.0),
    "randn": lambda a: _normal(0.0, 1.0),
    "randint": lambda a: _randint(a.get("low", 0), a["high"]),
    "zeros": lambda a: _constant(0),
    "ones": lambda a: _constant(1),
    "full": lambda a: _constant(a["fill_value"]),
    "empty": lambda a: EMPTY,
    "empty_strided": lambda a: EMPTY,
    "uniform_": lambda a: _uniform(a.get("from", 0.0), a.get("to", 1.0)),
    "normal_": lambda a: _normal(a.get("mean", 0.0), a.get("std", 1.0)),
    "random_": _random,
    "zero_": lambda a: _constant(0),
    "fill_": lambda a: _constant(a["value"]),
}
_COPIES = ("_to_copy", "clone")


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own base
    """While it is entered, notes for each piece of memory what was drawn into it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn: dict[int, tuple[torch.UntypedStorage, Dist | None]] = {}  # holding it keeps its number its own

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo, which takes seconds

    def of(self, tensor: torch.Tensor) -> Dist | None:
        """Return the distribution that `tensor` was drawn from.

        None where that is not known, or where its elements share memory.
        """
        _, found = self._drawn.get(_number(tensor), (None, None))
        shared = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return None if shared and found is not None and found["kind"] != "constant" else found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = func._schema
        arguments = {item.name: value for item, value in zip(schema.arguments, args, strict=False)} | (kwargs or {})
        name = schema.name.removeprefix("aten::")
        base = name.removeprefix("new_").removesuffix("_like")
        written = [
            arguments[item.name]
            for item in schema.arguments
            if item.alias_info is not None and item.alias_info.is_write and item.name in arguments
        ]
        if written:
            for tensor in written:
                if isinstance(tensor, torch.Tensor):
                    self._note(tensor, self._written(name, arguments, tensor))
        elif isinstance(result, torch.Tensor):
            if base in _DRAWS:
                self._note(result, _DRAWS[base](arguments))
            elif name in _COPIES:
                self._note(result, self._copied(args[0], result))
            elif _number(result) not in self._drawn:  # a view keeps what its memory has
                self._note(result, self._scaled(name, arguments))
        return result

    def _note(self, tensor: torch.Tensor, dist: Dist | None) -> None:
        self._drawn[_number(tensor)] = (tensor.untyped_storage(), dist)

    def _written(self, name: str, arguments: dict[str, Any], tensor: torch.Tensor) -> Dist | None:
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if not whole:
            return None
        if name in _DRAWS:
            return _DRAWS[name](arguments)
        if name == "copy_" and isinstance(arguments.get("src"), torch.Tensor):
            source = arguments["src"]
            return self._copied(source, tensor) if source.shape == tensor.shape else None
        return self._scaled(name.removesuffix("_"), arguments)

    def _copied(self, source: torch.Tensor, result: torch.Tensor) -> Dist | None:
        found = self.of(source)
        if found is None or found["kind"] in ("constant", "empty"):
            return found
        return found if source.is_floating_point() == result.is_floating_point() else None

    def _scaled(self, name: str, arguments: dict[str, Any]) -> Dist | None:
        """Return the distribution of a draw after a number is multiplied or added."""
        tensor, number = arguments.get("self"), arguments.get("other")
        if (
            not isinstance(tensor, torch.Tensor)
            or not isinstance(number, int | float)
            or not tensor.is_floating_point()
        ):
            return None
        found = self.of(tensor)
        alpha = arguments.get("alpha", 1)
        moves = {
            "mul": (float(number), 0.0),
            "div": (1.0 / number if number else 0.0, 0.0),
            "add": (1.0, float(alpha * number)),
            "sub": (1.0, -float(alpha * number)),
        }
        if found is None or name not in moves or arguments.get("rounding_mode") is not None:
            return None
        factor, shift = moves[name]
        if factor == 0.0:
            return None
        if found["kind"] == "normal":
            return _normal(found["mean"] * factor + shift, abs(found["std"] * factor))
        if found["kind"] == "uniform":
            ends = sorted((found["low"] * factor + shift, found["high"] * factor + shift))
            return _uniform(*ends)
        return _constant(found["value"] * factor + shift) if found["kind"] == "constant" else None


def _number(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
