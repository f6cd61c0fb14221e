"""`profile`: find the regions of a model that cost most, and write their op specs.

It also says what kernels at the physical limit would save.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.spec.names import Names
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.optimize import checking, measuring, operators, physical, regions
from warpsmith.workers.optimize.capturing import Captured, Recorder, capture
from warpsmith.workers.optimize.compiled import turns
from warpsmith.workers.optimize.contract import UserModel
from warpsmith.workers.optimize.ranking import Opportunity, ranked, scaled
from warpsmith.workers.optimize.reference import Unspeakable
from warpsmith.workers.optimize.regions import Region
from warpsmith.workers.optimize.spec import SAMPLE, Written, describe, op_name

Say = Callable[[str], None]


@dataclass
class _Spec:
    """One op of the model, and where it is: each region with the workload that has its sizes."""

    written: Written
    op: Op
    places: list[tuple[Region, str]] = field(default_factory=list)


def profile(
    user: UserModel, device: torch.device, output: Path, cache: Path, *, top: int, force: bool, say: Say
) -> dict[str, Any]:
    """Profile a model and write the specs of its `top` opportunities into `output`.

    Returns the document that the command prints. Raises NotExportable, NoLimits; FileExistsError where a spec would
    replace a file with another content, unless `force`.
    """
    say("exporting the model")
    captured = capture(user.module, user.inputs)
    found = regions.find(captured.graph)
    specs, unspoken = _specs(captured, found, user, device)
    say(f"timing the model and {len(found)} regions of it")
    model_us = statistics.median(turns.time_in_turns({"model": lambda: user.call}, device)["model"])
    nodes = scaled(measuring.node_times(captured.module, user.inputs, device), model_us)
    rows = measuring.operators(user.call, device)
    say(f"measuring what {len(specs)} ops need at least on this device")
    target = physical.target_of(device)
    asked = list(dict.fromkeys((spec.op.name, chosen) for spec in specs for _, chosen in spec.places))
    ops = {spec.op.name: spec.op for spec in specs}
    limits = dict(zip(asked, physical.limits([(ops[name], one) for name, one in asked], target, cache), strict=True))
    opportunities = [_opportunity(spec, nodes, limits) for spec in specs]
    opportunities += [
        Opportunity(op_name(region), region.title, (region.modules,), _time(region, nodes), None, None, None, reason)
        for region, reason in unspoken
    ]
    opportunities = ranked(opportunities)
    chosen = [one.name for one in opportunities if one.limit_us is not None][:top]
    documents = {spec.op.name: spec.written.document for spec in specs}
    files = write_specs({name: documents[name] for name in chosen}, output, force=force)
    return {
        "model": user.path.name,
        "device": str(device),
        "target": str(target),
        "dynamic": captured.dynamic,
        "model_us": round(model_us, 3),
        "operators": rows,
        "opportunities": [
            dataclasses.replace(one, file=files.get(one.name)).document(model_us) for one in opportunities
        ],
        "output": str(output),
    }


def _opportunity(spec: _Spec, nodes: dict[str, float], limits: dict[tuple[str, str], physical.Limit]) -> Opportunity:
    found = [limits[spec.op.name, chosen] for _, chosen in spec.places]
    _, binds = max(found)
    return Opportunity(
        name=spec.op.name,
        operators=spec.places[0][0].title,
        places=tuple(region.modules for region, _ in spec.places),
        time_us=sum(_time(region, nodes) for region, _ in spec.places),
        limit_us=sum(limit_us for limit_us, _ in found),
        limit_by=binds,
    )


def _time(region: Region, nodes: dict[str, float]) -> float:
    return sum(nodes.get(node.name, 0.0) for node in region.nodes)


def write_specs(documents: dict[str, dict[str, Any]], output: Path, *, force: bool = False) -> dict[str, str]:
    """Write each document as NAME.yaml into the directory `output`; returns the paths by name.

    Nothing is written where one of them exists with another content, unless `force`: raises FileExistsError.
    """
    files = {name: (output / f"{name}.yaml", as_yaml(document)) for name, document in documents.items()}
    for path, text in files.values():
        if not force and path.exists() and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            raise FileExistsError(f"found {path} with another content, expected no such file; --force replaces it")
    output.mkdir(parents=True, exist_ok=True)
    for path, text in files.values():
        path.write_text(text, encoding="utf-8")
    return {name: str(path) for name, (path, _) in files.items()}


def _specs(
    captured: Captured, found: list[Region], user: UserModel, device: torch.device
) -> tuple[list[_Spec], list[tuple[Region, str]]]:
    """Write the ops of the regions, each once, checked against the model's results.

    Also returns the regions without one.
    """
    recorder = Recorder(captured.module, {node for region in found for node in (*region.inputs, *region.outputs)})
    recorder.of(user.inputs)
    values = recorder.kept
    specs: dict[str, _Spec] = {}
    unspoken = []
    names = Names()
    for region in found:
        try:
            written = describe(region, captured.graph, values)
            inputs, outputs = ([values[node] for node in nodes] for nodes in (region.inputs, region.outputs))
            known = specs.get(written.identity)
            document = written.document if known is None else known.written.document
            if known is None:
                document["name"] = names.new(document["name"])
                if device.type == "cuda" and _in_tf32(region):
                    document["math"] = "tf32"
            chosen = _workload(document, written.sizes)
            op = checking.checked(document, inputs, outputs)
            if known is None:
                known = specs[written.identity] = _Spec(written, op)
            known.op = op
            known.places.append((region, chosen))
        except Unspeakable as reason:
            unspoken.append((region, str(reason)))
    return list(specs.values()), unspoken


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


def _workload(document: dict[str, Any], sizes: dict[str, int]) -> str:
    """Return the id of the bench workload with these sizes; adds one where there is none."""
    bench = [item for item in document["workloads"] if item["role"] == "bench"]
    for item in bench:
        if item["axes"] == sizes:
            return str(item["id"])
    document["workloads"].insert(len(bench), {"id": f"{SAMPLE}_{len(bench) + 1}", "role": "bench", "axes": sizes})
    return f"{SAMPLE}_{len(bench) + 1}"
