"""A compiled model with its report: what was rewritten in it, what was not and why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import comparing, inductor
from .backend import Graph, Serve, compile_rewritten
from .comparing import Comparison
from .inputs import Inputs
from .rewriting import Keep, Placed
from .trial import Trial


class Optimized:
    """A model whose calls are compiled. `model` is the model itself, unchanged: who calls that undoes everything.

    graphs: what became of each graph, in the order in which they were compiled.
    """

    def __init__(
        self, model: Any, mode: str | None, dynamic: bool | None, serve: Serve, keep: Keep, *, tried: bool = True
    ) -> None:
        """Raises ValueError for a mode that Inductor does not know."""
        modes = torch._inductor.list_mode_options()
        if mode is not None and mode not in modes:
            raise ValueError(f"mode: found {mode!r}, expected one of {', '.join(map(repr, modes))}")
        self.model = model
        self.graphs: list[Graph] = []
        seen = self.graphs.append
        backend = functools.partial(compile_rewritten, serve=serve, keep=keep, tried=tried, mode=mode, seen=seen)
        self._compiled: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=dynamic)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the compiled model; the first call of each kind compiles it."""
        if not torch.compiler.is_compiling() and not self.graphs:  # Dynamo would guard on the list
            inductor.hash_triton()
        return self._compiled(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for all that is not here: what the model's own methods call would not be compiled."""
        raise AttributeError(f"an optimized model has no {name!r}: it is called, and `.model` is the model itself")

    def compare(self, *arguments: Any, **keywords: Any) -> Comparison:
        """Compare a call with the model's own and with float64: results, buffers, and what is written to arguments.

        Each runs without gradients on a copy of the arguments; buffers and random numbers stay as they are. Raises
        TypeError where what was optimized is no module, which has no copy in float64.
        """
        if not isinstance(self.model, torch.nn.Module):
            raise TypeError(f"compare: found a {type(self.model).__name__}, expected a torch.nn.Module")
        inputs = Inputs(arguments, keywords)
        before = comparing.run(self.model, inputs)
        return comparing.compare(before, comparing.run(self.model, inputs, self), comparing.exact(self.model, inputs))

    @property
    def settled(self) -> bool:
        """Whether calls go to one code alone: they take turns until it is told whether a graph gains by kernels."""
        return all(graph.trial is None or graph.trial.tried for graph in self.graphs)

    def report(self) -> str:
        """Tell of each graph that was compiled what was rewritten, and what was not and why."""
        if not self.graphs:
            return "nothing is compiled yet: call it once"
        breaks = sum(bool(graph.broken) for graph in self.graphs)
        said = [f"Dynamo broke the model {breaks} times: Python runs between its graphs"] if breaks else []
        return "\n".join([*said, *(line for at, graph in enumerate(self.graphs, 1) for line in _told(at, graph))])


def _told(number: int, graph: Graph) -> Iterator[str]:
    taken = [place for place in graph.masks if place.means]
    masks = f"{len(taken)} of {len(graph.masks)} masks of attention taken out"
    places = graph.places
    placed = [place for place in places if not place.why]
    taken_in = f"{len(placed)} of {len(places)} places of kernels taken"
    kernels = f"no kernels: {graph.why}" if graph.why else taken_in
    yield f"graph {number}: {graph.calls} calls; {masks}; {kernels}"
    yield from _rewritten(graph)
    alike: dict[tuple[str, str, str], list[Placed]] = {}
    for place in places:
        alike.setdefault((place.op, place.shapes, place.why), []).append(place)
    for (op, shapes, _), group in alike.items():
        yield f"  {op} at {group[0].where}{_more(group)} ({shapes}): {_outcome(group[0])}"
    if graph.gain is not None and placed:
        yield f"  the graph as a whole: faster with its kernels, for {graph.gain}"
    if graph.trial is not None and placed:
        yield f"  the graph as a whole: {_compared(graph.trial)}"
    reasons: dict[str, list[str]] = {}
    for name, why in graph.without.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield f"  {names[0]}{_more(names)} {'have' if len(names) > 1 else 'has'} no place: {why}"


def _rewritten(graph: Graph) -> Iterator[str]:
    """Yield what is told of a graph beside its kernels."""
    if graph.broken:
        yield f"  it ends early: {graph.broken}"
    said: dict[str, list[str]] = {}
    for mask in graph.masks:
        said.setdefault(mask.means or f"stays: {mask.why}", []).append(mask.name)
    for what, names in said.items():
        yield f"  {names[0]}{_more(names)}: {what}"
    if graph.shared:
        yield f"  {graph.shared[0]}{_more(graph.shared)}: keys and values are not repeated for groups of queries"


def _compared(whole: Trial) -> str:
    if whole.outcome is not None:
        return f"{whole.outcome} as fast with its kernels"
    if whole.tried:
        return "not told, for the sizes of its calls differ too much; its kernels stay"
    return "not told yet, its calls go to the code with kernels and to that without in turns"


def _more(alike: Sequence[object]) -> str:
    return f" and {len(alike) - 1} more" if len(alike) > 1 else ""


def _outcome(place: Placed) -> str:
    found = place.decision
    if place.why:
        return f"Inductor's code stays: {place.why}"
    low, high = found.ci95 or (0.0, 0.0)
    times = f"{found.us:.1f} us for Inductor's {found.inductor_us:.1f}"
    return f"{place.kernel}, {times} ([{low:.2f}, {high:.2f}] times as fast)"
