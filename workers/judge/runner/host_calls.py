"""Calls of `run` one after another, for the time that they cost the calling thread.

They work on copies of a slot's tensors, which lie as an allocator of PyTorch's places them. By a launch plan, a call is
served as an exported package serves it: its arguments are checked, outputs allocated, and the launches replayed,
several as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

_ALL = 1 << 40
"""Calls that a plan may serve."""


class HostCalls:
    """The calls of one slot. `outputs`: those that `run` is given, empty for a reference."""

    def __init__(
        self,
        run: Callable[..., Any],
        module: ModuleType | None,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        mutated: Sequence[int],
    ) -> None:
        self._run, self._module, self._mutated = run, module, mutated
        self._inputs, self._outputs = inputs, outputs
        self._table: Any = None
        self._told: dict[str, Any] | None = None  # of the plan
        self._call: Callable[..., Any] = run
        self._arguments: list[list[Any]] = []

    def ready(self, calls: int, extension: str | None) -> dict[str, Any]:
        """Ready so many calls, each on arguments of its own where they are written to.

        extension: the file that replays plans, for calls by one. Returns {"launches"}, {"unplanned"} or nothing.
        """
        told: dict[str, Any] = {}
        if extension is not None:
            told = self._told = self._told or self._planned(Path(extension))
        planned = "launches" in told
        self._call = self._table.call if planned else self._run
        outputs = [] if planned else [_copied(each) for each in self._outputs]
        copies = [[*map(_copied, self._inputs), *outputs] for _ in range(calls if self._mutated else 1)]
        self._arguments = copies if self._mutated else copies * calls
        return told

    def make(self) -> None:
        """Make the calls. Raises RuntimeError where a plan does not serve one."""
        call, result = self._call, None
        for arguments in self._arguments:
            result = call(*arguments)
        if result is NotImplemented:
            raise RuntimeError("the launch plan served no call with the arguments that it was made for")

    def _planned(self, extension: Path) -> dict[str, Any]:
        """Make the plan; its launches, or why there is none."""
        try:
            return self._plan(extension)
        except Exception as error:  # noqa: BLE001 - as in an exported package: `run` itself serves then
            return {"unplanned": f"recording raised {type(error).__name__}: {error}"}

    def _plan(self, extension: Path) -> dict[str, Any]:
        from warpsmith.kernels_db.runtime import launch_plan, plan_build  # noqa: PLC0415 - few runners come so far

        assert self._module is not None
        plan_build.use(extension)
        inputs, _ = self._copies()
        device = next(each.device for each in (*inputs, *self._outputs) if _is_tensor(each))
        if (why := launch_plan.oversized((*inputs, *self._outputs), device)) is not None:
            return {"unplanned": why}
        tensors = [place for place, each in enumerate(inputs) if _is_tensor(each)]
        block: ContextVar[None] = ContextVar("warpsmith_host_calls", default=None)
        self._table = launch_plan.new_table(block, tensors, {}, self._mutated, 1, graphs=True)
        made = launch_plan.make(self._table, self._module, 0, tuple(inputs), self._copies, device, self._mutated)
        if isinstance(made, str):
            return {"unplanned": made}
        plan, launches = made
        self._table.add(plan)
        self._table.grant(0, _ALL)
        return {"launches": launches}

    def _copies(self) -> tuple[list[Any], list[Any]]:
        return [_copied(each) for each in self._inputs], [_copied(each) for each in self._outputs]


def _is_tensor(value: Any) -> bool:
    import torch  # noqa: PLC0415 - already loaded by the fork server

    return isinstance(value, torch.Tensor)


def _copied(value: Any) -> Any:
    """Return a copy of a tensor with its strides; along an axis of stride 0 of the values at its start."""
    if not _is_tensor(value):
        return value
    import torch  # noqa: PLC0415 - as above

    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    written = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in value.stride())
    made[written].copy_(value[written])
    return made
