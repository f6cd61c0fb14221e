"""Launch plans: what a kernel's `run` launches for one signature, recorded once and replayed without its Python.

For the same shapes, strides, dtypes, numbers and device `run` always makes the same launches, because it may read
nothing else of its arguments. So at the third call of a signature it is recorded twice, on copies of the arguments that
lie elsewhere; where both recordings agree, and a replay of them gives the same bits as `run` itself, later calls of the
signature are replayed by a small native extension (`_runtime.plan_build`), which checks all that the guard checks. Of
anything else there is no plan: the Python path serves, and `status()["plans"]` says why.

The switches, the watch and the counters hold as ever. The extension serves as many calls as `_control` grants: none in
shadow mode or inside a block of `enabled()` or `disabled()`, and with the watch on those up to the next that is due.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from . import _compare, _control, _load, _spec

if TYPE_CHECKING:
    from . import _guard

VARIABLE = "WARPSMITH_PLANS"
"""off: no plans; on, or not set: plans for every language."""
GRAPHS_VARIABLE = "WARPSMITH_PLAN_GRAPHS"
"""0: each launch of a plan by itself; 1, or not set: several are one CUDA graph from its fourth call on a stream."""
RECORDED_AT = 3
"""The call of a signature that is recorded: fewer may be all that there are."""


class State:
    """What is known of the plan of one signature and kernel. launches: in it; refused: why there is none."""

    __slots__ = ("calls", "launches", "plan", "refused")

    def __init__(self) -> None:
        self.calls = 0
        self.launches = 0
        self.plan: Any = None
        self.refused: str | None = None


def _from_environment() -> str | None:
    found = os.environ.get(VARIABLE) or None
    if found not in (None, "on", "off"):
        raise ValueError(f"{VARIABLE}: found {found!r}, expected on or off")
    return found


def _graphs_from_environment() -> bool:
    found = os.environ.get(GRAPHS_VARIABLE) or "1"
    if found not in ("0", "1"):
        raise ValueError(f"{GRAPHS_VARIABLE}: found {found!r}, expected 0 or 1")
    return found == "1"


_asked = _from_environment()
_graphs = _graphs_from_environment()
table: Any = None
"""The extension's table of plans, once there is a plan."""
_absent: str | None = None
"""Why there is no table, once that is known."""
_lock = threading.Lock()
_recorded = 0
_refused: Counter[str] = Counter()


def wanted() -> bool:
    """Whether kernels are to have plans in this process."""
    return _asked != "off"


@contextmanager
def without() -> Iterator[None]:
    """Replay nothing inside the block, for the whole process: what is timed there is the Python path."""
    global _asked, table
    before = _asked, table
    _asked, table = "off", None
    try:
        yield
    finally:
        _asked, table = before


def inside(arguments: tuple[Any, ...]) -> Any:
    """Serve a call that PyTorch's dispatcher has let through by its plan; NotImplemented where there is none for it."""
    if table is None:
        return NotImplemented
    try:
        return table.inside(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the Python path meets it again and knows what to do
        failed(error)
        return NotImplemented


def failed(error: Exception) -> None:
    """Give every plan up, since replaying one raised.

    Raises the error again where arguments may have been written in part, and where memory ran out.
    """
    global _absent, table
    if isinstance(error, torch.cuda.OutOfMemoryError):
        raise error
    with _lock:
        if table is not None:
            table.clear()
        table = None
        _control.attach(None)
        _absent = f"a replay raised {type(error).__name__}: {error}"
    if _spec.MUTATED:
        raise error


def run(admitted: _guard.Admitted, arguments: tuple[Any, ...], outputs: list[torch.Tensor]) -> bool:
    """Do the call by its plan, on these outputs; False where there is none."""
    here = table
    return (
        here is not None
        and admitted.plans.plan is not None
        and bool(here.run(admitted.plans.plan, arguments, tuple(outputs)))
    )


def after(admitted: _guard.Admitted, arguments: tuple[Any, ...]) -> None:
    """Note that the Python path served a call: record it where it is its turn, and let the extension serve the next."""
    state, kernel = admitted.plans, admitted.kernel
    if state.refused is not None or _absent is not None or not wanted():
        return
    if state.plan is None:
        state.calls += 1
        if state.calls < RECORDED_AT or not _recordable(admitted):
            return
        if not _lock.acquire(blocking=False):
            return  # another thread records; a later call comes again
        try:
            _make(admitted, arguments)
        finally:
            _lock.release()
    here = table
    if state.plan is not None and here is not None:
        here.add(state.plan)
        _control.grant(kernel.name)


def _recordable(admitted: _guard.Admitted) -> bool:
    """Whether a recording may be made here and now: not where it would land in a CUDA graph or in another's trace."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return False
    return admitted.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def _make(admitted: _guard.Admitted, arguments: tuple[Any, ...]) -> None:
    """Record the call and make its plan, or remember why there is none."""
    global _recorded
    try:
        on_gpu = admitted.device.type == "cuda"  # whose tensors' device need not be the current one
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.cuda.device(admitted.device) if on_gpu else nullcontext(),
        ):
            made = _planned(admitted, arguments)
    except Exception as error:  # noqa: BLE001 - the user's own call came off; a plan is not worth an error
        made = f"recording raised {type(error).__name__}: {error}"
    if not isinstance(made, str):
        admitted.plans.plan, admitted.plans.launches = made
        _recorded += 1
        return
    admitted.plans.refused = made
    _refused[made if made in _refused or len(_refused) < _control.MOST_REASONS else _control.OTHER_REASONS] += 1


def _planned(admitted: _guard.Admitted, arguments: tuple[Any, ...]) -> tuple[Any, int] | str:
    """The plan of a call, compared with `run` itself, and its launches; or why there is none."""
    from ._runtime import launch_plan  # and ten modules more, which not every process needs

    if (why := launch_plan.oversized((*arguments, *admitted.outputs), admitted.device)) is not None:
        return why
    here = _table()
    if here is None:
        return str(_absent)
    return launch_plan.make(
        here,
        admitted.kernel.module,
        _control.NAMES.index(admitted.kernel.name),
        arguments,
        lambda: (_compare.clones(arguments), admitted.allocate()),
        admitted.device,
        _spec.MUTATED,
    )


def _table() -> Any:
    """The table of plans, made for the first of them; None where it cannot be, and `_absent` says why."""
    global _absent, table
    if table is None and _absent is None:
        try:
            table = _new_table()
        except Exception as error:  # noqa: BLE001 - no compiler, no headers, no cache: the Python path serves
            _absent = f"the extension that replays plans is not there: {type(error).__name__}: {error}"
        else:
            _control.attach(table)
    return table


def _new_table() -> Any:
    from ._runtime import launch_plan

    tensors = [place for place, each in enumerate(_spec.PARAMETERS) if each["rank"] is not None]
    alignments, kernels = dict(_spec.ALIGNMENTS), len(_control.NAMES)
    return launch_plan.new_table(_control.block, tensors, alignments, _spec.MUTATED, kernels, graphs=_graphs)


def described() -> dict[str, Any]:
    """What `status()` tells: for which languages plans are, how many, the calls that they served, and refusals; and of
    CUDA graphs, the calls that were one, and why plans of several launches are none.
    """
    languages = sorted({kernel.language for kernel in _load.KERNELS})
    here = table
    _, graphed, not_graphed = (0, 0, {}) if here is None else here.graphs()
    return {
        "for": list(languages) if wanted() else [],
        "set_by": "default" if _asked is None else VARIABLE,
        "unavailable": _absent,
        "recorded": _recorded,
        "held": 0 if here is None else here.size(),
        "replayed": _control.replayed(),
        "refused": dict(_refused),
        "graphs": {"asked": _graphs, "launched": graphed, "refused": not_graphed},
    }
