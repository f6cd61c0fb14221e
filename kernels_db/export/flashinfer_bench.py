"""The `flashinfer-bench` format: a Solution for the op's Definition, and Traces.

There is a Trace for every workload that was timed. The directory is laid out as a FlashInfer Trace dataset
(https://bench.flashinfer.ai/docs/flashinfer-trace): `definitions/`, `solutions/`, `workloads/` and `traces/`,
each by op type. A Definition that the op was imported from is given back as it came. The Solution holds the
package, and an entry `main.py::run` that returns the outputs.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, provenance, summary
from warpsmith.kernels_db.export.fold import reachable
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, runtime_needs, write_project
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.export.stand_in_source import inlined
from warpsmith.kernels_db.formats.flashinfer.made_workload import DRAWN
from warpsmith.kernels_db.formats.flashinfer.objects import Found, kind_of, objects
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.spec.dist import default_dist
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors, Target, Workload
from warpsmith.kernels_db.spec.resolve import arguments, reference_source, resolve_workload
from warpsmith.kernels_db.spec.tensors import ExprAxis, VarAxis

NAME = "flashinfer-bench"
AUTHOR = "warpsmith"
DTYPES = frozenset(
    ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool")
)
LANGUAGES = {"triton": "triton"}
"""Of the file with the entry point: host code is Python in every language of ours, and the format knows Triton."""
RANDOM_INTEGERS = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024), "int64": (-1024, 1024)}
"""From which range the format's harness draws an integer input that is `random`."""


def build(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the dataset into a new directory below `directory` and return that.

    Raises FileExistsError where it exists, SpecErrors with every part of the spec that the format cannot say.
    """
    op, target = kernel.op, Target.parse(kernel.target)
    module = name or module_name(kernel)
    raw, definition = definition_of(kernel)
    defined = str(definition.get("name"))
    place = f"{_segment(definition.get('op_type'))}/{_segment(defined)}"
    traces = list(traces_of(kernel, op, target, defined, module))
    workloads = [{"definition": defined, "workload": trace["workload"]} for trace in traces]
    files = {
        f"definitions/{place}.json": raw,
        f"solutions/{place}/{module}.json": to_json(solution_of(kernel, op, target, defined, module)),
        f"workloads/{place}.jsonl": to_json_lines(workloads),
        f"traces/{place}.jsonl": to_json_lines(traces),
    }
    return write_project(directory, f"{module}-{NAME}", files)


def definition_of(kernel: ExportedKernel) -> tuple[str, dict[str, Any]]:
    """Return the text of the op's Definition, as it was imported or as the format says the op, and the Definition.

    Raises SpecErrors with every part of the spec that the format cannot say.
    """
    op = kernel.op
    imported = _imported_definition(op)
    if imported is not None:
        _check_made(op)
        return imported
    if errors := _unsaid(op, op.workloads_for(Target.parse(kernel.target))):
        raise SpecErrors(errors)
    definition = _definition(op)
    return to_json(definition), definition


def _check_made(op: Op) -> None:
    """Raise SpecErrors where a Workload that `import --axes` made draws in a way that the format has not."""
    errors = [
        SpecError(
            f"workloads.{identity}.inputs.{name}.dist", DRAWN, "the format's own values: import it with Workloads"
        )
        for identity, workload in _imported_workloads(op).items()
        for name, item in (workload["inputs"] if isinstance(workload["inputs"], dict) else {}).items()
        if isinstance(item, dict) and item.get("type") == DRAWN
    ]
    if errors:
        raise SpecErrors(errors)


def _imported(op: Op) -> list[tuple[RawFile, Found]]:
    """Return the objects in the files that the op was imported from.

    Raises SpecErrors where an `origin` of this format does not hold its files: a user may have written it.
    """
    if op.origin is None or op.origin.format != NAME:
        return []
    return [(file, found) for file in raw_files(op.origin) for found in objects(file)]


def _imported_definition(op: Op) -> tuple[str, dict[str, Any]] | None:
    """Return the Definition's text as it came, and the Definition."""
    return next(((file.text(), found.content) for file, found in _imported(op) if found.kind == "Definition"), None)


def _imported_workloads(op: Op) -> dict[str, dict[str, Any]]:
    """Return the workloads that the op was imported with, by their ids."""
    given = [found.content["workload"] if found.kind == "Trace" else found.content for _, found in _imported(op)]
    return {str(item["uuid"]): item for item in given if kind_of(item) == "Workload"}


def _segment(name: object) -> str:
    """Return a name as one part of a path: others' names may hold anything."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", str(name))[:100].lstrip(".") or "unnamed"


def _unsaid(op: Op, workloads: list[Workload]) -> list[SpecError]:
    """Return the parts of the spec that a Definition and its workloads cannot say."""
    errors = []
    for name, axis in op.axes.items():
        if isinstance(axis, ExprAxis):
            errors.append(SpecError(f"axes.{name}", axis.expr, "const or var: a Definition derives no axis"))
    for position, item in enumerate(arguments(op)):
        field = f"inputs[{position}]"
        if item.mutated:
            errors.append(SpecError(f"{field}.mutated", True, "false: a Definition's inputs are only read"))
        if item.optional:
            errors.append(SpecError(f"{field}.optional", True, "false: a Definition has every input"))
        if item.strides is not None:
            expected = "contiguous: a Definition knows no strides"
            errors.append(SpecError(f"{field}.strides", list(item.strides), expected))
        if item.dtype not in DTYPES:
            errors.append(SpecError(f"{field}.dtype", item.dtype, f"one of {', '.join(sorted(DTYPES))}"))
        for place, dist in [(f"{field}.dist", item.dist), *_overrides(workloads, item.name)]:
            if item.shape is not None and not _is_random((dist or default_dist(item.dtype)), item.dtype):
                expected = "the format's own random values: a normal distribution, or its range of integers"
                errors.append(SpecError(place, dist and dist.kind, expected))
    return errors + _unsaid_outputs(op)


def _unsaid_outputs(op: Op) -> list[SpecError]:
    errors = []
    for position, output in enumerate(op.outputs):
        if output.dtype not in DTYPES:
            errors.append(SpecError(f"outputs[{position}].dtype", output.dtype, f"one of {', '.join(sorted(DTYPES))}"))
        if output.check.kind == "code":
            errors.append(SpecError(f"outputs[{position}].check.kind", "code", "a comparison with the reference"))
    if not op.outputs:
        errors.append(SpecError("outputs", "none", "at least one: a Definition returns what it computes"))
    return errors


def _overrides(workloads: list[Workload], name: str) -> list[tuple[str, Any]]:
    found = [(item.id, item.inputs[name].dist) for item in workloads if name in item.inputs]
    return [(f"workloads.{place}.inputs.{name}.dist", dist) for place, dist in found if dist is not None]


def _is_random(dist: Any, dtype: str) -> bool:
    """Check whether the format's `random` draws from this distribution."""
    if dist is None:
        return False
    if dist.kind == "randint":
        return (dist.low, dist.high) == RANDOM_INTEGERS.get(dtype)
    return (dist.kind == "normal" and (dist.mean, dist.std) == (0.0, 1.0)) or (
        dist.kind == "bernoulli" and dist.p == 0.5 and dtype == "bool"
    )


def _definition(op: Op) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    for name, axis in op.axes.items():
        said: dict[str, Any] = {"type": "var"} if isinstance(axis, VarAxis) else {"type": "const", "value": axis.value}  # type: ignore[union-attr]
        axes[name] = said | ({"description": axis.description} if axis.description else {})

    def tensor(shape: tuple[int | str, ...] | None, dtype: str, description: str) -> dict[str, Any]:
        named = None if shape is None else [_axis_name(axes, size) for size in shape]
        return {"shape": named, "dtype": dtype} | ({"description": description} if description else {})

    inputs = {item.name: tensor(item.shape, item.dtype, item.description) for item in arguments(op)}
    outputs = {item.name: tensor(item.shape, item.dtype, item.description) for item in op.outputs}
    return {
        "name": op.name,
        "description": op.description,
        "op_type": op.family or op.name,
        "tags": ["warpsmith"],
        "axes": axes,
        "constraints": list(op.constraints),
        "inputs": inputs,
        "outputs": outputs,
        "reference": inlined(reference_source(op)),
    }


def _axis_name(axes: dict[str, Any], size: int | str) -> str:
    """Return the axis for a size of a Definition's shape.

    Such shapes hold names alone: a number gets an axis of its own.
    """
    if isinstance(size, str):
        return size
    name = f"size_{size}"
    while axes.setdefault(name, {"type": "const", "value": size}) != {"type": "const", "value": size}:
        name += "_"
    return name


def solution_of(kernel: ExportedKernel, op: Op, target: Target, definition: str, module: str) -> dict[str, Any]:
    """Return a Solution that holds the package of the import name `module`, and an entry that calls it."""
    files = importable_files([kernel], module)
    names = ", ".join(item.name for item in arguments(op))
    main = f"{LICENSE_HEADER}from .{module} import {op.name}, watch\n\n"
    main += "watch(every=None)  # what is submitted to a benchmark is the kernel alone\n"
    main += f"\n\ndef run({names}):\n    return {op.name}({names})\n"
    taken = sorted(reachable(files, "__init__.py"))
    return {
        "name": module,
        "definition": definition,
        "author": AUTHOR,
        "description": "\n".join(summary(kernel)),
        "spec": {
            "language": LANGUAGES.get(kernel.language, "python"),
            "target_hardware": [kernel.evidence.get("device", {}).get("name") or str(target)],
            "entry_point": "main.py::run",
            "dependencies": ["torch", *runtime_needs([kernel])],
            "destination_passing_style": False,
            "binding": None,
        },
        "sources": [
            {"path": "main.py", "content": main},
            *({"path": f"{module}/{name}", "content": files[name]} for name in taken),
        ],
        "provenance": provenance(kernel),
    }


def traces_of(kernel: ExportedKernel, op: Op, target: Target, definition: str, module: str) -> Iterator[dict[str, Any]]:
    """Yield a Trace for each workload that was timed against eager PyTorch.

    That is the format's own reference.
    """
    imported = _imported_workloads(op)
    declared = {item.id: item for item in op.workloads_for(target)}
    for row in kernel.evidence["workloads"]:
        times = row["time_us"] or {}
        if row["id"] not in declared or not {"candidate", "eager"} <= times.keys():
            continue
        resolved = resolve_workload(op, declared[row["id"]])
        yield {
            "definition": definition,
            "workload": imported.get(row["id"]) or _workload(op, resolved),
            "solution": module,
            "evaluation": _evaluation(kernel, row),
        }


def _workload(op: Op, resolved: ResolvedWorkload) -> dict[str, Any]:
    variable = {name: size for name, size in resolved["axes"].items() if isinstance(op.axes[name], VarAxis)}
    inputs = {
        item["name"]: {"type": "random"} if item["shape"] is not None else {"type": "scalar", "value": item["value"]}
        for item in resolved["inputs"]
    }
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{op.semantic_digest}/{resolved['id']}")
    return {"axes": variable, "inputs": inputs, "uuid": str(identity)}


def _evaluation(kernel: ExportedKernel, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a workload's results as the format's Evaluation.

    `extra` explains the relative error. The largest absolute one is not a number where the judge did not say it: of
    kernels that were verified before it did, and of results that have steps.
    """
    return {
        "status": "PASSED",
        "environment": {
            "hardware": kernel.evidence.get("device", {}).get("name") or kernel.target,
            "libs": dict(kernel.evidence.get("versions", kernel.envelope["versions"])),
        },
        "timestamp": kernel.verified_at or "unknown",
        "log": "",
        "correctness": {
            "max_relative_error": "NaN" if row["error"]["candidate"] is None else row["error"]["candidate"],
            "max_absolute_error": _number(row["error"].get("absolute")),
            "extra": {"relative_error": "L2, against the reference in float64", **row["error"]},
        },
        "performance": {
            "latency_ms": row["time_us"]["candidate"] / 1000,
            "reference_latency_ms": row["time_us"]["eager"] / 1000,
            "speedup_factor": row["speedup"]["eager"],
        },
    }


def _number(value: Any) -> float | str:
    """Return a finite number as it is, and anything else as the format says that it is none."""
    return value if isinstance(value, int | float) and math.isfinite(value) else "NaN"


def to_json(document: Any) -> str:
    """Return a document as the text of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_json_lines(documents: list[dict[str, Any]]) -> str:
    """Return documents as the text of a file, one a line."""
    return "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
