"""Kernels in a model: where they fit, put in place, taken out again.

A kernel that is a whole submodule replaces the module object; any other place is a region of the model's graph, and the
model's `forward` then runs the graph for the calls for which it holds, and is as it was for all others. Parameters and
buffers stay where they are and are never written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.tools_common import legalize_graph

from . import match
from .graph import Captured, Inputs, capture
from .kernel import Kernel
from .standins import Forward, KernelModule, is_applied

NOWHERE = "nowhere"


@dataclass(frozen=True)
class Place:
    """Where a kernel stands, or why it does not: `kind` "module" or "region", `where` the module's name or the names of
    the modules around the region, `reason` None where it stands.
    """

    kernel: str
    op: str
    where: str
    kind: str
    operators: int
    reason: str | None = None

    @property
    def replaced(self) -> bool:
        """Whether the kernel stands there."""
        return self.reason is None


@dataclass(frozen=True)
class _Found:
    kernel: Kernel
    match: match.Match
    place: Place


class Applied:
    """Kernels that were put into a model; `undo` takes them out. Also a context manager that undoes at its end."""

    def __init__(self, model: nn.Module, captured: Captured, found: Sequence[_Found]) -> None:
        self.model = model
        self.places = [one.place for one in found]
        self._captured = captured
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
        the model runs as a graph; by default where a region asks for it.
        """
        self.undo()
        chosen = [one for one in self._found if names is None or one.kernel.name in names]
        for one in chosen:
            if one.place.kind == "module":
                self._replace(one)
        if any(one.place.kind == "region" for one in chosen) if graph is None else graph:
            self._hidden = self.model.__dict__.get("forward")
            self._forward = Forward(self.model.forward, self._captured, _rewritten(self._captured, chosen))
            self.model.__dict__["forward"] = self._forward

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

    def _replace(self, one: _Found) -> None:
        name = one.place.where
        original = self.model.get_submodule(name)
        sources = [_attribute(node, name) for node in one.match.inputs]
        stand_in = KernelModule(original, one.kernel, sources)
        self._modules.append((name, original, stand_in))
        _put(self.model, name, stand_in)


def apply(model: nn.Module, example_inputs: Any, kernels: Sequence[Kernel]) -> Applied:
    """Put kernels into `model` wherever they compute what it computes and their envelope takes the sizes of
    `example_inputs` (a tensor, a tuple of positional arguments, or a dict by name). A node that several could serve
    goes to the kernel that is given first. Nothing is changed where it raises: NotExportable, or ValueError for a
    model that kernels were applied to before.
    """
    if is_applied(model):
        raise ValueError("kernels were applied to this model before: undo() that first")
    inputs = Inputs.of(example_inputs)
    captured = capture(model, inputs)
    applied = Applied(model, captured, _places(model, captured, inputs, kernels))
    applied.install()
    return applied


def _places(model: nn.Module, captured: Captured, inputs: Inputs, kernels: Sequence[Kernel]) -> list[_Found]:
    """Every place of every kernel, with why it is none."""
    taken: list[Node] = []
    found: list[_Found] = []
    hooked = _hooked(model)
    for kernel in kernels:
        matches = match.find(kernel.pattern, captured.graph)
        if not matches:
            place = Place(kernel.name, kernel.op, NOWHERE, "region", 0, "the model does not compute this op")
            found.append(_Found(kernel, match.Match((), (), ()), place))
            continue
        values = Recorder(captured.module, {node for one in matches for node in (*one.inputs, *one.outputs)})
        values.of(inputs)
        for one in matches:
            kind, where = _where(model, captured, one)
            place = Place(kernel.name, kernel.op, where, kind, len(one.nodes))
            tensors = [values.kept[node] for node in one.inputs]
            reason: str | None
            if any(node in taken and not match.is_view(node) for node in one.nodes):
                reason = "a kernel that was given before stands there"
            elif hooked:
                reason = f"{hooked} has forward hooks, which a kernel would pass by"
            else:
                reason = kernel.refusal(tensors) or kernel.wrong(tensors, [values.kept[node] for node in one.outputs])
            if reason is None:
                taken += one.nodes
            found.append(_Found(kernel, one, replace(place, reason=reason)))
    return found


class Recorder(Interpreter):
    """Runs a graph and keeps the values of some of its nodes."""

    def __init__(self, module: GraphModule, wanted: Collection[Node]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.kept: dict[Node, Any] = {}

    def of(self, inputs: Inputs) -> Any:
        """What the graph returns for these inputs; `kept` has the values."""
        with torch.no_grad():
            return self.run(*inputs.leaves()[0], enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self._wanted:
            self.kept[n] = value.detach() if n.op == "get_attr" else value.detach().clone()
        return value


def _where(model: nn.Module, captured: Captured, one: match.Match) -> tuple[str, str]:
    """("module", its name) where the match is all that a submodule does; else ("region", the names around it)."""
    innermost = [_modules_of(node) for node in one.nodes]
    common = [name for name in innermost[0] if all(name in names for names in innermost)]
    for name in reversed(common):
        if name and _is_whole(model, captured, one, name):
            return "module", name
    names = dict.fromkeys(names[-1] for names in innermost)
    return "region", " + ".join(name or "the model" for name in names)


def _is_whole(model: nn.Module, captured: Captured, one: match.Match, name: str) -> bool:
    """Whether the match is a submodule that takes one tensor and returns one."""
    theirs = [node for node in captured.graph.nodes if node.op == "call_function" and name in _modules_of(node)]
    outside = [node for node in one.inputs if _attribute(node, name) is None]
    single = len(set(outside)) == 1 and len(one.outputs) == 1 and outside[0] not in theirs
    try:
        module = model.get_submodule(name)
    except AttributeError:
        return False
    shared = sum(module is other for _, other in model.named_modules(remove_duplicate=False)) > 1
    return single and not shared and set(theirs) == set(one.nodes)


def _modules_of(node: Node) -> list[str]:
    """Names of the modules whose forward computed a node, the outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    return [str(name) for name, _ in stack.values()]


def _attribute(node: Node, module: str) -> str | None:
    """The name, inside the submodule, of the parameter or buffer that a node is; None for any other."""
    target = str(node.target)
    return target[len(module) + 1 :] if node.op == "get_attr" and target.startswith(f"{module}.") else None


def _rewritten(captured: Captured, chosen: Sequence[_Found]) -> GraphModule:
    """The graph with these places served by their kernels."""
    graph = torch.fx.Graph()
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
                else [graph.call_function(_item, (call, position)) for position in range(len(outputs))]
            )
        for output, served in zip(outputs, results, strict=True):
            copies[output].replace_all_uses_with(served)
        for node in reversed(one.match.nodes):
            if not copies[node].users:  # a view may have others
                graph.erase_node(copies[node])
        copies |= dict(zip(outputs, results, strict=True))  # the input of another place, maybe
    return legalize_graph(GraphModule(captured.module, graph))


def _item(values: Any, position: int) -> Any:
    return values[position]


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Make `module` the submodule of this name, in its place among the others."""
    parent, _, own = name.rpartition(".")
    model.get_submodule(parent)._modules[own] = module


def _hooked(model: nn.Module) -> str | None:
    """The first submodule with forward hooks of its own."""
    for name, module in model.named_modules():
        if name and (module._forward_hooks or module._forward_pre_hooks):
            return str(name)
    return None
