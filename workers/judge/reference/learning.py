"""Learn a workload: check the op's reference on it, and derive how results are compared.

A float64 result that eager computes in float64 has no error of eager's to start from: the float64 reference is the
same computation. And eager sums 16-bit values in float32, which no kernel has to. So the tolerances of both are at
least what moving the inputs by a few units of their roundoff does (`moved_inputs`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from warpsmith.kernels_db.job.documents import ResolvedIndices, ResolvedWorkload
from warpsmith.kernels_db.job.float64 import rounded_to_tf32
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.indices import Indices, find_indices, leaves_order_open, sharpened
from warpsmith.workers.judge.reference.moved_inputs import moved, noise_step, with_noise
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import Tolerance, ToleranceBuilder
from warpsmith.workers.judge.values.inputs import InputSources
from warpsmith.workers.judge.values.workload_specs import (
    Values,
    input_specs,
    is_exact,
    own_tolerance,
    result_positions,
    result_specs,
)

FEWEST_SEEDS, MOST_SEEDS, ENOUGH_ELEMENTS = 3, 16, 256
"""How many seeds tolerances pool: at least 3, and more for a small output.

On a small output eager's error on 3 seeds would be luck.
"""


class ReferenceFault(Exception):  # noqa: N818 - named for what happened
    """The user's reference is at fault. `details` has kind, workload, expected and found."""

    def __init__(self, kind: str, message: str, workload: str, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.workload = workload
        self.details = details


@dataclass
class _Lesson:
    """What several seeds tell of the results: eager's errors, and what moved inputs do, by the share they move."""

    builders: list[ToleranceBuilder | None]
    noise: dict[float, dict[int, ToleranceBuilder]] = field(default_factory=dict)

    def finish(self) -> list[Tolerance | None]:
        """Return the tolerances."""
        return [None if builder is None else self._finished(at, builder) for at, builder in enumerate(self.builders)]

    def _finished(self, at: int, builder: ToleranceBuilder) -> Tolerance:
        found = builder.finish()
        for step, moved_results in self.noise.items():
            # A float64 result whose error is larger is computed in less than float64, and eager's error says how right.
            if at in moved_results and (builder.dtype != torch.float64 or found.eager_l2 < step):
                found = with_noise(found, moved_results[at].finish(), builder.dtype, builder.elements)
        return found


def learn(runners: OpRunners, workload: ResolvedWorkload, sources: InputSources) -> None:
    """Check the reference on a workload and derive how its results are compared, the first time only.

    Raises ReferenceFault where the reference raises, returns other tensors than declared, writes undeclared inputs, is
    not deterministic, is finite where its float64 self is not (or the reverse), or misses the op's own tolerance.
    """
    facts = runners.facts(workload)
    if facts.tolerances is not None:
        return
    names = [name for name, _ in result_positions(workload)]
    lesson, finite = _Lesson([]), True
    first: tuple[Values, list[torch.Tensor], list[torch.Tensor]] | None = None
    for number in range(_seeds(workload)):
        values = sources.of(workload["inputs"]).draw()
        try:
            eager = [tensor.clone() for tensor in runners.run("eager", workload, values)]
            _refuse_written_input(runners, workload, values)
            if number == 0:
                _refuse_nondeterminism(runners, workload, values, eager)
            expected = [tensor.clone() for tensor in runners.run("float64", workload, values)]
        except RunnerFault as fault:
            if fault.external:
                raise
            raise ReferenceFault(fault.kind, str(fault), workload["id"], **fault.details) from fault
        if first is None:
            first = values, eager, expected
            lesson = _new_lesson(workload, eager)
        for name, builder, one, wanted in zip(names, lesson.builders, eager, expected, strict=True):
            if builder is not None:
                finite &= _all_finite(workload["id"], name, one, wanted)
                if not finite and (share := float(one.to(torch.float32).isnan().to(torch.float32).mean())):
                    facts.nan[name] = max(share, facts.nan.get(name, 0.0))
                builder.add(one, wanted)
        _add_noise(runners, workload, values, lesson, expected)
        if runners.math == "tf32":
            _add_rounded(runners, workload, values, lesson.builders, expected)
    assert first is not None
    facts.finite = finite
    facts.tolerances = lesson.finish()
    _pass_itself(runners, workload, first[1], first[2])
    facts.indices = _indices(runners, workload, first[0], first[2])


def _new_lesson(workload: ResolvedWorkload, eager: Sequence[torch.Tensor]) -> _Lesson:
    names = [name for name, _ in result_positions(workload)]
    owns = [own_tolerance(workload, name) for name in names]
    builders = [
        ToleranceBuilder(one.dtype, own) if one.is_floating_point() else None
        for own, one in zip(owns, eager, strict=True)
    ]
    lesson = _Lesson(builders)
    for at, (one, own) in enumerate(zip(eager, owns, strict=True)):
        if own is None and (step := noise_step(workload, at)) is not None:
            lesson.noise.setdefault(step, {})[at] = ToleranceBuilder(one.dtype)
    return lesson


def _add_noise(
    runners: OpRunners, workload: ResolvedWorkload, values: Values, lesson: _Lesson, expected: Sequence[torch.Tensor]
) -> None:
    """Add what moving the inputs does to the results."""
    rng = random.Random(0)  # noqa: S311 - the values are secret, which way they move need not be
    for step, builders in lesson.noise.items():
        drifts = any(builder.dtype == torch.float64 for builder in builders.values())  # as one long chain does
        for together in (False, True) if drifts else (False,):
            try:
                results = runners.run("float64", workload, moved(values, step, rng, together=together))
            except RunnerFault as fault:
                if fault.external:
                    raise
                continue  # the reference refuses values beside the declared ones, which is no fault of it
            for at, builder in builders.items():
                builder.add(results[at], expected[at])


def _add_rounded(
    runners: OpRunners,
    workload: ResolvedWorkload,
    values: Values,
    builders: Sequence[ToleranceBuilder | None],
    expected: Sequence[torch.Tensor],
) -> None:
    """Add the error of rounding the operands to TF32.

    The op allows it, and eager makes it where a library's heuristics choose it: for one shape and not for the next.
    """
    rounded = runners.run("float64", workload, [rounded_to_tf32(value) for value in values])
    for builder, one, wanted in zip(builders, rounded, expected, strict=True):
        if builder is not None:
            builder.add(one, wanted)


def _indices(
    runners: OpRunners, workload: ResolvedWorkload, values: Values, expected: Sequence[torch.Tensor]
) -> dict[int, Indices | None]:
    """Find which outputs hold indices into an input, as the op says or as the reference shows."""
    found: dict[int, Indices | None] = {}
    rng = random.Random(0)  # noqa: S311 - the values are secret, how they are reordered need not be
    opened = leaves_order_open(runners.reference)
    for at, output in enumerate(workload["outputs"]):
        said = output.get("indices")
        if expected[at].is_floating_point() or (said is None and is_exact(workload, at)):
            continue
        any_order = opened if said is None else said["ties"] == "any"

        def run(mode: str, given: Values, at: int = at) -> torch.Tensor:
            return runners.run(mode, workload, given)[at].clone()

        try:
            if said is not None and said.get("of") is not None:
                found[at] = sharpened(run, _said(workload, said, at), values, rng)
            else:
                shown = find_indices(run, values, expected[at], rng, any_order=any_order)
                if shown is not None or (said is not None and not any_order):
                    found[at] = shown
        except RunnerFault as fault:
            if fault.external:
                raise
            # the reference refuses other values than its own: nothing is certain
    return found


def _said(workload: ResolvedWorkload, said: ResolvedIndices, at: int) -> Indices:
    """Return the indices that the op's check describes."""
    position = next(n for n, item in enumerate(workload["inputs"]) if item["name"] == said["of"])
    shape, result = workload["inputs"][position]["shape"], workload["outputs"][at]["shape"]
    assert shape is not None
    axis = said["axis"] % len(shape)
    rest = shape[:axis] + shape[axis + 1 :]
    kept = len(result) == len(shape) and result[:axis] + result[axis + 1 :] == rest
    return Indices(position, axis, kept or result == rest, kept, said["ties"] == "any")


def _refuse_written_input(runners: OpRunners, workload: ResolvedWorkload, values: Values) -> None:
    if (fault := runners.untouched(workload, values)) is not None:
        message = f"run writes its input {fault[0]}, which the op does not declare as mutated"
        raise ReferenceFault(
            "input_modified", message, workload["id"], found=f"{fault[0]} changed", expected="unchanged inputs"
        )


def _refuse_nondeterminism(
    runners: OpRunners, workload: ResolvedWorkload, values: Values, first: Sequence[torch.Tensor]
) -> None:
    names = [name for name, _ in result_positions(workload)]
    opened = leaves_order_open(runners.reference)  # PyTorch's own topk may take equals in another order each time
    for name, one, other in zip(names, first, runners.run("eager", workload, values, slot=1), strict=True):
        if compare.differs(one, other) and (one.is_floating_point() or not opened):
            message = f"run gives another {name} for the same inputs the second time"
            raise ReferenceFault(
                "nondeterministic",
                message,
                workload["id"],
                found="two different results",
                expected="the same result",
            )


def _pass_itself(
    runners: OpRunners, workload: ResolvedWorkload, eager: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> None:
    wanted = [wide if wide.is_floating_point() else own for wide, own in zip(expected, eager, strict=True)]
    compared = runners.check(eager, wanted, runners.limits(workload))
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
