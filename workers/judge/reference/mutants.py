"""Deliberately wrong answers, like those that a lazy or broken kernel would leave behind.

They are made of tensors that the referee has. Each is made for one *scene*: the values of a question, PyTorch eager's
answer to them, and those of another draw. None needs code other than the op's own reference, run in eager on other
inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload
from warpsmith.workers.judge.values.families import elements
from warpsmith.workers.judge.values.steps import alike
from warpsmith.workers.judge.values.workload_specs import Values, result_positions, result_spec

TAIL = 64
"""A dropped tail is the last element in so many, and at least one."""

REDRAWS = 16
"""Further draws that are taken where another draw shows nothing.

A generator may have few variants, and of four two may be alike: so often in a row a fair coin falls on one side in
15 of a million.
"""

MOST_ASKED, LEAST_ASKED, MOST_FILLED = 64, 8, 1 << 31
"""Inputs of which an answer each is not read.

An op has at least and at most so many of these answers, where it has so many inputs, and between the two as many as
fill so many elements with the inputs of their calls: a deep network has hundreds of weights, and they are large. Which
are asked is drawn, by the op's inputs alone. Of pairs of which one is read for the other, a warning alone, there are a
quarter of them.
"""

SHARE_OFF = 100
"""One element in so many is wrong in the answer that is nearly right."""

NARROWER = {52: 23, 23: 10, 10: 7, 7: 3, 3: 2, 2: 1}
"""Bits of the fraction that a shortcut would keep.

Of float64, float32, TF32 and float16, bfloat16, float8.
"""

Results = list[torch.Tensor]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Scene:
    """The material of wrong answers.

    `eager` runs the reference on values; None where it fails on them. `draw_one` draws new values of one input, by
    position; None where there are none.
    """

    workload: ResolvedWorkload
    values: Values
    right: Results
    other_values: Values
    other: Results
    eager: Callable[[Values], Results | None]
    draw_one: Callable[[int], torch.Tensor | None] = lambda _: None


@dataclass(frozen=True)
class Mutant:
    """A kind of wrong answer.

    `blames` is the part of the spec to look at, `remedy` the change to make there.

    `make` returns None where the kind does not apply. `right_is_wrong`: an op for which this is always the right answer
    cannot tell a kernel that computes from one that does not; otherwise such an op has simply no such mutant. `needed`:
    an op that cannot tell it is refused, else its author is told.
    """

    name: str
    blames: str
    remedy: str
    make: Callable[[Scene], Results | None]
    right_is_wrong: bool = False
    needed: bool = True
    lower_precision: bool = False


def mutants(workload: ResolvedWorkload, math: str, rng: random.Random) -> list[Mutant]:
    """Return the wrong answers for an op, of which `workload` is one; `rng` draws which where there are many."""
    names = [name for name, _ in result_positions(workload)]
    inputs = [item for item in workload["inputs"] if item["shape"] is not None]
    answers = [
        mutant
        for position, name in enumerate(names)
        for mutant in _of_result(position, name, f" as {name}" if len(names) > 1 else "", workload, math)
    ]
    varied = [item for item in inputs if item["dist"].get("kind") != "constant"]
    asked = max(LEAST_ASKED, min(MOST_ASKED, MOST_FILLED // max(1, elements(workload))))
    answers += [_unread(item) for item in _some(varied, asked, rng)]
    answers += [_rounded_inputs(workload, math)]
    pairs = [(one, other) for one in inputs for other in inputs if _interchangeable(one, other)]
    answers += [_twice(one, other) for one, other in _some(pairs, max(LEAST_ASKED, asked // 4), rng)]
    return answers


def _some(items: list[Item], most: int, rng: random.Random) -> list[Item]:
    """Return at most so many, drawn at random, in order."""
    chosen = sorted(rng.sample(range(len(items)), min(most, len(items))))
    return [items[number] for number in chosen]


def _of_result(position: int, name: str, place: str, workload: ResolvedWorkload, math: str) -> Iterator[Mutant]:
    """Wrong answers that touch one result and leave the others right."""
    output = f"outputs.{name}"

    def in_place(change: Callable[[Scene, torch.Tensor], torch.Tensor | None], scene: Scene) -> Results | None:
        wrong = change(scene, scene.right[position])
        return None if wrong is None else [*scene.right[:position], wrong, *scene.right[position + 1 :]]

    def of(change: Callable[[Scene, torch.Tensor], torch.Tensor | None]) -> Callable[[Scene], Results | None]:
        return partial(in_place, change)

    larger = "inputs whose results are larger than the tolerance, or a smaller tolerance"
    yield Mutant(f"zeros{place}", output, larger, of(_zeros), right_is_wrong=True)
    yield Mutant(
        f"constant{place}",
        output,
        "results that vary more than the tolerance allows",
        of(_constant),
        right_is_wrong=True,
    )
    yield Mutant(
        f"stale{place}",
        output,
        "a result that depends on the inputs by more than the tolerance",
        of(lambda scene, _: scene.other[position]),
        right_is_wrong=True,
    )
    yield Mutant(f"tail of zeros{place}", output, larger, of(lambda _, right: _tail(right, right.new_zeros(()))))
    yield Mutant(
        f"stale tail{place}",
        output,
        "a last part of the result that depends on the inputs by more than the tolerance",
        of(lambda scene, right: _tail(right, scene.other[position])),
    )
    yield Mutant(
        f"one element in {SHARE_OFF} off{place}",
        output,
        "a tolerance that lets no element go",
        of(lambda scene, right: _some_off(right, scene.other[position])),
    )
    yield Mutant(
        f"flipped infinities{place}", output, "a check that tells inf from -inf", of(lambda _, right: _flipped(right))
    )
    bits = _narrower(workload, position, math)
    if bits is not None:
        remedy = "a tolerance below the roundoff of the output's dtype, or an output of a narrower dtype"
        change = of(lambda _, right: rounded(right, bits))
        yield Mutant(f"lower precision{place}", output, remedy, change, lower_precision=True)
    for at, item in enumerate(workload["inputs"]):
        if item["shape"] == list(result_spec(workload, position).shape or ()):
            remedy = f"inputs for which {name} differs from {item['name']} by more than the tolerance"
            yield Mutant(f"{item['name']} passed through{place}", output, remedy, of(partial(_passed, at)))


def _zeros(_: Scene, right: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(right)


def _constant(_: Scene, right: torch.Tensor) -> torch.Tensor | None:
    """Return the mean of the finite elements everywhere."""
    if right.numel() < 2:
        return None
    wide = right.to(torch.float64)
    finite = torch.isfinite(wide)
    mean = torch.where(finite, wide, 0.0).sum() / finite.sum().clamp_min(1)
    return (mean if right.is_floating_point() else mean.round()).to(right.dtype).expand(right.shape).contiguous()


def _tail(right: torch.Tensor, filling: torch.Tensor) -> torch.Tensor:
    wrong = right.clone().reshape(-1)
    start = wrong.numel() - max(1, wrong.numel() // TAIL)
    wrong[start:] = filling.expand(right.shape).reshape(-1)[start:]
    return wrong.view(right.shape)


def _some_off(right: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return elements of another call at places spread over the result."""
    wrong = right.clone().reshape(-1)
    start = min(wrong.numel() - 1, SHARE_OFF // 2)
    wrong[start::SHARE_OFF] = other.reshape(-1)[start::SHARE_OFF]
    return wrong.view(right.shape)


def _flipped(right: torch.Tensor) -> torch.Tensor | None:
    wide = right.to(torch.float64)  # torch looks for infinities in no 8-bit dtype
    infinite = torch.isinf(wide)
    if not right.is_floating_point() or not bool(infinite.any()):
        return None
    return torch.where(infinite, -wide, wide).to(right.dtype)


def _passed(at: int, scene: Scene, right: torch.Tensor) -> torch.Tensor | None:
    value = scene.values[at]
    return None if value is None or value.shape != right.shape else value.to(right.dtype)


def _unread(item: ResolvedInput) -> Mutant:
    """Make the mutant of a kernel that does not read one input: the answer to other values.

    An input that is the same in every draw (a causal mask, a table) has no other values, and the mutant does not apply.
    """

    def make(scene: Scene) -> Results | None:
        at = next(n for n, one in enumerate(scene.workload["inputs"]) if one["name"] == item["name"])
        found, value, other = None, scene.values[at], scene.other_values[at]
        for _ in range(1 + REDRAWS):
            if value is None or other is None:
                break
            if not same(value, other):
                found = scene.eager([other if n == at else one for n, one in enumerate(scene.values)])
                if found is None or not all(same(one, right) for one, right in zip(found, scene.right, strict=True)):
                    break
            other = scene.draw_one(at)
        return found

    name = item["name"]
    remedy = f"no input {name}, or values of it that show in the results by more than the tolerance"
    return Mutant(f"{name} not read", f"inputs.{name}", remedy, make, right_is_wrong=True)


def _twice(one: ResolvedInput, other: ResolvedInput) -> Mutant:
    def make(scene: Scene) -> Results | None:
        names = [item["name"] for item in scene.workload["inputs"]]
        first, second = names.index(one["name"]), names.index(other["name"])
        values = scene.values[first], scene.values[second]
        if values[0] is None or values[1] is None or values[0].shape != values[1].shape:
            return None
        return scene.eager([scene.values[first] if n == second else value for n, value in enumerate(scene.values)])

    remedy = f"inputs for which it matters that {other['name']} is not {one['name']}"
    return Mutant(f"{one['name']} read as {other['name']}", f"inputs.{other['name']}", remedy, make, needed=False)


def _interchangeable(one: ResolvedInput, other: ResolvedInput) -> bool:
    alike = all(one[key] == other[key] for key in ("shape", "dtype"))
    return one["name"] != other["name"] and alike and one["dist"].get("kind") == other["dist"].get("kind")


def _rounded_inputs(workload: ResolvedWorkload, math: str) -> Mutant:
    """Make the mutant of a shortcut in lower precision: the reference on rounded inputs."""
    bits = min(
        (found for n, _ in enumerate(result_positions(workload)) if (found := _narrower(workload, n, math))), default=0
    )

    def make(scene: Scene) -> Results | None:
        if not bits:
            return None
        return scene.eager(
            [
                rounded(value, bits) if value is not None and value.is_floating_point() else value
                for value in scene.values
            ]
        )

    remedy = "tolerances below that of lower precision"
    return Mutant("inputs in lower precision", "outputs", remedy, make, lower_precision=True)


def _narrower(workload: ResolvedWorkload, position: int, math: str) -> int | None:
    """Return the bits of the fraction to which a shortcut would round.

    None for integers and dtypes that cannot be narrower.

    The narrowest of the floating inputs and the result says how much precision is asked at most.
    """
    dtypes = [result_spec(workload, position).dtype]
    if not dtypes[0].is_floating_point:
        return None
    dtypes += [getattr(torch, item["dtype"]) for item in workload["inputs"] if item["shape"] is not None]
    bits = min(_fraction_bits(dtype) for dtype in dtypes if dtype.is_floating_point)
    narrower = NARROWER.get(bits)
    return NARROWER[10] if narrower == 10 and math == "tf32" else narrower


def _fraction_bits(dtype: torch.dtype) -> int:
    return round(-torch.log2(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64)).item())


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Check whether two tensors of one shape hold the same; NaN is like NaN."""
    return one is other or bool(alike(one, other).all())


def rounded(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Round `values` to `bits` bits of the fraction, the exponent's range unchanged."""
    fraction, exponent = torch.frexp(values.to(torch.float64))
    return torch.ldexp(torch.round(fraction * 2.0 ** (bits + 1)), exponent - (bits + 1)).to(values.dtype)
