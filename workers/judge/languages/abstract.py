"""Run `run` without a device, on tensors without storage, to see every launch.

The tensors have shapes, dtypes, strides and addresses, but no storage; the candidate's host code is called on them.

The gate lets host code read nothing of a tensor's values, so it goes the way that it will go on the device. What it
raises here it will raise there. This runs the candidate: its outcome decides no more than "does not compile".
"""

from __future__ import annotations

import importlib.util
import math
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from warpsmith.kernels_db.candidate_import import provide_short_names, specify_file
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedOutput, ResolvedWorkload
from warpsmith.kernels_db.runtime.limits import of_architecture

RUN_S = 10.0
"""CPU seconds of one call of `run`, launches left out."""
_PAGE = 4096
_BUFFER_ALIGNMENT = 64
"""The alignment of the judge's buffers (`workers.judge.machine.buffers`), in bytes.

Where an input asks for less, it gets no more than that.
"""
_MULTIPROCESSORS = 132  # of an architecture that is not known


_storage_id: Callable[[Any], int] = vars(torch._C)["_storage_id"]


class Refused(Exception):  # noqa: N818  named for what happened
    """The candidate's host code fails. The message says where and why; `log` has more."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def refusal(error: Refused, workload: str) -> dict[str, Any]:
    """Return the answer of a compiling process that refuses the candidate.

    `workload`: the one that was tried, empty before the first.
    """
    answer = {"error": str(error), "log": error.log}
    return {**answer, "workload": workload} if workload else answer


class _TooLong(BaseException):
    """`run` used its CPU seconds up."""


class LaunchRefused(Exception):  # noqa: N818
    """A launch that fails on any device, raised from inside `run`."""


def load(source: str) -> ModuleType:
    """Load the candidate's module from a file, because Triton reads its kernels' text.

    Raises:
        Refused: it cannot be imported.
    """
    provide_short_names()
    path = Path("candidate.py").resolve()
    path.write_text(source, encoding="utf-8")
    specification = specify_file("candidate", str(path))
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise Refused(f"{_where(error)}the candidate cannot be imported: {type(error).__name__}: {error}") from error
    return module


def pretend(capability: int) -> None:
    """Answer host code's questions on the device as one of this compute capability would.

    The answers are those of the largest device of its kind.
    """
    limits = of_architecture(capability)
    properties = SimpleNamespace(
        multi_processor_count=limits.multiprocessors if limits else _MULTIPROCESSORS,
        major=capability // 10,
        minor=capability % 10,
    )
    setattr(torch.cuda, "get_device_properties", lambda device=None: properties)  # noqa: B010  another type on purpose


class Seen(Protocol):
    """Who takes the place of launching, and has to know which workload is tried."""

    workload: str


def trials(module: ModuleType, request: Mapping[str, Any], seen: Seen, launches: Callable[[], int]) -> list[str]:
    """Run `trial` with each of the request's workloads; `seen` is told of each beforehand.

    Raises: Refused.
    """
    notes = []
    for workload in request["workloads"]:
        seen.workload = workload["id"]
        notes.append(trial(module, workload, "cuda", launches, library=request["library"]))
    return notes


def trial(
    module: ModuleType, workload: ResolvedWorkload, device: str, launches: Callable[[], int], *, library: bool = False
) -> str:
    """Call `run` as the workload asks.

    The answer says why the call ended early, if it did for a reason of this trial's own.

    Args:
        device: "cpu" or "cuda".
        launches: how many launches there were so far.
        library: the op allows library calls, so `run` may launch nothing of its own.

    Raises:
        Refused: `run` raises, does not end, or launches nothing though there is something to compute.
    """
    where, before = f"workload {workload['id']}: ", launches()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _addresses() as place, _limited():
            module.run(*arguments(workload, device, place))
    except _TooLong:
        raise Refused(f"{where}run does not end within {RUN_S:g} s of CPU time, launches left out") from None
    except LaunchRefused as error:
        raise Refused(f"{_where(error)}{error}") from error
    except Refused:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        if _raised_by_candidate(error):
            raise Refused(f"{_where(error)}run raises {said} (workload {workload['id']})") from error
        return f"{where}run ends early on tensors without values: {_where(error)}{said}"
    if not library and launches() == before and _has_work(workload):
        raise Refused(f"{where}run launches nothing: expected at least one launch of a kernel of yours")
    return ""


def arguments(workload: ResolvedWorkload, device: str, place: Callable[[Any, int], None]) -> list[Any]:
    """Return the arguments of `run`: inputs, then outputs.

    `place` gives a tensor its alignment in bytes.
    """
    given: list[Any] = []
    for entry in workload["inputs"]:
        given.append(entry["value"] if entry["shape"] is None else tensor(entry, entry["strides"], device))
        if entry["shape"] is not None:
            place(given[-1], entry.get("alignment", _PAGE))
    return given + [tensor(entry, None, device) for entry in workload["outputs"]]


def tensor(entry: ResolvedInput | ResolvedOutput, strides: list[int] | None, device: str) -> Any:
    """Make a tensor without storage."""
    dtype = getattr(torch, entry["dtype"])
    shape = entry["shape"] or []
    if strides is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


@contextmanager
def _addresses() -> Iterator[Callable[[Any, int], None]]:
    """Give tensors without storage addresses inside the block.

    Each has its own page, or the offset beyond it that it is given, as the judge's buffers have.
    """
    starts: dict[int, int] = {}
    pages = iter(range(_PAGE, 1 << 62, _PAGE))
    originals = FakeTensor.data_ptr, FakeTensor.__getitem__

    def start(of: Any) -> int:
        storage = _storage_id(of)
        if storage not in starts:
            starts[storage] = next(pages)
        return starts[storage]

    def place(of: Any, alignment: int) -> None:
        starts[_storage_id(of)] = start(of) + (alignment if alignment < _BUFFER_ALIGNMENT else 0)

    def data_ptr(self: Any) -> int:
        return start(self) + int(self.storage_offset()) * int(self.element_size())

    FakeTensor.data_ptr = data_ptr  # type: ignore[method-assign]
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        FakeTensor.__getitem__ = _part  # type: ignore[method-assign]
    try:
        yield place
    finally:
        FakeTensor.data_ptr, FakeTensor.__getitem__ = originals  # type: ignore[method-assign]


def _part(tensor: Any, index: Any) -> Any:
    """Return `tensor[index]` for ints, slices, None and `...`.

    torch without CUDA has no other way to index a CUDA tensor.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    axes = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    if axes > tensor.dim():
        raise IndexError(f"too many indices for a tensor of {tensor.dim()} axes: found {axes}")
    axis = 0
    for part in parts:
        if part is None:
            tensor, axis = tensor.unsqueeze(axis), axis + 1
        elif part is Ellipsis:
            axis += tensor.dim() - axis - sum(later is not None for later in parts[parts.index(Ellipsis) + 1 :])
        elif isinstance(part, slice):
            tensor = torch.ops.aten.slice.Tensor(tensor, axis, part.start, part.stop, part.step or 1)
            axis += 1
        else:
            tensor = tensor.select(axis, part)
    return tensor


@contextmanager
def _limited() -> Iterator[None]:
    """Raise _TooLong inside the block after RUN_S of this process's CPU time.

    `uncounted` stops the clock.
    """

    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    earlier = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, RUN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, earlier)


@contextmanager
def uncounted() -> Iterator[None]:
    """Stop the clock of the host code inside the block."""
    left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_VIRTUAL, left)


def _has_work(workload: ResolvedWorkload) -> bool:
    """Check whether there is an element to write."""
    written = [entry["shape"] for entry in workload["inputs"] if entry["mutated"]]
    written += [entry["shape"] for entry in workload["outputs"]]
    return any(math.prod(shape) for shape in written if shape is not None)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _raised_by_candidate(error: BaseException) -> bool:
    """Check whether the exception began in the candidate's own lines.

    An exception that began in torch's answer to one of them does not count.
    """
    frames = _frames(error)
    return bool(frames) and Path(frames[-1].filename).name == "candidate.py"


def _where(error: BaseException) -> str:
    """Return the candidate's line that the exception came from."""
    lines = [frame.lineno for frame in _frames(error) if Path(frame.filename).name == "candidate.py"]
    return f"line {lines[-1]}: " if lines else ""
