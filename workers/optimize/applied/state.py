"""Is a model still what was exported? What a graph takes for granted and no argument of a call shows: the modules,
their modes and hooks, their tensors, autocast, and that nothing is kept for gradients.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook


class Modules:
    """Modules, their modes, hooks and `forward`, as they are when this is made; and the mode in which PyTorch computes.
    Plain attribute access, which torch.compile traces.
    """

    def __init__(self, root: nn.Module, *, own: bool) -> None:
        """`own`: whether the hooks and the `forward` of `root` itself count, beside those of all modules in it."""
        modules = list(root.modules())
        self._modes = [(module, module.training) for module in modules]
        self._children = [(each._modules, name, child) for each in modules for name, child in each._modules.items()]
        self._forwards = [(module, module.__dict__.get("forward")) for module in (modules if own else modules[1:])]
        self._autocast = _autocast()

    def hold(self) -> bool:
        """Whether all of it is the same, and gradients are off: a graph knows no `no_grad` inside of a model."""
        if torch.is_grad_enabled() or _autocast() != self._autocast or _has_any_global_hook():  # type: ignore[no-untyped-call]
            return False
        for module, training in self._modes:
            if module.training is not training:
                return False
        for children, name, child in self._children:
            if children.get(name) is not child:
                return False
        for module, forward in self._forwards:
            if module._forward_hooks or module._forward_pre_hooks or module.__dict__.get("forward") is not forward:
                return False
        return True


class Tensors:
    """The parameters and buffers of a model, the very objects."""

    def __init__(self, root: nn.Module) -> None:
        self._tensors = [
            (store, name, value, None if value is None else value.dtype)
            for module in root.modules()
            for store in (module._parameters, module._buffers)
            for name, value in store.items()
        ]

    def hold(self) -> bool:
        """Whether every one is where it was, in its dtype; its values may be others."""
        for store, name, value, dtype in self._tensors:
            if store.get(name) is not value or (value is not None and value.dtype is not dtype):
                return False
        return True


def _autocast() -> tuple[torch.dtype | None, torch.dtype | None]:
    """The dtype into which autocast computes on the CPU, and on a GPU; None where it is off."""
    return (
        torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
    )
