"""Write the specs of a model's regions, each op once, and hold them against the model.

A spec is written only if its reference gives what the region gave, if what is said to vary may vary, and if
`warpsmith.optimize` would find the reference in the model again, where it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from warpsmith.kernels_db.spec.names import Names
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.workers.optimize import checking, joined, operators, regions
from warpsmith.workers.optimize.compiled.match import is_view
from warpsmith.workers.optimize.forms import Form, forms
from warpsmith.workers.optimize.reference import Unspeakable
from warpsmith.workers.optimize.regions import Region
from warpsmith.workers.optimize.sought import Sought
from warpsmith.workers.optimize.spec import Written, describe, identity
from warpsmith.workers.optimize.traced import Traced, quiet

Values = dict[Node, torch.Tensor]


@dataclass
class Kind:
    """Regions of a model that are the same op, each in its graph; `given` are the inputs that the first one had."""

    places: list[tuple[Traced, Region]]
    given: tuple[torch.Tensor, ...] = ()
    written: Written | None = None
    op: Op | None = None
    reason: str = ""

    @property
    def region(self) -> Region:
        """The first of its places."""
        return self.places[0][1]


def kinds_of(graphs: Sequence[Traced]) -> list[Kind]:
    """Return the regions of a model by the op that they are, those that join others among them."""
    found: dict[str, Kind] = {}
    for traced in graphs:
        parts = regions.find(traced.graph)
        for region in [*parts, *joined.join(traced.graph, parts)]:
            try:
                key = identity(region)
            except Unspeakable as reason:
                found[region.nodes[0].name + region.title] = Kind([(traced, region)], reason=str(reason))
                continue
            found.setdefault(key, Kind([])).places.append((traced, region))
    return list(found.values())


def describe_all(graphs: Sequence[Traced], kinds: Sequence[Kind], target: Target, say: Callable[[str], None]) -> None:
    """Write the spec of each kind, with the values that its first place had; where it has none, the reason."""
    names = Names()
    for traced in graphs:
        own = [kind for kind in kinds if kind.places[0][0] is traced]
        wanted = {node for kind in own for node in (*kind.region.inputs, *kind.region.outputs)}
        found = traced.values(wanted)
        values = {node: value.contiguous() for node, value in found.items()}
        for number, kind in enumerate(own, 1):
            say(f"writing spec {number} of {len(own)}: {kind.region.title}")
            kind.given = tuple(found[node] for node in kind.region.inputs)
            if not kind.reason:
                with quiet():
                    _describe(kind, values, target, names)


def _describe(kind: Kind, values: Values, target: Target, names: Names) -> None:
    """Write a kind's spec in the first form that holds."""
    for form in forms(kind.region):
        try:
            kind.written, kind.op = _checked(kind, form, values, target, names)
        except Unspeakable as reason:
            kind.reason = str(reason)
            continue
        kind.reason = ""
        return


def _checked(kind: Kind, form: Form, values: Values, target: Target, names: Names) -> tuple[Written, Op]:
    region = kind.region
    written = describe(region, form, values)
    document = written.document
    if target.device == "cuda" and _in_tf32(region):
        document["math"] = "tf32"
    inputs, outputs = ([form.given(node, values[node]) for node in nodes] for nodes in (region.inputs, region.outputs))
    op = checking.checked(document, inputs, outputs)
    run = checking.run_of(document["reference"])
    if form.axis is not None:
        if len(op.workloads) < len(written.document["workloads"]) or len(op.workloads) == 1 < form.rows:
            raise Unspeakable(f"other sizes of {form.axis} are none for it")
        rows = [bool(form.leads(node)) for node in region.inputs]
        checking.check_rows(run, inputs, rows, [bool(form.of(values[node].shape)) for node in region.outputs])
    places = Sought(op, run, target).places(kind.places[0][0].graph)
    wanted = frozenset(node for node in region.nodes if not is_view(node))
    if wanted not in places:
        raise Unspeakable("its reference, traced, is not found where it came from")
    document["name"] = names.new(document["name"])
    return written, checking.loaded(document)


def _in_tf32(region: Region) -> bool:
    """Check whether PyTorch computes products of the region in TF32 here.

    cuDNN's convolutions have a switch of their own.
    """
    products = [operators.name(node) for node in region.nodes if operators.kind(node) in ("product", "attention")]
    convolutions = [called for called in products if called.startswith("conv")]
    return bool(
        (convolutions and torch.backends.cudnn.allow_tf32)
        or (len(products) > len(convolutions) and torch.backends.cuda.matmul.allow_tf32)
    )
