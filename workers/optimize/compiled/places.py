"""Where kernels fit into a graph of Inductor's, and the graph with some of them in their places."""

from __future__ import annotations

import functools
import graphlib
import hashlib
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from . import inductor, match
from .kernel import Kernel
from .leads import Read, kind, leads, operators_of
from .patterns import Lead
from .served import SOME, Number, Ones, Served, ones

if TYPE_CHECKING:
    from .bags import Bags


_KEPT = ("tensors", "laid", "key", "numbers", "chosen")
"""What of a place is the same in a copy of its graph."""
_MOST_INDICES = 2**31
"""Elements of an axis that int32 tells apart."""


class Laid(NamedTuple):
    """How a tensor lies, for other threads: what one without memory says of its device changes while it is used."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def laid_out(values: torch.Tensor, like: torch.Tensor | Laid) -> torch.Tensor:
    """Return the values in memory of their own, with the dtype and strides of `like`: what is expanded there is so."""
    strides = like.stride() if isinstance(like, torch.Tensor) else like.stride
    once = values[tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)]
    made = torch.empty_strided(once.shape, strides, dtype=like.dtype, device=like.device)
    return made.copy_(once).expand(values.shape)


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of tensors that lie as they do."""
    return [laid_out(tensor, tensor) for tensor in tensors]


@dataclass(frozen=True)
class Region:
    """A place in a graph that computes what a kernel computes.

    key: of all that decides whether the kernel pays here: itself, the shapes, strides and dtypes of the inputs, and the
    numbers. Regions of one key are one thing, wherever they stand.
    """

    kernel: Served | Bags
    match: match.Match

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """What flows in: tensors without memory, of the sizes of the call that is compiled."""
        return [tensor for tensor in map(_sized, self.match.inputs) if tensor is not None]

    @functools.cached_property
    def laid(self) -> list[Laid]:
        """How what flows in lies."""
        return [Laid(tuple(each.shape), each.stride(), each.dtype, each.device) for each in self.tensors]

    def on(self, moved: Mapping[fx.Node, fx.Node]) -> Region:
        """Return the same place in a copy of its graph: `moved` is each node's there."""
        own = self.match
        inputs, outputs, nodes = (tuple(moved[node] for node in each) for each in (own.inputs, own.outputs, own.nodes))
        there = type(self)(self.kernel, replace(own, inputs=inputs, outputs=outputs, nodes=nodes))
        vars(there).update({name: vars(self)[name] for name in _KEPT if name in vars(self)})
        return there

    @functools.cached_property
    def key(self) -> str:
        """See the class."""
        facts = [(tuple(t.shape), tuple(t.stride()), str(t.dtype), t.device.type) for t in self.tensors]
        operators = [str(node.target) for node in self.match.nodes]
        return hashlib.sha256(repr((self.kernel.name, facts, self.numbers, operators)).encode()).hexdigest()[:32]

    @functools.cached_property
    def numbers(self) -> tuple[Number, ...]:
        """The op's numbers here."""
        return self.kernel.numbers_at(self.match)

    def ready(self) -> None:
        """Have all that other threads ask for, whatever becomes of the graph meanwhile."""
        _ = self.laid, self._itself, self.chosen

    @functools.cached_property
    def chosen(self) -> dict[int, int]:
        """The inputs that are the indices of a `topk` along the last axis, with the size of that axis."""
        found = {}
        for position, node in enumerate(self.match.inputs):
            source = node.args[0] if node.target is operator.getitem and node.args[1] == 1 else None
            if isinstance(source, fx.Node) and str(source.target) == "aten.topk.default":
                shape = source.args[0].meta["val"].shape  # type: ignore[union-attr]  # a node of a graph
                along = source.args[2] if len(source.args) > 2 else -1
                if along in (-1, len(shape) - 1) and isinstance(shape[-1], int):
                    found[position] = shape[-1]
        return found

    def strided(self, position: int) -> bool:
        """Return whether the op takes the tensor at this position with any stride: a package takes none so."""
        return False

    def flat(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return inputs, each once, as the op takes them: some several times, contiguous, with one leading axis."""
        by_node = dict(zip(dict.fromkeys(self.match.inputs), given, strict=True))
        found: list[torch.Tensor] = self.kernel.flat([by_node[node].contiguous() for node in self.match.inputs])
        return found

    def integers(self, position: int, *, even: bool) -> torch.Tensor | None:
        """Draw integers for an input; None where it is not known which ones make sense: a single one's are known where
        its op's workloads say something of it (a position in a cache), several where these had all that the dtype has
        (bytes of quantized weights), where they divide rows into groups (a mixture's tokens among its experts), or
        where the model has them from a `topk` and the op's workloads have any index of that axis. even: as a call
        commonly has them: each row falls into any group, or chooses by itself; else some are large and others empty.
        """
        like, kernel = self.laid[position], self.kernel.kernel
        if not isinstance(kernel, Kernel):  # bags know their own
            return None
        if (groups := kernel.groups(position)) is not None:
            axes = self.kernel.axes_of(self.laid, self.tensors, self.numbers)
            return None if isinstance(axes, str) else _divided(axes[groups[0]], like, leading=groups[1], even=even)
        if position in self.chosen and (axis := kernel.indexed(position)) is not None:
            axes = self.kernel.axes_of(self.laid, self.tensors, self.numbers)
            if isinstance(axes, str) or axes[axis] != self.chosen[position]:
                return None
            return _chosen(self.chosen[position], like, even=even)
        known = kernel.integers(position, single=math.prod(like.shape) == 1)
        if known is None:
            return None
        return torch.randint(known.start, known.stop, like.shape, dtype=like.dtype, device=like.device)

    @property
    def read_bytes(self) -> int | None:
        """The bytes that a call reads and writes where that is not all that flows in."""
        return None

    def another(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return inputs that no cache holds because of these: copies."""
        return copied(inputs)

    @property
    def shapes(self) -> str:
        """The shapes of the inputs, for people."""
        return ", ".join("x".join(map(str, tensor.shape)) or "()" for tensor in self.tensors)

    @property
    def where(self) -> str:
        """See `modules_of`; its result's name where the graph names none."""
        return modules_of(self.match.nodes) or self.match.outputs[0].name

    @property
    def written(self) -> list[tuple[fx.Node, fx.Node]]:
        """Each input that the op writes to, with the node whose value it leaves there: the last of the results."""
        inputs = [self.match.inputs[position] for position in self.kernel.mutated]
        return list(zip(inputs, self.match.outputs[len(self.match.outputs) - len(inputs) :], strict=True))

    @functools.cached_property
    def _itself(self) -> fx.GraphModule:
        return cut_out(self.match.inputs, self.match.nodes, self.match.outputs)

    def alone(self, *, in_place: bool = False) -> fx.GraphModule:
        """Return the region as a graph of its own: its inputs in order, once each, and a tuple of its results.

        in_place: it writes to its inputs as the model does, and returns the other results alone.
        """
        match = self.match
        if not in_place:
            return self._itself
        results = match.outputs[: len(match.outputs) - len(self.written)]
        return cut_out(match.inputs, match.nodes, results, self.written)


def _divided(rows: int, like: Laid, *, leading: bool, even: bool) -> torch.Tensor:
    """Draw where groups of so many rows end, behind a 0 where there is a leading one (see `Region.integers`)."""
    groups = like.shape[0] - leading
    if even:
        ends = torch.randint(groups, (rows,), device=like.device).bincount(minlength=groups).cumsum(0)
    else:
        ends = torch.randint(rows + 1, (groups,), device=like.device).sort().values
        ends[-1] = rows
    return torch.cat([ends.new_zeros(int(leading)), ends]).to(like.dtype)


def _chosen(size: int, like: Laid, *, even: bool) -> torch.Tensor:
    """Draw indices as `topk` gives them, of which no two of a row are the same (see `Region.integers`)."""
    rows = torch.rand(*like.shape[:-1] if even else [1] * (len(like.shape) - 1), size, device=like.device)
    return rows.topk(like.shape[-1]).indices.expand(like.shape).to(like.dtype)


def cut_out(
    inputs: Sequence[fx.Node],
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    written: Sequence[tuple[fx.Node, fx.Node]] = (),
) -> fx.GraphModule:
    """Return a part of a graph as one of its own: its inputs in order, once each, and a tuple of its results.

    Sizes that vary are numbers there, as they were in the call that is compiled. written: inputs that it writes to,
    each with the node whose value it leaves there.
    """
    graph = fx.Graph()
    inside = {node: graph.placeholder(node.name) for node in dict.fromkeys(inputs)}

    def within(node: fx.Node) -> Any:
        return inside[node] if node in inside else inductor.hint(node.meta["val"])

    for node in nodes:
        copy = inside[node] = graph.create_node(node.op, node.target, name=node.name)
        copy.args, copy.kwargs = fx.map_arg((node.args, dict(node.kwargs)), within)
        copy.meta = dict(node.meta)
    for target, value in written:
        graph.call_function(torch.ops.aten.copy_.default, (inside[target], inside[value]))
    graph.output(tuple(inside[node] for node in outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def _plain(name: str) -> str:
    """Return a module's name as its user has it: Dynamo says L['self'].layers[0], and G['norm'] for a global."""
    return _INDEXED.sub(r".\1", _SOURCE.sub(r"\1", name).removeprefix("self.").removeprefix("self"))


_SOURCE, _INDEXED = re.compile(r"[LG]\['(\w+)'\]"), re.compile(r"\[(\d+)\]")


def _joined(paths: Sequence[list[str]]) -> str:
    """Return names of modules with what they have in common said once."""
    common: list[str] = []
    for names in zip(*(path[:-1] or path for path in paths), strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    rest = dict.fromkeys(".".join(path[len(common) :]) for path in paths)
    return ": ".join(part for part in (".".join(common), ", ".join(filter(None, rest))) if part)


def modules_of(nodes: Sequence[fx.Node]) -> str:
    """Return the modules around nodes, "layers.0: norm, q_proj"; empty where the graph has no names of any."""
    stacks = [node.meta.get("nn_module_stack") for node in nodes]
    names = [_plain(str(list(stack.values())[-1][0])) for stack in stacks if stack]
    return _joined([name.split(".") for name in dict.fromkeys(names)]) if names else ""


@dataclass
class Found:
    """What was found in a graph: the regions, and those where sizes keep the op out, with the reason.

    bags: embedding bags that are in none, with the reason.
    """

    regions: list[Region]
    misses: list[tuple[Region, str]]
    bags: dict[fx.Node, str] = field(default_factory=dict)

    def on(self, before: fx.Graph, graph: fx.Graph) -> Found | None:
        """Return the same on a copy of the graph in which it was found; None where it is no copy."""
        if [(node.op, node.target) for node in before.nodes] != [(node.op, node.target) for node in graph.nodes]:
            return None
        moved = dict(zip(before.nodes, graph.nodes, strict=True))
        return Found(
            [region.on(moved) for region in self.regions],
            [(region.on(moved), why) for region, why in self.misses],
            {moved[node]: why for node, why in self.bags.items()},
        )


def find(graph: fx.Graph, kernels: Sequence[Served]) -> Found:
    """Find every place of every kernel; places of several kernels may share nodes."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    operators = {str(node.target) for node in calls}
    read = Read(graph)
    found = Found([], [])
    arguments: match.Arguments = {}
    with inductor.steady():
        patterns = [
            (kernel, lead, kernel.patterns(lead, device, read.has))
            for kernel in kernels
            for lead, device in leads(read, kernel, operators)
        ]
        for kernel, lead, each in patterns:
            own = [(where, pattern) for where, pattern in each if operators_of(pattern) <= operators]
            if not kernel.mutated:  # what an op writes to has the dtype that it has
                own += [(where, uncast) for where, pattern in own if (uncast := pattern.as_int64()) is not None]
            fits = _Fits(kernel, lead, found)
            for where, pattern in own:
                ones_too = functools.partial(fits, where)
                found.regions += [Region(kernel, one) for one in match.find(pattern, graph, ones_too, arguments)]
    placed = {(region.kernel.name, region.match.nodes) for region in found.regions}
    misses = {(r.kernel.name, r.match.nodes): (r, why) for r, why in found.misses if why}
    found.misses = [miss for key, miss in misses.items() if key not in placed]
    return found


class _Fits:
    """Whether matches of an op's patterns for a lead are places; `found` is told why one is none."""

    def __init__(self, kernel: Served, lead: Lead, found: Found) -> None:
        self._kernel, self._lead, self._found = kernel, lead, found
        self._cast: set[fx.Node] = set()
        self._places: set[frozenset[fx.Node]] = set()

    def __call__(self, where: Ones | None, one: match.Match) -> bool:
        """Ask of one. where: which axes must have one element there; None: any may."""
        nodes = frozenset(node for node in one.nodes if not match.is_view(node))
        if one.uncast and not self._cast.isdisjoint(nodes):
            return False  # the model casts as the op does: that is part of the place
        region = Region(self._kernel, one)
        if where is not None and (nodes in self._places or _ones(region) != where):
            return False
        if not one.uncast:
            self._cast |= nodes
        if (why := _unfit(region, self._lead)) is not None:
            self._found.misses.append((region, why))
        else:
            self._places.add(nodes)
        return why is None


def _ones(region: Region) -> Ones | None:
    """Return which axes have one element, behind the leading one; None where not all that flows in are tensors."""
    tensors = region.tensors
    return ones(region.kernel.behind_rows(tensors)) if len(tensors) == len(region.match.inputs) else None


def _unfit(region: Region, lead: Lead) -> str | None:
    """Return why the op does not take what flows in: only sizes of a lead may vary, and the others are its own.

    None where it does, "" where it is another lead's place.
    """
    tensors = region.tensors
    if len(tensors) < len(region.match.inputs) or any(_varies(region, at) for at in range(len(tensors))):
        return "sizes vary from call to call that are not those of its rows"
    if region.kernel.leading is not None and kind(region.kernel.lead(tensors[0])) != lead:
        return ""
    integers = region.kernel.integers_at(region.match)
    if integers is None:
        return "sizes vary from call to call that are numbers of the op"
    axes = region.kernel.axes_of(region.laid, tensors, region.numbers)
    if isinstance(axes, str):
        return axes
    if region.match.uncast and any(size >= _MOST_INDICES for tensor in tensors for size in tensor.shape):
        return "an axis has more elements than the op's indices can tell apart"
    own = region.match.inputs[0].meta["val"].shape
    varies = region.match.counted and any(isinstance(size, torch.SymInt) for size in own)
    asked = region.match.resized or varies or bool(integers)
    return "" if asked and not _agrees(region) else _not_in_place(region)


def _agrees(region: Region) -> bool:
    """Return whether the integers of a place are those that the op's reference has on its sizes.

    Where sizes vary from call to call it must have the same on others, twice as large and more (of one more, halves may
    be the same): an integer that they decide is none.
    """
    kernel, tensors = region.kernel, region.tensors
    leads: list[Lead] = [SOME[:1]]
    if kernel.leading is not None:
        own = kernel.lead(tensors[0])
        vary = [isinstance(size, torch.SymInt) for size in region.match.inputs[0].meta["val"].shape[: len(own)]]
        more = tuple(2 * size + 1 if one else size for size, one in zip(own, vary, strict=True))
        leads = [own, more] if any(vary) else [own]
    shapes, integers = kernel.behind_rows(tensors), kernel.integers_at(region.match)
    patterns = [kernel.pattern(lead, tensors[0].device, shapes, integers) for lead in leads]
    if region.match.uncast:
        patterns = [None if pattern is None else pattern.as_int64() for pattern in patterns]
    return all(pattern is not None and match.agrees(pattern, region.match) for pattern in patterns)


def _not_in_place(region: Region) -> str | None:
    """Return why an op that writes to its inputs cannot do so here; None where it can.

    Only what the graph itself is given can be written to, as the graph does it. What else reads it as it was must do so
    before the op: otherwise Inductor would copy it.
    """
    nodes, last = set(region.match.nodes), region.match.nodes[-1]
    for position, (node, value) in zip(region.kernel.mutated, region.written, strict=True):
        named = f"{region.kernel.names[position]}, which the op writes to,"
        if node.op != "placeholder" or region.match.inputs.count(node) > 1:
            return f"{named} is not an input of the graph for itself"
        tensor = region.tensors[position]
        if tensor.dim() != region.kernel.rank(position) or not tensor.is_contiguous():
            return f"{named} is not contiguous, or has other axes"
        if [user.args[1] for user in node.users if match.is_write_back(user) and user.args[0] is node] != [value]:
            return f"{named} is left as it was, or with another value"
        if any(user not in nodes and not match.is_write_back(user) and last < user for user in node.users):
            return f"{named} is read as it was after the op"
    return None


def _sized(node: fx.Node) -> torch.Tensor | None:
    return inductor.sized(node.meta["val"])


def _varies(region: Region, position: int) -> bool:
    """Return whether a size varies from call to call in an input, beside those of a lead: the op looks at each call."""
    shape = region.match.inputs[position].meta["val"].shape
    own = shape[len(shape) - region.kernel.rank(position) + 1 :] if region.kernel.rows(position) else shape
    return any(isinstance(size, torch.SymInt) for size in own)


def in_order(graph: fx.Graph, chosen: Sequence[Region]) -> bool:
    """Return whether kernels in all these places can run one after the other: none needs what another of them makes
    while that one needs its own.
    """
    stand = {node: region for region in chosen for node in region.match.nodes if not match.is_view(node)}
    made_by: dict[fx.Node, set[int]] = {}  # a view is no step of its own: several regions may look through one
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for node in graph.nodes:
        needed = {maker for one in node.all_input_nodes for maker in made_by[one]}
        if match.is_view(node):
            made_by[node] = needed
            continue
        here = id(stand.get(node, node))
        made_by[node] = {here}
        sorter.add(here, *needed - {here})
    try:
        sorter.prepare()
    except graphlib.CycleError:
        return False
    return True


def put(graph: fx.Graph, chosen: Sequence[Region]) -> None:
    """Put kernels into a graph, in place of what computes there; the regions share no nodes but views."""
    replaced: dict[fx.Node, fx.Node] = {}
    copies: dict[fx.Node, fx.Node] = {}
    for region in chosen:
        replaced |= _put(graph, region, replaced, copies)
    if chosen:
        inductor.sort(graph)
        old = {node for region in chosen for node in region.match.nodes}
        for node in reversed(graph.nodes):  # attention that may drop something counts as more than its results
            if node in old and not node.users:
                graph.erase_node(node)
        graph.eliminate_dead_code()
        graph.lint()


def _put(
    graph: fx.Graph, region: Region, replaced: dict[fx.Node, fx.Node], copies: dict[fx.Node, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Put a region's kernel behind its last node; returns what stands for its results from now on.

    copies: contiguous copies that were made for other regions (a mask that all layers have), by what they copy.
    """
    kernel, build = region.kernel, Builder(graph, region.match.nodes[-1])
    inputs = []
    for position, node in enumerate(region.match.inputs):
        source = replaced.get(node, node)
        if region.strided(position):
            given = source
        else:
            given = copies[source] = copies.get(source) or build.contiguous(source)
        inputs.append(build.rows(given, kernel.rank(position)) if kernel.rows(position) else given)
    arguments = kernel.kernel.arguments(inputs, region.numbers)
    own = len(region.match.outputs) - len(region.written)
    if region.written:
        target, keywords = inductor.functional(kernel.call, arguments)
        called = build.call(target, kernel.call, **keywords)
    else:
        called = build.call(kernel.call, *arguments)
    results = {}
    for position, node in enumerate(region.match.outputs):
        if len(region.match.outputs) == 1 and own:
            result = called
        else:  # of an op without results of its own the first is None
            result = build.call(operator.getitem, called, position + (0 if own else 1))
        if position in region.match.uncast:
            result = build.call(torch.ops.prims.convert_element_type.default, result, node.meta["val"].dtype)
        results[node] = build.shaped(result, node.meta["val"].shape, region.match.inputs[0])
        node.replace_all_uses_with(results[node])
    return results


class Builder:
    """Adds calls to a graph, each behind the one before, with its value without memory."""

    def __init__(self, graph: fx.Graph, after: fx.Node) -> None:
        self._graph, self._after = graph, after
        self._like = after.meta.get("val")  # where a call has no tensors, its value has no memory either

    def call(self, target: Any, *arguments: Any, **options: Any) -> fx.Node:
        with self._graph.inserting_after(self._after):
            node = self._graph.call_function(target, arguments, options)
        values, named = fx.node.map_arg((arguments, options), lambda each: each.meta["val"])
        with inductor.mode_of((values, named, self._like)):
            node.meta["val"] = target(*values, **named)
        self._after = node
        return node

    def contiguous(self, node: fx.Node) -> fx.Node:
        """Copy what is expanded or permuted, as kernels take tensors; Inductor fuses that with what makes it."""
        if node.meta["val"].is_contiguous():
            return node
        return self.call(torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)

    def rows(self, node: fx.Node, rank: int) -> fx.Node:
        """Make one axis of those that lead to a tensor of this rank."""
        shape = node.meta["val"].shape
        if len(shape) == rank:
            return node
        return self.call(torch.ops.aten.reshape.default, node, [-1, *shape[len(shape) - rank + 1 :]])

    def shaped(self, node: fx.Node, shape: Sequence[Any], like: fx.Node) -> fx.Node:
        """Give a result its shape; sizes of it that vary lead `like` as well."""
        if node.meta["val"].dim() == len(shape):
            return node
        varying = [axis for axis, size in enumerate(shape) if isinstance(size, torch.SymInt)]
        sizes = list(shape)
        for axis in varying:
            sizes[axis] = -1 if len(varying) == 1 else self.call(torch.ops.aten.sym_size.int, like, axis)
        return self.call(torch.ops.aten.reshape.default, node, sizes)
