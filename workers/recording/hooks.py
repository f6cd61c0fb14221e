"""Sees the calls of modules and functions: global module hooks, and a mode for torch's functions. Needs torch.

What torch.compile traces or has compiled is not seen, and a CUDA graph that is replayed calls nothing.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode, resolve_name

from warpsmith.workers.recording.calls import Argument, Call, Named, TensorOf
from warpsmith.workers.recording.tally import Seen, Tally

MOST_ARGUMENTS = 32
"""Arguments of a call that are kept; of those beyond nothing is."""

PRODUCTS = frozenset(("addbmm", "addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "matmul", "mm"))
OTHERS = frozenset(("cumsum", "layer_norm", "log_softmax", "relu", "rms_norm", "sigmoid", "softmax", "tanh", "topk"))
FUNCTIONS = PRODUCTS | OTHERS | {"__matmul__", "argmax", "sort"}
"""Functions of torch, and methods of tensors, that are recorded beside those of torch.nn.functional."""


class Unseen(Exception):  # noqa: N818 - no error
    """A call that is none of running values: traced, or with fake tensors."""


class Hooks:
    """The hooks of one recording; `start` sets them, `stop` takes them away.

    `model`: only what happens inside its calls is recorded. `functions`: functions are, too, in the thread that
    starts the recording.
    """

    def __init__(self, tally: Tally, model: Any, functions: bool, seen: Callable[[], None] | None = None) -> None:
        self._tally, self._model, self._seen = tally, model, seen
        self._inside = threading.local()
        self._mode = _Functions(self) if functions else None
        self._handles: list[Any] = []

    def start(self) -> None:
        """Set the hooks. Raises TypeError where `model` is no module."""
        # PyTorch warns at every call of a compiled module while there are global hooks: a filter that makes warnings
        # errors would break the process for it.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        if self._model is not None:
            self._handles.append(self._model.register_forward_pre_hook(self._enter))
            self._handles.append(self._model.register_forward_hook(self._leave, always_call=True))
        self._handles.append(register_module_forward_hook(self._module, with_kwargs=True))
        if self._mode is not None:
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Take the hooks away."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()
            # What PyTorch's handle leaves behind: compiled modules would warn of hooks from then on.
            module._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles.clear()

    def _enter(self, _module: Any, _arguments: Any) -> None:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1

    def _leave(self, _module: Any, _arguments: Any, _result: Any) -> None:
        self._inside.depth = getattr(self._inside, "depth", 1) - 1

    def _module(self, called: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], _result: Any) -> None:
        # A constant for the compiler, which traces this hook: it then finds nothing here.
        if torch.compiler.is_compiling():
            return
        with torch._C.DisableTorchFunction():  # else each look at a tensor goes through the mode
            self.record(type(called), arguments, keywords, called._parameters)

    def record(
        self,
        called: Any,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        parameters: Mapping[str, Any] | None,
    ) -> None:
        """Count a call of a module's class or, without `parameters`, of a function. Never raises."""
        if self._model is not None and getattr(self._inside, "depth", 0) <= 0:
            return
        try:
            self._tally.add(
                (
                    called,
                    tuple([_look(each) for each in arguments[:MOST_ARGUMENTS]]),
                    _look_named(keywords) if keywords else (),
                    _look_named(parameters) if parameters else () if parameters is not None else None,
                )
            )
            if self._seen is not None:
                self._seen()
        except Unseen:
            return
        except Exception as error:  # noqa: BLE001 - a recording never breaks its process
            self._tally.note(f"not recorded: a call of {str(called)[:100]} ({type(error).__name__})")


class _Functions(TorchFunctionMode):
    """Sees torch's functions in the thread that entered it."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self._hooks = hooks

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # First: it is a constant for the compiler, which then traces nothing of what follows.
        if not torch.compiler.is_compiling() and _function_name(func) is not None:
            self._hooks.record(func, args, kwargs or {}, None)
        return func(*args, **(kwargs or {}))


MOST_FUNCTIONS = 4096
_FUNCTION_NAMES: dict[Any, str | None] = {}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _function_name(function: Any) -> str | None:
    """Return the dotted name of a function that is recorded; None for every other."""
    try:
        return _FUNCTION_NAMES[function]
    except KeyError:
        if len(_FUNCTION_NAMES) >= MOST_FUNCTIONS:  # functions that are made anew at each call
            _FUNCTION_NAMES.clear()
        name = _FUNCTION_NAMES[function] = _named_function(function)
        return name
    except TypeError:  # not hashable
        return None


def _named_function(function: Any) -> str | None:
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        # The library's own operators are what the functions above them call.
        space, _, name = str(function).partition(".")
        return None if space in ("aten", "prim", "prims") else f"torch.ops.{space}.{name.partition('.')[0]}"
    name = resolve_name(function) or ""
    wanted = name.startswith("torch.nn.functional.") or name.rpartition(".")[2] in FUNCTIONS
    return name if wanted else None


def _look(value: Any) -> Any:
    """Return what is kept of an argument: quick to make and to hash, for `read` to write out."""
    kind = type(value)
    if kind not in _PLAIN:
        if not isinstance(value, torch.Tensor):
            return kind
        if isinstance(value, FakeTensor):
            raise Unseen
    if torch._C._get_tracing_state() is not None:
        raise Unseen
    if value.layout is not torch.strided:
        return value.layout
    return (value.shape, value.dtype, value.device, None if value.is_contiguous() else value.stride())


def _look_named(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple([(key, _look(each)) for key, each in list(values.items())[:MOST_ARGUMENTS] if each is not None])


def read(seen: Seen) -> Call:
    """Write out a call that was counted."""
    called, arguments, keywords, parameters = seen
    if parameters is None:
        kind, name = "function", _function_name(called) or str(called)
    else:
        kind, name = "module", f"{called.__module__}.{called.__qualname__}"
    return Call(kind, name, tuple(_read(each) for each in arguments), _read_named(keywords), _read_named(parameters))


def _read_named(values: tuple[tuple[str, Any], ...] | None) -> Named:
    return tuple((key, _read(each)) for key, each in values or ())


def _read(looked: Any) -> Argument:
    if isinstance(looked, tuple):
        shape, dtype, device, strides = looked
        held = None if strides is None else tuple(map(int, strides))
        return TensorOf(tuple(map(int, shape)), _last(dtype), device.type, held)
    return looked.__name__ if isinstance(looked, type) else f"{_last(looked)} tensor"


def _last(name: object) -> str:
    return str(name).rpartition(".")[2]
