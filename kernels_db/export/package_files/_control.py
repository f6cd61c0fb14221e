"""Which implementation serves, for this process: switched by a call, a context manager or an environment variable.

Three modes: "on" (the kernel inside its envelope), "off" (PyTorch everywhere) and "shadow" (as "on", and one call in N
is checked against PyTorch). The mode is read inside the op, at every call: under `torch.compile` the op stays one op,
and a switch takes effect without recompiling. Call these functions outside of compiled code and of graph capture: what
a captured CUDA graph replays was decided when it was captured.

Everything here may be called from any thread. `enable`, `disable` and `shadow` hold for the whole process; `enabled`
and `disabled` for the code inside their block: its thread, or its asyncio task, and not for threads started in it.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from . import _spec

MODES = ("on", "off", "shadow")
VARIABLE = "WARPSMITH_KERNELS"
"""The mode of every package of this kind: on, off or shadow."""
OWN_VARIABLE = _spec.NAMESPACE.upper()
"""The mode of this package alone; it goes before VARIABLE."""
EVERY_VARIABLE = "WARPSMITH_SHADOW_EVERY"
DEFAULT_EVERY = 100
MOST_REASONS = 32
"""Reasons that are counted apart; those that come later are counted together."""
OTHER_REASONS = "other reasons"

_lock = threading.Lock()
_block: ContextVar[str | None] = ContextVar(f"{_spec.NAMESPACE}_mode", default=None)
_served = 0
_watched = 0
"""Calls since shadow mode began."""
_reasons: Counter[str] = Counter()
_warned = False
_tripped: str | None = None
_shadowed = {"checked": 0, "mismatches": 0, "unchecked": 0}
_notes: list[str] = []


def _from_environment() -> tuple[str, str]:
    """The mode that the environment asks for, and who says so."""
    for variable in (OWN_VARIABLE, VARIABLE):
        found = os.environ.get(variable)
        if found:
            if found not in MODES:
                raise ValueError(f"{variable}: found {found!r}, expected one of {', '.join(MODES)}")
            return found, variable
    return "on", "default"


def _every_from_environment() -> int:
    found = os.environ.get(EVERY_VARIABLE) or str(DEFAULT_EVERY)
    if not found.isdecimal() or int(found) < 1:
        raise ValueError(f"{EVERY_VARIABLE}: found {found!r}, expected a number of calls, at least 1")
    return int(found)


_mode, _set_by = _from_environment()
_every = _every_from_environment()


def enable() -> None:
    """The kernel serves inside its envelope; also after a mismatch or a failure had given every call to PyTorch."""
    global _tripped
    with _lock:
        _tripped = None
    _set("on", "enable()")


def disable() -> None:
    """PyTorch serves every call."""
    _set("off", "disable()")


def shadow(every: int | None = None) -> None:
    """As `enable`, but the first call and then one in `every` is checked against PyTorch on clones of its inputs.

    A call that is checked takes several times as long. Where the two differ, the call returns PyTorch's result, the
    inputs are saved and PyTorch serves from then on, until `enable()`. A mismatch that was found before stands: this
    function does not lift it.
    """
    global _every, _watched
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ValueError(f"every: found {every!r}, expected a number of calls, at least 1")
    with _lock:
        _every = _every if every is None else every
        _watched = 0
    _set("shadow", "shadow()")


@contextmanager
def enabled() -> Iterator[None]:
    """The kernel serves inside this block, whatever the process's mode is; what gave it up for good still holds."""
    token = _block.set("on")
    try:
        yield
    finally:
        _block.reset(token)


@contextmanager
def disabled() -> Iterator[None]:
    """PyTorch serves every call inside this block."""
    token = _block.set("off")
    try:
        yield
    finally:
        _block.reset(token)


def _set(mode: str, by: str) -> None:
    global _mode, _set_by
    with _lock:
        _mode, _set_by = mode, by


def mode() -> str:
    """The mode of a call made here and now."""
    return _block.get() or _mode


def refusal() -> str | None:
    """Why no call at all takes the kernel here and now; None when calls may."""
    if _tripped is not None:
        return _tripped
    if mode() == "off":
        return "disabled() is in force" if _block.get() else f"the kernel is switched off by {_set_by}"
    return None


def due() -> bool:
    """Whether shadow mode is to check this call: the first one since it began, and then one in N."""
    global _watched
    if mode() != "shadow":
        return False
    with _lock:
        _watched += 1
        return (_watched - 1) % _every == 0


def hit() -> None:
    """Count a call that the kernel served: one whose launch came off."""
    global _served
    with _lock:
        _served += 1


def fallback(reason: str) -> None:
    """Count a call that PyTorch serves, and warn at the first one that nobody asked for."""
    global _warned
    with _lock:
        _reasons[reason if reason in _reasons or len(_reasons) < MOST_REASONS else OTHER_REASONS] += 1
        first = not _warned and mode() != "off" and _tripped is None
        _warned = _warned or first
    if first:
        _warn(f"PyTorch serves this call, because {reason}")


def trip(reason: str) -> None:
    """Give every call to PyTorch from now on, and say so once."""
    global _tripped
    with _lock:
        first = _tripped is None
        _tripped = _tripped or reason
    if first:
        _warn(f"PyTorch serves every call from now on, because {reason}")


def note(text: str) -> None:
    """Keep what `status` is to tell, once."""
    with _lock:
        if text not in _notes and len(_notes) < MOST_REASONS:
            _notes.append(text)


def shadowed(outcome: str) -> None:
    """Count one of "checked", "mismatches", "unchecked"."""
    with _lock:
        _shadowed[outcome] += 1


def _warn(text: str) -> None:
    warnings.warn(f"{_spec.NAME} ({_spec.NAMESPACE}): {text}", RuntimeWarning, stacklevel=2)


def status(kernel: str) -> dict[str, Any]:
    """What `status()` of the package returns; `kernel` says what is loaded."""
    with _lock:
        return {
            "op": _spec.NAME,
            "package": _spec.NAMESPACE,
            "kernel": kernel,
            "mode": mode(),
            "mode_set_by": "a block" if _block.get() else _set_by,
            "served": {"kernel": _served, "pytorch": sum(_reasons.values())},
            "fallbacks": dict(_reasons),
            "given_up": _tripped,
            "shadow": {"every": _every, **_shadowed},
            "notes": list(_notes),
            "verified_with": dict(_spec.VERSIONS),
            "torch": torch.__version__,
        }
