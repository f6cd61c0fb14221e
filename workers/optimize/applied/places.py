"""Where kernels fit into a model: the places of each op, what every submodule is really called with, and why not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from . import match
from .comparing import kept, run
from .graph import Captured, Inputs, NotExportable, capture, order_matters
from .kernel import Kernel

NOWHERE = "nowhere"
_SIZES = (torch.SymInt, torch.SymBool, torch.SymFloat, int)


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
class Found:
    """A place with what stands there. `alone`: where it is a module, its own export."""

    kernel: Kernel
    match: match.Match
    place: Place
    alone: Captured | None = None


def find(model: nn.Module, captured: Captured, inputs: Inputs, kernels: Sequence[Kernel]) -> list[Found]:
    """Every place of every kernel, with why it is none. The model is run, and is as it was afterwards."""
    taken: list[Node] = []
    found: list[Found] = []
    hooked, ordered = _hooked(model), order_matters(captured.graph)
    simple = _simple_calls(model, inputs)
    for kernel in kernels:
        matches = match.find(kernel.pattern, captured.graph)
        if not matches:
            place = Place(kernel.name, kernel.op, NOWHERE, "region", 0, "the model does not compute this op")
            found.append(Found(kernel, match.Match((), (), ()), place))
            continue
        values = Recorder(captured.module, {node for one in matches for node in (*one.inputs, *one.outputs)})
        with kept(model):
            values.of(inputs.copied())
        for one in matches:
            name = _whole(model, captured, one, simple)
            tensors = [values.kept[node] for node in one.inputs]
            reason: str | None
            if any(node in taken and not match.is_view(node) for node in one.nodes):
                reason = "a kernel that was given before stands there"
            elif hooked:
                reason = f"{hooked} has forward hooks, which a kernel would pass by"
            else:
                reason = kernel.refusal(tensors) or kernel.wrong(tensors, [values.kept[node] for node in one.outputs])
            alone = None
            if reason is None and name is not None:
                (outside,) = {node for node in one.inputs if attribute(node, name) is None}
                alone = _alone(model.get_submodule(name), values.kept[outside])
            if reason is None and alone is None and ordered:
                reason = f"the order of the model's operators matters ({ordered}), so that no graph of it is run"
            if reason is None:
                taken += one.nodes
            kind, where = _region(one) if name is None or (reason is None and alone is None) else ("module", name)
            found.append(Found(kernel, one, Place(kernel.name, kernel.op, where, kind, len(one.nodes), reason), alone))
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


def attribute(node: Node, module: str) -> str | None:
    """The name, inside the submodule, of the parameter or buffer that a node is; None for any other."""
    target = str(node.target)
    return target[len(module) + 1 :] if node.op == "get_attr" and target.startswith(f"{module}.") else None


def _simple_calls(model: nn.Module, inputs: Inputs) -> set[str]:
    """The submodules that one call of the model calls once, with one tensor and nothing else, and that return one."""
    calls: dict[str, list[bool]] = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():

            def seen(_module: Any, args: Any, kwargs: Any, result: Any, name: str = name) -> None:
                simple = len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
                calls.setdefault(name, []).append(simple and isinstance(result, torch.Tensor))

            handle = module.register_forward_hook(seen, with_kwargs=True)
            hooks.callback(handle.remove)
        run(model, inputs)
    return {name for name, found in calls.items() if found == [True]}


def _whole(model: nn.Module, captured: Captured, one: match.Match, simple: Collection[str]) -> str | None:
    """The name of the submodule that does all of the match and nothing else; None where there is none."""
    innermost = [_modules_of(node) for node in one.nodes]
    common = [name for name in innermost[0] if all(name in names for names in innermost)]
    for name in reversed(common):
        if name and name in simple and _is_whole(model, captured, one, name):
            return name
    return None


def _is_whole(model: nn.Module, captured: Captured, one: match.Match, name: str) -> bool:
    """Whether the match is all that a submodule computes."""
    theirs = [
        node
        for node in captured.graph.nodes
        if node.op == "call_function" and name in _modules_of(node) and not isinstance(node.meta.get("val"), _SIZES)
    ]
    outside = [node for node in one.inputs if attribute(node, name) is None]
    single = len(set(outside)) == 1 and len(one.outputs) == 1 and outside[0] not in theirs
    try:
        module = model.get_submodule(name)
    except AttributeError:
        return False
    shared = sum(module is other for _, other in model.named_modules(remove_duplicate=False)) > 1
    return single and not shared and set(theirs) == set(one.nodes)


def _alone(module: nn.Module, x: torch.Tensor) -> Captured | None:
    """The export of a submodule by itself, which says for which calls it does the same; None where there is none."""
    try:
        found = capture(module, Inputs((x,)))
    except NotExportable:
        return None
    unkept = torch.empty((1,), dtype=x.dtype, device=x.device).expand(x.shape)  # its shape is wanted, no values
    return replace(found, inputs=Inputs((unkept,)))


def _region(one: match.Match) -> tuple[str, str]:
    """ "region", and the names of the modules around it."""
    names = dict.fromkeys(_modules_of(node)[-1] for node in one.nodes)
    return "region", " + ".join(name or "the model" for name in names)


def _modules_of(node: Node) -> list[str]:
    """Names of the modules whose forward computed a node, the outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    return [str(name) for name, _ in stack.values()]


def _hooked(model: nn.Module) -> str | None:
    """The first submodule with forward hooks of its own."""
    for name, module in model.named_modules():
        if name and (module._forward_hooks or module._forward_pre_hooks):
            return str(name)
    return None
