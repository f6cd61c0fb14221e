"""`profile`: find the regions of a model that cost most, and write their op specs.

Regions are those of the graph that `warpsmith.optimize` rewrites. It also says what kernels at the physical limit would
save of the model as Inductor compiles it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.optimize import alone, checking, joined, measuring, physical
from warpsmith.workers.optimize.compiled import turns
from warpsmith.workers.optimize.compiled.match import is_view
from warpsmith.workers.optimize.contract import UserModel
from warpsmith.workers.optimize.ranking import Opportunity, ranked, without_overlap
from warpsmith.workers.optimize.spec import SAMPLE, op_name
from warpsmith.workers.optimize.specs import Kind, describe_all, kinds_of
from warpsmith.workers.optimize.traced import Traced, quiet, trace

Say = Callable[[str], None]
MODES = {"cpu": None, "cuda": "reduce-overhead"}
"""Inductor's mode in which a model is timed, by device: on a GPU in CUDA graphs."""
MODEL_S = 2.0
"""Seconds of timing of the model, at most, in each way."""


def profile(
    user: UserModel, device: torch.device, output: Path, cache: Path, *, top: int, force: bool, say: Say
) -> dict[str, Any]:
    """Profile a model and write the specs of its `top` opportunities into `output`.

    Returns the document that the command prints. Raises NoGraph, NoLimits; FileExistsError where a spec would replace a
    file with another content, unless `force`.
    """
    say("compiling the model's graph")
    graphs = trace(user.module, user.inputs.call)
    kinds = kinds_of(graphs)
    target = physical.target_of(device)
    describe_all(graphs, kinds, target, say)
    model_us, compiled_us, rows = _time_model(user, device, graphs, say)
    times = _time_regions(kinds, compiled_us, say)
    specs = [kind for kind in kinds if kind.op is not None]
    say(f"measuring what {len(specs)} ops need at least on this device")
    limits = physical.limits([(kind.op, SAMPLE) for kind in specs if kind.op is not None], target, cache)
    found = dict(zip(map(id, specs), limits, strict=True))
    opportunities = [_opportunity(kind, times[id(kind)], found.get(id(kind))) for kind in kinds]
    opportunities = _counted(kinds, opportunities)
    order = ranked(opportunities)
    chosen = [one.name for one in order if one.limit_us is not None][:top]
    documents = {kind.op.name: kind.written.document for kind in specs if kind.op and kind.written}
    files = write_specs({name: documents[name] for name in chosen}, output, force=force)
    saving = sum(one.saving_us / len(one.places) * one.counted for one in opportunities)
    return {
        "model": user.path.name,
        "device": str(device),
        "target": str(target),
        "dynamic": any(kind.op is not None and kind.op.axes for kind in specs),
        "graphs": len(graphs),
        "model_us": round(model_us, 3),
        "compiled_us": round(compiled_us, 3),
        "operators": rows,
        "opportunities": [
            dataclasses.replace(one, file=files.get(one.name) if one.limit_us is not None else None).document(
                compiled_us
            )
            for one in order
        ],
        "total": {
            "saving_us": round(saving, 3),
            "model_speedup": round(compiled_us / (compiled_us - saving), 4) if saving < compiled_us else None,
        },
        "output": str(output),
    }


def _time_model(
    user: UserModel, device: torch.device, graphs: Sequence[Traced], say: Say
) -> tuple[float, float, list[dict[str, Any]]]:
    """Return the microseconds of a call of the model as it is and compiled, and its own operators' times."""

    def restore() -> None:
        for traced in graphs:
            traced.restore()

    say("timing the model, as it is and compiled")
    model_us = turns.time_each(user.call, device, restore, MODEL_S)
    rows = measuring.operators(user.call, device)
    restore()
    torch._dynamo.reset()
    compiled = torch.compile(user.module, mode=MODES[device.type], dynamic=False)

    def call() -> Any:
        with torch.no_grad():
            return user.inputs.call(compiled)

    with quiet():
        compiled_us = turns.time_each(call, device, restore, MODEL_S)
    return model_us, compiled_us, rows


def _time_regions(kinds: Sequence[Kind], compiled_us: float, say: Say) -> dict[int, float]:
    """Return the microseconds of one place of each kind, by its identity as an object.

    Scaled so that the regions that join no others take no longer together than the model: a call of a region alone has
    a beginning and an end of its own.
    """
    found = {}
    for number, kind in enumerate(kinds, 1):
        say(f"timing region {number} of {len(kinds)}: {kind.region.title}")
        try:
            with quiet():
                found[id(kind)] = alone.time_us(kind.region, kind.given)
        except Exception as error:  # noqa: BLE001 - one region that Inductor does not take is not the end of a profile
            found[id(kind)], kind.op = 0.0, None
            kind.reason = f"Inductor does not compile it alone: {checking.first_line(error)}"
    whole = sum(found[id(kind)] * len(kind.places) for kind in kinds if not kind.region.parts)
    scale = min(1.0, compiled_us / whole) if whole else 1.0
    return {kind: time * scale for kind, time in found.items()}


def _opportunity(kind: Kind, time_us: float, limit: physical.Limit | None) -> Opportunity:
    count, region = len(kind.places), kind.region
    return Opportunity(
        name=op_name(region) if kind.op is None else kind.op.name,
        operators=region.title,
        places=tuple(each.modules for _, each in kind.places),
        time_us=time_us * count,
        limit_us=None if limit is None else limit[0] * count,
        limit_by=None if limit is None else limit[1],
        reason=kind.reason or None,
        joins=max(1, len(region.parts)),
        bytes_saved=joined.bytes_saved(region) * count,
    )


def _counted(kinds: Sequence[Kind], opportunities: Sequence[Opportunity]) -> list[Opportunity]:
    """Return the opportunities with how many places of each are in a set without overlap."""
    savings = [
        (
            one.saving_us / len(one.places),
            [frozenset(node for node in region.nodes if not is_view(node)) for _, region in kind.places],
        )
        for kind, one in zip(kinds, opportunities, strict=True)
    ]
    counted = without_overlap(savings)
    return [dataclasses.replace(one, counted=count) for one, count in zip(opportunities, counted, strict=True)]


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
