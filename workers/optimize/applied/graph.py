"""A model as a graph of PyTorch's operators, by `torch.export` on a sample batch, and for which calls that graph holds.

Sizes of the inputs stay symbolic where the model allows it, so that one graph serves other batch sizes.
"""

from __future__ import annotations

import copy
import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

MOST_REMEMBERED = 256
"""Signatures of calls; when there are more, all are forgotten."""
_HINTS = (
    ("data-dependent", "Python decides by a tensor's value there: use torch.where or torch.cond, or keep it outside"),
    ("unbacked", "a size follows from a tensor's values there: keep that part outside of the model"),
    ("Unsupported", "that operation cannot be traced: keep it outside of the model"),
)
_ADVICE = "or give a part of the model that can be exported: a file whose model() returns that submodule"
_SWITCHES = ("_set_grad", "_enter", "_exit")
"""How the names of functions begin that switch gradients and autocast."""
_TORCH = str(Path(torch.__file__).parent)


class NotExportable(ValueError):  # noqa: N818 - named for what was found
    """torch.export refuses the model. `part`: the innermost submodule that ran, `where`: the line of the user's own
    code that was the last to run, `why`: PyTorch's own first line, `remedy`: what to do.
    """

    def __init__(self, part: str, where: str, why: str, remedy: str) -> None:
        super().__init__(f"{part}{f' ({where})' if where else ''} cannot be exported: {why}; {remedy}")
        self.part, self.where, self.why, self.remedy = part, where, why, remedy


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of a model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> Inputs:
        """A tensor alone, a tuple or list of positional arguments, or a dict of arguments by name."""
        if isinstance(value, dict):
            return cls((), value)
        return cls(tuple(value) if isinstance(value, tuple | list) else (value,))

    def to(self, device: torch.device | str) -> Inputs:
        """With every tensor on `device`."""
        moved = pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, self._tree())
        return Inputs(*moved)

    def copied(self) -> Inputs:
        """With a copy of every tensor, laid out as it is."""
        copied = pytree.tree_map(
            lambda leaf: copy.deepcopy(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf, self._tree()
        )
        return Inputs(*copied)

    def call(self, model: Callable[..., Any]) -> Any:
        """What the model returns."""
        return model(*self.args, **self.kwargs)

    def leaves(self) -> tuple[list[Any], Any]:
        """The values in order, and how they are nested."""
        return pytree.tree_flatten(self._tree())

    def _tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.args, dict(self.kwargs)


@dataclass
class Captured:
    """A model's graph. `module` runs it on the model's own parameters and buffers."""

    module: GraphModule
    inputs: Inputs
    training: bool
    dynamic: bool
    """Whether sizes of the inputs are symbolic."""
    ranges: dict[str, tuple[float, float]]
    """Smallest and largest value of each symbolic size."""
    guards: Callable[..., object] | None
    """Raises for tensors on which the graph does not hold."""
    _known: dict[tuple[Any, ...], bool] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The operators."""
        return self.module.graph

    def holds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether the graph is the model for these arguments: same nesting, dtypes, device and numbers, and sizes
        within what the export found.
        """
        leaves, spec = Inputs(args, kwargs).leaves()
        key: list[Any] = [spec]
        key += [(leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        try:
            known = self._known.get(tuple(key))
        except TypeError:  # an argument that has no hash is none of the sample's
            return False
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = self._known[tuple(key)] = self._examine(leaves, spec)
        return known

    def _examine(self, leaves: list[Any], spec: Any) -> bool:
        sample, wanted = self.inputs.leaves()
        if spec != wanted:
            return False
        fakes = [node.meta.get("val") for node in self.graph.nodes if node.op == "placeholder"]
        sizes: dict[str, int] = {}
        for leaf, example, fake in zip(leaves, sample, fakes, strict=True):
            if isinstance(example, torch.Tensor):
                if not self._is_like(leaf, example, fake, sizes):
                    return False
            elif type(leaf) is not type(example) or leaf != example:
                return False
        try:
            if self.guards is not None:
                self.guards(*leaves)
        except (AssertionError, RuntimeError):
            return False
        return True

    def _is_like(self, leaf: Any, example: torch.Tensor, fake: Any, sizes: dict[str, int]) -> bool:
        """Whether a tensor is of the sample's kind, and as large as the export allows; its sizes go into `sizes`."""
        if not isinstance(leaf, torch.Tensor) or not isinstance(fake, torch.Tensor) or leaf.dim() != example.dim():
            return False
        if leaf.dtype is not example.dtype or leaf.device != example.device:
            return False
        return all(
            sizes.setdefault(str(size), found) == found and self._allowed(found, size)
            for found, size in zip(leaf.shape, map(size_of, fake.shape), strict=True)
        )

    def _allowed(self, found: int, size: int | torch.SymInt) -> bool:
        if isinstance(size, int):
            return found == size
        low, high = self.ranges.get(str(size), (2, 0))  # an expression over other sizes: not looked into
        return low <= found <= high


def order_matters(graph: Graph) -> str | None:
    """The first operator that has to stay between those around it: a write in place, a switch of PyTorch's mode, or one
    with graphs of its own, which are not looked into. None where the edges say all.
    """
    for node in graph.nodes:
        schema: Any = getattr(node.target, "_schema", None)
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator) or (schema is not None and schema.is_mutable):
            return str(node.target)
        if (called := str(getattr(node.target, "__name__", ""))).startswith(_SWITCHES):
            return called
    return None


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
    guards = _simplified(module)
    if dynamic and guards is None:  # a PyTorch that keeps its guards elsewhere: hold to the sample's sizes
        return capture(model, inputs, dynamic=False)
    ranges = {str(size): (float(found.lower), float(found.upper)) for size, found in exported.range_constraints.items()}
    return Captured(module, inputs, model.training, dynamic, ranges, guards)


def _simplified(module: GraphModule) -> Callable[..., object] | None:
    """Take out what does nothing and return the guards that the graph called."""
    guards = None
    for node in list(module.graph.nodes):
        if node.op == "call_module":
            guards = module.get_submodule(str(node.target))
            module.graph.erase_node(node)
        elif node.op == "call_function" and str(node.target).startswith("aten._assert_tensor_metadata"):
            module.graph.erase_node(node)
        elif _is_idle_dropout(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code(lambda node: node.is_impure() or str(node.target).startswith("aten._assert"))
    module.recompile()
    return guards


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
