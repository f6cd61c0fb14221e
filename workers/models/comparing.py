"""What kernels changed of a model's results: held against the model without them, and against itself in float64."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from workers.models.contract import UserModel

WIDER = 3.0
FACTOR = 4.0
"""Results may be as wrong as FACTOR times the model's own error against float64, WIDER as wide: the rule of exports."""


@dataclass(frozen=True)
class Comparison:
    """Two results of a model. `largest`: absolute difference; `relative`: L2; `argmax`: the share of rows along the
    last axis whose largest element is the same one, None where rows have one element or are no floats. `agrees`: the
    relative error of the second against float64 is within `limit`.
    """

    largest: float
    relative: float
    argmax: float | None
    limit: float
    agrees: bool

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "largest_difference": self.largest,
            "relative_difference": self.relative,
            "argmax_agreement": self.argmax,
            "limit": self.limit,
            "agrees": self.agrees,
        }


def exact(user: UserModel) -> list[torch.Tensor] | None:
    """The model's results with everything floating in float64; None where it cannot be run so."""
    try:
        wide = copy.deepcopy(user.module).double()
        inputs = type(user.inputs)(*pytree.tree_map(_widened, (user.inputs.args, dict(user.inputs.kwargs))))
        with torch.no_grad():
            return floats(inputs.call(wide))
    except Exception:  # noqa: BLE001 - a model may hold to a dtype in any way
        return None


def compare(before: Any, after: Any, wide: list[torch.Tensor] | None) -> Comparison:
    """Compare two results of a model; `wide` is what `exact` gave."""
    mine, theirs = floats(after), floats(before)
    if [(t.shape, t.dtype) for t in mine] != [(t.shape, t.dtype) for t in theirs]:
        return Comparison(float("inf"), float("inf"), None, 0.0, False)
    pairs = list(zip(mine, theirs, strict=True))
    largest = max((_largest(a, b) for a, b in pairs), default=0.0)
    relative = max((_relative(a, b) for a, b in pairs), default=0.0)
    rows = [(a, b) for a, b in pairs if a.dim() and a.shape[-1] > 1]
    argmax = None
    if rows:
        equal = torch.cat([(a.argmax(-1) == b.argmax(-1)).flatten() for a, b in rows])
        argmax = float(equal.double().mean())
    floor = max((torch.finfo(t.dtype).eps * (4 if t.element_size() >= 4 else 0.5) for t in mine), default=0.0)
    if wide is None or len(wide) != len(mine):
        limit = max((float(torch.finfo(t.dtype).eps) ** 0.5 for t in mine), default=0.0)
        return Comparison(largest, relative, argmax, limit, relative <= limit and _others_equal(before, after))
    own = max((_relative(t, e) for t, e in zip(theirs, wide, strict=True)), default=0.0)
    error = max((_relative(t, e) for t, e in zip(mine, wide, strict=True)), default=0.0)
    limit = WIDER * max(FACTOR * own, floor)
    return Comparison(largest, relative, argmax, limit, error <= limit and _others_equal(before, after))


def floats(result: Any) -> list[torch.Tensor]:
    """The floating tensors of a result, in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same bit by bit."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def _widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _others_equal(before: Any, after: Any) -> bool:
    mine, theirs = (
        [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and not leaf.is_floating_point()]
        for result in (after, before)
    )
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _largest(one: torch.Tensor, other: torch.Tensor) -> float:
    difference = torch.where(one == other, 0.0, (one.double() - other.double()).abs())
    return float(difference.max()) if difference.numel() else 0.0


def _relative(one: torch.Tensor, other: torch.Tensor) -> float:
    finite = one.isfinite() & other.isfinite()
    if not torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num().to(one.dtype)):
        return float("inf")
    found, wanted = one[finite].double(), other[finite].double()
    size = float(wanted.norm())
    difference = float((found - wanted).norm())
    return difference / size if size else difference
