"""The arguments of one call of a model: moved, copied, and what a call writes into them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of a model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> Inputs:
        """A tensor alone, a tuple or list of positional arguments, or a dict of arguments by name."""
        if isinstance(value, dict):
            return cls((), value)
        return cls(tuple(value) if isinstance(value, tuple | list) else (value,))

    def to(self, device: torch.device | str) -> Inputs:
        """With every tensor on `device`."""
        moved = pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, self._tree())
        return Inputs(*moved)

    def copied(self) -> Inputs:
        """With a copy of every tensor, laid out as it is, and of every object that holds some (a cache)."""
        return Inputs(*pytree.tree_map(_copied, self._tree()))

    def call(self, model: Callable[..., Any]) -> Any:
        """What the model returns."""
        return model(*self.args, **self.kwargs)

    def leaves(self) -> tuple[list[Any], Any]:
        """The values in order, and how they are nested."""
        return pytree.tree_flatten(self._tree())

    def tensors(self) -> list[torch.Tensor]:
        """Return every tensor among the arguments and inside of their objects, in order: what a call may write to."""
        return list(_tensors(self.leaves()[0], set()))

    def _tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.args, dict(self.kwargs)


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return copy.deepcopy(leaf.detach())
    return copy.deepcopy(leaf) if any(True for _ in _tensors([leaf], set())) else leaf


def _tensors(values: Iterable[Any], seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors that are reached from these values, each once; a module's are its own."""
    for value in values:
        if id(value) in seen or isinstance(value, (*_PLAIN, torch.nn.Module, type)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values(), seen)
        elif isinstance(value, list | tuple | set):
            yield from _tensors(value, seen)
        elif hasattr(value, "__dict__"):
            yield from _tensors(vars(value).values(), seen)
