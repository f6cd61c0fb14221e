"""The shapes at which an honest kernel must be right, which are those at which an export serves it.

Every axis between the smallest and the largest size that the workloads give it; a multiple of the number that divides
all of them; equal, ordered and divisible where two axes are so in all workloads; within the op's constraints.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from warpsmith.kernels_db.job.axis_relations import Relation, find_relations, holds
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.binding import bind_axes
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.schema import Op, Workload
from warpsmith.kernels_db.spec.tensors import VarAxis

Bind = Callable[[Workload], ResolvedWorkload]
Sizes = Mapping[str, int]


@dataclass
class AdmittedShapes:
    """The shapes of a job, and which others may join them.

    axes: the declared sizes of each axis of the workloads, rising. known: the axes of all that there are, `found` those
    that were kept. taken: ids of other workloads.
    """

    op: Op
    workloads: Sequence[Workload]
    bind: Bind
    bytes_of: Callable[[ResolvedWorkload], int]
    taken: Sequence[str] = ()
    axes: dict[str, list[int]] = field(init=False)
    known: list[Sizes] = field(init=False)
    found: list[Workload] = field(default_factory=list)
    _relations: list[Relation] = field(init=False)
    _constraints: list[expr.Expression] = field(init=False)

    def __post_init__(self) -> None:
        """Read what the workloads have in common."""
        self.known = [item.axes for item in self.workloads]
        variable = [name for name, axis in self.op.axes.items() if isinstance(axis, VarAxis)]
        self.axes = {name: sorted({sizes[name] for sizes in self.known}) for name in variable}
        self._relations = find_relations(self.known, variable)
        self._constraints = [expr.parse(text, "boolean") for text in self.op.constraints]

    @property
    def varying(self) -> list[str]:
        """The axes that are not of one size."""
        return [name for name, sizes in self.axes.items() if len(sizes) > 1]

    def nearest(self, name: str, wanted: int) -> int:
        """Return the nearest size below that the declared ones allow."""
        low, high, step = self.axes[name][0], self.axes[name][-1], math.gcd(*self.axes[name])
        return min(high, max(low, wanted // step * step))

    def together(self, name: str) -> set[str]:
        """Return the axes that always have one size, `name` among them."""
        pairs = [{one, other} for one, how, other in self._relations if how == "=="]
        return {name}.union(*(pair for pair in pairs if name in pair))

    def bound(self, sizes: Sizes) -> Sizes | None:
        """Return all axes of a shape, derived ones too; None where one cannot be."""
        try:
            return bind_axes(self.op.axes, sizes)
        except SpecError:
            return None

    def admits(self, workload: Workload, most_bytes: int, most_flops: int | None = None) -> bool:
        """Check that a shape is new, may be asked, and needs no more than this."""
        sizes = workload.axes
        if sizes in self.known or not all(holds(relation, sizes) for relation in self._relations):
            return False
        try:
            bound = self.bind(workload)
            if self.bytes_of(bound) > most_bytes or (most_flops is not None and (bound["flops"] or 0) > most_flops):
                return False
            return all(constraint.boolean(bound["axes"]) for constraint in self._constraints)
        except (SpecErrors, expr.ExprError):  # a derived axis below 1, a division by zero
            return False

    def shaped(self, like: Workload, sizes: dict[str, int]) -> Workload:
        """Return a hold-out of other sizes, with the inputs' distributions of another workload."""
        return Workload(id="holdout", role="holdout", axes=sizes, dtypes=like.dtypes, inputs=like.inputs)

    def keep(self, workload: Workload) -> None:
        """Keep a shape, under the next id that the op does not use."""
        taken = {*self.taken, *(item.id for item in (*self.workloads, *self.found))}
        name = next(name for n in itertools.count(1) if (name := f"holdout-{n}") not in taken)
        self.known.append(workload.axes)
        self.found.append(workload.model_copy(update={"id": name}))
