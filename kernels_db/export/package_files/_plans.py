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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from . import _compare, _control, _load, _recording, _spec
from ._runtime import map_encoding, plan_build

if TYPE_CHECKING:
    from . import _guard

VARIABLE = "WARPSMITH_PLANS"
"""off: no plans; on, or not set: plans for every language."""
RECORDED_AT = 3
"""The call of a signature that is recorded: fewer may be all that there are."""
LARGEST_RECORDED = {"cpu": 16 << 20, "cuda": 256 << 20}
"""Bytes of arguments and outputs up to which a call is recorded, since that copies them: the kernel of a larger one
takes far longer than the host.
"""
ALIGNED = 64
"""Bytes that the address of each tensor of a replayed call is a multiple of, as those of a recording are: Triton makes
another kernel for lesser ones, and so may `run`.
"""


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


_asked = _from_environment()
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
    sizes = [a.nbytes for a in (*arguments, *admitted.outputs) if isinstance(a, torch.Tensor)]
    most = LARGEST_RECORDED[admitted.device.type]
    if sum(sizes) > most:
        return f"its tensors have more than {most >> 20} MiB, and the kernel takes far longer than the host"
    here = _table()
    if here is None:
        return str(_absent)
    driver = map_encoding.DRIVER
    if admitted.device.type == "cuda" and not plan_build.extension().open_driver(driver):
        return f"CUDA's driver {driver} has no cuLaunchKernelEx"
    if "storage_offset" in _names(vars(admitted.kernel.module).values()):
        return "the kernel's Python reads storage_offset, which is no part of a signature"
    kernel = admitted.kernel.module.run
    calls = [(_compare.clones(arguments), admitted.allocate()) for _ in range(3)]  # all held: no address comes twice
    found = [_recording.record(kernel, *call) for call in calls[:2]]
    first, second = found
    if isinstance(first, str):
        return first
    if isinstance(second, str):
        return second
    if not first.same_as(second):
        return "two calls with the same shapes and numbers made different launches"
    slots = [(torch.empty_like, _without_memory(o.shape, None, o.dtype, o.device)) for o in admitted.outputs]
    slots += [
        (torch.zeros_like if s.zeros else torch.empty_like, _without_memory(s.shape, s.strides, s.dtype, s.device))
        for s in first.scratch
    ]
    plan = here.plan(
        tuple(arguments),
        _control.NAMES.index(admitted.kernel.name),
        admitted.device.index if admitted.device.type == "cuda" else -1,
        len(admitted.outputs),
        tuple(slots),
        first.steps,
        admitted.kernel.module,
    )
    replayed, outputs = calls[2]
    for right, output in zip(calls[1][1], outputs, strict=True):
        _bits(output).copy_(_bits(right).bitwise_not())  # memory that was freed may hold the right result already
    if not here.run(plan, tuple(replayed), tuple(outputs)):
        return "the plan does not fit the call that it was made of"
    return _differs(calls) or (plan, sum(step[0] >= _recording.CALL for step in first.steps))


def _names(values: Iterable[Any]) -> set[str]:
    """The names of attributes and globals that these functions use, and the functions inside them."""
    found: set[str] = set()
    codes = [value.__code__ for value in values if isinstance(value, FunctionType)]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


def _differs(calls: list[tuple[list[Any], list[torch.Tensor]]]) -> str | None:
    """How a replay, the last of these calls, and `run`, the others, do not agree to the bit."""
    written = [[*outputs, *(arguments[position] for position in _spec.MUTATED)] for arguments, outputs in calls]
    bits = [[_bits(each) for each in one] for one in written]

    def same(one: int, other: int) -> bool:
        return all(torch.equal(a, b) for a, b in zip(bits[one], bits[other], strict=True))

    if not same(0, 1):
        return "two calls of run with the same values differ in their bits, so no replay can be compared with them"
    return None if same(1, 2) else "a replay gives other bits than run: run does something that was not seen"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, in its own memory where it is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _without_memory(shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor to allocate others like: `empty_like` of one with the right strides is the least that there is to do."""
    if strides is None:
        like = torch.empty(shape, dtype=dtype, device=device)
    else:
        like = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    like.untyped_storage().resize_(0)
    return like


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
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise RuntimeError(f"PyTorch {torch.__version__} has no DLPack exchange functions for C")
    alignments = {place: ALIGNED for place, each in enumerate(_spec.PARAMETERS) if each["rank"] is not None}
    alignments |= {place: max(bytes_, ALIGNED) for place, bytes_ in _spec.ALIGNMENTS}
    quiet = (
        (torch._C._len_torch_dispatch_stack, 0),
        (torch._C._len_torch_function_stack, 0),
        (torch._C._functorch.maybe_current_level, None),
        (torch._C._get_tracing_state, None),
        (torch.autograd._profiler_enabled, False),
    )
    return plan_build.extension().table(
        exchange,
        torch.Tensor,
        torch.nn.Parameter,
        _control.block,
        torch.is_grad_enabled,
        torch.Tensor.is_neg,
        torch.autograd.graph.increment_version,
        getattr(torch._C, "_cuda_getCurrentRawStream", None),
        quiet,
        tuple(alignments.items()),
        tuple(_spec.MUTATED),
        len(_control.NAMES),
    )


def described() -> dict[str, Any]:
    """What `status()` tells: for which languages plans are, how many, the calls that they served, and refusals."""
    languages = sorted({kernel.language for kernel in _load.KERNELS})
    here = table
    return {
        "for": list(languages) if wanted() else [],
        "set_by": "default" if _asked is None else VARIABLE,
        "unavailable": _absent,
        "recorded": _recorded,
        "held": 0 if here is None else here.size(),
        "replayed": _control.replayed(),
        "refused": dict(_refused),
    }
