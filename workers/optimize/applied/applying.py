"""Kernels in a model: put in place, compared with the model without them, taken out again.

A kernel that is a whole submodule replaces the module object; any other place is a region of the model's graph, and the
model's `forward` then runs the graph for the calls for which it holds, and is as it was for all others. Parameters and
buffers stay where they are and are never written.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from operator import attrgetter, getitem
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from . import comparing
from .comparing import Comparison
from .graph import Captured, Inputs, capture
from .kernel import Kernel
from .places import Found, Place, attribute, find
from .standins import Forward, KernelModule, is_applied

_FETCHED = "_fetched"
"""The attribute of a graph's module that holds its parameters and buffers."""

__all__ = ["Applied", "Disagreement", "Place", "apply", "prepare"]


class Disagreement(ValueError):  # noqa: N818 - named for what was found
    """With the kernels the model's results are others. `comparison` says by how much, `report` what stood where."""

    def __init__(self, comparison: Comparison, report: str) -> None:
        super().__init__(f"{comparison}, allowed is a relative error of {comparison.limit:.1e}: nothing is replaced")
        self.comparison, self.report = comparison, report


class Applied:
    """Kernels that were put into a model; `undo` takes them out. Also a context manager that undoes at its end."""

    def __init__(self, model: nn.Module, captured: Captured, inputs: Inputs, found: Sequence[Found]) -> None:
        self.model = model
        self.places = [one.place for one in found]
        self._captured = captured
        self._inputs = inputs
        self._found = [one for one in found if one.place.replaced]
        self._modules: list[tuple[str, nn.Module, KernelModule]] = []
        self._forward: Forward | None = None
        self._hidden: Any = None

    @property
    def kernels(self) -> list[str]:
        """The names of the packages that stand somewhere, in the order in which they were given."""
        return list(dict.fromkeys(one.kernel.name for one in self._found))

    @property
    def has_regions(self) -> bool:
        """Whether any kernel stands in a region, so that the model runs as a graph."""
        return any(one.place.kind == "region" for one in self._found)

    def install(self, names: Collection[str] | None = None, *, graph: bool | None = None) -> None:
        """Put the kernels of these packages in place (all where not given) and take the others out. `graph`: whether
        the model runs as a graph; by default where a region asks for it. Raises ValueError for a name that stands
        nowhere, and leaves the model without kernels where anything is raised after that.
        """
        wanted = self.kernels if names is None else names
        if isinstance(wanted, str) or not set(wanted) <= set(self.kernels):
            raise ValueError(f"names: found {names!r}, expected some of {self.kernels}")
        chosen = [one for one in self._found if one.kernel.name in wanted]
        as_graph = any(one.place.kind == "region" for one in chosen) if graph is None else graph
        rewritten = _rewritten(self._captured, chosen) if as_graph else None
        self.undo()
        try:
            for one in chosen:
                if one.alone is not None:
                    self._replace(one, one.alone)
            if rewritten is not None:
                forward = Forward(self.model, self._captured, rewritten)
                self._hidden = self.model.__dict__.get("forward")
                self.model.__dict__["forward"] = self._forward = forward
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Make the model what it was: the same module objects, the same `forward`. Raises RuntimeError, and leaves
        everything, where somebody else has changed one of them since.
        """
        for name, _, stand_in in self._modules:
            if self.model.get_submodule(name) is not stand_in:
                raise RuntimeError(f"{name} was changed since the kernels were applied: it is left as it is")
        if self._forward is not None and self.model.__dict__.get("forward") is not self._forward:
            raise RuntimeError("the model's forward was changed since the kernels were applied: it is left as it is")
        for name, module, _ in self._modules:
            _put(self.model, name, module)
        if self._forward is not None:
            del self.model.__dict__["forward"]
            if self._hidden is not None:
                self.model.__dict__["forward"] = self._hidden
        self._modules, self._forward, self._hidden = [], None, None

    def compare(self) -> Comparison:
        """Take the kernels out, run the model on the example inputs, put all of them in, run it again. They stay in
        place, whatever is found; where the model raises with them, none does.
        """
        self.undo()
        exact, before = comparing.exact(self.model, self._inputs), comparing.run(self.model, self._inputs)
        self.install()
        try:
            after = comparing.run(self.model, self._inputs)
        except BaseException:
            self.undo()
            raise
        if self._forward is not None:
            self._forward.served = self._forward.passed_on = 0
        return comparing.compare(before, after, exact)

    def status(self) -> dict[str, Any]:
        """By package what its own `status()` says; how many calls the graph served, and how many the model's code."""
        kernels = {one.kernel.name: one.kernel.package.status() for one in self._found}
        calls = None if self._forward is None else {"graph": self._forward.served, "model": self._forward.passed_on}
        return {"kernels": kernels, "calls": calls}

    def report(self) -> str:
        """What was replaced where, and what was not and why; a line each."""
        return "\n".join(
            f"{place.op} ({place.kernel}): "
            + (f"{place.kind} {place.where}" if place.replaced else f"not at {place.where}: {place.reason}")
            for place in self.places
        )

    def __enter__(self) -> Applied:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def _replace(self, one: Found, alone: Captured) -> None:
        name = one.place.where
        original = self.model.get_submodule(name)
        stand_in = KernelModule(original, one.kernel, [attribute(node, name) for node in one.match.inputs], alone)
        _put(self.model, name, stand_in)
        self._modules.append((name, original, stand_in))


def apply(model: nn.Module, example_inputs: Any, kernels: Sequence[Kernel]) -> Applied:
    """Put kernels into `model` wherever they compute what it computes and their envelope takes the sizes of
    `example_inputs` (a tensor, a tuple of positional arguments, or a dict by name), and compare its results with those
    before. A node that several could serve goes to the kernel that is given first. Nothing is changed where it raises:
    NotExportable, Disagreement, or ValueError for a model that kernels were applied to before.
    """
    applied = prepare(model, example_inputs, kernels)
    if applied.kernels:
        comparison = applied.compare()
        if not comparison.agrees:
            applied.undo()
            raise Disagreement(comparison, applied.report())
    return applied


def prepare(model: nn.Module, example_inputs: Any, kernels: Sequence[Kernel]) -> Applied:
    """The places of kernels in `model`, as `apply` finds them, and nothing replaced yet."""
    if is_applied(model):
        raise ValueError("kernels were applied to this model before: undo() that first")
    inputs = Inputs.of(example_inputs)
    captured = capture(model, inputs)
    return Applied(model, captured, inputs, find(model, captured, inputs, kernels))


def _rewritten(captured: Captured, chosen: Sequence[Found]) -> GraphModule:
    """The graph with these places served by their kernels."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.set_codegen(captured.graph._codegen)
    result = graph.graph_copy(captured.graph, copies)
    graph.output(result)
    for one in chosen:
        outputs = one.match.outputs
        with graph.inserting_before(copies[one.match.nodes[0]]):
            arguments = one.kernel.arguments([copies[node] for node in one.match.inputs])
            call = graph.call_function(one.kernel.function, tuple(arguments))
            results = (
                [call]
                if len(outputs) == 1
                else [graph.call_function(getitem, (call, position)) for position in range(len(outputs))]
            )
        for output, served in zip(outputs, results, strict=True):
            copies[output].replace_all_uses_with(served)
        for node in reversed(one.match.nodes):
            if not copies[node].users:  # a view may have others
                graph.erase_node(copies[node])
        copies |= dict(zip(outputs, results, strict=True))  # the input of another place, maybe
    _sort(graph)
    module = GraphModule(captured.module, graph)
    _fetch_at_once(module)
    return module


def _fetch_at_once(module: GraphModule) -> None:
    """Have the graph take its parameters and buffers out of one tuple: a module looks each up by a call in Python for
    every dot of its name. That they are still the model's own, `Forward` makes sure before every call.
    """
    graph = module.graph
    nodes = [node for node in graph.nodes if node.op == "get_attr"]
    if not nodes:
        return
    setattr(module, _FETCHED, tuple(attrgetter(str(node.target))(module) for node in nodes))
    with graph.inserting_before(nodes[0]):
        fetched = graph.create_node("get_attr", _FETCHED)
    for position, node in enumerate(nodes):
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_function(getitem, (fetched, position)))
        graph.erase_node(node)
    module.recompile()


def _sort(graph: Graph) -> None:
    """Put every node behind its inputs, and otherwise leave the order as it is."""
    position = {node: number for number, node in enumerate(graph.nodes)}
    missing = {node: len(node.all_input_nodes) for node in graph.nodes}
    ready = [(position[node], node) for node, count in missing.items() if not count]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        order.append(heapq.heappop(ready)[1])
        for user in order[-1].users:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (position[user], user))
    end = next(node for node in graph.nodes if node.op == "output")
    for node in order:
        if node is not end:
            end.prepend(node)
    torch.fx.Graph.lint(graph)


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Make `module` the submodule of this name, in its place among the others."""
    parent, _, own = name.rpartition(".")
    model.get_submodule(parent)._modules[own] = module
