"""What compiling changed of a model: its results, and what a call writes, held against the model and float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .inputs import Inputs

WIDER = 3.0
FACTOR = 4.0
"""Results may be as wrong as FACTOR times the model's own error against float64, WIDER as wide: the rule of exports."""
FINER = 2.0**-12
"""Roundoff of a result beside that of a model's weights: with less the result is exact beside the model's own."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Comparison:
    """Two results of a model. `largest`: absolute difference; `relative`: L2; `argmax`: the share of rows along the
    last axis whose largest element is the same one, None where rows have one element or are no floats. `limit`: of the
    relative error of the result that came nearest to its own. `reference`: "float64", or "none" where the model does
    not run so, and the second is held against the first alone. `agrees`: every result is within its limit, and all
    else is equal.
    """

    largest: float
    relative: float
    argmax: float | None
    limit: float
    reference: str
    agrees: bool

    def document(self) -> dict[str, Any]:
        """As JSON, which has no number that is not finite: None."""
        return {
            "largest_difference": _finite(self.largest),
            "relative_difference": _finite(self.relative),
            "argmax_agreement": self.argmax,
            "limit": _finite(self.limit),
            "reference": self.reference,
            "agrees": self.agrees,
        }

    def __str__(self) -> str:
        word = "agree" if self.agrees else "do not agree"
        return f"the results {word}: largest difference {self.largest:.2e}, relative {self.relative:.1e}"


class Ran(NamedTuple):
    """One call of a model: what it returned, and what it left in buffers and in its arguments (a cache, say)."""

    result: Any
    state: list[torch.Tensor]


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """At the end of the block, the buffers and the random generators are what they were."""
    buffers = [
        (module._buffers, name, value, value.detach().clone())
        for module in model.modules()
        for name, value in module._buffers.items()
        if value is not None
    ]
    devices = {value.device for value in model.parameters() if value.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        try:
            yield
        finally:
            for store, name, value, saved in buffers:
                store[name] = value
                if not torch.equal(value, saved):
                    with torch.no_grad():
                        value.copy_(saved)


def run(model: nn.Module, inputs: Inputs, call: Callable[..., Any] | None = None) -> Ran:
    """Call the model, or what stands for it, without gradients on a copy of its inputs.

    Buffers and random numbers are afterwards as before.
    """
    with kept(model), torch.no_grad():
        given = inputs.copied()
        result = pytree.tree_map(_owned, given.call(model if call is None else call))
        buffers = [value.detach().clone() for _, value in model.named_buffers()]
        return Ran(result, [*buffers, *(value.detach().clone() for value in given.tensors())])


def _owned(leaf: Any) -> Any:
    """Return a tensor as it is now: the next call of a CUDA graph writes over it."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def exact(model: nn.Module, inputs: Inputs) -> Ran | None:
    """Run the model with everything floating in float64; None where it cannot be run so.

    A model whose weights are all in half precision may make float32 of its results, as many do of logits.
    """
    own = min((torch.finfo(value.dtype).eps for value in floats(list(model.parameters()))), default=0.0)
    try:
        wide = copy.deepcopy(model).double()
        given = Inputs(*pytree.tree_map(_widened, (inputs.args, dict(inputs.kwargs))))
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            found = run(wide, given)
    except Exception:  # noqa: BLE001 - a model may hold to a dtype in any way
        return None
    fine = (value.dtype is torch.float64 or torch.finfo(value.dtype).eps <= FINER * own for value in floats(found))
    return found if all(fine) else None


def compare(before: Ran, after: Ran, wide: Ran | None) -> Comparison:
    """Compare two calls of a model; `wide` is what `exact` gave."""
    mine, theirs, right = floats(after), floats(before), [] if wide is None else floats(wide)
    reference = "float64" if wide is not None and [t.shape for t in right] == [t.shape for t in theirs] else "none"
    if [(t.shape, t.dtype) for t in mine] != [(t.shape, t.dtype) for t in theirs]:
        return Comparison(math.inf, math.inf, None, 0.0, reference, False)
    pairs = list(zip(mine, theirs, strict=True))
    checks = [_checked(a, b, right[n] if reference == "float64" else None) for n, (a, b) in enumerate(pairs)]
    error, limit = max(checks, key=_share, default=(0.0, 0.0))
    return Comparison(
        largest=max((_largest(a, b) for a, b in pairs), default=0.0),
        relative=max((_relative(a, b) for a, b in pairs), default=0.0),
        argmax=_argmax(list(zip(floats(after.result), floats(before.result), strict=True))),
        limit=limit,
        reference=reference,
        agrees=error <= limit and _others_equal(before, after),
    )


def floats(result: Any) -> list[torch.Tensor]:
    """The floating tensors of a result, in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same bit by bit; not-a-number is the same as itself."""
    return _others_equal(one, other) and all(
        a.shape == b.shape and a.dtype is b.dtype and _alike_where_not_finite(a, b) and _largest(a, b) == 0.0
        for a, b in zip(floats(one), floats(other), strict=True)
    )


def _checked(mine: torch.Tensor, theirs: torch.Tensor, wide: torch.Tensor | None) -> tuple[float, float]:
    """Relative error of one result and its limit: against float64 where that is finite wherever the model is, else
    against the model.
    """
    relative, eps = _relative(mine, theirs), float(torch.finfo(mine.dtype).eps)
    if not math.isfinite(relative):
        return math.inf, 0.0
    finite = theirs.isfinite()
    if wide is None or not bool(wide[finite].isfinite().all()):
        return relative, eps**0.5
    own, error = (_distance(value[finite], wide[finite]) for value in (theirs, mine))
    return error, WIDER * max(FACTOR * own, eps * (4 if mine.element_size() >= 4 else 0.5))


def _share(check: tuple[float, float]) -> float:
    error, limit = check
    return error / limit if limit > 0 else math.inf


def _argmax(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float | None:
    rows = [(a, b) for a, b in pairs if a.dim() and a.shape[-1] > 1 and a.numel()]
    if not rows:
        return None
    return float(torch.cat([(a.argmax(-1) == b.argmax(-1)).flatten() for a, b in rows]).double().mean())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _others_equal(before: Any, after: Any) -> bool:
    """Whether all but the floating tensors is the same: the nesting, whole numbers, and what is no tensor."""
    mine, nested = pytree.tree_flatten(after)
    theirs, nested_before = pytree.tree_flatten(before)
    return nested == nested_before and all(map(_alike, mine, theirs))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.is_floating_point() or other.is_floating_point():
            return one.dtype is other.dtype
        return one.dtype is other.dtype and torch.equal(one, other)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and (not isinstance(one, _PLAIN) or bool(one == other))


def _alike_where_not_finite(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the same elements are not a number, and the same are infinite, to the same side."""
    infinite = other.isinf()
    return (
        torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.isinf(), infinite)
        and torch.equal(one[infinite].to(other.dtype), other[infinite])
    )


def _largest(one: torch.Tensor, other: torch.Tensor) -> float:
    if not _alike_where_not_finite(one, other):
        return math.inf
    finite = other.isfinite()
    difference = (one[finite].double() - other[finite].double()).abs()
    return float(difference.max()) if difference.numel() else 0.0


def _relative(one: torch.Tensor, other: torch.Tensor) -> float:
    """The L2 distance over the size of the second; infinite where they differ in what is not finite."""
    if not _alike_where_not_finite(one, other):
        return math.inf
    finite = other.isfinite()
    return _distance(one[finite], other[finite])


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    size = float(other.double().norm())
    difference = float((one.double() - other.double()).norm())
    return difference / size if size else difference
