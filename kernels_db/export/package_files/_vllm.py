"""The op as an out-of-tree layer of vLLM. vLLM calls `register` in each of its processes (`vllm.general_plugins`).

Afterwards vLLM makes its own layer's subclass from here wherever it would make the layer. A call that a kernel admits
goes to the op; every other takes the way that it would take without this package: vLLM's own kernel for the platform
where the layer has one, and its `forward_native`. Nothing is registered where the op computes something else than the
layer does, which is tried out on a few numbers first.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from . import _compare, _layer, _op

_logger = logging.getLogger(f"vllm.{__package__}")
_registered: list[type[Any]] = []

Serve = Callable[..., Any]
"""Takes a layer and its call's arguments; None where the op does not serve the call."""


def register() -> None:
    """Have vLLM make its layer from here. A second call does nothing, and a layer of another plugin stays."""
    if _registered:
        return
    wrong = difference()
    if wrong is not None:
        _logger.warning("%s: not registered, it computes something else than vLLM's %s: %s", __package__, _NAME, wrong)
        return
    custom_op = importlib.import_module("vllm.model_executor.custom_op")
    base = getattr(importlib.import_module(_MODULE), _NAME)
    registry = getattr(custom_op, "op_registry_oot", None)
    if registry is None:  # vLLM up to 0.13 has it in the class
        registry = custom_op.CustomOp.op_registry_oot
    there = registry.get(_NAME)
    if there is None:
        there = layer_class(base, custom_op.CustomOp)
        custom_op.CustomOp.register_oot(name=_NAME)(there)
        # Registering renamed it, and `custom_ops` of vLLM's configuration switches layers by their own names.
        there.name = base.name
    if not hasattr(there, "warpsmith_ops"):
        _logger.warning("%s: not registered, another plugin's %s is in its place", __package__, there)
        return
    there.warpsmith_ops.append(_SERVES[_layer.LAYER])
    _registered.append(there)


def layer_class(base: type[Any], custom_op: type[Any]) -> type[Any]:
    """A subclass of vLLM's layer that asks the packages in `warpsmith_ops` first, each for its own calls."""
    own_cuda = _own(base, custom_op, "forward_cuda")
    own_cpu = _own(base, custom_op, "forward_cpu")

    class Layer(base):  # type: ignore[misc]
        warpsmith_ops: ClassVar[list[Serve]] = []

        def forward_cuda(self, *arguments: Any, **keywords: Any) -> Any:
            return self._serve(own_cuda, arguments, keywords)

        def forward_cpu(self, *arguments: Any, **keywords: Any) -> Any:
            return self._serve(own_cpu, arguments, keywords)

        def _serve(self, own: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            for serve in self.warpsmith_ops:
                found = serve(self, *arguments, **keywords)
                if found is not None:
                    return found
            return own(self, *arguments, **keywords)

    Layer.__name__ = Layer.__qualname__ = f"Warpsmith{base.__name__}"
    return Layer


def _own(base: type[Any], custom_op: type[Any], name: str) -> Callable[..., Any]:
    """What vLLM itself would run there: the layer's own method, or `forward_native` where it has none."""
    method = getattr(base, name, None)
    return base.forward_native if method is None or method is getattr(custom_op, name, None) else method


def _call(**values: Any) -> Any:
    """Call the op, its arguments by their part in the layer; None where no kernel admits them."""
    arguments = tuple(values[part] for part in _layer.ARGUMENTS)
    # The compiler traces one op for every shape, which decides inside: nothing here may depend on a shape.
    if not torch.compiler.is_compiling() and isinstance(_op.admitted_call(arguments), str):
        return None
    return _op.call(*arguments)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])


def _weight(layer: Any) -> torch.Tensor | None:
    """The layer's weight; None where the layer is not the op: another epsilon, a part of the row, no weight."""
    plain = getattr(layer, "variance_size_override", None) is None and getattr(layer, "has_weight", True)
    same = _layer.EPSILON is None or layer.variance_epsilon == _layer.EPSILON
    return layer.weight.detach() if plain and same else None


def _serve_norm(layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    weight = _weight(layer)
    if residual is not None or weight is None:
        return None
    found = _call(x=_flat(x), weight=weight, epsilon=layer.variance_epsilon)
    return None if found is None else found.view(x.shape)


def _serve_add_norm(layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    weight = _weight(layer)
    if residual is None or weight is None or residual.shape != x.shape:
        return None
    found = _call(x=_flat(x), residual=_flat(residual), weight=weight, epsilon=layer.variance_epsilon)
    if found is None:
        return None
    if _layer.OUTPUTS == 1:  # an op that keeps the sum to itself
        return found.view(x.shape), x + residual
    return found[0].view(x.shape), found[1].view(x.shape)


def _serve_activation(_: Any, x: torch.Tensor) -> Any:
    found = _call(x=_flat(x))
    return None if found is None else found.view(*x.shape[:-1], found.shape[-1])


_SERVES: dict[str, Serve] = {
    "rms_norm": _serve_norm,
    "add_rms_norm": _serve_add_norm,
    "silu_and_mul": _serve_activation,
    "gelu_tanh": _serve_activation,
}
_PLACES = {
    "rms_norm": ("vllm.model_executor.layers.layernorm", "RMSNorm"),
    "add_rms_norm": ("vllm.model_executor.layers.layernorm", "RMSNorm"),
    "silu_and_mul": ("vllm.model_executor.layers.activation", "SiluAndMul"),
    "gelu_tanh": ("vllm.model_executor.layers.activation", "NewGELU"),
}
_MODULE, _NAME = _PLACES[_layer.LAYER]


def _layer_in_float64(values: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What vLLM's layer computes."""
    x = values["x"].double()
    if _layer.LAYER == "silu_and_mul":
        half = x.shape[-1] // 2
        return (torch.nn.functional.silu(x[..., :half]) * x[..., half:],)
    if _layer.LAYER == "gelu_tanh":
        return (torch.nn.functional.gelu(x, approximate="tanh"),)
    if _layer.LAYER == "add_rms_norm":
        x = x + values["residual"].double()
    scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + values["epsilon"]) * values["weight"].double()
    return (scaled, x)[: _layer.OUTPUTS]


def difference() -> str | None:
    """How the op's reference differs from vLLM's layer on a few numbers; None where it does not.

    Among them are rows so small that the epsilon decides.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    epsilon = 1e-5 if _layer.EPSILON is None else _layer.EPSILON

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cpu").to(_layer.DTYPE)

    scale = torch.tensor([[1.0], [1e-3], [30.0]], device="cpu").to(_layer.DTYPE)
    values = {"x": draw(3, 64) * scale, "residual": draw(3, 64) * scale, "weight": draw(64), "epsilon": epsilon}
    try:
        with torch.no_grad():
            found = _compare.plain(tuple(values[part] for part in _layer.ARGUMENTS))
    except Exception as error:  # noqa: BLE001 - whatever a reference raises on a CPU
        return f"{type(error).__name__}: {error}"
    found = found if isinstance(found, tuple | list) else (found,)
    near = 8 * torch.finfo(_layer.DTYPE).eps
    for number, (mine, theirs) in enumerate(zip(found, _layer_in_float64(values), strict=True)):
        error = (mine.double() - theirs).abs().max().item()
        largest = theirs.abs().amax(-1, keepdim=True)
        if mine.shape != theirs.shape or bool(((mine.double() - theirs).abs() > near * largest).any()):
            return f"result {number} is off by up to {error:.3g}"
    return None
