"""Loads the kernel once, at the first call that it can serve. Nothing is tuned here: configurations are frozen."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from types import ModuleType
from typing import Any

from . import _control, _spec
from ._runtime import cache
from ._runtime.errors import CacheError

_lock = threading.Lock()
_kernel: ModuleType | None = None
_failure: str | None = None


def kernel() -> ModuleType | None:
    """The kernel's module; C++ sources are compiled here, unless their build is in the cache. None where that failed:
    `failure` says why, and it is not tried again in this process.
    """
    return _kernel if _kernel is not None or _failure is not None else _load()


def failure() -> str:
    """Why there is no kernel."""
    return _failure or "the kernel is not loaded yet"


def described() -> str:
    """What is loaded, in a word or a sentence."""
    return "loaded" if _kernel is not None else failure()


def _load() -> ModuleType | None:
    global _kernel, _failure
    with _lock:
        if _kernel is None and _failure is None:
            try:
                loaded = _import()
                _freeze(loaded)
                _kernel = loaded
            except Exception as error:  # noqa: BLE001 - whatever it is, PyTorch serves
                _failure = f"the kernel did not load: {type(error).__name__}: {error}"
    return _kernel


def _import() -> ModuleType:
    if _spec.LANGUAGE == "triton" and _spec.DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("on a CPU a Triton kernel runs in Triton's interpreter alone: set TRITON_INTERPRET=1")
    try:
        from . import _kernel as module
    except CacheError as error:
        build_elsewhere(error)
        from . import _kernel as module
    return module


def build_elsewhere(error: CacheError) -> None:
    """Build into a directory of this process alone, which goes with it: the cache cannot be written."""
    directory = tempfile.mkdtemp(prefix="warpsmith-kernels-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    cache.redirect(directory)
    _control.note(f"{error}; until then every process builds the kernel anew")


def _freeze(module: ModuleType) -> None:
    """Leave one configuration to each kernel under `@triton.autotune`, so that no call ever waits for tuning.

    The evidence does not name the configuration that was timed: it is the first one of the source.
    """
    for name, kernel in vars(module).items():
        layer: Any = kernel  # decorators stand around each other, each with what it decorates as `fn`
        while layer is not None and type(layer).__module__.startswith("triton."):
            configurations = getattr(layer, "configs", None)
            if configurations is not None and len(configurations) > 1:
                layer.configs = configurations[:1]
                _control.note(
                    f"{name}: frozen to the first of {len(configurations)} configurations ({configurations[0]}); "
                    "the evidence does not say under which of them it was timed"
                )
            layer = getattr(layer, "fn", None)
