"""A package's op in compiled graphs: what its reference looks like there, and the call that takes its place."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from . import inductor
from .kernel import Kernel, NotUsable
from .match import Match, Pattern
from .patterns import Kept, Lead

SOME = (3, 5, 7)
"""Sizes of a lead in traced references: what a graph looks like depends on which are 1, and on nothing else."""
_MARKS = tuple(0.013671875 + number / 8192 for number in range(8))
"""In place of an op's float arguments while its reference is traced: constants that no reference has of its own."""

Shapes = tuple[tuple[int, ...], ...]
Ones = tuple[tuple[bool, ...], ...]
"""Which axes of each of an op's tensors have one element, behind the leading axis where they have it."""
Number = float | None
"""Of an op in a place; None: the one that it was verified with."""


class Rows(ABC):
    """How an op takes tensors of a model: by shapes of named axes, the leading one of which may be several there."""

    def __init__(self, shapes: Sequence[Sequence[Any]], variable: Collection[str]) -> None:
        """Take the shapes of the op's tensors, and its axes that vary."""
        self._shapes = [tuple(shape) for shape in shapes]
        first = self._shapes[0][0] if self._shapes and self._shapes[0] else None
        elsewhere = {axis for shape in self._shapes for axis in shape[1:]}
        self.leading: str | None = first if first in variable and first not in elsewhere else None
        """The axis that may be several in a model: the first of the first tensor, and nowhere but first."""
        self._axes: dict[tuple[Any, ...], dict[str, int] | str] = {}

    @abstractmethod
    def pattern(
        self,
        lead: Lead,
        device: torch.device,
        shapes: Shapes | None = None,
        integers: Sequence[int] | None = None,
    ) -> Pattern | None:
        """Return the reference's graph for a lead; None where it has none there.

        shapes: of the op's tensors, behind the leading axis where they have it; integers: those among its numbers;
        None: of its plainest workload (`to_trace`).
        """

    @property
    def others(self) -> Sequence[tuple[Shapes, Sequence[int]]]:
        """What else of the op's workloads is traced (`to_trace`): shapes and integers as `pattern` takes them."""
        return ()

    def patterns(
        self, lead: Lead, device: torch.device, may_stand: Callable[[Ones], bool]
    ) -> list[tuple[Ones | None, Pattern]]:
        """Return the reference's graphs for a lead: of its plainest workload, whose places may have any sizes, and of
        others, each with those that its places must have: a sum of one element may be missing in its graph.

        may_stand: whether there may be such places, of which one is asked before its reference is traced.
        """
        found: list[tuple[Ones | None, Pattern | None]] = [(None, self.pattern(lead, device))]
        for shapes, integers in self.others:
            if may_stand(where := ones(shapes)):
                found.append((where, self.pattern(lead, device, shapes, integers)))
        return [(where, pattern) for where, pattern in found if pattern is not None]

    @abstractmethod
    def axes(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Number] = ()) -> dict[str, int] | str:
        """Return the axes of a call with flat tensors and these numbers, or what does not fit."""

    def integers_at(self, found: Match) -> tuple[int, ...] | None:
        """Return the integers among the op's numbers in a place; None where sizes vary that tell them."""
        return ()

    def numbers_at(self, found: Match) -> tuple[Number, ...]:
        """Return the op's numbers in a place whose integers are known."""
        return found.numbers

    def axes_of(
        self, laid: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Number] = ()
    ) -> dict[str, int] | str:
        """Return the axes of a call with tensors of a model that lie so, or what does not fit; asked once for each."""
        key = (*laid, *(number for number in numbers if type(number) is int))
        if key not in self._axes:
            try:
                self._axes[key] = self.axes(self.flat(tensors), numbers)
            except RuntimeError:
                self._axes[key] = "its inputs do not flatten to rows"
        return self._axes[key]

    def to_trace(self, workloads: Sequence[Sequence[Sequence[int]]]) -> list[int]:
        """Return which workloads to trace, by the shapes of their tensors: the plainest first.

        An axis of one element looks otherwise in a graph than one of several, which a model's commonly have. So it is
        the smallest of each kind, by which axes those are behind the leading one, which has any size in its place; the
        plainest has fewest.
        """
        kinds = [ones(self.behind_leading(shapes)) for shapes in workloads]
        sizes = [
            (sum(map(sum, kind)), sum(map(math.prod, shapes))) for kind, shapes in zip(kinds, workloads, strict=True)
        ]
        found: dict[Ones, int] = {}
        for at in sorted(range(len(workloads)), key=lambda at: sizes[at]):
            found.setdefault(kinds[at], at)
        return list(found.values())

    def behind_leading(self, shapes: Sequence[Sequence[int]]) -> Shapes:
        """Return shapes of the op's own tensors without the leading axis."""
        return tuple(tuple(shape)[self.rows(at) :] for at, shape in enumerate(shapes))

    @property
    def behind(self) -> int:
        """The number of axes of the op's first tensor behind the leading one."""
        return self.rank(0) - 1

    def rank(self, position: int) -> int:
        """Return how many axes the op's own tensor at this position has."""
        return len(self._shapes[position])

    def rows(self, position: int) -> bool:
        """Return whether the tensor at this position begins with the leading axis."""
        return self.leading is not None and self._shapes[position][:1] == (self.leading,)

    def flat(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors as the op takes them: those that have rows with one leading axis."""
        return [
            tensor.reshape(-1, *tensor.shape[tensor.dim() - self.rank(at) + 1 :]) if self.rows(at) else tensor
            for at, tensor in enumerate(tensors)
        ]

    def behind_rows(self, tensors: Sequence[torch.Tensor]) -> Shapes:
        """Return the shapes of tensors of a model, without the axes that are the leading one of the op."""
        return tuple(
            tuple(tensor.shape[tensor.dim() - self.rank(at) + 1 :] if self.rows(at) else tensor.shape)
            for at, tensor in enumerate(tensors)
        )

    def lead(self, tensor: torch.Tensor) -> Lead:
        """Return what stands for the leading axis in the op's first tensor."""
        return tuple(tensor.shape[: tensor.dim() - self.behind])


class Served(Rows):
    """A package's op: what its reference looks like in a graph of Inductor's, and the call that takes its place."""

    def __init__(self, kernel: Kernel) -> None:
        """Raises NotUsable where it has more float arguments than there are marks.

        An integer argument has no mark: a reference that takes it for one, as the k of `topk`, is none with another.
        Where a result has as many elements along an axis in every workload, a place tells it; otherwise it is the one
        that the op was verified with first.
        """
        spec = kernel.spec
        self._bind_axes, self._run = spec.bind_axes, kernel.reference.run
        self._reference = Path(inspect.getfile(kernel.reference)).read_bytes()
        self.kernel = kernel
        self.name, self.op = kernel.name, kernel.op
        self.mutated = kernel.mutated
        self.devices: tuple[str, ...] = spec.DEVICES
        self.names = [each["name"] for each in spec.PARAMETERS if each["rank"] is not None]
        shapes = [each["shape"] for each in spec.PARAMETERS if each["rank"] is not None]
        super().__init__(shapes, spec.VARIABLE_AXES)
        self._whole = kernel.whole
        self._told = {at: _told(kernel, at) for at, whole in enumerate(self._whole) if whole}
        self._patterns: dict[tuple[str, str, Shapes | None, tuple[int, ...]], Kept] = {}
        floats = self._whole.count(False)
        if floats > len(_MARKS):
            raise NotUsable(f"{self.name}: {self.op} has {floats} numbers, expected at most {len(_MARKS)}")

    @property
    def call(self) -> torch._ops.OpOverload:
        """The call that takes a place in a graph."""
        return self.kernel.call

    def axes(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Number] = ()) -> dict[str, int] | str:
        """Return the axes of a call with flat tensors and these numbers, or what does not fit."""
        found: dict[str, int] | str = self._bind_axes(*self.kernel.arguments(tensors, numbers))
        return found

    def integers_at(self, found: Match) -> tuple[int, ...] | None:
        """Return the integers among the op's numbers in a place; None where sizes vary that tell them."""
        values: list[int] = []
        for at, told in self._told.items():
            if told is None:
                values.append(self.kernel.number(at))
                continue
            output, axis = told
            size = found.outputs[output].meta["val"].shape[axis]
            if isinstance(size, torch.SymInt):
                return None
            values.append(int(size))
        return tuple(values)

    def numbers_at(self, found: Match) -> tuple[Number, ...]:
        """Return the op's numbers in a place whose integers are known."""
        integers = iter(self.integers_at(found) or ())
        floats = iter(found.numbers)
        return tuple(next(integers, None) if whole else next(floats, None) for whole in self._whole)

    def pattern(
        self,
        lead: Lead,
        device: torch.device,
        shapes: Shapes | None = None,
        integers: Sequence[int] | None = None,
    ) -> Pattern | None:
        """Return the reference's graph for a lead; None where it has none there.

        shapes: of the op's tensors, behind the leading axis where they have it; integers: those among its numbers;
        None: of its plainest workload, with a lead each size of which is 1 or of SOME.
        """
        own = tuple(self._own_integers if integers is None else integers)
        known = device.type, inductor.configuration(), shapes, own  # another mode of Inductor's may decompose otherwise
        numbers = self._marked(own)
        kept = self._patterns.get(known)
        if kept is None:
            kept = self._patterns[known] = Kept.of(self._facts(self._samples(shapes), numbers, device))
        if lead not in kept:
            samples = self._samples(shapes)
            try:
                kept.add(lead, self._traced(samples, numbers, lead, device))
            except Exception:  # noqa: BLE001 - a reference of the user's: it may not take this rank, and raise anything
                kept.add(lead, None)
        return kept[lead]

    def untraceable(self, lead: Lead, device: torch.device) -> str:
        """Return why the reference has no graph for a lead, in one line; empty where it has one."""
        try:
            self._traced(self._samples(None), self._marked(self._own_integers), lead, device)
        except Exception as error:  # noqa: BLE001 - as above
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return ""

    def _samples(self, shapes: Shapes | None) -> list[tuple[Sequence[int], str]]:
        """Return the shape of each of the op's tensors, one of rows among them where it has the leading axis, and its
        dtype.
        """
        if shapes is None:
            return [(sample["shape"], sample["dtype"]) for sample in self.samples]
        own = ([1, *shape] if self.rows(at) else list(shape) for at, shape in enumerate(shapes))
        return [(shape, sample["dtype"]) for shape, sample in zip(own, self.samples, strict=True)]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The tensors of the plainest verified workload (`to_trace`): `shape`, `dtype` and more of each."""
        return _tensors(self._traced_workloads[0])

    @functools.cached_property
    def others(self) -> Sequence[tuple[Shapes, Sequence[int]]]:
        """See `Rows`."""
        return [(self.behind_leading(_shapes(items)), self._integers_of(items)) for items in self._traced_workloads[1:]]

    @functools.cached_property
    def _traced_workloads(self) -> list[list[dict[str, Any]]]:
        workloads = self.kernel.workloads
        return [workloads[at] for at in self.to_trace([_shapes(items) for items in workloads])]

    @functools.cached_property
    def _own_integers(self) -> list[int]:
        return self._integers_of(self._traced_workloads[0])

    def _integers_of(self, workload: list[dict[str, Any]]) -> list[int]:
        numbers = self.kernel.numbers(workload)
        return [numbers[at] if told is not None else self.kernel.number(at) for at, told in self._told.items()]

    def _marked(self, integers: Sequence[int]) -> list[float]:
        """Return the numbers that the reference is traced with: these integers, and marks."""
        whole, marks = iter(integers), iter(_MARKS)
        return [next(whole) if each else next(marks) for each in self._whole]

    def _facts(
        self, samples: Sequence[tuple[Sequence[int], str]], numbers: Sequence[float], device: torch.device
    ) -> list[Any]:
        """Return all that decides what the reference looks like in a graph, but for the lead."""
        each = [(shape, dtype, self.rows(at)) for at, (shape, dtype) in enumerate(samples)]
        given = self.kernel.arguments(["tensor"] * len(samples), numbers)
        return [device.type, self._reference, each, given, self.mutated, inductor.configuration()]

    def _traced(
        self,
        samples: Sequence[tuple[Sequence[int], str]],
        numbers: Sequence[float],
        lead: Lead,
        device: torch.device,
    ) -> Pattern:
        with inductor.without_memory():
            tensors = [
                torch.empty(
                    (*lead, *shape[1:]) if self.rows(position) else shape,
                    dtype=getattr(torch, dtype),
                    device=device,
                )
                for position, (shape, dtype) in enumerate(samples)
            ]

        def reference(*given: torch.Tensor) -> Any:
            return self._run(*self.kernel.arguments(given, numbers))

        marks = _MARKS[: self._whole.count(False)]
        with inductor.unheard(), inductor.phase("references"):
            return Pattern.of(inductor.operators(reference, tensors), marks, self.mutated)


def ones(shapes: Shapes) -> Ones:
    """Return which axes have one element."""
    return tuple(tuple(size == 1 for size in shape) for shape in shapes)


def _tensors(inputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in inputs if item["shape"] is not None]


def _shapes(inputs: Sequence[dict[str, Any]]) -> list[Sequence[int]]:
    return [item["shape"] for item in _tensors(inputs)]


def _told(kernel: Kernel, at: int) -> tuple[int, int] | None:
    """Return the output and its axis, counted from the last, that has as many elements as this number says.

    In every workload, of two sizes at least: one alone may be the same by chance. None where no output has, and for a
    truth value.
    """
    workloads = [(kernel.numbers(inputs)[at], kernel.output_shapes(inputs)) for inputs in kernel.workloads]
    if len({number for number, _ in workloads}) < 2 or any(type(number) is not int for number, _ in workloads):
        return None
    for output, shape in enumerate(workloads[0][1]):
        for axis in range(-len(shape), 0):
            if all(len(shapes) > output and shapes[output][axis] == number for number, shapes in workloads):
                return output, axis
    return None
