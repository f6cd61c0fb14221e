"""`warpsmith.record`: the calls of a block, recorded.

Needs no torch to be imported, as `warpsmith` itself needs none: it loads torch when the block is entered.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from warpsmith.workers.recording.calls import Calls, write_calls
from warpsmith.workers.recording.tally import Tally

if TYPE_CHECKING:
    from os import PathLike

    from warpsmith.workers.recording.hooks import Hooks


class Recording:
    """The calls of a block; `record` makes one. Ready once the block is left, and readable before."""

    def __init__(self, model: Any, path: str | PathLike[str] | None, functions: bool) -> None:
        self._model, self._functions = model, functions
        self._tally: Tally | None = None
        self._hooks: Hooks | None = None
        self.path = None if path is None else Path(path)

    def __enter__(self) -> Recording:
        from warpsmith.workers.recording.hooks import Hooks, read  # noqa: PLC0415 - needs torch

        if self._hooks is not None:
            raise RuntimeError("recording: found a block inside of its own, expected a `warpsmith.record` for each")
        self._tally = self._tally or Tally(read)
        self._hooks = Hooks(self._tally, self._model, self._functions)
        self._hooks.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._hooks is not None:
            self._hooks.stop()
            self._hooks = None
        if self.path is None:
            return
        try:
            write_calls(self.calls, self.path)
        except OSError:
            if error is None:  # else the block's own error is what its author must see
                raise

    @property
    def calls(self) -> Calls:
        """What was recorded so far."""
        return Calls() if self._tally is None else self._tally.calls()

    def __repr__(self) -> str:
        calls = self.calls
        return f"<Recording of {sum(calls.counts.values())} calls of {len(calls.counts)} kinds>"


def record(model: Any = None, path: str | PathLike[str] | None = None, *, functions: bool = True) -> Recording:
    """Record what is called inside a `with` block: functions and modules, shapes, dtypes and counts; never a value.

    model: a torch.nn.Module; only what happens inside of its calls is recorded. None: everything in the process.
    path: where the recording is written at the block's end, as JSON for `warpsmith workloads`; None: nowhere.
    functions: record torch's functions too, in this thread; without them modules alone, in every thread.

    An error while a call is recorded is noted in the recording. Entering the block raises AttributeError for a
    `model` that is no module; leaving it raises OSError where `path` cannot be written.
    """
    return Recording(model, path, functions)
