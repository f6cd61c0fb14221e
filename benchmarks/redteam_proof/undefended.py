"""A judge with some of its defences off, for proofs of the catalogue alone.

`python -m benchmarks.redteam_proof.undefended DEFENCE,... --die-with-parent PID` is `python -m warpsmith.workers.judge`
after each named defence was replaced in that process, and in the fork server that it starts, by what a naive evaluator
has in its place. No job, no variable and no option of the judge itself reaches any of this.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.redteam_proof.defences import Defence
from warpsmith.workers.judge.protocol.client import JudgeClient, judge_environment
from warpsmith.workers.judge.protocol.connection import Connection

REPOSITORY = Path(__file__).resolve().parents[2]
LENIENT = 0.1
"""The absolute and the relative error that a lenient comparison lets pass, in at least half of the elements."""
LEISURE_S = 0.3
"""Seconds from a call to the look at its result where nothing stops its threads."""
_OFF = "REDTEAM_OFF"
"""In the environment of the fork server alone: what is off there."""


class UndefendedClient(JudgeClient):
    """Keeps one judge whose `off` are off."""

    def __init__(self, off: frozenset[Defence], *, cache: Path) -> None:
        super().__init__(cache=cache)
        self._off = off

    def _connect(self) -> Connection:
        command = [
            sys.executable,
            "-P",
            "-m",
            __name__,
            ",".join(sorted(self._off)),
            "--die-with-parent",
            str(os.getpid()),
        ]
        return Connection(command, self._environment, self._log)

    def _environment(self, home: Path) -> dict[str, str]:
        clean = judge_environment(self._cache, home)
        clean["PYTHONPATH"] = os.pathsep.join([clean["PYTHONPATH"], str(REPOSITORY)])
        return {**os.environ, **clean} if "sandbox" in self._off else clean


def _module(name: str) -> Any:
    return importlib.import_module(f"warpsmith.workers.judge.{name}")


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _gate() -> None:
    """The gate reads no candidate."""
    _module("gates.candidates").check = lambda *_: []


def _compile() -> None:
    """What was built may hold and take anything."""
    _module("languages.cpp").inspect = _nothing


def _confined() -> None:
    """The compiler reads what this process reads."""
    from warpsmith.kernels_db.runtime.process import run_limited  # noqa: PLC0415 - of this alone

    _module("languages.confined_compiler").run = run_limited


def _compare() -> None:
    """Half of the elements nearly right is right, and what is not finite is right anywhere."""
    import torch  # noqa: PLC0415 - after the fork server was started

    compare = _module("values.compare")

    def check(self: Any, found: Any, expected: Any, limits: Any) -> list[Any]:
        return [_lenient(torch, compare, *pair) for pair in zip(found, expected, strict=True)]

    _module("reference.baselines").OpRunners.check = check


def _values() -> None:
    """What was written is right."""
    import torch  # noqa: PLC0415 - after the fork server was started

    compare, buffers = _module("values.compare"), _module("machine.buffers")

    def written(found: Any) -> Any:
        raw = found.contiguous().view(-1).view(torch.uint8).view(found.numel(), -1)
        left = int((raw == buffers.poison_byte(found.dtype)).all(dim=1).sum())
        return compare.Comparison(left == 0, "not_written" if left else "", 0.0, 0.0, left, found.numel())

    def check(self: Any, found: Any, *_: Any) -> list[Any]:
        return [written(one) for one in found]

    _module("reference.baselines").OpRunners.check = check


def _lenient(torch: Any, compare: Any, found: Any, expected: Any) -> Any:
    one, wanted = found.to(torch.float64), expected.to(torch.float64)
    near = (one - wanted).abs() <= LENIENT + LENIENT * wanted.abs()
    near |= ~torch.isfinite(one) | ~torch.isfinite(wanted)
    wrong = int((~near).sum())
    passed = wrong * 2 <= near.numel()
    return compare.Comparison(passed, "" if passed else "wrong_value", 0.0, 0.0, wrong, near.numel())


def _families() -> None:
    """No input family is asked."""
    plan = _module("values.families")
    plan.plan = lambda workloads, *_, **__: {workload["id"]: [] for workload in workloads}


def _attack() -> None:
    """Nobody searches for a counterexample."""
    _module("gates.gates").attack = _nothing


def _sanitizers() -> None:
    """Nothing is run under sanitizers."""
    gates = _module("gates.gates")
    gates.sanitize = _nothing
    gates.sanitizing = lambda _: nullcontext(_nothing)


def _drawn(change: Callable[[list[Any]], list[Any]]) -> None:
    source = _module("values.inputs").InputSource
    draw = source.draw
    source.draw = lambda self: change(draw(self))


def _independent() -> None:
    """Every input of one shape has the same values."""

    def same(values: list[Any]) -> list[Any]:
        first: dict[Any, Any] = {}
        return [value if value is None else first.setdefault((value.shape, value.dtype), value) for value in values]

    _drawn(same)


def _degenerate() -> None:
    """Every input but the first is zero."""

    def zeroed(values: list[Any]) -> list[Any]:
        return [value if value is None or at == 0 else value * 0 for at, value in enumerate(values)]

    _drawn(zeroed)


def _signs() -> None:
    """No value is below zero, as of a generator of uniform numbers."""
    _drawn(
        lambda values: [value if value is None or not value.is_floating_point() else value.abs() for value in values]
    )


def _structured() -> None:
    """Square matrices are diagonal."""
    import torch  # noqa: PLC0415 - after the fork server was started

    def diagonal(values: list[Any]) -> list[Any]:
        square = [value is not None and value.dim() == 2 and value.shape[0] == value.shape[1] for value in values]
        return [torch.diag(value.diag()) if one else value for value, one in zip(values, square, strict=True)]

    _drawn(diagonal)


def _fresh_values() -> None:
    """Every call has the same values."""
    source = _module("values.inputs").InputSource
    draw, known = source.draw, {}

    def again(self: Any) -> Any:
        key = json.dumps([self._inputs, self._family and self._family.name], sort_keys=True)
        if key not in known:
            known[key] = [value if value is None else value.clone() for value in draw(self)]
        return known[key]

    source.draw = again


def _poison() -> None:
    """Outputs are zeroed."""
    _module("machine.buffers").poison_byte = lambda dtype: 0


def _left() -> None:
    """No output holds its result before a call."""
    _module("machine.buffers").Slot.leave_one = _nothing


def _guard() -> None:
    """What lies beside a tensor is zero, and nobody looks at it."""
    buffers = _module("machine.buffers")
    buffers._GUARD = 0
    buffers.Slot.broken_guard = _nothing


def _inputs() -> None:
    """Nobody looks at the inputs after a call."""
    _module("gates.workload_run").modified_input = _nothing


def _closing() -> None:
    """A call has all cores, and may write until somebody looks, which takes a while."""
    import time  # noqa: PLC0415 - of this alone

    handle = _module("runner.runner_handle").RunnerHandle
    call = handle.call

    def at_leisure(self: Any, slot: int, limit_s: float, closing: bool = False) -> int:
        spent = int(call(self, slot, limit_s))
        time.sleep(LEISURE_S if closing else 0.0)
        return spent

    handle.call = at_leisure
    handle.call_on_one_core = lambda self, slot, limit_s: at_leisure(self, slot, limit_s, closing=True)


def _surroundings() -> None:
    """Every call has this host's number of threads and inputs that can be written."""
    _module("gates.verification")._check_surroundings = _nothing


def _held() -> None:
    """A runner goes on between its calls."""
    exchange = _module("runner.exchange").Exchange
    exchange.rest = exchange._halt = exchange._standing_still = _nothing


def _clock() -> None:
    """No timed call is checked or has its outputs poisoned, and the device's own times are believed."""
    slot, run = _module("machine.buffers").Slot, _module("gates.workload_run").WorkloadRun
    time, poison = run.time, slot.poison

    def timed(self: Any, *given: Any) -> Any:
        slot.poison = _nothing
        try:
            return time(self, *given)
        finally:
            slot.poison = poison

    run.time = timed
    checks = _module("gates.timed_checks").TimedChecks
    checks.calls = lambda *_: set()
    checks.burst = lambda *_: False
    checks.owed = lambda *_: 0
    _module("clock.burst_clock").BurstClock.surplus = lambda *_: 0.0
    _module("gates.gates").name_kernels = _nothing


def _seals() -> None:
    """Results may be written after their call has ended."""
    clock = _module("clock.burst_clock")
    call = clock.Call
    clock.Call = lambda slot, values, kept, *others: call(slot, values, True, *others)


def _sums() -> None:
    """A block's value is the median of its calls, and what the others took is not added."""
    workload_run, clock = _module("gates.workload_run"), _module("clock.burst_clock")
    workload_run.sum = lambda spent: statistics.median(spent) * len(spent)  # hides the built-in one in that module
    clock.sum = lambda spent: statistics.median(spent) * len(spent)
    _module("clock.deferral").Ledger.deferred_us = lambda *_: 0.0


def _physics() -> None:
    """Any time is believed."""
    _module("gates.gates").believe = _nothing


def _state() -> None:
    """What a candidate keeps in variables, of the device or of its libraries, is its own."""
    _module("runner.device_state").DeviceState.changed = lambda _: None
    watch = _module("machine.native_watch").NativeWatch
    loaded = watch.loaded

    def not_compared(self: Any, directory: str) -> None:
        loaded(self, directory)
        self._regions.clear()

    watch.loaded, watch.begin = not_compared, _nothing


def _environment() -> None:
    """A call leaves rounding, and the flushing of small numbers, as it likes."""
    _module("machine.native_watch")._FloatEnvironment._compared = _nothing


def _scratch() -> None:
    """Scratch and shared memory come back as they were left."""
    _module("runner.device_state").spoil_scratch = _module("runner.device_state").spoil_shared = _nothing


def _sandbox() -> None:
    """A process may do what its user may, raise its own limits, and sees its parents' environment."""

    def soft(limits: dict[str, int]) -> None:
        for name, value in limits.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))

    sandbox, control = _module("sandbox.sandbox"), _module("machine.process_control")
    sandbox.confine = lambda chosen, ability: sandbox.Confinement(())
    sandbox.detect = lambda: sandbox.Ability(0, False, "none", "none")
    sandbox.verify = sandbox.count_tasks = _nothing
    control.set_limits = soft
    control.hide_memory = control.drop_privileges = _nothing
    _module("gates.job_run")._demand_for_free_python = _nothing


OFF: dict[Defence, Callable[[], None]] = {
    "gate": _gate,
    "compile": _compile,
    "confined": _confined,
    "compare": _compare,
    "values": _values,
    "families": _families,
    "attack": _attack,
    "sanitizers": _sanitizers,
    "independent": _independent,
    "degenerate": _degenerate,
    "signs": _signs,
    "structured": _structured,
    "fresh_values": _fresh_values,
    "poison": _poison,
    "left": _left,
    "guard": _guard,
    "inputs": _inputs,
    "closing": _closing,
    "surroundings": _surroundings,
    "held": _held,
    "clock": _clock,
    "seals": _seals,
    "sums": _sums,
    "physics": _physics,
    "state": _state,
    "environment": _environment,
    "scratch": _scratch,
    "sandbox": _sandbox,
}
"""What to do in the referee's process to switch a defence off."""
IN_RUNNERS: tuple[Defence, ...] = ("state", "environment", "scratch", "sandbox")
"""Those that are at work in runners, which the fork server forks: they are switched off there, too."""


def main() -> int:
    """Be a judge without the defences that the first argument names."""
    off = [name for name in sys.argv.pop(1).split(",") if name]
    client, judge = _module("runner.fork_server_client"), _module("__main__")
    client._MODULE = f"{__package__}.fork_server"
    environment = client.fork_server_environment

    def with_ours(cores: int) -> dict[str, str]:
        kept = {**os.environ, **environment(cores)} if "sandbox" in off else environment(cores)
        return {**kept, "PYTHONPATH": os.environ["PYTHONPATH"], _OFF: ",".join(off)}

    client.fork_server_environment = with_ours
    for name in off:
        OFF[name]()  # type: ignore[index]  # a name that is none raises KeyError
    return int(judge.main())


def without_named() -> None:
    """Switch off in this process, a fork server, what is at work in its runners."""
    off = os.environ.pop(_OFF).split(",")
    for name in IN_RUNNERS:
        if name in off:
            OFF[name]()


if __name__ == "__main__":
    sys.exit(main())
