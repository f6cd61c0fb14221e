"""What stands in a model while kernels are applied: in the place of a submodule, and of the model's `forward`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from torch.fx import GraphModule

from .graph import Captured
from .kernel import Kernel


class KernelModule(nn.Module):
    """A kernel in the place of a module that takes one tensor and returns one. Parameters, buffers and submodules are
    the original's own, so that `state_dict`, `to` and `named_parameters` give what they gave. In the mode (training or
    not) in which it was not applied, the original computes.
    """

    def __init__(self, original: nn.Module, kernel: Kernel, sources: Sequence[str | None]) -> None:
        """`sources`: for each tensor argument of the op the original's attribute, None for the module's own input."""
        super().__init__()
        self.__dict__["_original"] = original
        self._parameters, self._buffers, self._modules = original._parameters, original._buffers, original._modules
        self._non_persistent_buffers_set = original._non_persistent_buffers_set
        self.training = self._mode = original.training
        self._kernel = kernel
        self._paths = [None if name is None else tuple(name.split(".")) for name in sources]

    def forward(self, x: torch.Tensor) -> Any:
        """What the original returns."""
        if self.training is not self._mode:
            return self.__dict__["_original"](x)
        tensors = [x if path is None else self._own(path) for path in self._paths]
        return self._kernel.function(*self._kernel.arguments(tensors))

    def _own(self, path: tuple[str, ...]) -> Any:
        """The parameter or buffer of this name, as it is now. Plain attribute access, which torch.compile traces."""
        value: Any = self
        for part in path:
            value = getattr(value, part)
        return value

    def train(self, mode: bool = True) -> KernelModule:
        """Set the mode, the original's as well."""
        self.__dict__["_original"].train(mode)
        super().train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_original"], name)

    def extra_repr(self) -> str:
        """The kernel's package."""
        return self._kernel.name

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(UNCOPIED)


class Forward:
    """A model's `forward` that runs a graph with kernels for the calls for which the graph holds. Under torch.compile,
    which makes a graph of its own, the model's own code is what is compiled.
    """

    def __init__(self, original: Callable[..., Any], captured: Captured, module: GraphModule) -> None:
        self.original = original
        self._model = captured
        self._module = module
        self._owner = getattr(original, "__self__", None)
        self.served = self.passed_on = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns."""
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        training = getattr(self._owner, "training", self._model.training)
        if training is self._model.training and self._model.holds(args, kwargs):
            self.served += 1
            return self._module(*args, **kwargs)
        self.passed_on += 1
        return self.original(*args, **kwargs)

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(UNCOPIED)


UNCOPIED = "a model with kernels applied cannot be copied or pickled as a whole: undo() first, or save its state_dict()"


def is_applied(model: nn.Module) -> bool:
    """Whether kernels stand in a model."""
    return isinstance(model.__dict__.get("forward"), Forward) or any(
        isinstance(module, KernelModule) for module in model.modules()
    )
