"""`warpsmith.optimize`: a model compiled, and told about.

Needs no torch to be imported, as `warpsmith` itself needs none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpsmith.workers.optimize.compiled.backend import Graph


class Optimized:
    """A model whose calls are compiled. `model` is the model itself, unchanged: who calls that undoes everything."""

    def __init__(self, model: Any, mode: str | None, dynamic: bool | None) -> None:
        import torch  # noqa: PLC0415 - seconds

        from warpsmith.workers.optimize.compiled.backend import warpsmith  # noqa: PLC0415 - needs torch

        self.model = model
        self._graphs: list[Graph] = []
        backend = functools.partial(warpsmith, mode=mode, seen=self._graphs.append)
        self._compiled: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=dynamic)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the compiled model; the first call of each kind compiles it."""
        return self._compiled(*arguments, **keywords)

    def report(self) -> str:
        """Tell of each graph that was compiled what was rewritten, and what was not and why."""
        if not self._graphs:
            return "nothing is compiled yet: call it once"
        lines = []
        for number, graph in enumerate(self._graphs, 1):
            taken = [place for place in graph.masks if place.means]
            said = f"{len(taken)} of {len(graph.masks)} masks of attention taken out"
            lines.append(f"graph {number}: {graph.calls} calls; {said}")
            lines += [f"  {place.name}: {place.means or f'stays: {place.why}'}" for place in graph.masks]
        return "\n".join(lines)


def optimize(model: Any, *, mode: str | None = None, dynamic: bool | None = None) -> Optimized:
    """Compile a model, or a function of tensors, with Warpsmith's rewrites and Inductor.

    mode: Inductor's ("reduce-overhead", "max-autotune", ...); None: its default. dynamic: as torch.compile takes it.
    Nothing is compiled before the first call. Raises RuntimeError in that call for a mode that Inductor does not know.
    """
    return Optimized(model, mode, dynamic)
