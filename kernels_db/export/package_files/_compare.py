"""When a result is right: the kernel, PyTorch, and PyTorch in float64 on the same inputs.

The limit is the larger of four times PyTorch's own relative L2 error and the output dtype's unit roundoff, as in the
verdict that admitted the kernel, and three times as wide: one set of inputs says less about PyTorch's error than the
judge's several. Under `math: tf32` PyTorch's error is at least that of operands rounded to TF32 once: whether its
libraries use TF32 at a shape is their own choice, and the op allows it at all. Where the op sets its own tolerance,
that one counts, element by element; integers must be equal, and where an op asks for exactness (a tolerance of 0, 0)
each float must be the float64 result rounded to its dtype.

PyTorch's `topk` promises no order of equals. Integers that are its indices are also right where they select equal
values, none of them twice, unless the op's check says otherwise or its reference computes with the indices: what is
equal for `topk` may differ there.
"""

from __future__ import annotations

import functools
import re
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import _reference, _spec
from ._float64 import in_float64, rounded_to_tf32

WIDER = 3.0
LARGEST_BYTES = 2 << 30
"""Of the arguments and results of a call that is compared, where there is memory for it."""
COPIES = 16
"""So often comparing holds them: drawn, cloned, in float64, and repeated for calls beside the envelope."""
_KEEPING = tuple(
    getattr(torch.ops.aten, name)
    for name in ("_to_copy", "alias", "clone", "contiguous", "detach", "reshape", "to", "type_as", "view")
)
"""Operators that hand indices on as they are; some are seen in inference mode alone."""
_LIMITED, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


@dataclass(frozen=True)
class Comparison:
    """Relative L2 errors against float64, the worst of all results; under an op's own tolerance the share of it that
    the worst element takes, so that the limit is 1.
    """

    error: float
    pytorch_error: float
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether the result is right; an error that is not a number is not."""
        return self.error <= self.limit


@functools.cache
def most_bytes() -> int:
    """Of a workload that can be compared here: LARGEST_BYTES, less where this host, on which values are drawn, has too
    little free memory. The same for as long as the process lives.
    """
    return min(LARGEST_BYTES, _free_bytes() // COPIES)


def _free_bytes() -> int:
    """Memory that this process may still take: of the host, and of its control group where that has a limit."""
    free = COPIES * LARGEST_BYTES  # where nothing says otherwise
    with suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        free = int(found[1]) << 10 if found else free
    with suppress(OSError, ValueError):  # a group without a limit says "max"
        free = min(free, int(_LIMITED.read_text()) - int(_USED.read_text()))
    return max(free, 0)


def clones(arguments: Any) -> list[Any]:
    """Copies of the arguments with the same strides (`clone` would densify some)."""
    return [_copy(value) for value in arguments]


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return laid_out(value.detach(), value.stride(), value.device)


def laid_out(value: torch.Tensor, strides: Any, device: torch.device | str) -> torch.Tensor:
    """The values of a tensor under these strides; along an axis of stride 0 those at its start."""
    return filled(torch.empty_strided(value.shape, strides, dtype=value.dtype, device=device), value)


def filled(place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`place` with the values of a tensor of its shape; along an axis of stride 0 those at its start."""
    written = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in place.stride())
    place[written].copy_(value[written])
    return place


def widened(arguments: Any) -> list[Any]:
    """Copies of the arguments with floating tensors in float64."""
    return [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in clones(arguments)]


def outputs_of(result: Any) -> list[torch.Tensor]:
    """What an op returned, as a list."""
    if result is None:
        return []
    return list(result) if isinstance(result, tuple | list) else [result]


def written(result: Any, arguments: list[Any]) -> list[torch.Tensor]:
    """All that a call wrote: its outputs, then its mutated inputs."""
    return outputs_of(result) + [arguments[position] for position in _spec.MUTATED]


def plain(arguments: Any) -> Any:
    """The reference in the dtypes of its arguments, as the kernel computes: autocast has no say inside the op."""
    for device in _spec.DEVICES:
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return plain(arguments)
    return _reference.run(*arguments)


@dataclass
class _Choice:
    """What a sorted `topk` selected from along which axis, and the indices that it returned.

    read: the reference computed with them, so that others would have other results beside them.
    """

    source: torch.Tensor
    dim: int
    indices: torch.Tensor
    read: bool = False


class Written(list[torch.Tensor]):
    """What PyTorch wrote. `chosen`: by position of a result that holds indices of `topk`, each call that gave them."""

    chosen: dict[int, list[_Choice]]


class _Choices(TorchDispatchMode):
    """Remembers what each sorted `topk` was given, and what became of the indices that it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[_Choice] = []
        self._holders: dict[int, tuple[torch.Tensor, _Choice]] = {}
        """By id: tensors that hold such indices, which stay alive so that no other has the id."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves((args, kwargs)):
            _, choice = self._holders.get(id(each), (None, None))
            if choice is None:
                continue
            if func.overloadpacket in _KEEPING and isinstance(result, torch.Tensor):
                self._holders[id(result)] = result, choice
            else:
                choice.read = True
        if func is torch.ops.aten.topk.default:
            given = dict(zip(("self", "k", "dim", "largest", "sorted"), args, strict=False)) | (kwargs or {})
            if given.get("sorted", True) and given["self"].dim():
                source, indices = given["self"].clone(), result[1].clone()  # the reference may write to its own later
                self.made.append(_Choice(source, given.get("dim", -1), indices))
                self._holders[id(result[1])] = result[1], self.made[-1]
        return result


def reference(arguments: list[Any]) -> Written:
    """What PyTorch writes on these arguments, which it may change."""
    choices = _Choices()
    with torch.no_grad(), choices if any(_spec.ANY_OF_EQUALS) else nullcontext():
        found = Written(written(plain(arguments), arguments))
    found.chosen = {
        position: [each for each in choices.made if torch.equal(each.indices.to(result.dtype), result)]
        for position, (result, open_order) in enumerate(zip(found, _spec.ANY_OF_EQUALS, strict=True))
        if open_order
    }
    return found


def exact(arguments: Any) -> list[torch.Tensor]:
    """What PyTorch writes in float64 on copies of these arguments, also where the reference asks for less."""
    wide = widened(arguments)
    with torch.no_grad():
        return written(in_float64(plain)(wide), wide)


class Expected(NamedTuple):
    """What PyTorch writes for one call: in the op's dtypes, in float64, and, under `math: tf32`, in float64 on operands
    rounded to TF32.
    """

    eager: Written
    exact: list[torch.Tensor]
    rounded: list[torch.Tensor] | None


def expected(arguments: Any) -> Expected:
    """Run PyTorch on copies of these arguments; the arithmetic of float32 products is the caller's to set."""
    rounded = exact([rounded_to_tf32(a) for a in arguments]) if _spec.MATH == "tf32" else None
    return Expected(reference(clones(arguments)), exact(arguments), rounded)


def compare(found: list[torch.Tensor], expected: Expected) -> Comparison:
    """Hold what the kernel wrote against what PyTorch writes."""
    rounded = expected.rounded or [None] * len(found)
    chosen = [expected.eager.chosen.get(position, []) for position in range(len(found))]
    results = zip(found, expected.eager, expected.exact, rounded, _spec.TOLERANCES, chosen, strict=True)
    return max((_one(*result) for result in results), key=_share)


def _share(one: Comparison) -> float:
    """The share of its limit that an error takes."""
    if one.error != one.error:
        return float("inf")
    return one.error / one.limit if one.limit > 0 else (float("inf") if one.error > 0 else 0.0)


def _one(
    found: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    rounded: torch.Tensor | None,
    tolerance: tuple[float, float] | None,
    chosen: list[_Choice],
) -> Comparison:
    if found.shape != eager.shape or found.dtype is not eager.dtype:
        return Comparison(float("inf"), 0.0, 0.0)
    if not found.is_floating_point():
        right = found == eager
        if chosen and not any(choice.read for choice in chosen):
            right |= _equals(found, eager, chosen)
        return Comparison(float((~right).sum()), 0.0, 0.0)
    if tolerance == (0.0, 0.0):
        nearest = exact.to(found.dtype)
        wrong, own_wrong = (int(((t != nearest) & ~(t.isnan() & nearest.isnan())).sum()) for t in (found, eager))
        return Comparison(float(wrong), float(own_wrong), 0.0)
    finite = eager.isfinite()
    if not torch.equal(found.isfinite(), finite) or not torch.equal(
        found[~finite].nan_to_num(), eager[~finite].nan_to_num()
    ):
        return Comparison(float("inf"), 0.0, 0.0)
    finite &= exact.isfinite()
    f, own, e = (tensor.double()[finite] for tensor in (found, eager, exact))
    if tolerance is not None:
        allowed = tolerance[1] + tolerance[0] * e.abs()
        shares = [torch.where(t == e, 0.0, (t - e).abs() / allowed) for t in (f, own)]
        error, pytorch_error = (float(share.max()) if share.numel() else 0.0 for share in shares)
        return Comparison(error, pytorch_error, 1.0)
    pytorch_error = _relative(own, e)
    if rounded is not None:
        r = rounded[finite]
        pytorch_error = max(pytorch_error, _relative(torch.where(r.isfinite(), r, e), e))
    return Comparison(_relative(f, e), pytorch_error, WIDER * max(4 * pytorch_error, _norm_floor(found.dtype)))


def _equals(found: torch.Tensor, wanted: torch.Tensor, chosen: list[_Choice]) -> torch.Tensor:
    """Where indices select values that equal the wanted ones; nowhere in a line that names an index twice.

    chosen: the calls of `topk` that gave the wanted ones. Of several they are to be right for each: all but one may
    have given the same by chance.
    """
    right = torch.ones_like(found, dtype=torch.bool)
    for source, dim in ((choice.source, choice.dim) for choice in chosen):
        size = source.shape[dim]
        inside = (found >= 0) & (found < size)
        one, other = (source.gather(dim, indices.clamp(0, size - 1).long()) for indices in (found, wanted))
        twice = (found.sort(dim).values.diff(dim=dim) == 0).any(dim, keepdim=True)
        right &= inside & ~twice & ((one == other) | (one.isnan() & other.isnan()))
    return right


def _relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    difference, size = float((found - exact).norm()), float(exact.norm())
    return difference / size if size > 0 else difference


def _norm_floor(dtype: torch.dtype) -> float:
    """The relative error that the judge takes for right however small PyTorch's own is."""
    return (8 if dtype.itemsize >= 4 else 1) * torch.finfo(dtype).eps / 2
