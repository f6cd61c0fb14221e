"""FlashInfer-Bench: a Definition (JSON) with its Workloads or Traces (JSON lines).

    axes, inputs, outputs, reference, description   the same of the spec
    op_type                                         family
    constraints                                     constraints, as far as they speak of axes alone
    Workload                                        a workload of role bench; its uuid is the id
    input random                                    as the format draws it: normal, or randint by dtype
    input scalar                                    the workload's value
    input safetensors                               the values themselves, where the file is at hand and small
    input custom                                    made by the Definition's `custom_inputs_entrypoint`
    input that the reference writes                 a mutated input: what it leaves there is checked, too
    input drawn                                     its distribution, which a made Workload says (`made_workload`)

SOL-ExecBench has the same files, and custom inputs and tolerances besides: its problems are read here, too.
Everything else in the files stays in `origin`. Nothing is run: the format declares every shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.formats.flashinfer import reference
from warpsmith.kernels_db.formats.flashinfer.objects import Found, objects, references, tensor, undeclared
from warpsmith.kernels_db.formats.flashinfer.small_axes import with_small_axes
from warpsmith.kernels_db.formats.flashinfer.workloads import inputs_of_types, workloads
from warpsmith.kernels_db.formats.shared.files import RawFile, origin_of, refused
from warpsmith.kernels_db.formats.shared.imported_op import Imported, drawn_apart
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.names import identifier

__all__ = ["EXPECTED", "FORMAT", "claim", "read", "references"]

FORMAT = "flashinfer-bench"
EXPECTED = "a Definition: a JSON object with name, op_type, axes, inputs, outputs and reference"

_RANDOM = {
    "int8": (-128, 128),
    "uint8": (0, 256),
    "int16": (-1024, 1024),
    "int32": (-1024, 1024),
    "int64": (-1024, 1024),
}
"""The ranges from which the format's own harness draws integers: [low, high)."""


SIZED = ("Workload", "Trace")
"""The kinds of objects that say sizes."""


def claim(file: RawFile) -> str | None:
    """Say in words why a file belongs to this format; None where nothing shows it."""
    try:
        found = list(objects(file))
    except SpecErrors:
        return None
    return f"a {found[0].kind}" if found else None


def read(files: Sequence[RawFile], analyse: Analyse | None) -> Imported:
    """Read the spec of a Definition with its workloads; nothing is run. Raises SpecErrors."""
    found = [item for file in files for item in objects(file)]
    definitions = [item for item in found if item.kind == "Definition"]
    if len(definitions) != 1:
        raise refused("files", f"{len(definitions)} Definitions", f"one: {EXPECTED}")
    definition = definitions[0]
    content = definition.content
    name = definition.text("name")
    inputs = definition.members("inputs")
    outputs = definition.members("outputs")
    kept, left_out = _constraints(definition)
    text, where = definition.text("reference"), f"{definition.field}: reference"
    written = reference.written(text, where, list(inputs))
    unread = reference.unread(text, where, list(inputs))
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": identifier(name, "op"),
        "description": str(content.get("description") or "")[:4000],
        "family": (identifier(str(content.get("op_type") or ""), "") or None),
        "axes": {axis: _axis(definition, axis, item) for axis, item in definition.members("axes").items()}
        | {axis: {"kind": "var"} for axis in _sized(definition, found)},
        "constraints": kept,
        "inputs": [
            _input(definition, key, item, written=key in written, unread=key in unread) for key, item in inputs.items()
        ],
        "outputs": [tensor(definition, "outputs", key, item) for key, item in outputs.items()],
        "reference": reference.reference(text, where, list(inputs), list(outputs)),
        "workloads": workloads(definition, found, files),
        "origin": origin_of(FORMAT, files),
    }
    if document["family"] is not None:
        document["family"] = document["family"].lower()[:64]
    notes = [f"constraint kept in origin alone, for it speaks of more than axes: {text}" for text in left_out]
    others = sorted({item.kind for item in found} - {"Definition", "Workload", "Trace"})
    notes += [f"kept in origin, and not part of the op: {kind}" for kind in others]
    in_place = [item["name"] for item in document["inputs"] if item.get("mutated")]
    if in_place:
        notes.append(f"the reference writes to {', '.join(in_place)}: what it leaves there is checked, as results are")
    if unread:
        notes.append(
            f"the reference does not take {', '.join(unread)}: here, unless a Workload gives values, it is zeros"
        )
    if reference.with_math(text) != text:
        notes.append("the reference uses math and does not import it: here it does")
    notes += drawn_apart(inputs_of_types(found, ("custom",)), str(content.get("custom_inputs_entrypoint")))
    if any("tolerance" in item.content for item in found if item.kind == "Workload"):
        notes.append("the Workloads' tolerances are kept in origin alone: here they are derived from float64")
    small = None if _has_own_values(found) else with_small_axes(document)
    lowered, sizes = small or (None, {})
    return Imported(document, notes, sizes=sizes, small=lowered and lowered | {"origin": None})


def _sized(definition: Found, found: Sequence[Found]) -> list[str]:
    """Return the undeclared axes of which each Workload says the size: they are var axes."""
    whole = [
        item.content if item.kind == "Workload" else item.content["workload"] for item in found if item.kind in SIZED
    ]
    given = [item.get("axes") if isinstance(item, dict) else None for item in whole]
    return [
        name
        for name in undeclared(definition)
        if given and all(isinstance(axes, dict) and name in axes for axes in given)
    ]


def _has_own_values(found: Sequence[Found]) -> bool:
    """Check whether a Workload has values of its own, which fit its sizes alone."""
    return bool(inputs_of_types(found, ("custom", "safetensors")))


def _axis(definition: Found, name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type")
    described = {"description": str(item["description"])[:4000]} if item.get("description") else {}
    if kind == "const":
        return {"kind": "const", "value": item.get("value"), **described}
    if kind == "var":
        return {"kind": "var", **described}
    if kind == "expr":
        return {"kind": "expr", "expr": item.get("expression", item.get("expr")), **described}
    raise refused(f"{definition.field}: axes.{name}.type", kind, "const, var or expr")


def _constraints(definition: Found) -> tuple[list[str], list[str]]:
    """Return the constraints that the spec can say, and the others."""
    texts = definition.content.get("constraints") or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise refused(f"{definition.field}: constraints", texts, "a list of texts")
    axes = definition.members("axes").keys()
    kept: list[str] = []
    left_out: list[str] = []
    for text in texts:
        try:
            sayable = expr.parse(text, "boolean").names <= axes
        except expr.ExprError:
            sayable = False
        (kept if sayable else left_out).append(text)
    return kept, left_out


def _input(definition: Found, name: str, item: Mapping[str, Any], *, written: bool, unread: bool) -> dict[str, Any]:
    """Return an input as the spec says it. `written`: the reference writes to it; `unread`: it does not take it."""
    found = tensor(definition, "inputs", name, item)
    if found["shape"] is None:
        return found
    if unread:
        return found | {"dist": {"kind": "constant", "value": 0}}
    if found["dtype"] in _RANDOM:
        low, high = _RANDOM[found["dtype"]]
        found["dist"] = {"kind": "randint", "low": low, "high": high}
    return found | ({"mutated": True} if written else {})
