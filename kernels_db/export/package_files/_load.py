"""The package's kernels: what is known of each, and its module, loaded once at the first call that it can serve.

Nothing is tuned here: configurations are frozen.
"""

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


class Kernel:
    """One kernel. The facts are those of `_spec.KERNELS`."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.name: str = facts["name"]
        self.id: str = facts["id"]
        self.device: str = facts["device"]
        self.arch: str = facts["arch"]
        self.language: str = facts["language"]
        self.versions: dict[str, str] = facts["versions"]
        self.dtypes: list[Any] = facts["dtypes"]
        self.outputs: list[Any] = facts["outputs"]
        self.ranges: dict[str, tuple[int, int]] = facts["ranges"]
        self.steps: dict[str, int] = facts["steps"]
        self.relations: list[tuple[str, str, str]] = facts["relations"]
        self.numbers: list[tuple[Any, ...]] = facts["numbers"]
        self.verified: list[dict[str, int]] = facts["verified"]
        self.timed: list[tuple[dict[str, int], float, float]] = facts["timed"]
        self._import = facts["load"]
        self.module: Any = None
        self.failure: str | None = None

    def ready(self) -> bool:
        """Whether the module is there; it is loaded here, and C++ sources are compiled unless their build is in the
        cache. Where that failed, `failure` says why, and it is not tried again in this process.
        """
        return self.module is not None or (self.failure is None and self._load())

    def described(self) -> str:
        """What is loaded, in a word or a sentence."""
        return "loaded" if self.module is not None else self.failure or "the kernel is not loaded yet"

    def _load(self) -> bool:
        failed = None
        with _lock:
            if self.module is None and self.failure is None:
                try:
                    loaded = self._imported()
                    _freeze(loaded)
                    self.module = loaded
                except Exception as error:  # noqa: BLE001 - whatever it is, PyTorch or another kernel serves
                    self.failure = f"the kernel did not load: {type(error).__name__}: {error}"
                    failed = self.failure
        if failed is not None:
            _control.absent(self.name, failed)
        return self.module is not None

    def _imported(self) -> ModuleType:
        if self.language == "triton" and self.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise RuntimeError("on a CPU a Triton kernel runs in Triton's interpreter alone: set TRITON_INTERPRET=1")
        try:
            return self._import()
        except CacheError as error:
            build_elsewhere(error)
            return self._import()


KERNELS = [Kernel(facts) for facts in _spec.KERNELS]
BY_NAME = {kernel.name: kernel for kernel in KERNELS}


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
