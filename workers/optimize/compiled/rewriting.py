"""Kernels into a graph while Inductor compiles it: regions are found, those that pay are replaced.

Inductor's pass is no place to compile and to time other graphs. So where a region is met of which nothing is known, the
attempt is given up, the region is looked at, and the graph of operators, which was traced before, is attempted again.

The whole graph is compiled once more without kernels only where it is not sure that they gain in it (`seams`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import fx

from . import attention, bags, choice, inductor, match, products, seams, trial
from .choice import Decision
from .choices import Choices
from .kept import keep_shared
from .patterns import keep as keep_file
from .places import Found, Region, find, in_order, modules_of, put
from .seams import Gain
from .served import Served
from .trial import Trial

Keep = Literal["faster", "right"]
"""Which kernels stay: those that are surely faster than Inductor's code in their place, or all that are right there."""
LAST: dict[str, Callable[[fx.Graph], None]] = {
    "sines": keep_shared,
    "sums": products.add_in_place,
    "attention": attention.write_as_products,
}
"""What is rewritten behind kernels, by name, in this order. A benchmark takes one out to learn what it brings."""
MOST_TRIES = 8
"""Attempts at one graph: each but the last found regions of which nothing was known."""


@dataclass(frozen=True)
class Placed:
    """A region of a graph and what became of it: `why` is empty where the kernel stands there."""

    op: str
    kernel: str
    where: str
    shapes: str
    decision: Decision
    why: str


class _Unknown(Exception):  # noqa: N818 - named for what happens
    """The graph has regions of which nothing is known."""


@dataclass(frozen=True)
class Rewritten:
    """A graph's code, and what became of each region.

    trial: of the graph with its kernels beside that without, where that is to be told; gain: what they gain in it,
    where that is sure.
    """

    code: inductor.Compiled
    placed: list[Placed]
    trial: Trial | None = None
    gain: Gain | None = None


def compile_with(
    kernels: Sequence[Served],
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    patches: inductor.Patches,
    keep: Keep,
    *,
    tried: bool,
    choices: Choices | None = None,
    anew: bool = False,
) -> Rewritten:
    """Compile a graph of Dynamo's with the kernels that `keep` names.

    tried: with "faster", they stay only where the whole graph is faster with them, too: where that is not sure (`Gain`)
    it is tried (`Trial`). choices: what is known; None: what is kept and what ships. anew: no code of Inductor's cache
    is taken.

    The graph as Dynamo wrote it is part of what Inductor's cache knows the code by. To Inductor alone, a model whose
    modules have other names is the same graph: it would be given code whose kernels no file names, and nobody imports.
    """
    device = _device(inputs)
    last = functools.partial(_rewrite_last, _last(patches) if device.type == "cuda" else ("sines",))
    choices = choices or Choices(device, patches)
    fresh = inductor.copied(graph)  # passes change what is compiled, and this graph may be compiled again
    grouped = bags.operator_on(device)
    names, described = sorted(kernel.name for kernel in kernels), [_described(value) for value in inputs]
    # Inductor's own cache does not ask which CPU it is on: what is known is of one kind of machine, and so is code.
    machine = (choices.name, choices.file.stem)
    identity = _digest(
        _code(), *_last(patches), *machine, choices.refuted, keep, grouped, names, _written(fresh), described
    )
    told = choices.graph(identity)
    unsure = told.with_suffix(".unsure")
    rewriter = _Rewriter(
        kernels,
        "" if grouped is not None else bags.ungrouped(device),
        choices,
        keep,
        functools.partial(seams.gain, device, patches),
        last,
        told,
        unsure,
    )
    again = anew or unsure.exists()
    if again:  # code in Inductor's cache has kernels that nobody compared to the end: it is made, and compared, anew
        identity = _digest(identity, uuid.uuid4().hex)
    patched = inductor.with_pass(patches, rewriter, identity)
    without = inductor.with_pass(patches, last, _digest(_code(), *_last(patches)))
    tried = tried and keep == "faster"
    whole = told.with_suffix(".whole")
    outcome = trial.read(whole) if tried else None
    if outcome is not None and not outcome.gains and (placed := _read(told)) is not None:
        return Rewritten(inductor.compile_graph(graph, inputs, without), [dropped(place, outcome) for place in placed])
    known = {place.kernel for place in _read(told) or () if not place.why}
    for kernel in kernels:
        if kernel.name in known:
            _ = kernel.call  # imports what code of Inductor's cache calls by name
    compiled = inductor.compile_graph(fresh, inputs, patched, rewriter.attempts)
    placed, gain = rewriter.placed, rewriter.gain
    if placed is None and not again:  # the code is from Inductor's cache
        placed, gain = _read(told), seams.read(whole)
    unknown = not again and (placed is None or (rewriter.placed is None and unsure.exists()))
    if rewriter.refuted or unknown:
        return compile_with(kernels, graph, inputs, patches, keep, tried=tried, choices=choices, anew=unknown)
    if placed is None:  # nothing of the graph is left to compile
        placed = []
        keep_file(told, placed)
    if not tried or outcome is not None or all(place.why for place in placed):
        return Rewritten(compiled, placed)
    if gain is not None and gain.sure:
        keep_file(whole, asdict(gain))
        return Rewritten(compiled, placed, gain=gain)
    with inductor.phase("without_kernels"):
        plain = inductor.compile_graph(inductor.copied(graph), inputs, without)
    both = Trial(compiled, plain, device, functools.partial(keep_file, whole))
    return Rewritten(both.call, placed, both)


def dropped(place: Placed, outcome: trial.Outcome) -> Placed:
    """Return what became of a place in a graph that is not surely faster with its kernels."""
    return (
        place if place.why else replace(place, why=f"the graph as a whole is not surely faster with kernels: {outcome}")
    )


def _last(patches: inductor.Patches) -> tuple[str, ...]:
    """Return the names of what is rewritten behind kernels under patches of Inductor's configuration.

    Products are Inductor's where it chooses their code by measurements. What decides it is part of what Inductor's
    cache knows code by.
    """
    chosen = any(patches.get(name) for name in ("max_autotune", "max_autotune_gemm"))
    out = {"sums"} if chosen else set()
    out |= set() if attention.is_allowed() else {"attention"}
    return tuple(name for name in LAST if name not in out)


def _rewrite_last(names: Sequence[str], graph: fx.Graph) -> None:
    for name in names:
        LAST[name](graph)


@functools.cache
def _code() -> str:
    """Return a digest of what finds and places kernels: code that an older one rewrote is not to come from a cache."""
    return _digest([file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))])


def _digest(*facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _written(graph: fx.GraphModule) -> list[tuple[str, str]]:
    """Return a graph of Dynamo's as it is written, and those in it that are arguments of its calls."""
    return [(name, part.code) for name, part in graph.named_modules() if isinstance(part, fx.GraphModule)]


def _described(value: Any) -> Any:
    """Return what of an input decides a graph's regions."""
    if not isinstance(value, torch.Tensor):
        return str(value)
    return str(value.shape), str(value.stride()), str(value.dtype), str(value.device)


def _read(file: Path) -> list[Placed] | None:
    """Return what became of a graph's regions when it was compiled; None where no file says so."""
    try:
        found = json.loads(file.read_text("utf-8"))
        return [Placed(**(each | {"decision": choice.read(each["decision"])})) for each in found]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _device(inputs: Sequence[Any]) -> torch.device:
    devices = {value.device for value in inputs if isinstance(value, torch.Tensor)} - {torch.device("cpu")}
    return next(iter(devices), torch.device("cpu"))


class _Rewriter:
    """The pass. `unknown` are the regions of which nothing is known; `placed` is None before a graph was rewritten.

    ungrouped: why embedding bags are not looked for as well; empty where they are. gain: what the kernels gain in the
    graph; None where that is not known, or several graphs were rewritten. refuted: a kernel for which only what ships
    spoke is wrong here, so the code is none to use. told: the file that says what became of the places. It is written
    before Inductor keeps the code, which calls the kernels. unsure: a file that is there until these were compared: a
    process may be ended before, or take the code of one that is at it.
    """

    def __init__(
        self,
        kernels: Sequence[Served],
        ungrouped: str,
        choices: Choices,
        keep: Keep,
        gain: Callable[[Sequence[tuple[Region, Decision]]], Gain | None],
        last: Callable[[fx.Graph], None],
        told: Path,
        unsure: Path,
    ) -> None:
        self._kernels, self._ungrouped, self._choices, self._keep = kernels, ungrouped, choices, keep
        self._gain, self._last, self._told = gain, last, told
        self._unsure = unsure
        self._found: tuple[fx.Graph, Found] | None = None
        self.unknown: list[Region] = []
        self.placed: list[Placed] | None = None
        self.gain: Gain | None = None
        self.refuted = False

    def attempts(self, attempt: Callable[[], inductor.Compiled]) -> inductor.Compiled:
        """Attempt to compile a graph of operators until all its regions are known."""
        try:
            return self._attempts(attempt)
        finally:
            self.refuted = not self._choices.compared() or self.refuted
            if self.placed is not None and not self.refuted:
                with contextlib.suppress(OSError):
                    self._unsure.unlink(missing_ok=True)

    def _attempts(self, attempt: Callable[[], inductor.Compiled]) -> inductor.Compiled:
        for _ in range(MOST_TRIES):
            try:
                compiled = attempt()
            except Exception:  # Inductor wraps what a pass raises
                if not self.unknown:
                    raise
                with inductor.phase("decisions"):
                    self._choices.decide(self.unknown)
                self.unknown = []
                continue
            if inductor.uncaptured(compiled):
                self.gain = None  # each call costs the host, too, which is no part of it
            return compiled
        raise AssertionError("a region was unknown after all were looked at")

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrite a graph. Raises _Unknown."""
        found = self._places(graph)
        self.unknown = [region for region in found.regions if self._choices.known(region) is None]
        if self.unknown:
            raise _Unknown
        decided = [(region, known) for region in found.regions if (known := self._choices.known(region)) is not None]
        chosen, placed = _choose(graph, decided, self._keep)
        decisions = {id(region): known for region, known in decided}
        self.gain = self._gain([(region, decisions[id(region)]) for region in chosen]) if self.placed is None else None
        if self._choices.uncompared(chosen):
            keep_file(self._unsure, [])
        self._choices.compare_meanwhile(chosen)
        inductor.keep_as_calls(region.kernel.call for region in chosen)
        put(graph, chosen)
        self._last(graph)
        misses = [_placed(region, Decision(), why) for region, why in found.misses] + _left(found.bags)
        self.placed = (self.placed or []) + placed + misses
        keep_file(self._told, [asdict(place) for place in self.placed])
        self._found = None

    def _places(self, graph: fx.Graph) -> Found:
        """Find the places in a graph; those of an attempt that was given up are the same in its copy."""
        before, self._found = self._found, None
        found = before[1].on(before[0], graph) if before is not None else None
        if found is None:
            with inductor.phase("places"):
                found = find(graph, self._kernels)
                grouped, found.bags = bags.find(graph, self._ungrouped)
                found.regions.extend(grouped)
        self._found = graph, found
        return found


def _placed(region: Region, decision: Decision, why: str) -> Placed:
    return Placed(region.kernel.op, region.kernel.name, region.where, region.shapes, decision, why)


def _left(left: dict[fx.Node, str]) -> list[Placed]:
    """Return what became of embedding bags that are in no region: those of one reason are one."""
    alike: dict[str, list[fx.Node]] = {}
    for node, why in left.items():
        alike.setdefault(why, []).append(node)
    name = bags.Bags.op
    return [
        Placed(name, name, modules_of(nodes) or nodes[0].name, f"bags of {len(nodes)} calls", Decision(), why)
        for why, nodes in alike.items()
    ]


def _choose(
    graph: fx.Graph, decided: Sequence[tuple[Region, Decision]], keep: Keep
) -> tuple[list[Region], list[Placed]]:
    """Choose the regions that save most and share nothing; returns them, and what became of all in their order."""
    chosen, placed = _chosen(graph, decided, keep, one_by_one=False)
    if not in_order(graph, chosen):
        chosen, placed = _chosen(graph, decided, keep, one_by_one=True)
    order = {node: position for position, node in enumerate(graph.nodes)}
    return chosen, [place for _, place in sorted(placed, key=lambda each: order[each[0].match.nodes[0]])]


def _chosen(
    graph: fx.Graph, decided: Sequence[tuple[Region, Decision]], keep: Keep, *, one_by_one: bool
) -> tuple[list[Region], list[tuple[Region, Placed]]]:
    """Choose as `_choose` does; whether they can run one after the other is asked of each where `one_by_one` says so,
    which takes long in a large graph and is hardly ever needed.
    """
    used: set[fx.Node] = set()
    chosen: list[Region] = []
    placed: list[tuple[Region, Placed]] = []
    for region, decision in sorted(decided, key=lambda each: -each[1].saved_us):
        nodes = {node for node in region.match.nodes if not match.is_view(node)}
        why = decision.why or (decision.slow if keep == "faster" else "")
        why = why or ("a kernel that saves more is there" if nodes & used else "")
        if not why and one_by_one and not in_order(graph, [*chosen, region]):
            why = "it would wait for a kernel that saves more, which waits for it"
        if not why:
            used |= nodes
            chosen.append(region)
        placed.append((region, _placed(region, decision, why)))
    return chosen, placed
