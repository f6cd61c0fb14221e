"""The reference of an op in its runners: expected values in float64, tolerances, and the baselines that candidates are
timed against.

Runners of an op stay warm between jobs, because compiling the baselines takes seconds. Nothing of a candidate ever runs
in them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from warpsmith.kernels_db.job.documents import Generated, JobOp, ResolvedWorkload
from warpsmith.workers.judge.machine.buffers import TensorSpec, contiguous_strides, layout_bytes
from warpsmith.workers.judge.reference.baseline_store import OpStandings
from warpsmith.workers.judge.runner.faults import ContenderFault
from warpsmith.workers.judge.runner.runner_handle import Contender, Mode
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import Comparison, Tolerance, ToleranceBuilder
from warpsmith.workers.judge.values.inputs import InputSource, input_spec

COMPILE_S = 300.0
"""Longest first call of a compiled baseline: compiling and autotuning."""

FEWEST_SEEDS, MOST_SEEDS, ENOUGH_ELEMENTS = 3, 16, 256
"""Tolerances pool at least 3 seeds, and more where an output is so small that eager's error on 3 would be luck."""

FLOAT64_PATIENCE = 6
"""Times the call limit that the reference gets in float64, which libraries do not optimise for."""

KEEP_OPS, KEEP_S = {"cpu": 2, "cuda": 8}, 120.0
"""Ops whose runners stay warm: few where they share the cores and the memory with what is timed."""

LARGE_SLOT = 128 << 20
MOST_SLOTS = 24
GPU_SLOTS_BYTES = 4 << 30
"""Of a contender's slots on a GPU, where each is smaller than half of that."""

Values = Sequence["torch.Tensor | None"]
Start = Callable[[Mode], Contender]
"""Starts a runner of this op's reference in a mode."""


class ReferenceFault(Exception):  # noqa: N818 - named for what happened
    """The user's reference is at fault. `details` has kind, workload, expected and found."""

    def __init__(self, kind: str, message: str, workload: str, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.workload = workload
        self.details = details


def result_specs(workload: ResolvedWorkload) -> list[TensorSpec]:
    """The output buffers of a workload."""
    specs = []
    for item in workload["outputs"]:
        shape = tuple(item["shape"])
        specs.append(TensorSpec(item["name"], shape, contiguous_strides(shape), getattr(torch, item["dtype"])))
    return specs


def input_specs(workload: ResolvedWorkload) -> list[TensorSpec]:
    """The input buffers of a workload, scalars included."""
    return [input_spec(item) for item in workload["inputs"]]


def widened(spec: TensorSpec) -> TensorSpec:
    """The buffer that holds the same tensor for the float64 reference."""
    if spec.shape is None or not spec.dtype.is_floating_point:
        return spec
    return replace(spec, dtype=torch.float64, alignment=max(spec.alignment, torch.float64.itemsize))


def slots_for(mode: Mode, workload: ResolvedWorkload, device: torch.device) -> int:
    """Slots that a contender rotates through: fresh pointers for every call, fewer where they are large. On a GPU every
    call of a burst has its own.
    """
    if mode in ("float64", "generate"):
        return 1
    if device.type == "cuda":
        size = layout_bytes([*input_specs(workload), *result_specs(workload)])
        return min(MOST_SLOTS, max(2, GPU_SLOTS_BYTES // size))
    return 3 if layout_bytes([*input_specs(workload), *result_specs(workload)]) <= LARGE_SLOT else 2


def result_positions(workload: ResolvedWorkload) -> list[tuple[str, int]]:
    """Name and slot position of everything a call produces: outputs, then mutated inputs."""
    inputs = workload["inputs"]
    outputs = [(item["name"], len(inputs) + n) for n, item in enumerate(workload["outputs"])]
    return outputs + [(item["name"], n) for n, item in enumerate(inputs) if item["mutated"]]


def own_tolerance(workload: ResolvedWorkload, name: str) -> tuple[float, float] | None:
    """The op's own (rtol, atol) for an output; None where it is derived."""
    for item in workload["outputs"]:
        if item["name"] == name and item["tolerance"] is not None:
            return float(item["tolerance"].get("rtol", 0.0)), float(item["tolerance"].get("atol", 0.0))
    return None


def workload_key(workload: ResolvedWorkload) -> str:
    """Identity of a workload as the reference sees it."""
    return hashlib.sha256(json.dumps([workload["inputs"], workload["outputs"]], sort_keys=True).encode()).hexdigest()


@dataclass
class OpRunners:
    """The reference's runners for one op, with what was learnt of its workloads. Close it to end the runners."""

    start: Start
    call_s: float
    device: torch.device
    standings: OpStandings
    math: str = "ieee"
    runners: dict[Mode, Contender] = field(default_factory=dict)
    bound: dict[Mode, str] = field(default_factory=dict)
    compiled: set[tuple[Mode, str]] = field(default_factory=set)
    tolerances: dict[str, list[Tolerance | None]] = field(default_factory=dict)
    finite: dict[str, bool] = field(default_factory=dict)  # by workload: whether no declared input led beyond
    unsuited: dict[tuple[str, str], str] = field(default_factory=dict)  # by workload and input family: why
    unavailable: dict[tuple[Mode, str], str] = field(default_factory=dict)
    generated: dict[str, Generated] = field(default_factory=dict)  # by workload: the code of the `compile` baseline
    used_at: float = field(default_factory=time.monotonic)

    def on(self, mode: Mode, workload: ResolvedWorkload) -> Contender:
        """The runner of a mode with its slots bound to a workload, started where needed. Raises ContenderFault."""
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
            runner.bind(inputs, outputs, slots_for(mode, workload, self.device), beside)
            self.bound[mode] = key
        return runner

    def bound_to(self, workload: ResolvedWorkload) -> Contender | None:
        """A baseline that is bound to a workload, in whose slots others may run."""
        key = workload_key(workload)
        modes = [mode for mode, bound in self.bound.items() if bound == key and mode != "float64"]
        return self.runners[modes[0]] if modes else None

    def to_beat(self, workload: ResolvedWorkload, modes: list[Mode]) -> list[Mode]:
        """The one of `modes` that was fastest when all were timed together: a screen ranks, and is spared the
        others.
        """
        key = workload_key(workload)
        known = self.standings.find(key, modes)
        if known is None:
            return modes
        for mode in modes:
            if mode in known.unavailable:
                self.unavailable.setdefault((mode, key), known.unavailable[mode])
        return [mode for mode in modes if mode == known.fastest(modes)]

    def note(self, workload: ResolvedWorkload, wanted: list[Mode], median_us: dict[str, float]) -> None:
        """Note the medians of baselines that were timed together; `wanted` are all that the op names."""
        key = workload_key(workload)
        missing: dict[str, str] = {
            mode: self.unavailable[mode, key] for mode in wanted if (mode, key) in self.unavailable
        }
        if median_us.keys() | missing.keys() >= set(wanted):
            self.standings.keep(key, median_us, missing)
        else:
            for mode, median in median_us.items():
                self.standings.compare(key, mode, median)

    def drop(self, mode: Mode) -> None:
        """End one runner; the next use starts a fresh one."""
        self.bound.pop(mode, None)
        self.compiled = {entry for entry in self.compiled if entry[0] != mode}
        if (runner := self.runners.pop(mode, None)) is not None:
            runner.close()

    def drop_broken(self) -> None:
        """End the runners whose device context no longer answers, after something fell over on the device."""
        for mode in list(self.runners):
            try:
                self.runners[mode].ping()
            except ContenderFault:
                self.drop(mode)

    def unbind(self) -> None:
        """Free all buffers; the processes stay."""
        for mode in list(self.runners):
            self.bound.pop(mode, None)
            try:
                self.runners[mode].unbind()
            except ContenderFault:
                self.drop(mode)

    def close(self) -> None:
        """End all runners."""
        for mode in list(self.runners):
            self.drop(mode)

    def run(self, mode: Mode, workload: ResolvedWorkload, values: Values, slot: int = 0) -> list[torch.Tensor]:
        """Run a mode once on values; returns views of what it produced (outputs, then mutated inputs), valid until the
        slot's next use.
        """
        runner = self.on(mode, workload)
        runner.fill(slot, values)
        self.call(mode, workload, slot)
        runner.deliver()
        return [runner.slots[slot].tensor(position) for _, position in result_positions(workload)]

    def call(self, mode: Mode, workload: ResolvedWorkload, slot: int) -> int:
        """One call of a bound mode, in nanoseconds; the first of a compiled one compiles. Raises ContenderFault; the
        runner is then ended.
        """
        key = (mode, workload_key(workload))
        compiles = mode in ("compile", "max_autotune") and key not in self.compiled
        try:
            limit = COMPILE_S if compiles else self.call_s * (FLOAT64_PATIENCE if mode == "float64" else 1)
            spent = self.runners[mode].call(slot, limit)
        except ContenderFault:
            self.drop(mode)
            raise
        self.compiled.add(key)
        if compiles and mode == "compile" and (code := self.runners[mode].generated()) is not None:
            self.generated[key[1]] = code
        return spent

    def expected(self, workload: ResolvedWorkload, values: Values) -> list[torch.Tensor]:
        """Expected results for values: float64 for floating results, eager's own for integer ones. Fresh tensors."""
        results = [tensor.clone() for tensor in self.run("float64", workload, values)]
        if any(not tensor.is_floating_point() for tensor in results):
            own = self.run("eager", workload, values)
            results = [
                wide if wide.is_floating_point() else exact.clone() for wide, exact in zip(results, own, strict=True)
            ]
        return results

    def limits(self, workload: ResolvedWorkload) -> list[Tolerance | None]:
        """The tolerances of a workload's results, in the order of `result_positions`; None where they are exact.
        `learn` comes first.
        """
        return self.tolerances[workload_key(workload)]

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

    def learn(self, workload: ResolvedWorkload, source: Callable[[], InputSource]) -> None:
        """Check the reference on a workload and derive its tolerances; nothing to do the second time.

        Raises ReferenceFault where the reference raises, returns other tensors than declared, writes undeclared inputs,
        is not deterministic, is finite where its float64 self is not (or the reverse), or misses the op's own
        tolerance.
        """
        key = workload_key(workload)
        if key in self.tolerances:
            return
        names = [name for name, _ in result_positions(workload)]
        builders: list[ToleranceBuilder | None] = []
        pairs: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        finite = True
        seeds = _seeds(workload)
        for number in range(seeds):
            values = source().draw()
            try:
                eager = [tensor.clone() for tensor in self.run("eager", workload, values)]
                self._untouched(workload, values)
                if number == 0:
                    self._deterministic(workload, values, eager)
                expected = [tensor.clone() for tensor in self.run("float64", workload, values)]
            except ContenderFault as fault:
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
        self.finite[key] = finite
        self.tolerances[key] = [None if builder is None else builder.finish() for builder in builders]
        for eager, expected in pairs:
            self._passes_itself(workload, eager, expected)

    def _add_rounded(
        self,
        workload: ResolvedWorkload,
        values: Values,
        builders: Sequence[ToleranceBuilder | None],
        expected: Sequence[torch.Tensor],
    ) -> None:
        """Take in the error of rounding the operands to TF32, which the op allows and eager makes where a library's
        heuristics say so: for one shape and not for the next.
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
    runner: Contender, workload: ResolvedWorkload, slot: int, values: Values
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
    """Whether eager's result is finite everywhere. Raises ReferenceFault where float64 says otherwise, or it is
    nowhere.
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


class WarmOps:
    """The ops whose runners are kept: the last KEEP_OPS of a device, each for KEEP_S after its last job."""

    def __init__(self) -> None:
        self._ops: dict[str, OpRunners] = {}

    def of(self, op: JobOp, make: Callable[[], OpRunners]) -> OpRunners:
        """The runners of an op; the least recently used beyond KEEP_OPS are ended."""
        key = _warm_key(op)
        runners = self._ops.pop(key, None) or make()
        self._ops[key] = runners
        runners.used_at = time.monotonic()
        while len(self._ops) > KEEP_OPS[runners.device.type]:
            self._ops.pop(next(iter(self._ops))).close()
        return runners

    def drop_broken(self) -> None:
        """`OpRunners.drop_broken` of all."""
        for runners in self._ops.values():
            runners.drop_broken()

    def end_others(self, op: JobOp) -> None:
        """End the runners of every other op: their contexts hold memory that this one needs."""
        for key in [key for key in self._ops if key != _warm_key(op)]:
            self._ops.pop(key).close()

    def forget(self, runners: OpRunners) -> None:
        """End an op's runners now."""
        self._ops = {key: kept for key, kept in self._ops.items() if kept is not runners}
        runners.close()

    def end_idle(self) -> None:
        """End runners that were idle for KEEP_S."""
        for runners in [kept for kept in self._ops.values() if time.monotonic() - kept.used_at > KEEP_S]:
            self.forget(runners)

    def close(self) -> None:
        """End all."""
        for runners in list(self._ops.values()):
            self.forget(runners)


def _warm_key(op: JobOp) -> str:
    return json.dumps([op["digest"], op["reference"], op["math"]])


def baseline_modes(op: JobOp) -> list[Mode]:
    """The baselines of an op as runner modes."""
    return cast("list[Mode]", list(op["baselines"]))
