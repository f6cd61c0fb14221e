"""The package's kernels: what is known of each, and its module, loaded once at the first call that it can serve.

Nothing is tuned here: a call takes the configuration that the evidence names for its sizes.
"""

from __future__ import annotations

import atexit
import math
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
        self.configurations: list[tuple[str, list[Any], dict[str, Any]]] = facts["configurations"]
        self.leads: list[dict[str, int]] | None = facts["leads"]
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
                    _freeze(loaded, self.configurations)
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


class _Recorded(dict[Any, Any]):
    """A tuner's memory that has an answer for every key: that of the nearest key under which the kernel was timed."""

    def __init__(self, timed: list[tuple[list[Any], Any]]) -> None:
        super().__init__()
        self.timed = timed

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: tuple[Any, ...]) -> Any:
        self[key] = min(self.timed, key=lambda one: _apart(one[0], key))[1]
        return self[key]


def _apart(timed: list[Any], key: tuple[Any, ...]) -> float:
    """How far a key is from one that was timed: in octaves of its numbers, far where anything else differs."""
    return sum(
        abs(math.log2((1 + abs(one)) / (1 + abs(other))))
        if isinstance(one, int | float) and isinstance(other, int | float)
        else 1e3 * (one != other)
        for one, other in zip(timed, key, strict=False)
    )


def _freeze(module: ModuleType, recorded: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    """Have no kernel under `@triton.autotune` tune itself, so that no call ever waits for that.

    recorded: what the tuner took where the kernel was timed. A kernel that it does not name is left its first
    configuration, since none is known to be the one that was timed.
    """
    for name, kernel in vars(module).items():
        layer: Any = kernel  # decorators stand around each other, each with what it decorates as `fn`
        while layer is not None and type(layer).__module__.startswith("triton."):
            configurations = getattr(layer, "configs", None)
            if configurations is not None and len(configurations) > 1:
                function = layer.base_fn.__name__
                timed = [
                    (key, configuration)
                    for of, key, took in recorded
                    for configuration in configurations
                    if of == function and configuration.all_kwargs() == took
                ]
                taken = list({id(configuration): configuration for _, configuration in timed}.values())
                if len(taken) > 1:
                    layer.cache = _Recorded(timed)
                else:
                    layer.configs = taken or configurations[:1]
                if not taken:
                    _control.note(
                        f"{name}: frozen to the first of {len(configurations)} configurations ({configurations[0]}); "
                        "the evidence does not say under which of them it was timed"
                    )
            layer = getattr(layer, "fn", None)
