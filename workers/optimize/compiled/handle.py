"""`warpsmith.optimize`: a model compiled, and told about.

Needs no torch to be imported, as `warpsmith` itself needs none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from warpsmith.workers.optimize.compiled.backend import Graph
    from warpsmith.workers.optimize.compiled.rewriting import Keep, Placed


KEPT = ("faster", "right")


class Optimized:
    """A model whose calls are compiled. `model` is the model itself, unchanged: who calls that undoes everything."""

    def __init__(
        self,
        model: Any,
        mode: str | None,
        dynamic: bool | None,
        kernels: Sequence[str | PathLike[str]] | None,
        keep: Keep,
    ) -> None:
        import torch  # noqa: PLC0415 - seconds

        from warpsmith.workers.optimize.compiled.backend import warpsmith  # noqa: PLC0415 - needs torch
        from warpsmith.workers.optimize.compiled.kernels import given  # noqa: PLC0415 - needs torch

        self.model = model
        self._graphs: list[Graph] = []
        served = None if kernels is None else given(kernels)
        backend = functools.partial(warpsmith, mode=mode, served=served, keep=keep, seen=self._graphs.append)
        self._compiled: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=dynamic)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the compiled model; the first call of each kind compiles it."""
        return self._compiled(*arguments, **keywords)

    def report(self) -> str:
        """Tell of each graph that was compiled what was rewritten, and what was not and why."""
        if not self._graphs:
            return "nothing is compiled yet: call it once"
        return "\n".join(line for number, graph in enumerate(self._graphs, 1) for line in _told(number, graph))


def _told(number: int, graph: Graph) -> Iterator[str]:
    taken = [place for place in graph.masks if place.means]
    masks = f"{len(taken)} of {len(graph.masks)} masks of attention taken out"
    placed = [place for place in graph.kernels or () if not place.why]
    if graph.why:
        kernels = f"no kernels: {graph.why}"
    elif graph.kernels is None:
        kernels = "kernels as when Inductor's cache, where its code is from, was written"
    else:
        kernels = f"{len(placed)} of {len(graph.kernels)} places of kernels taken"
    yield f"graph {number}: {graph.calls} calls; {masks}; {kernels}"
    said: dict[str, list[str]] = {}
    for mask in graph.masks:
        said.setdefault(mask.means or f"stays: {mask.why}", []).append(mask.name)
    for what, names in said.items():
        yield f"  {names[0]}{_more(names)}: {what}"
    alike: dict[tuple[str, str, str], list[Placed]] = {}
    for place in graph.kernels or ():
        alike.setdefault((place.op, place.shapes, place.why), []).append(place)
    for (op, shapes, _), places in alike.items():
        yield f"  {op} at {places[0].where}{_more(places)} ({shapes}): {_outcome(places[0])}"


def _more(alike: Sequence[object]) -> str:
    return f" and {len(alike) - 1} more" if len(alike) > 1 else ""


def _outcome(place: Placed) -> str:
    found = place.decision
    if place.why:
        return f"Inductor's code stays: {place.why}"
    low, high = found.ci95 or (0.0, 0.0)
    times = f"{found.us:.1f} us for Inductor's {found.inductor_us:.1f}"
    return f"{place.kernel}, {times} ([{low:.2f}, {high:.2f}] times as fast)"


def optimize(
    model: Any,
    *,
    mode: str | None = None,
    dynamic: bool | None = None,
    kernels: Sequence[str | PathLike[str]] | None = None,
    keep: Keep = "faster",
) -> Optimized:
    """Compile a model, or a function of tensors, with kernels where they pay, Warpsmith's rewrites, and Inductor.

    mode: Inductor's ("reduce-overhead", "max-autotune", ...); None: its default. dynamic: as torch.compile takes it.
    kernels: directories of exported packages; None: the kernels that ship, and none for an empty sequence. keep: which
    of them stay where they are right: those that are surely "faster" than Inductor's code for the same part, or all
    ("right"). Nothing is compiled before the first call. Raises RuntimeError in that call for a mode that Inductor does
    not know; at once ValueError for `keep`, NotAnExport, BadPackage, NotUsable for `kernels`.
    """
    if keep not in KEPT:
        raise ValueError(f"keep: found {keep!r}, expected one of {', '.join(map(repr, KEPT))}")
    return Optimized(model, mode, dynamic, kernels, keep)
