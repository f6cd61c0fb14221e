"""Embedding bags whose results are concatenated, given to one operator that writes each to its place.

A recommendation model has a table for each of its features: 26 launches that write some rows each, and one more that
copies all of them into one tensor. What else is concatenated with the bags (the dense features) is copied by the
operator as well. The graph is of operators, as Inductor's pass is given it.

A bag stays with Inductor where anything else reads what it computes, where its table is not contiguous, or where its
dtypes are none of those for which `bag_kernel` computes what PyTorch does: `find` says why. So do sums and means of
`nn.Embedding`: Inductor has loops for them that add in an order of their own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import operator
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import inductor, match
from .patterns import Lead
from .places import Region, laid_out
from .served import Number, Rows, Shapes

if TYPE_CHECKING:
    from .bag_kernel import Mode, Part, Plan

_aten = torch.ops.aten
_BAGS = (_aten._embedding_bag.default, _aten._embedding_bag_forward_only.default)
_VIEWS = (_aten.reshape.default, _aten.view.default, _aten.unsqueeze.default, _aten.squeeze.dim)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32)
_ELSEWHERE = "its result is not concatenated with those of other bags"
FEWEST = 2
"""Bags of a concatenation."""
MOST_COLUMNS = 4096
"""Of a bag: as many elements as a program of the kernel writes."""
TABLE_BYTES = 512 << 20
"""Of a place's tables, together, while the kernel is compared and timed there: the model's own may fill the GPU. It is
more than a cache holds, so that rows come from memory."""


def operator_on(device: torch.device) -> str | None:
    """Return the name of the operator that serves on a device; it is there from now on, for code in Inductor's cache.

    None where bags are not grouped: on all but GPUs of NVIDIA's, unless Triton interprets its kernels.
    """
    if importlib.util.find_spec("triton") is None:
        return None
    from triton import knobs  # noqa: PLC0415 - not everywhere

    if torch.version.hip is not None or device.type not in ("cuda", "cpu" if knobs.runtime.interpret else "cuda"):
        return None
    from .bag_kernel import NAME  # noqa: PLC0415 - needs Triton

    return NAME


def ungrouped(device: torch.device) -> str:
    """Return why bags are not grouped on a device for which `operator_on` has no operator."""
    if importlib.util.find_spec("triton") is None:
        return "bags are grouped where Triton is installed, and it is not"
    found = "a GPU of AMD's" if device.type == "cuda" else device.type
    return f"bags are grouped on GPUs of NVIDIA's, found {found}"


class _Stays(Exception):  # noqa: N818 - named for what happens
    """A bag, or a concatenation with its bags, stays with Inductor; the message says why."""


def find(graph: fx.Graph, ungrouped: str = "") -> tuple[list[Region], dict[fx.Node, str]]:
    """Find the concatenations of several embedding bags in a graph of operators.

    Returns them, and each embedding bag that is in none, with the reason. ungrouped: the reason for all of them.
    """
    calls = [node for node in graph.nodes if node.op == "call_function" and node.target in _BAGS]
    if ungrouped or not calls:
        return [], dict.fromkeys(calls, ungrouped)
    regions: list[Region] = []
    stays: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is _aten.cat.default:
            sources = [_source(piece, node) for piece in match.named_arguments(node)["tensors"]]
            try:
                regions.append(_region(node, sources, stays))
            except _Stays as why:
                stays = {call: str(why) for each in sources if (call := each.bag) is not None} | stays
    inside = {node for region in regions for node in region.match.nodes}
    return regions, {call: stays.get(call, _ELSEWHERE) for call in calls if call not in inside}


@dataclass(frozen=True)
class _Source:
    """What a piece of a concatenation is a view of: `through` are the views. own: nothing else reads any of them."""

    node: fx.Node
    through: tuple[fx.Node, ...]
    own: bool

    @property
    def bag(self) -> fx.Node | None:
        """The embedding bag of which it is a result."""
        call = self.node.args[0] if self.node.target is operator.getitem else None
        return call if isinstance(call, fx.Node) and call.target in _BAGS else None


@dataclass(frozen=True)
class _Rows:
    """What a piece of a concatenation is made of, as `bag_kernel.Part`, by nodes. nodes: what computes it."""

    mode: Mode
    width: int
    table: fx.Node
    indices: fx.Node | None = None
    offsets: fx.Node | None = None
    weights: fx.Node | None = None
    length: int = 1
    padding: int = -1
    last: bool = False
    nodes: tuple[fx.Node, ...] = ()

    def part(self, inputs: dict[fx.Node, int]) -> Part:
        """Return it by its inputs' positions; those that are new are added."""
        from .bag_kernel import Part  # noqa: PLC0415 - needs Triton

        table, indices, offsets, weights = (
            None if node is None else inputs.setdefault(node, len(inputs))
            for node in (self.table, self.indices, self.offsets, self.weights)
        )
        assert table is not None
        bags = self.length, self.padding, self.last
        return Part(self.mode, table, self.width, indices, offsets, weights, *bags)


def _region(cat: fx.Node, sources: Sequence[_Source], stays: dict[fx.Node, str]) -> Region:
    """Return the place of a concatenation. Raises _Stays; `stays` is told of each of its bags that stays by itself."""
    from .bag_kernel import Plan  # noqa: PLC0415 - as above

    given = match.named_arguments(cat)
    value: torch.Tensor = cat.meta["val"]
    axis = given["dim"] % value.dim()
    pieces: list[fx.Node] = list(given["tensors"])
    if value.dtype not in _DTYPES:
        raise _Stays(f"its result is {_short(value.dtype)}, expected {_either(_DTYPES)}")
    if axis > 1 or not _alike(value, pieces, stacked=axis == 0):
        raise _Stays("what it is concatenated with lies otherwise than in rows, each for a bag, of known width")
    rows = [_rows(piece, source, stays) for piece, source in zip(pieces, sources, strict=True)]
    for name in ("indices", "offsets"):  # of one dtype, as the kernel takes them: that of the most, others stay
        dtypes = [_dtype(getattr(each, name)) for each in rows]
        counts = Counter(dtype for dtype in dtypes if dtype is not None)
        most = max(counts, key=counts.__getitem__, default=None)
        for at, (source, dtype) in enumerate(zip(sources, dtypes, strict=True)):
            if dtype not in (most, None):
                rows[at] = _copy(pieces[at])
                if source.bag is not None:
                    stays[source.bag] = f"its {name} are {_short(dtype)}, those of most bags beside it {_short(most)}"
    if sum(each.mode in ("sum", "mean", "max") for each in rows) < FEWEST:
        raise _Stays("no other bag is left to write in one launch with it")
    if any(not 0 < each.width <= MOST_COLUMNS for each in rows):
        raise _Stays(f"a piece of the concatenation has no columns, or more than {MOST_COLUMNS}")
    if not _one_role(rows):
        raise _Stays("a tensor is indices of one bag and offsets of another")
    inputs: dict[fx.Node, int] = {}
    plan = Plan(tuple(each.part(inputs) for each in rows), axis == 0)
    if any(inductor.sized(node.meta["val"]) is None for node in inputs):
        raise _Stays("sizes of what it reads are not known")
    inside = {cat}.union(*(each.nodes for each in rows))
    nodes = tuple(node for node in cat.graph.nodes if node in inside)
    return BagRegion(Bags(plan), match.Match(tuple(inputs), (cat,), nodes))


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _either(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(map(_short, dtypes))


def _alike(value: torch.Tensor, pieces: Sequence[fx.Node], *, stacked: bool) -> bool:
    """Return whether pieces are alike as the operator needs it: their sizes behind the first are numbers."""
    values = [piece.meta["val"] for piece in pieces]
    if any((each.dtype, each.device, each.dim()) != (value.dtype, value.device, value.dim()) for each in values):
        return False
    if value.dim() < 2 or any(not isinstance(size, int) for each in values for size in each.shape[1:]):
        return False
    first = values[0]
    return not stacked or all(each.dim() == 2 and _same(each.shape[0], first.shape[0]) for each in values)


def _same(one: Any, other: Any) -> bool:
    """Return whether two sizes are surely the same, without a guard that says so."""
    return bool(statically_known_true(one == other))


def _dtype(node: fx.Node | None) -> torch.dtype | None:
    return None if node is None else node.meta["val"].dtype


def _one_role(rows: Sequence[_Rows]) -> bool:
    """Return whether no tensor is both indices and offsets: values to compare on are drawn for the one or the other."""
    return not {each.indices for each in rows if each.indices} & {each.offsets for each in rows if each.offsets}


def _copy(piece: fx.Node) -> _Rows:
    return _Rows("copy", math.prod(piece.meta["val"].shape[1:]), piece)


def _source(piece: fx.Node, cat: fx.Node) -> _Source:
    """Return what a piece of a concatenation is a view of, with the same bags."""
    source, user, through, own = piece, cat, [], list(piece.users) == [cat]
    while source.target in _VIEWS and _keeps_bags(source):
        through.append(source)
        source, user = source.all_input_nodes[0], source
        own = own and list(source.users) == [user]
    return _Source(source, tuple(through), own)


def _rows(piece: fx.Node, source: _Source, stays: dict[fx.Node, str]) -> _Rows:
    """Return what a piece of a concatenation is made of: rows of a table that nothing else reads, or itself."""
    found = None
    if source.bag is not None:
        try:
            found = _bag(source)
        except _Stays as why:
            stays[source.bag] = str(why)
    elif source.own and source.node.target is _aten.embedding.default:
        found = _row(source.node)
    return _copy(piece) if found is None else replace(found, nodes=(*found.nodes, *source.through))


def _keeps_bags(view: fx.Node) -> bool:
    """Return whether a view has the bags of what it is a view of, and their elements in the same order."""
    source = view.all_input_nodes[0].meta["val"]
    return source.dim() > 1 and _same(source.shape[0], view.meta["val"].shape[0])


def _bag(source: _Source) -> _Rows:
    """Return the embedding bag whose first result this is. Raises _Stays where not that alone is read, by what it is
    concatenated to, or the kernel does not take it.
    """
    result, call = source.node, source.bag
    assert call is not None
    if not source.own or list(call.users) != [result] or result.args[1] != 0:
        raise _Stays("its result is also read elsewhere")
    given = match.named_arguments(call)
    table, weights = given["weight"], given["per_sample_weights"]
    (indices, first), (offsets, second) = _unlaid(given["indices"]), _unlaid(given["offsets"])
    nodes = [call, result, *first, *second]
    if not _table(table):
        raise _Stays("its table is not contiguous, or its sizes vary")
    for name, node in (("indices", indices), ("offsets", offsets)):
        if not _list_of(node, _INTEGERS):
            raise _Stays(f"its {name} are {_short(_dtype(node))}, expected {_either(_INTEGERS)}")
    if weights is not None:
        weights, third = _unlaid(weights)
        nodes += third
        if not _list_of(weights, (table.meta["val"].dtype,)):
            raise _Stays(f"its weights are {_short(_dtype(weights))}, its table {_short(_dtype(table))}")
    mode: Mode = ("sum", "mean", "max")[given["mode"]]
    found = _Rows(mode, table.meta["val"].shape[1], table, indices, offsets, weights)
    found = replace(found, padding=given["padding_idx"], last=given["include_last_offset"])
    length = None if found.last else _length(offsets, indices)
    if length is not None:
        found, nodes = replace(found, offsets=None, length=length), [*nodes, offsets]
    return replace(found, nodes=tuple(nodes))


def _row(call: fx.Node) -> _Rows | None:
    """Return what an embedding looks up, one row for each index of a list."""
    given = match.named_arguments(call)
    table = given["weight"]
    indices, copied = _unlaid(given["indices"])
    if not _table(table) or not _list_of(indices, _INTEGERS):
        return None
    return _Rows("row", table.meta["val"].shape[1], table, indices, nodes=(call, *copied))


def _unlaid(node: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
    """Return the list that a contiguous copy is of, with the copy: the kernel takes any stride."""
    if node.target is _aten.clone.default and node.meta["val"].dim() == 1:
        return node.all_input_nodes[0], [node]
    return node, []


def _table(node: fx.Node) -> bool:
    """Return whether a table lies as the kernel takes it; dtype and device are its results', which were looked at."""
    value = node.meta["val"]
    return all(isinstance(size, int) for size in value.shape) and value.stride() == (value.shape[1], 1)


def _list_of(node: fx.Node, dtypes: Sequence[torch.dtype]) -> bool:
    value = node.meta["val"]
    return value.dim() == 1 and value.dtype in dtypes


def _length(offsets: fx.Node, indices: fx.Node) -> int | None:
    """Return how long each bag is where the offsets are those of indices in two dimensions; None where they are not."""
    if offsets.target is not torch.ops.prims.iota.default:
        return None
    given = match.named_arguments(offsets)
    count, step = given["length"], given["step"]
    if given["start"] != 0 or not isinstance(step, int) or step < 1:
        return None
    bags = count.meta["val"] if isinstance(count, fx.Node) else count
    return step if _same(indices.meta["val"].shape[0], bags * step) else None


class Bags(Rows):
    """The operator with a plan, as what takes a place: what `Served` and its kernel are for a package."""

    op = "embedding_bags"
    mutated: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __init__(self, plan: Plan) -> None:
        super().__init__([], ())
        self.plan, self._written = plan, plan.written()
        self.kernel = self

    @functools.cached_property
    def name(self) -> str:
        """The operator's name and a digest of its plan."""
        from .bag_kernel import NAME  # noqa: PLC0415 - as above

        return f"{NAME}_{hashlib.sha256(self._written.encode()).hexdigest()[:8]}"

    @property
    def call(self) -> torch._ops.OpOverload:
        """The call that takes a place in a graph."""
        from .bag_kernel import operator as found  # noqa: PLC0415 - as above

        return found

    def pattern(
        self,
        lead: Lead,
        device: torch.device,
        shapes: Shapes | None = None,
        integers: Sequence[int] | None = None,
    ) -> None:
        """Return None: its places are found as concatenations, not as a reference's graph."""

    def axes(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Number] = ()) -> dict[str, int] | str:
        """Return no axes: none of its tensors is looked at by name."""
        return {}

    def rows(self, position: int) -> bool:
        """Return False: tensors are taken with the axes that they have."""
        return False

    def arguments(self, tensors: Sequence[Any], numbers: Sequence[float | None] = ()) -> list[Any]:
        """Return the operator's arguments."""
        return [list(tensors), self._written]

    def unwatched(self) -> AbstractContextManager[None]:
        """Return a context for calls that nothing compares: none of its calls are."""
        return nullcontext()

    def outside(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()) -> str | None:
        """Return None: a place whose tensors it does not take is none."""
        return None

    def refusal(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()) -> str | None:
        """Return why the kernel serves no call of this process any longer; None where it does."""
        from .bag_kernel import failure  # noqa: PLC0415 - as above

        return failure()

    def wrong(
        self, tensors: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()
    ) -> str | None:
        """Return what is wrong with the kernel's result: it is to be PyTorch's own, bit by bit."""
        (wanted,) = expected
        found = self.call(list(tensors), self._written)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return f"its result is {found.dtype} {list(found.shape)}, expected {wanted.dtype} {list(wanted.shape)}"
        bits = torch.int32 if found.element_size() == 4 else torch.int16
        apart = int(((found.view(bits) != wanted.view(bits)) & ~(found.isnan() & wanted.isnan())).sum())
        return f"{apart} of {found.numel()} elements are not PyTorch's" if apart else None


@dataclass(frozen=True)
class BagRegion(Region):
    """A place of the operator. Indices and offsets are drawn for it: any row may be looked up, any bag be empty."""

    kernel: Bags

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """What flows in, without memory; of tables as many rows as `TABLE_BYTES` have."""
        found, tables = super().tensors, self._tables
        budget = TABLE_BYTES // max(1, len(tables))
        with inductor.mode_of(found):
            for at in tables:
                rows, width = found[at].shape
                fewer = max(1, min(rows, budget // (width * found[at].element_size())))
                found[at] = found[at].new_empty((fewer, width))
        return found

    @functools.cached_property
    def _tables(self) -> list[int]:
        """Of which a call reads some rows: what is copied is read whole."""
        parts = self.kernel.plan.parts
        copied = {part.table for part in parts if part.mode == "copy"}
        return sorted({part.table for part in parts} - copied)

    @property
    def shapes(self) -> str:
        """The bags, for people."""
        parts = self.kernel.plan.parts
        bags = parts[0].bags(self.tensors)
        return f"{bags} bags of {len(self._tables)} tables, {sum(part.width for part in parts)} columns"

    def strided(self, position: int) -> bool:
        """Return whether an input is taken with any stride: a list is."""
        return self.laid[position].shape[1:] == ()

    def flat(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return inputs as the operator takes them: as they are."""
        return list(given)

    def integers(self, position: int, *, even: bool) -> torch.Tensor:
        """Draw indices or offsets. even: bags are of one length as far as that goes, and otherwise of any."""
        like, parts = self.laid[position], self.kernel.plan.parts
        found = [self.laid[part.table].shape[0] for part in parts if part.indices == position]
        if found:
            return torch.randint(max(1, min(found)), like.shape, device=like.device)
        counts = [
            self.laid[part.indices].shape[0] for part in parts if part.offsets == position and part.indices is not None
        ]
        lasts = {part.last for part in parts if part.offsets == position}
        count, offsets = min(counts), like.shape[0]
        if even:
            return torch.arange(offsets, device=like.device) * count // max(1, offsets - int(True in lasts))
        drawn = torch.randint(count + 1, like.shape, device=like.device).sort().values
        if True in lasts:
            drawn[-1:] = count
        drawn[:1] = 0
        return drawn

    @property
    def read_bytes(self) -> int:
        """The bytes that a call reads and writes: of each table the rows that are looked up."""
        parts = self.kernel.plan.parts
        looked_up = (self.laid[part.table if part.indices is None else part.indices].shape[0] for part in parts)
        elements = sum(rows * part.width for rows, part in zip(looked_up, parts, strict=True))
        elements += parts[0].bags(self.tensors) * sum(part.width for part in parts)
        return int(elements) * self.laid[parts[0].table].dtype.itemsize

    def another(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the same tables with other indices, which lie as those do."""
        found = list(inputs)
        for at in {part.indices for part in self.kernel.plan.parts if part.indices is not None}:
            drawn = self.integers(at, even=True)
            found[at] = laid_out(drawn, inputs[at])
        return found
