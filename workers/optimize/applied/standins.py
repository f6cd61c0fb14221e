"""What stands in a model while kernels are applied: in the place of a submodule, and of the model's `forward`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from torch.fx import GraphModule

from .graph import Captured
from .kernel import Kernel
from .state import Modules, Tensors


class KernelModule(nn.Module):
    """A kernel in the place of a module that takes one tensor and returns one. Parameters, buffers and submodules are
    the original's own, so that `state_dict`, `to` and `named_parameters` give what they gave. The original computes
    every call for which its export does not hold or which the kernel does not admit.
    """

    def __init__(self, original: nn.Module, kernel: Kernel, sources: Sequence[str | None], alone: Captured) -> None:
        """`sources`: for each tensor argument of the op the original's attribute, None for the module's own input.
        `alone`: the original's export on its input in the sample call.
        """
        super().__init__()
        self.__dict__["_original"] = original
        self._parameters, self._buffers, self._modules = original._parameters, original._buffers, original._modules
        self._non_persistent_buffers_set = original._non_persistent_buffers_set
        self.training = original.training
        self._kernel = kernel
        self._paths = [None if name is None else tuple(name.split(".")) for name in sources]
        self._alone = alone
        (sample,) = alone.inputs.args
        self._sample = (tuple(sample.shape), sample.dtype, sample.device)
        self.__dict__["_state"] = Modules(original, own=True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns."""
        if len(args) == 1 and not kwargs and self.__dict__["_state"].hold():
            (x,) = args
            tensors = [x if path is None else self._own(path) for path in self._paths]
            if self._serves(x, tensors):
                return self._kernel.function(*self._kernel.arguments(tensors))
        return self.__dict__["_original"](*args, **kwargs)

    def _serves(self, x: Any, tensors: list[Any]) -> bool:
        """Whether the kernel is to serve this call. Under torch.compile, which cannot ask the package while it traces,
        those of the sample's shape: the op itself falls back there.
        """
        if torch.compiler.is_compiling():
            return isinstance(x, torch.Tensor) and (tuple(x.shape), x.dtype, x.device) == self._sample
        return self._alone.holds((x,), {}) and self._kernel.admits(tensors)

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

    def __init__(self, model: nn.Module, captured: Captured, module: GraphModule) -> None:
        """`model` as it is to be while the graph serves: the modules that kernels replace are replaced."""
        self.original: Callable[..., Any] = model.forward
        self._captured = captured
        self._module = module
        self._modules, self._tensors = Modules(model, own=False), Tensors(model)
        self.served = self.passed_on = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns."""
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        if self._modules.hold() and self._tensors.hold() and self._captured.holds(args, kwargs):
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
