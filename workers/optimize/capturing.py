"""Capture a model as a graph of PyTorch's operators, by `torch.export` on a sample batch, and run it.

Sizes of the inputs stay symbolic where the model allows it, so that one graph serves other batch sizes.
"""

from __future__ import annotations

import inspect
import logging
import traceback
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from warpsmith.workers.optimize.compiled.inputs import Inputs

_HINTS = (
    ("data-dependent", "Python decides by a tensor's value there: use torch.where or torch.cond, or keep it outside"),
    ("unbacked", "a size follows from a tensor's values there: keep that part outside of the model"),
    ("Unsupported", "that operation cannot be traced: keep it outside of the model"),
)
_ADVICE = "or give a part of the model that can be exported: a file whose model() returns that submodule"
_TORCH = str(Path(torch.__file__).parent)


class NotExportable(ValueError):  # noqa: N818 - named for what was found
    """torch.export refuses the model. `part`: the innermost submodule that ran, `where`: the line of the user's own
    code that was the last to run, `why`: PyTorch's own first line, `remedy`: what to do.
    """

    def __init__(self, part: str, where: str, why: str, remedy: str) -> None:
        super().__init__(f"{part}{f' ({where})' if where else ''} cannot be exported: {why}; {remedy}")
        self.part, self.where, self.why, self.remedy = part, where, why, remedy


@dataclass(frozen=True)
class Captured:
    """A model's graph. `module` runs it on the model's own parameters and buffers; `dynamic`: sizes are symbolic."""

    module: GraphModule
    dynamic: bool

    @property
    def graph(self) -> Graph:
        """The operators."""
        return self.module.graph


class Recorder(Interpreter):
    """Runs a graph and keeps the values of some of its nodes."""

    def __init__(self, module: GraphModule, wanted: Collection[Node]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.kept: dict[Node, Any] = {}

    def of(self, inputs: Inputs) -> Any:
        """Return what the graph returns for these inputs; `kept` has the values."""
        with torch.no_grad():
            return self.run(*inputs.leaves()[0], enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self._wanted:
            self.kept[n] = value.detach() if n.op == "get_attr" else value.detach().clone()
        return value


def size_of(size: int | torch.SymInt) -> int | torch.SymInt:
    """A size as a plain number where the export found that it cannot vary."""
    return int(size) if isinstance(size, int) or size.node.expr.is_number else size


def capture(model: torch.nn.Module, inputs: Inputs, *, dynamic: bool = True) -> Captured:
    """The graph of `model` on `inputs`, without what does nothing; `dynamic`: with symbolic sizes where it allows them.
    Raises NotExportable.
    """
    try:
        exported = _export(model, inputs, dynamic)
    except NotExportable:
        if not dynamic:
            raise
        return capture(model, inputs, dynamic=False)
    module = exported.module()
    _simplify(module)
    return Captured(module, dynamic)


def _simplify(module: GraphModule) -> None:
    """Take out what does nothing."""
    for node in list(module.graph.nodes):
        asserted = node.op == "call_function" and str(node.target).startswith("aten._assert_tensor_metadata")
        if node.op == "call_module" or asserted:
            module.graph.erase_node(node)
        elif _is_idle_dropout(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code(lambda node: node.is_impure() or str(node.target).startswith("aten._assert"))
    module.recompile()


def _is_idle_dropout(node: Node) -> bool:
    return node.op == "call_function" and str(node.target) == "aten.dropout.default" and node.args[2] is False


def _export(model: torch.nn.Module, inputs: Inputs, dynamic: bool) -> torch.export.ExportedProgram:
    shapes = None
    if dynamic:
        auto = torch.export.Dim.AUTO
        shapes = pytree.tree_map(
            lambda leaf: dict.fromkeys(range(leaf.dim()), auto) if isinstance(leaf, torch.Tensor) else None,
            inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs).arguments,
        )
    with _watched(model) as running:
        try:
            with torch.no_grad(), _quiet():
                return torch.export.export(model, inputs.args, dict(inputs.kwargs), dynamic_shapes=shapes, strict=False)
        except Exception as error:
            raise _refusal(error, running) from error


@contextmanager
def _watched(model: torch.nn.Module) -> Iterator[list[str]]:
    """Inside, the list holds the names of the submodules that are running, the outermost first."""
    running: list[str] = []
    handles = []
    for name, module in model.named_modules():

        def enter(_module: Any, _args: Any, name: str = name) -> None:
            running.append(name)

        def leave(_module: Any, _args: Any, _result: Any) -> None:
            running.pop()

        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield running
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, the exporter does not log what is told in an error anyway."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)


def _refusal(error: Exception, running: list[str]) -> NotExportable:
    """The error with the part of the model, the line and the remedy."""
    part = f"{running[-1]!r} of the model" if running and running[-1] else "the model"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_TORCH)]
    own = [frame for frame in own if frame.filename != __file__]
    where = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line}" if own else ""
    lines = str(error).strip().splitlines() or [""]
    why = f"{type(error).__name__}: {lines[0]}"
    said = f"{type(error).__name__} {error}"
    hint = next((remedy for sign, remedy in _HINTS if sign in said), None)
    return NotExportable(part, where, why, f"{hint}; {_ADVICE}" if hint else _ADVICE)
