"""The reference of an op in its runners.

Expected values in float64, tolerances, and the baselines that candidates are timed against, experts among them.

Runners of an op stay warm between jobs (`warm_ops`). Nothing of a candidate ever runs in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from warpsmith.kernels_db.job.documents import Generated, ResolvedWorkload
from warpsmith.workers.judge.machine.buffers import Slot
from warpsmith.workers.judge.reference.baseline_store import OpStandings
from warpsmith.workers.judge.reference.indices import Indices
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox.sandbox import COMPILING
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import Comparison, Tolerance
from warpsmith.workers.judge.values.steps import Limit, compare_result
from warpsmith.workers.judge.values.workload_specs import (
    Values,
    input_specs,
    is_exact,
    result_positions,
    result_specs,
    slots_for,
    widened,
    workload_key,
)

COMPILE_S = 300.0
"""Longest first call of a compiled baseline: compiling and autotuning."""

FLOAT64_PATIENCE = 6
"""Multiple of the call limit that float64, for which libraries do not optimise, may take."""

Start = Callable[[str], RunnerHandle]
"""Starts a runner of this op's reference in a mode, or of one of its experts, by the name of either."""

WRONG = "wrong: "
"""What the reason begins with for which an expert that runs is no baseline."""

_LASTING = (WRONG, "not_installed: ", "raises: ")
"""How reasons begin that hold for the next job, too."""


@dataclass
class WorkloadFacts:
    """What was learnt of one workload of an op.

    tolerances: of its results, in the order of `result_positions`, None for integers; `learn` finds them. indices: what
    the results at some positions are indices into; None for one that must be eager's own. read_shares: of the inputs at
    some positions, what a call has to read (`read_shares`).
    fan_in: the most elements of an input that an element of the results was seen to depend on (`attack.references`).
    rounds_once: eager rounds a narrow result once, and nothing on the way to it; asked of pointwise ops alone.
    finite: no declared input led beyond finite values. nan: the largest share of NaN among the elements of a result, by
    name, where it has any. unsuited: input families that do not suit it, and why.
    unavailable: baselines that do not run on it or are WRONG, and why. right: experts that were asked and are right.
    compiled: baselines that have compiled it. generated: the code of its `compile` baseline.
    """

    tolerances: list[Tolerance | None] | None = None
    indices: dict[int, Indices | None] = field(default_factory=dict)
    read_shares: dict[int, float] = field(default_factory=dict)
    fan_in: int | None = None
    rounds_once: bool | None = None
    finite: bool = True
    nan: dict[str, float] = field(default_factory=dict)
    unsuited: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    right: set[str] = field(default_factory=set)
    compiled: set[str] = field(default_factory=set)
    generated: Generated | None = None


@dataclass
class OpRunners:
    """The runners of one op's reference and experts, with the facts of its workloads. Close it to end them.

    Each goes by a name: a mode of the reference, or an expert's own.
    """

    start: Start
    call_s: float
    device: torch.device
    standings: OpStandings
    math: str = "ieee"
    reference: str = ""
    experts: frozenset[str] = frozenset()
    runners: dict[str, RunnerHandle] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)  # the workload that the slots of one are for, by its key
    known: dict[str, WorkloadFacts] = field(default_factory=dict)  # by a workload's key
    used_at: float = field(default_factory=time.monotonic)

    def facts(self, workload: ResolvedWorkload) -> WorkloadFacts:
        """Return the facts learnt of a workload; a fresh record where nothing was."""
        return self.known.setdefault(workload_key(workload), WorkloadFacts())

    def on(self, mode: str, workload: ResolvedWorkload) -> RunnerHandle:
        """Return the runner of a mode or an expert with its slots bound to a workload.

        It is started where needed. Raises RunnerFault.
        """
        if mode not in self.runners:
            self.runners[mode] = self.start(mode)
        runner = self.runners[mode]
        key = workload_key(workload)
        if self.bound.get(mode) != key:
            wide = mode == "float64"
            inputs = [widened(spec) if wide else spec for spec in input_specs(workload)]
            outputs = [widened(spec) if wide else spec for spec in result_specs(workload)]
            self.bound.pop(mode, None)
            beside = None if wide else self.bound_to(workload)
            runner.bind(inputs, outputs, 1 if wide else slots_for(workload, self.device), beside)
            self.bound[mode] = key
        return runner

    def bound_to(self, workload: ResolvedWorkload) -> RunnerHandle | None:
        """Return a baseline that is bound to a workload, in whose slots others may run."""
        key = workload_key(workload)
        modes = [mode for mode, bound in self.bound.items() if bound == key and mode != "float64"]
        return self.runners[modes[0]] if modes else None

    def to_beat(self, workload: ResolvedWorkload, modes: list[str]) -> list[str]:
        """Return the one of `modes` that was fastest when all were timed together.

        A screen only ranks, so it need not time the others.
        """
        known = self.standings.find(workload_key(workload), modes)
        if known is None:
            return modes
        unavailable = self.facts(workload).unavailable
        for mode in modes:
            if mode in known.unavailable:
                unavailable.setdefault(mode, known.unavailable[mode])
        return [mode for mode in modes if mode == known.fastest(modes)]

    def note(self, workload: ResolvedWorkload, wanted: list[str], median_us: dict[str, float]) -> None:
        """Note the medians of baselines timed together; `wanted` are all that the op names."""
        key, unavailable = workload_key(workload), self.facts(workload).unavailable
        missing: dict[str, str] = {mode: unavailable[mode] for mode in wanted if mode in unavailable}
        missing = {mode: why for mode, why in missing.items() if not self._is_passing(mode, why)}
        if median_us.keys() | missing.keys() >= set(wanted):
            self.standings.keep(key, median_us, missing)
        else:
            for mode, median in median_us.items():
                self.standings.compare(key, mode, median)

    def forget_passing(self) -> None:
        """Let experts be asked again that a passing fault, such as a lack of memory, took out of an earlier job."""
        for facts in self.known.values():
            for mode in [mode for mode, why in facts.unavailable.items() if self._is_passing(mode, why)]:
                del facts.unavailable[mode]

    def _is_passing(self, mode: str, why: str) -> bool:
        return mode in self.experts and not why.startswith(_LASTING)

    def drop(self, mode: str) -> None:
        """End one runner; the next use starts a fresh one."""
        self.bound.pop(mode, None)
        for facts in self.known.values():
            facts.compiled.discard(mode)
        if (runner := self.runners.pop(mode, None)) is not None:
            runner.close()

    def drop_broken(self) -> None:
        """End the runners whose device context no longer answers.

        That happens after a crash on the device.
        """
        for mode in list(self.runners):
            try:
                self.runners[mode].ping()
            except RunnerFault:
                self.drop(mode)

    def unbind(self) -> None:
        """Free all buffers; the processes stay."""
        for mode in list(self.runners):
            self.bound.pop(mode, None)
            try:
                self.runners[mode].unbind()
            except RunnerFault:
                self.drop(mode)

    def close(self) -> None:
        """End all runners."""
        for mode in list(self.runners):
            self.drop(mode)

    def run(self, mode: str, workload: ResolvedWorkload, values: Values, slot: int = 0) -> list[torch.Tensor]:
        """Run a mode or an expert once on values and return views of what it produced.

        They are outputs, then mutated inputs, valid until the slot's next use.
        """
        runner = self.on(mode, workload)
        runner.fill(slot, values)
        self.call(mode, workload, slot)
        runner.deliver()
        return [runner.slots[slot].tensor(position) for _, position in result_positions(workload)]

    def call(self, mode: str, workload: ResolvedWorkload, slot: int) -> int:
        """Call a bound mode or expert once; return the nanoseconds.

        The first call of a compiled mode compiles, and an expert's may. Raises RunnerFault; the runner is then ended.
        """
        facts = self.facts(workload)
        compiles = (mode in COMPILING or mode in self.experts) and mode not in facts.compiled
        try:
            limit = COMPILE_S if compiles else self.call_s * (FLOAT64_PATIENCE if mode == "float64" else 1)
            spent = self.runners[mode].call(slot, limit)
        except RunnerFault:
            self.drop(mode)
            raise
        facts.compiled.add(mode)
        if compiles and mode == "compile" and (code := self.runners[mode].generated()) is not None:
            facts.generated = code
        return spent

    def expected(self, workload: ResolvedWorkload, values: Values) -> list[torch.Tensor]:
        """Return the expected results for values, as fresh tensors.

        float64 for floating results, eager's own for integer ones.
        """
        results = [tensor.clone() for tensor in self.run("float64", workload, values)]
        if any(not tensor.is_floating_point() for tensor in results):
            own = self.run("eager", workload, values)
            results = [
                wide if wide.is_floating_point() else exact.clone() for wide, exact in zip(results, own, strict=True)
            ]
        return results

    def limits(self, workload: ResolvedWorkload) -> list[Tolerance | None]:
        """Return the tolerances of a workload's results, in the order of `result_positions`.

        None for integers. `learn` comes first.
        """
        tolerances = self.facts(workload).tolerances
        assert tolerances is not None
        return tolerances

    def check(
        self,
        found: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        limits: Sequence[Limit],
    ) -> list[Comparison]:
        """Compare results with expected ones, each by its limit."""
        return [compare_result(*each) for each in zip(found, expected, limits, strict=True)]

    def decides_ties(self, workload: ResolvedWorkload) -> bool:
        """Check whether it is known of every integer result which of equals it may choose.

        A result with the check `exact` is the reference's. `learn` comes first.
        """
        indices = self.facts(workload).indices
        exact = [at for at, limit in enumerate(self.limits(workload)) if limit is None and not is_exact(workload, at)]
        return all(at in indices and ((one := indices[at]) is None or one.sharp) for at in exact)

    def untouched(self, workload: ResolvedWorkload, values: Values) -> tuple[str, list[int]] | None:
        """Return the input that eager's last call changed without leave, or None."""
        return modified_input(self.runners["eager"].slots[0], workload, values)


def modified_input(memory: Slot, workload: ResolvedWorkload, values: Values) -> tuple[str, list[int]] | None:
    """Name and index of the first input that a call changed without leave, or None."""
    for position, (item, value) in enumerate(zip(workload["inputs"], values, strict=True)):
        if value is None or item["mutated"]:
            continue
        found = memory.tensor(position)
        wanted = value if value.dtype == found.dtype else value.to(found.dtype)
        if (index := compare.first_difference(found, wanted)) is not None:
            return item["name"], index
    return None


def untimed_reason(unavailable: str) -> str:
    """Say why a baseline is not timed."""
    return f"is {unavailable}" if unavailable.startswith(WRONG) else f"does not run: {unavailable}"
