"""Which implementation serves, for this process: switched by a call, a context manager or an environment variable.

Three modes: "on" (the kernel inside its envelope), "off" (PyTorch everywhere) and "shadow" (as "on", and of each kernel
one call in N is checked against PyTorch). In mode "on" there is a watch besides: of each kernel the first few calls and
then one in some thousand are checked too, where that costs little: a kernel that changes after many calls is found. The
mode is read inside the op, at every call: under `torch.compile` the op
stays one op, and a switch takes effect without recompiling. Call these functions outside of compiled code and of graph
capture: what a captured CUDA graph replays was decided when it was captured.

Where the package has several kernels, each is switched by its name as well: `disable()`, then `enable("a")`, leaves "a"
alone. PyTorch serves what the kernels that are on do not admit.

Everything here may be called from any thread. `enable`, `disable` and `shadow` hold for the whole process; `enabled`
and `disabled` for the code inside their block: its thread, or its asyncio task, and not for threads started in it. A
block that names kernels leaves the others as they were when it began.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from . import _spec

MODES = ("on", "off", "shadow")
VARIABLE = "WARPSMITH_KERNELS"
"""The mode of every package of this kind: on, off or shadow."""
OWN_VARIABLE = _spec.NAMESPACE.upper()
"""The mode of this package alone; it goes before VARIABLE."""
EVERY_VARIABLE = "WARPSMITH_SHADOW_EVERY"
DEFAULT_EVERY = 100
WATCH_VARIABLE = "WARPSMITH_WATCH"
"""How many calls of a kernel have one that the watch checks: a number, or off."""
DEFAULT_WATCH = 10_000
FIRST_WATCHED = 3
"""Calls of each kernel that the watch checks at first."""
MOST_REASONS = 32
"""Reasons that are counted apart; those that come later are counted together."""
OTHER_REASONS = "other reasons"

NAMES = tuple(kernel["name"] for kernel in _spec.KERNELS)


class Switches(NamedTuple):
    """The mode, each kernel that is switched off with who did it, and who set either last."""

    mode: str
    off: dict[str, str]
    set_by: str


_lock = threading.Lock()
block: ContextVar[Switches | None] = ContextVar(f"{_spec.NAMESPACE}_switches", default=None)
"""What a block of `enabled` or `disabled` sets."""
_served = dict.fromkeys(NAMES, 0)
"""Calls that each kernel served, less those that its plans did: the extension counts those."""
_plans: Any = None
"""The extension's table of plans, once there is one. It serves as many calls as it was granted."""
FOREVER = 1 << 62
"""Calls that are granted where none is to be checked."""
_watched: Counter[str] = Counter()
"""Calls of each kernel since shadow mode began. Counted apart: of two that are called in turn each has its checks."""
_reasons: Counter[str] = Counter()
_warned = False
_given_up: dict[str, str] = {}
"""Each kernel that serves no call any more, and why. Replaced as a whole: calls read it without the lock."""
_shadowed = {"checked": 0, "mismatches": 0, "unchecked": 0}
_found_by_watch = dict(_shadowed)
_begun_by_watch = dict.fromkeys(NAMES, 0)
"""Checks that the watch began, of each kernel."""
_notes: list[str] = []


def _switched(now: Switches, names: tuple[str, ...], on: bool, by: str) -> Switches:
    """`now` with these kernels on or off; all of them where none is named."""
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"found the kernel {unknown[0]!r}, expected one of {', '.join(NAMES)}")
    if on:
        off = {name: who for name, who in now.off.items() if name not in names} if names else {}
        return Switches("on" if not names or now.mode == "off" else now.mode, off, by)
    off = now.off | dict.fromkeys(names or NAMES, by)
    return Switches("off" if len(off) == len(NAMES) else now.mode, off, by)


def _from_environment() -> Switches:
    """The mode that the environment asks for, and who says so."""
    for variable in (OWN_VARIABLE, VARIABLE):
        found = os.environ.get(variable)
        if found:
            if found not in MODES:
                raise ValueError(f"{variable}: found {found!r}, expected one of {', '.join(MODES)}")
            return Switches(found, dict.fromkeys(NAMES, variable) if found == "off" else {}, variable)
    return Switches("on", {}, "default")


def _every_from_environment() -> int:
    found = os.environ.get(EVERY_VARIABLE) or str(DEFAULT_EVERY)
    if not found.isdecimal() or int(found) < 1:
        raise ValueError(f"{EVERY_VARIABLE}: found {found!r}, expected a number of calls, at least 1")
    return int(found)


def _watch_from_environment() -> int | None:
    found = os.environ.get(WATCH_VARIABLE) or str(DEFAULT_WATCH)
    if found == "off":
        return None
    if not found.isdecimal() or int(found) < 1:
        raise ValueError(f"{WATCH_VARIABLE}: found {found!r}, expected off or a number of calls, at least 1")
    return int(found)


_process = _from_environment()
_every = _every_from_environment()
_watch = _watch_from_environment()


def enable(*kernels: str) -> None:
    """The kernels of these names, or all, serve inside their envelopes; also after a mismatch or a failure had given
    their calls up. Naming one leaves the others as they are: after `disable()` it serves alone.

    Raises ValueError for a name that no kernel of this package has; `status()["kernels"]` has the names.
    """
    global _process, _given_up
    with _lock:
        _revoke()
        _process = _switched(_process, kernels, True, "enable()")
        _given_up = {name: why for name, why in _given_up.items() if kernels and name not in kernels}


def disable(*kernels: str) -> None:
    """The kernels of these names, or all, serve no call. Raises ValueError for a name that no kernel here has."""
    global _process
    with _lock:
        _revoke()
        _process = _switched(_process, kernels, False, "disable()")


def shadow(every: int | None = None) -> None:
    """As `enable`, but of each kernel the first call and then one in `every` is checked against PyTorch, on clones of
    its inputs.

    A call that is checked takes several times as long. Where the two differ, the call returns PyTorch's result, the
    inputs are saved and the kernel serves no call from then on, until `enable()`. A mismatch that was found before
    stands: this function does not lift it. A kernel that was switched off by its name stays off; but where all of them
    are off, by name or not, it switches all on.
    """
    global _every, _process
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ValueError(f"every: found {every!r}, expected a number of calls, at least 1")
    with _lock:
        _every = _every if every is None else every
        _revoke()
        _watched.clear()
        _process = Switches("shadow", {} if _process.mode == "off" else _process.off, "shadow()")


def watch(every: int | None = DEFAULT_WATCH) -> None:
    """In mode "on", check of each kernel the first calls and then one in `every` against PyTorch; None: none.

    Calls with more than 64 MiB of inputs and outputs are not checked. Inputs of a wrong result are saved where
    WARPSMITH_SHADOW_DIR says so, and only there.
    """
    global _watch
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ValueError(f"every: found {every!r}, expected a number of calls, at least 1, or None")
    with _lock:
        _revoke()
        _watch = every


@contextmanager
def unwatched() -> Iterator[None]:
    """The watch is off inside the block, for the whole process: what is compared there is the kernel's own result."""
    before = _watch
    watch(None)
    try:
        yield
    finally:
        watch(before)


@contextmanager
def enabled(*kernels: str) -> Iterator[None]:
    """The kernels of these names, or all, serve inside this block, whatever the process's mode is; what gave one up for
    good still holds. `with disabled(), enabled("a")` leaves "a" alone.
    """
    token = block.set(_switched(block.get() or _process, kernels, True, "enabled()"))
    try:
        yield
    finally:
        block.reset(token)


@contextmanager
def disabled(*kernels: str) -> Iterator[None]:
    """The kernels of these names, or all, serve no call inside this block."""
    token = block.set(_switched(block.get() or _process, kernels, False, "disabled()"))
    try:
        yield
    finally:
        block.reset(token)


def mode() -> str:
    """The mode of a call made here and now."""
    return (block.get() or _process).mode


def out() -> Collection[str]:
    """The names of the kernels that serve no call here and now."""
    off = (block.get() or _process).off
    return off.keys() | _given_up.keys() if _given_up else off


def refusal(name: str) -> str:
    """Why this kernel, which is out, serves no call here and now."""
    if name in _given_up:
        return _given_up[name]
    here = block.get() or _process
    by = here.off.get(name, here.set_by)
    return "disabled() is in force" if by == "disabled()" else f"the kernel is switched off by {by}"


def due(name: str) -> bool:
    """Whether shadow mode or the watch is to check this call of a kernel: the first since the mode began, or the first
    few, and then one in N.
    """
    if mode() != "shadow":
        return _watch is not None and (_begun_by_watch[name] < FIRST_WATCHED or served(name) % _watch == 0)
    with _lock:
        _watched[name] += 1
        return (_watched[name] - 1) % _every == 0


def attach(table: Any) -> None:
    """Let this table of plans serve what `grant` grants, or none any more; the calls that one served stay counted."""
    global _plans
    with _lock:
        if _plans is not None:
            for position, name in enumerate(NAMES):
                _served[name] += _plans.served(position)
        _plans = table


def grant(name: str) -> None:
    """Let plans of this kernel serve the calls up to the next one that is to be checked."""
    with _lock:
        if _plans is not None:
            _plans.grant(NAMES.index(name), _unlooked(name))


def _unlooked(name: str) -> int:
    """How many calls of a kernel from now on are no concern of a switch, of shadow mode or of the watch."""
    if _process.mode != "on" or name in _process.off or name in _given_up:
        return 0
    if _watch is None:
        return FOREVER
    return 0 if _begun_by_watch[name] < FIRST_WATCHED else -served(name) % _watch


def _revoke() -> None:
    """Let no plan serve until something is granted anew. Where there are several kernels, a signature's next call also
    chooses anew which one serves it.
    """
    if _plans is not None:
        _plans.revoke()
        if len(NAMES) > 1:
            _plans.clear()


def served(name: str) -> int:
    """Calls that this kernel served, by its plans or without."""
    return _served[name] + (0 if _plans is None else int(_plans.served(NAMES.index(name))))


def replayed() -> int:
    """Calls that plans served, of all kernels."""
    return 0 if _plans is None else sum(_plans.served(position) for position in range(len(NAMES)))


def begun(name: str) -> None:
    """Count a check that is begun; not one that a graph's capture forbids, after which the next call is due."""
    if mode() != "shadow":
        with _lock:
            _begun_by_watch[name] += 1


def checker() -> str:
    """What checks a call that is made here and now."""
    return "shadow mode" if mode() == "shadow" else "the watch"


def hit(name: str) -> None:
    """Count a call that this kernel served: one whose launch came off."""
    with _lock:
        _served[name] += 1


def fallback(reason: str) -> None:
    """Count a call that PyTorch serves, and warn at the first one that nobody asked for and that no warning foretold:
    others are those of kernels that were switched off or given up.
    """
    global _warned
    with _lock:
        _reasons[reason if reason in _reasons or len(_reasons) < MOST_REASONS else OTHER_REASONS] += 1
        first = not _warned and len(out()) < len(NAMES) and reason not in map(refusal, out())
        _warned = _warned or first
    if first:
        _warn(f"PyTorch serves this call, because {reason}")


def trip(name: str, reason: str) -> None:
    """Give every call of this kernel up from now on, and say so once."""
    global _given_up
    with _lock:
        first = name not in _given_up
        _revoke()
        _given_up = {name: reason} | _given_up
    if first:
        who = "PyTorch serves every call" if len(NAMES) == 1 else f"the kernel {name} serves no call"
        _warn(f"{who} from now on, because {reason}")


def absent(name: str, reason: str) -> None:
    """Say that this one of several kernels did not load: the next would serve its calls, and nobody would know. Of a
    single kernel the first fallback says as much.
    """
    if len(NAMES) > 1:
        _warn(f"the kernel {name} serves no call, because {reason}")


def note(text: str) -> None:
    """Keep what `status` is to tell, once."""
    with _lock:
        if text not in _notes and len(_notes) < MOST_REASONS:
            _notes.append(text)


def shadowed(outcome: str) -> None:
    """Count one of "checked", "mismatches", "unchecked"."""
    with _lock:
        (_shadowed if mode() == "shadow" else _found_by_watch)[outcome] += 1


def _warn(text: str) -> None:
    warnings.warn(f"{_spec.NAME} ({_spec.NAMESPACE}): {text}", RuntimeWarning, stacklevel=2)


def status(loaded: Mapping[str, str]) -> dict[str, Any]:
    """What `status()` of the package returns; `loaded` says of each kernel by its name what is loaded.

    What stands beside `kernels` is of all of them together: `given_up` is None as long as one may serve.
    """
    with _lock:
        here = block.get() or _process
        alone = len(NAMES) == 1
        lost = [f"{_given_up[name]}" if alone else f"{name}: {_given_up[name]}" for name in NAMES if name in _given_up]
        shared = set.intersection(*(set(kernel["versions"].items()) for kernel in _spec.KERNELS))
        return {
            "op": _spec.NAME,
            "package": _spec.NAMESPACE,
            "kernel": loaded[NAMES[0]] if alone else "; ".join(f"{name}: {what}" for name, what in loaded.items()),
            "mode": here.mode,
            "mode_set_by": "a block" if block.get() else here.set_by,
            "served": {"kernel": sum(map(served, NAMES)), "pytorch": _reasons.total()},
            "fallbacks": dict(_reasons),
            "given_up": "; ".join(lost) if len(lost) == len(NAMES) else None,
            "shadow": {"every": _every, **_shadowed},
            "watch": {"every": _watch, **_found_by_watch},
            "notes": list(_notes),
            "verified_with": dict(sorted(shared)),
            "torch": torch.__version__,
            "kernels": {
                kernel["name"]: {
                    "id": kernel["id"],
                    "target": f"{kernel['device']}:{kernel['arch']}",
                    "language": kernel["language"],
                    "loaded": loaded[kernel["name"]],
                    "enabled": kernel["name"] not in here.off,
                    "served": served(kernel["name"]),
                    "given_up": _given_up.get(kernel["name"]),
                    "verified_with": dict(kernel["versions"]),
                }
                for kernel in _spec.KERNELS
            },
        }
