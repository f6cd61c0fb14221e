"""Find out what NaN and infinities of a question's inputs decide, and where another answer is as good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warpsmith.workers.judge.attack.measure import ENLARGED, REPLACED, Special, Spread, Without, grows_to, idle
from warpsmith.workers.judge.attack.nearby import enlarged, numbered, one_in_each_line, replaced
from warpsmith.workers.judge.attack.surroundings import Surroundings
from warpsmith.workers.judge.values.workload_specs import Values

SINGLES = 16
"""Infinities of a line that are looked at one by one."""


def is_special(value: torch.Tensor | None) -> bool:
    """Check whether a tensor holds NaN or infinities."""
    return value is not None and value.is_floating_point() and not bool(torch.isfinite(value.to(torch.float64)).all())


@dataclass(frozen=True)
class SpecialValues:
    """Looks for them near one question.

    `sums`: whether a result depends on several elements of an input; `draws`: how often inputs are moved. Methods
    return false where a reference fails.
    """

    around: Surroundings
    sums: bool
    draws: int

    def measure(
        self,
        values: Values,
        found: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Find out what NaN and infinities of the inputs do, by other numbers.

        They are replaced in all inputs together. In a sum also in each alone: one that weighs nothing may only be seen
        to where another input keeps its own.
        """
        special = [place for place, value in enumerate(values) if is_special(value)]
        if not special:
            return True
        for only in (None, *special) if self.sums and len(special) > 1 else (None,):
            if not self._look_without(values, only, wide, spreads):
                return False
        return not self.sums or self._look_for_infinities(values, found, wide, spreads)

    def _wide(self, several: Sequence[Values]) -> list[list[torch.Tensor]] | None:
        """Return what the reference makes of several inputs in float64; None where it fails on one."""
        return self.around.references.run_each(self.around.workload, several)

    def _look_without(
        self,
        values: Values,
        only: int | None,
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Measure what results that are not finite are without NaN and infinities of one input, or of all."""
        known = self._wide([replaced(values, size, only) for size in REPLACED])
        if known is None:
            return False
        same = [idle([one[at] for one in known]) & ~torch.isfinite(exact) for at, exact in enumerate(wide)]
        if not any(bool(one.any()) for one in same):
            return True
        given = [
            one if one is None or value is None else one.to(value.dtype)
            for one, value in zip(replaced(values, 1.0, only), values, strict=True)
        ]
        references, workload = self.around.references, self.around.workload
        eager, exact = references.run("eager", workload, given), references.run("float64", workload, given)
        if eager is None or exact is None:
            return False
        spread = [Spread.of(one) for one in exact]
        if not self.around.measure(given, exact, spread):
            return False
        if not self.around.add_moved(given, range(self.draws), exact, spread):
            return False
        for each in zip(spreads, same, eager, exact, spread, strict=True):
            each[0].without.append(Without(*each[1:]))
        return True

    def _look_for_infinities(
        self,
        values: Values,
        found: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Find where NaN comes of infinities or NaN that weigh nothing beside infinities that count, all to one.

        The result must grow to that infinity with all of them, and to no other with those of one sign. Taken one by
        one, each makes the result this infinity or a number; or NaN, and its size does not matter. NaN of the inputs
        must not matter at all: whatever numbers stand there, the result is the same. These then stand there.
        """
        if not Special.of(values).infinities:
            return True
        plainly = self._wide([numbered(enlarged(values, 1.0), size) for size in REPLACED])
        if plainly is None:
            return False
        plain = plainly[0]
        without_nan = [idle([one[at] for one in plainly]) for at in range(len(wide))]
        values = numbered(values, REPLACED[0])
        grown: list[list[torch.Tensor]] = []
        for sign in (0, 1, -1):
            known = self._wide([enlarged(values, size, sign) for size in ENLARGED])
            if known is None:
                return False
            grown.append([grows_to([one[at] for one in known]) for at in range(len(wide))])
        open_ = [
            exact.isnan() & same & (one.to(torch.float64) == whole) & (up != -whole) & (down != -whole)
            for exact, one, same, whole, up, down in zip(wide, found, without_nan, *grown, strict=True)
        ]
        if not any(bool(one.any()) for one in open_):
            return True
        for place, value in enumerate(values):
            if value is None or not is_special(value):
                continue
            proven = [torch.zeros_like(one) for one in open_]
            for axis in range(value.dim()):
                along = self._one_by_one(values, (place, axis), plain, grown[0])
                if along is None:
                    return False
                proven = [one | other for one, other in zip(proven, along, strict=True)]
            open_ = [one & other for one, other in zip(open_, proven, strict=True)]
        for spread, one, whole in zip(spreads, open_, grown[0], strict=True):
            spread.towards = torch.where(one, whole, torch.nan)
        return True

    def _one_by_one(
        self,
        values: Values,
        line: tuple[int, int],
        plain: Sequence[torch.Tensor],
        towards: Sequence[torch.Tensor],
    ) -> list[torch.Tensor] | None:
        """Return where no infinity of an input, one in each line along an axis, makes but what it may; None: failed."""
        right = [torch.ones(one.shape, dtype=torch.bool, device=one.device) for one in plain]
        for number in range(SINGLES):
            inputs = one_in_each_line(values, *line, number, SINGLES)
            if inputs is None:
                break
            known = self._wide(inputs)
            if known is None:
                return None
            single, large = known
            for fine, one, other, without, whole in zip(right, single, large, plain, towards, strict=True):
                fine.logical_and_(torch.isfinite(one) | (one == whole) | (one.isnan() & (other == without)))
        return right
