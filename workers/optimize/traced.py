"""A model's graphs of operators as `warpsmith.optimize` rewrites them, with the values of one call.

Dynamo captures, masks that no input decides are taken out, Inductor decomposes: what is found here is what the pass of
`warpsmith.optimize` is given for the same model and the same inputs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx import Interpreter, Node

from warpsmith.workers.optimize import operators
from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.groups import share_heads
from warpsmith.workers.optimize.compiled.masks import take_out_masks
from warpsmith.workers.optimize.labels import label


class NoGraph(ValueError):  # noqa: N818 - named for what was found
    """The model has no graph of operators; the message says why."""


@dataclass
class Traced:
    """One graph of a model: one for each part between two breaks of Dynamo's.

    module: the operators, decomposed and functional, with parameters and buffers among the inputs; `meta["weight"]` of
    an input is the name of the parameter or buffer that it is. given: the inputs of one call; those that the graph
    writes to are copies from before. written: those tensors themselves.
    """

    module: fx.GraphModule
    given: list[Any] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)

    @property
    def graph(self) -> fx.Graph:
        """The operators."""
        return self.module.graph

    def restore(self) -> None:
        """Give the tensors that a call writes to the values that they had before."""
        mutated = operators.mutated(self.graph)
        before = [value for value, node in zip(self.given, self._inputs, strict=True) if node in mutated]
        with torch.no_grad():
            for tensor, value in zip(self.written, before, strict=True):
                tensor.copy_(value)

    def values(self, wanted: Collection[Node]) -> dict[Node, Any]:
        """Return what these nodes were in the call."""
        recorder = _Recorder(self.module, wanted)
        mutated = operators.mutated(self.graph)
        copies = [v.clone() if n in mutated else v for v, n in zip(self.given, self._inputs, strict=True)]
        with torch.no_grad():
            recorder.run(*copies, enable_io_processing=False)
        return recorder.kept

    def take(self, given: Sequence[Any], names: dict[int, str]) -> None:
        """Remember the inputs of a call. names: of parameters and buffers, by the identity of the tensor."""
        mutated = operators.mutated(self.graph)
        for node, value in zip(self._inputs, given, strict=True):
            if node in mutated:
                self.written.append(value)
            elif id(value) in names:
                node.meta[operators.WEIGHT] = names[id(value)]
            self.given.append(value.detach().clone() if node in mutated else value)

    @property
    def _inputs(self) -> list[Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]


class _Recorder(Interpreter):
    """Runs a graph and keeps the values of some of its nodes."""

    def __init__(self, module: fx.GraphModule, wanted: Collection[Node]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.kept: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self._wanted:
            self.kept[n] = value
        return value


def trace(model: torch.nn.Module, call: Callable[[Callable[..., Any]], Any]) -> list[Traced]:
    """Return the graphs of a model, in the order in which a call needs them.

    call: calls what it is given as the model is called. Raises NoGraph.
    """
    found: list[Traced] = []
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    names = {id(tensor): name for name, tensor in reversed(named)}

    def backend(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        take_out_masks(graph)
        share_heads(graph)
        traced = Traced(inductor.operators_of(inductor.copied(graph), inputs))
        operators.set_apart(traced.graph)
        found.append(traced)

        def run(*given: Any) -> Any:
            if not traced.given:
                traced.take(given, names)
            return graph.forward(*given)

        return run

    torch._dynamo.reset()
    try:
        with torch.no_grad(), quiet():
            call(torch.compile(model, backend=backend, dynamic=False))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise NoGraph(f"torch.compile does not take the model: {type(error).__name__}: {lines[0]}") from error
    finally:
        torch._dynamo.reset()
    if not (used := [each for each in found if each.given]):
        raise NoGraph("torch.compile finds no operators in the model")
    for traced in used:
        label(traced.graph)
    return used


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, nothing is logged: what a compiler does not take is told in an error, or tried in another way."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
