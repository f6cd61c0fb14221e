"""Where kernels fit into a graph of Inductor's, and the graph with some of them in their places."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from warpsmith.workers.optimize.applied import match
from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.kernels import SOME, Lead, Served

MOST_RANK = 3
"""Of a tensor of rows in a model: batch, positions, features."""


@dataclass(frozen=True)
class Region:
    """A place in a graph that computes what a kernel computes.

    key: of all that decides whether the kernel pays here: itself, the shapes, strides and dtypes of the inputs, and the
    numbers. Regions of one key are one thing, wherever they stand.
    """

    kernel: Served
    match: match.Match

    @property
    def tensors(self) -> list[torch.Tensor]:
        """What flows in: tensors without memory."""
        return [node.meta["val"] for node in self.match.inputs]

    @property
    def key(self) -> str:
        """See the class."""
        facts = [(tuple(t.shape), tuple(t.stride()), str(t.dtype), t.device.type) for t in self.tensors]
        operators = [str(node.target) for node in self.match.nodes]
        return hashlib.sha256(repr((self.kernel.name, facts, self.match.numbers, operators)).encode()).hexdigest()[:32]

    @property
    def shapes(self) -> str:
        """The shapes of the inputs, for people."""
        return ", ".join("x".join(map(str, tensor.shape)) or "()" for tensor in self.tensors)

    @property
    def where(self) -> str:
        """The modules around it where the graph has their names, otherwise its result's: "layers.0: norm, q_proj"."""
        stacks = [node.meta.get("nn_module_stack") for node in self.match.nodes]
        names = [str(list(stack.values())[-1][0]).removeprefix("L['self'].") for stack in stacks if stack]
        if not names:
            return self.match.outputs[0].name
        return _joined([name.split(".") for name in dict.fromkeys(names)])

    def alone(self) -> fx.GraphModule:
        """Return the region as a graph of its own: its inputs in order, once each, and a tuple of its results."""
        graph = fx.Graph()
        inside = {node: graph.placeholder(node.name) for node in dict.fromkeys(self.match.inputs)}
        for node in self.match.nodes:
            inside[node] = graph.node_copy(node, inside.__getitem__)
        graph.output(tuple(inside[node] for node in self.match.outputs))
        return fx.GraphModule(torch.nn.Module(), graph)


def _joined(paths: Sequence[list[str]]) -> str:
    """Return names of modules with what they have in common said once."""
    common: list[str] = []
    for names in zip(*(path[:-1] or path for path in paths), strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    rest = dict.fromkeys(".".join(path[len(common) :]) for path in paths)
    return ": ".join(part for part in (".".join(common), ", ".join(filter(None, rest))) if part)


def regions(graph: fx.Graph, kernels: Sequence[Served]) -> Iterator[Region]:
    """Yield every place of every kernel; places of several kernels may share nodes."""
    operators = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    for kernel in kernels:
        for lead, device in _leads(graph, kernel):
            pattern = kernel.pattern(lead, device) if device.type in kernel.devices else None
            if pattern is None or not _operators(pattern) <= operators:
                continue

            def fits(one: match.Match, kernel: Served = kernel, lead: Lead = lead) -> bool:
                return _fits(Region(kernel, one), lead)

            for found in match.find(pattern, graph, fits):
                yield Region(kernel, found)


def _fits(region: Region, lead: Lead) -> bool:
    """Return whether the op takes what flows in: its own shapes behind that lead. Sizes that vary are none yet."""
    tensors = region.tensors
    if any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape):
        return False
    if region.kernel.leading is not None and _kind(region.kernel.lead(tensors[0])) != lead:
        return False
    try:
        return not isinstance(region.kernel.axes(region.kernel.flat(tensors)), str)
    except RuntimeError:  # a shape that does not flatten
        return False


def _operators(pattern: match.Pattern) -> set[str]:
    seen, waiting = set(), list(pattern.outputs)
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return {str(node.target) for node in seen if not match.is_view(node)}


def _leads(graph: fx.Graph, kernel: Served) -> list[tuple[Lead, torch.device]]:
    """Return the kinds of leading sizes in a graph that a kernel may have: those of its tensors without the axes that
    the kernel's first tensor has behind its own.
    """
    found: dict[tuple[Lead, torch.device], None] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and kernel.leading is None:
            found[SOME[:1], torch.device(value.device.type)] = None  # its shapes are its own
        elif isinstance(value, torch.Tensor) and 1 <= value.dim() - kernel.behind < MOST_RANK:
            found[_kind(value.shape[: value.dim() - kernel.behind]), torch.device(value.device.type)] = None
    return list(found)


def _kind(sizes: Sequence[Any]) -> Lead:
    return tuple(1 if size == 1 else SOME[axis % len(SOME)] for axis, size in enumerate(sizes))


def put(graph: fx.Graph, chosen: Sequence[Region]) -> None:
    """Put kernels into a graph, in place of what computes there; the regions share no nodes but views."""
    replaced: dict[fx.Node, fx.Node] = {}
    for region in chosen:
        replaced |= _put(graph, region, replaced)
    if chosen:
        inductor.sort(graph)
        graph.eliminate_dead_code()
        graph.lint()


def _put(graph: fx.Graph, region: Region, replaced: dict[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """Put a region's kernel behind its last node; returns what stands for its results from now on."""
    kernel, build = region.kernel, _Builder(graph, region.match.nodes[-1])
    inputs = []
    for position, node in enumerate(region.match.inputs):
        given = build.contiguous(replaced.get(node, node))
        inputs.append(build.shaped(given, kernel.flattened(given.meta["val"], position).shape))
    called = build.call(kernel.call, *kernel.kernel.arguments(inputs, region.match.numbers))
    results = {}
    for position, node in enumerate(region.match.outputs):
        result = called if len(region.match.outputs) == 1 else build.call(operator.getitem, called, position)
        results[node] = build.shaped(result, node.meta["val"].shape)
        node.replace_all_uses_with(results[node])
    return results


class _Builder:
    """Adds calls to a graph, each behind the one before, with its value without memory."""

    def __init__(self, graph: fx.Graph, after: fx.Node) -> None:
        self._graph, self._after = graph, after

    def call(self, target: Any, *arguments: Any, **options: Any) -> fx.Node:
        with self._graph.inserting_after(self._after):
            node = self._graph.call_function(target, arguments, options)
        values = fx.node.map_arg(arguments, lambda each: each.meta["val"])
        with inductor.mode_of(values):
            node.meta["val"] = target(*values, **options)
        self._after = node
        return node

    def contiguous(self, node: fx.Node) -> fx.Node:
        """Copy what is expanded or permuted, as kernels take tensors; Inductor fuses that with what makes it."""
        if node.meta["val"].is_contiguous():
            return node
        return self.call(torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)

    def shaped(self, node: fx.Node, shape: Sequence[int]) -> fx.Node:
        if tuple(node.meta["val"].shape) == tuple(shape):
            return node
        return self.call(torch.ops.aten.reshape.default, node, list(shape))
