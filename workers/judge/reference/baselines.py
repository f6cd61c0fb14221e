"""The reference of an op in its runners.

Expected values in float64, tolerances, and the baselines that candidates are timed against.

Runners of an op stay warm between jobs (`warm_ops`). Nothing of a candidate ever runs in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch

from warpsmith.kernels_db.job.documents import Generated, JobOp, ResolvedWorkload
from warpsmith.workers.judge.reference.baseline_store import OpStandings
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import Comparison, Tolerance, ToleranceBuilder
from warpsmith.workers.judge.values.inputs import InputSources
from warpsmith.workers.judge.values.workload_specs import (
    Values,
    input_specs,
    own_tolerance,
    result_positions,
    result_specs,
    slots_for,
    widened,
    workload_key,
)

COMPILE_S = 300.0
"""Longest first call of a compiled baseline: compiling and autotuning."""

FEWEST_SEEDS, MOST_SEEDS, ENOUGH_ELEMENTS = 3, 16, 256
"""How many seeds tolerances pool: at least 3, and more for a small output.

On a small output eager's error on 3 seeds would be luck.
"""

FLOAT64_PATIENCE = 6
"""Multiple of the call limit that float64, for which libraries do not optimise, may take."""

Start = Callable[[Mode], RunnerHandle]
"""Starts a runner of this op's reference in a mode."""


class ReferenceFault(Exception):  # noqa: N818 - named for what happened
    """The user's reference is at fault. `details` has kind, workload, expected and found."""

    def __init__(self, kind: str, message: str, workload: str, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.workload = workload
        self.details = details


@dataclass
class WorkloadFacts:
    """What was learnt of one workload of an op.

    tolerances: of its results, in the order of `result_positions`, None where one is exact; `learn` finds them.
    finite: no declared input led beyond finite values. unsuited: input families that do not suit it, and why.
    unavailable: baselines that do not run on it, and why. compiled: modes that have compiled it. generated: the code of
    its `compile` baseline.
    """

    tolerances: list[Tolerance | None] | None = None
    finite: bool = True
    unsuited: dict[str, str] = field(default_factory=dict)
    unavailable: dict[Mode, str] = field(default_factory=dict)
    compiled: set[Mode] = field(default_factory=set)
    generated: Generated | None = None


@dataclass
class OpRunners:
    """The reference's runners for one op, with the facts of its workloads. Close it to end them."""

    start: Start
    call_s: float
    device: torch.device
    standings: OpStandings
    math: str = "ieee"
    runners: dict[Mode, RunnerHandle] = field(default_factory=dict)
    bound: dict[Mode, str] = field(default_factory=dict)  # the workload that a mode's slots are for, by its key
    known: dict[str, WorkloadFacts] = field(default_factory=dict)  # by a workload's key
    used_at: float = field(default_factory=time.monotonic)

    def facts(self, workload: ResolvedWorkload) -> WorkloadFacts:
        """Return the facts learnt of a workload; a fresh record where nothing was."""
        return self.known.setdefault(workload_key(workload), WorkloadFacts())

    def on(self, mode: Mode, workload: ResolvedWorkload) -> RunnerHandle:
        """Return the runner of a mode with its slots bound to a workload.

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

    def to_beat(self, workload: ResolvedWorkload, modes: list[Mode]) -> list[Mode]:
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

    def note(self, workload: ResolvedWorkload, wanted: list[Mode], median_us: dict[str, float]) -> None:
        """Note the medians of baselines timed together; `wanted` are all that the op names."""
        key, unavailable = workload_key(workload), self.facts(workload).unavailable
        missing: dict[str, str] = {mode: unavailable[mode] for mode in wanted if mode in unavailable}
        if median_us.keys() | missing.keys() >= set(wanted):
            self.standings.keep(key, median_us, missing)
        else:
            for mode, median in median_us.items():
                self.standings.compare(key, mode, median)

    def drop(self, mode: Mode) -> None:
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

    def run(self, mode: Mode, workload: ResolvedWorkload, values: Values, slot: int = 0) -> list[torch.Tensor]:
        """Run a mode once on values and return views of what it produced.

        They are outputs, then mutated inputs, valid until the slot's next use.
        """
        runner = self.on(mode, workload)
        runner.fill(slot, values)
        self.call(mode, workload, slot)
        runner.deliver()
        return [runner.slots[slot].tensor(position) for _, position in result_positions(workload)]

    def call(self, mode: Mode, workload: ResolvedWorkload, slot: int) -> int:
        """Call a bound mode once; return the nanoseconds.

        The first call of a compiled mode compiles. Raises RunnerFault; the runner is then ended.
        """
        facts = self.facts(workload)
        compiles = mode in ("compile", "max_autotune") and mode not in facts.compiled
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

        None where they are exact. `learn` comes first.
        """
        tolerances = self.facts(workload).tolerances
        assert tolerances is not None
        return tolerances

    def check(
        self,
        found: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        limits: Sequence[Tolerance | None],
    ) -> list[Comparison]:
        """Compare results with expected ones, each under its tolerance."""
        return [
            compare.compare_exactly(one, wanted) if limit is None else compare.compare_floats(one, wanted, limit)
            for one, wanted, limit in zip(found, expected, limits, strict=True)
        ]

    def learn(self, workload: ResolvedWorkload, sources: InputSources) -> None:
        """Check the reference on a workload and derive its tolerances, the first time only.

        Raises ReferenceFault where the reference raises, returns other tensors than declared, writes undeclared inputs,
        is not deterministic, is finite where its float64 self is not (or the reverse), or misses the op's own
        tolerance.
        """
        facts = self.facts(workload)
        if facts.tolerances is not None:
            return
        names = [name for name, _ in result_positions(workload)]
        builders: list[ToleranceBuilder | None] = []
        pairs: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        finite = True
        seeds = _seeds(workload)
        for number in range(seeds):
            values = sources.of(workload["inputs"]).draw()
            try:
                eager = [tensor.clone() for tensor in self.run("eager", workload, values)]
                self._untouched(workload, values)
                if number == 0:
                    self._deterministic(workload, values, eager)
                expected = [tensor.clone() for tensor in self.run("float64", workload, values)]
            except RunnerFault as fault:
                if fault.external:
                    raise
                raise ReferenceFault(fault.kind, str(fault), workload["id"], **fault.details) from fault
            if not builders:
                builders = [
                    ToleranceBuilder(one.dtype, own_tolerance(workload, name)) if one.is_floating_point() else None
                    for name, one in zip(names, eager, strict=True)
                ]
            for name, builder, one, wanted in zip(names, builders, eager, expected, strict=True):
                if builder is not None:
                    finite &= _all_finite(workload["id"], name, one, wanted)
                    builder.add(one, wanted)
            if self.math == "tf32":
                self._add_rounded(workload, values, builders, expected)
            if number == 0:
                pairs.append((eager, expected))
        facts.finite = finite
        facts.tolerances = [None if builder is None else builder.finish() for builder in builders]
        for eager, expected in pairs:
            self._passes_itself(workload, eager, expected)

    def _add_rounded(
        self,
        workload: ResolvedWorkload,
        values: Values,
        builders: Sequence[ToleranceBuilder | None],
        expected: Sequence[torch.Tensor],
    ) -> None:
        """Add the error of rounding the operands to TF32.

        The op allows it, and eager makes it where a library's heuristics choose it: for one shape and not for the next.
        """
        rounded = self.run("float64", workload, [compare.rounded_to_tf32(value) for value in values])
        for builder, one, wanted in zip(builders, rounded, expected, strict=True):
            if builder is not None:
                builder.add(one, wanted)

    def _untouched(self, workload: ResolvedWorkload, values: Values) -> None:
        if (fault := modified_input(self.runners["eager"], workload, 0, values)) is not None:
            message = f"run writes its input {fault[0]}, which the op does not declare as mutated"
            raise ReferenceFault(
                "input_modified", message, workload["id"], found=f"{fault[0]} changed", expected="unchanged inputs"
            )

    def _deterministic(self, workload: ResolvedWorkload, values: Values, first: Sequence[torch.Tensor]) -> None:
        names = [name for name, _ in result_positions(workload)]
        for name, one, other in zip(names, first, self.run("eager", workload, values, slot=1), strict=True):
            if compare.differs(one, other):
                message = f"run gives another {name} for the same inputs the second time"
                raise ReferenceFault(
                    "nondeterministic",
                    message,
                    workload["id"],
                    found="two different results",
                    expected="the same result",
                )

    def _passes_itself(
        self, workload: ResolvedWorkload, eager: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
    ) -> None:
        wanted = [wide if wide.is_floating_point() else own for wide, own in zip(expected, eager, strict=True)]
        compared = self.check(eager, wanted, self.limits(workload))
        for (name, _), comparison in zip(result_positions(workload), compared, strict=True):
            if not comparison.passed:
                place = f"{name}{comparison.index}"
                raise ReferenceFault(
                    "tolerance",
                    f"PyTorch eager itself misses the op's tolerance at {place}",
                    workload["id"],
                    found=comparison.found,
                    expected=comparison.expected,
                )


def modified_input(
    runner: RunnerHandle, workload: ResolvedWorkload, slot: int, values: Values
) -> tuple[str, list[int]] | None:
    """Name and index of the first input that a call changed without leave, or None."""
    for position, (item, value) in enumerate(zip(workload["inputs"], values, strict=True)):
        if value is None or item["mutated"]:
            continue
        found = runner.slots[slot].tensor(position)
        wanted = value if value.dtype == found.dtype else value.to(found.dtype)
        if (index := compare.first_difference(found, wanted)) is not None:
            return item["name"], index
    return None


def _seeds(workload: ResolvedWorkload) -> int:
    sizes = [spec.elements for spec in result_specs(workload)]
    sizes += [
        spec.elements for spec, item in zip(input_specs(workload), workload["inputs"], strict=True) if item["mutated"]
    ]
    smallest = max(1, min(sizes, default=1))
    return min(MOST_SEEDS, max(FEWEST_SEEDS, -(-ENOUGH_ELEMENTS // smallest)))


def _all_finite(workload: str, name: str, eager: torch.Tensor, expected: torch.Tensor) -> bool:
    """Check whether eager's result is finite everywhere.

    Raises ReferenceFault where float64 says otherwise, or where it is finite nowhere.
    """
    found = torch.isfinite(eager.to(torch.float32))
    wrong = found != torch.isfinite(expected.to(eager.dtype).to(torch.float32))
    unlike, finite, elements = int(wrong.sum()), int(found.sum()), eager.numel()
    if unlike:
        at = int(wrong.reshape(-1).to(torch.uint8).argmax())
        raise ReferenceFault(
            "non_finite",
            f"{unlike} elements of {name} are finite in {str(eager.dtype).removeprefix('torch.')} "
            "and not in float64, or the reverse",
            workload,
            found=float(eager.reshape(-1)[at]),
            expected=float(expected.reshape(-1)[at]),
        )
    if elements and not finite:
        raise ReferenceFault(
            "non_finite",
            f"no element of {name} is finite",
            workload,
            found=float(expected.reshape(-1)[0]),
            expected="finite values",
        )
    return finite == elements


def baseline_modes(op: JobOp) -> list[Mode]:
    """Return the baselines of an op as runner modes."""
    return cast("list[Mode]", list(op["baselines"]))
