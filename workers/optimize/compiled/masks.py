"""Attention masks that no input decides, taken out of a graph.

A model that builds its mask from sizes alone (a causal one, or one that hides nothing) hands attention a tensor all the
same once it is traced, and with a tensor attention takes a slower kernel, or products and a softmax of their own. Here
such a mask is computed once, while the graph is compiled, and what it says is said by a flag in its place.

The graph is Dynamo's, before it is made functional: a tensor may be written to in place. So a mask is taken only where
everything that touches what it is made of depends on sizes and constants.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

ATTENTION = torch.nn.functional.scaled_dot_product_attention
_POSITIONS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")

Meaning = Literal["hides nothing", "causal"]


@dataclass(frozen=True)
class Place:
    """One call of attention with a mask, and what became of it.

    means: what the mask says, where it was taken out; why: the reason where it stays.
    """

    name: str
    means: Meaning | None
    why: str = ""


def take_out_masks(graph: fx.GraphModule) -> list[Place]:
    """Replace the masks that can be in a graph of Dynamo's, and erase what made them; returns every place with one."""
    calls = [node for node in graph.graph.nodes if node.op == "call_function" and node.target is ATTENTION]
    masked = [(node, mask) for node in calls if isinstance(mask := argument(node, "attn_mask"), fx.Node)]
    if not masked:
        return []
    free = _Free(graph)
    places = [_take_out(node, mask, free) for node, mask in masked]
    if any(place.means for place in places):
        free.erase_unused()
        graph.graph.lint()
        graph.recompile()
    return places


def _take_out(node: fx.Node, mask: fx.Node, free: _Free) -> Place:
    try:
        means = _meaning_at(node, mask, free)
    except _Stays as stays:
        return Place(node.name, None, str(stays))
    arguments = given(node)
    node.args = tuple(arguments.pop(name) for name in _POSITIONS[:3])
    node.kwargs = {**arguments, "attn_mask": None, "is_causal": means == "causal"}
    return Place(node.name, means)


class _Stays(Exception):  # noqa: N818 - named for what happens
    """A mask stays where it is; the message says why."""


def _meaning_at(node: fx.Node, mask: fx.Node, free: _Free) -> Meaning:
    """Return what the mask of a call of attention says. Raises _Stays."""
    if argument(node, "is_causal"):
        raise _Stays("it has a mask and is causal as well")
    if mask not in free.nodes:
        raise _Stays(_decided_by(mask))
    if free.why:
        raise _Stays(free.why)
    try:
        value = free.value(mask, node)
    except Exception as error:  # whatever a function of the model's raises out of its place
        raise _Stays(f"the mask cannot be computed here: {type(error).__name__}: {error}") from error
    if value is None:
        raise _Stays("the mask is not the same each time it is computed")
    means = meaning(value)
    if means is None:
        raise _Stays(f"the mask of shape {list(value.shape)} is neither causal nor empty")
    return means


def _decided_by(mask: fx.Node) -> str:
    sources = [one for one in _read_by(mask) if one.op == "placeholder"]
    if sources and all(isinstance(one.meta.get("example_value"), torch.SymInt) for one in sources):
        return "sizes that vary from call to call decide the mask: dynamic=False compiles each for itself"
    return "an input of the graph decides the mask"


def meaning(mask: torch.Tensor) -> Meaning | None:
    """Return what a mask says: booleans that are true where a key is seen, or numbers that are added to scores.

    A number hides a key where it is -inf or the lowest of its dtype: a row that sees any key gives it the weight zero.
    None: it says something else. Causal is as attention's flag has it: query i sees the keys 0 to i, of equal lengths.
    """
    if mask.ndim < 2 or not mask.numel():
        return None
    if mask.dtype == torch.bool:
        seen = mask
    elif mask.is_floating_point():
        seen = mask == 0
        if not bool((seen | (mask <= torch.finfo(mask.dtype).min)).all()):
            return None
    else:
        return None
    if bool(seen.all()):
        return "hides nothing"
    queries, keys = seen.shape[-2:]
    causal = torch.ones(queries, keys, dtype=torch.bool, device=seen.device).tril()
    return "causal" if queries == keys and bool((seen == causal).all()) else None


def given(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call of attention by name."""
    return dict(zip(_POSITIONS, node.args, strict=False)) | dict(node.kwargs)


def argument(node: fx.Node, name: str) -> Any:
    """Return an argument of a call of attention, None where it is not given."""
    return given(node).get(name)


class _Free:
    """The nodes of a graph that no input reaches, and the values of those that a mask is made of."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self.nodes: dict[fx.Node, None] = {}  # in the graph's order
        self.why = ""
        self._made_of: set[fx.Node] = set()
        for node in graph.graph.nodes:
            if node.op not in _CALLS:
                continue
            if all(one in self.nodes for one in node.all_input_nodes):
                self.nodes[node] = None
            elif any(one in self.nodes for one in written(node)):
                self.why = f"{node.name} may write what an input decides into a tensor that none did"

    def value(self, mask: fx.Node, user: fx.Node) -> torch.Tensor | None:
        """Return a mask's value as `user` finds it; None where it is no tensor, or two computations differ.

        Raises what its computation raises, as where it needs what is around it (a level of `vmap`).
        """
        made_of = self._closure(mask, user)
        first, second = _computed(made_of, mask, 0), _computed(made_of, mask, 1)
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            return None
        if first.shape != second.shape or not torch.equal(first, second):
            return None
        self._made_of.update(made_of)
        return first

    def _closure(self, mask: fx.Node, user: fx.Node) -> list[fx.Node]:
        """Return what a mask is made of, in order: what it reads, and what writes to that before `user` reads it.

        What is written may also be a view of it, or what it is a view of.
        """
        earlier = [node for node in self.nodes if node < user]
        found, size = _read_by(mask), 0
        while len(found) > size:
            size = len(found)
            for node in earlier:
                if node not in found and any(_read_by(one) & found for one in written(node)):
                    found |= _read_by(node)
        return [node for node in earlier if node in found]

    def erase_unused(self) -> None:
        """Erase what the masks were made of and nothing uses any longer; what is written to stays with who writes."""
        for node in reversed(self.nodes):
            if node in self._made_of and not node.users and not any(True for _ in written(node)):
                node.graph.erase_node(node)


def _read_by(node: fx.Node) -> set[fx.Node]:
    """Return a node and all that it reads."""
    found, todo = set(), [node]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(one.all_input_nodes)
    return found


def _computed(nodes: Sequence[fx.Node], mask: fx.Node, seed: int) -> object:
    """Compute nodes in order and return the mask's value."""
    values: dict[fx.Node, Any] = {}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for node in nodes:
            arguments, keywords = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "call_method":
                values[node] = getattr(arguments[0], str(node.target))(*arguments[1:], **keywords)
            else:
                assert callable(node.target)
                values[node] = node.target(*arguments, **keywords)
    return values[mask]


def written(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the arguments that a node may write to.

    By its schema where it has one, else by the names of in-place methods and functions; a function that is not
    PyTorch's may write to all.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        writes = [bool(one.alias_info and one.alias_info.is_write) for one in target._schema.arguments]
        given = zip(node.args, writes, strict=False)
        yield from (one for one, is_written in given if is_written and isinstance(one, fx.Node))
        return
    module = str(getattr(target, "__module__", None) or "torch").split(".")[0]
    if node.op == "call_function" and module not in _KNOWN:
        yield from node.all_input_nodes
        return
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    in_place = target in _IN_PLACE or bool(node.kwargs.get("inplace"))
    in_place |= module == "torch" and name.endswith("_") and not name.endswith("__")  # `operator.and_` is none
    if in_place and node.args and isinstance(node.args[0], fx.Node):
        yield node.args[0]
    if isinstance(out := node.kwargs.get("out"), fx.Node):
        yield out


_CALLS = ("call_function", "call_method")
_KNOWN = ("torch", "_operator", "builtins", "math")
_IN_PLACE: tuple[object, ...] = (
    operator.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.iand,
    operator.ior,
    operator.ixor,
)
