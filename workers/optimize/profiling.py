"""`profile`: find the regions of a model that cost most, and write their op specs.

Regions are those of the graph that `warpsmith.optimize` rewrites. It also says what kernels at the physical limit would
save of the model as Inductor compiles it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.judge.machine.host import busy_note
from warpsmith.workers.optimize import alone, bursts, checking, joined, measuring, physical
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
"""Seconds of a burst of timing of the model, at most, in each way."""


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
    others: list[float] = []
    with bursts.noting_others(others, device.type):
        say("timing the model, as it is and compiled")
        model, compiled, rows = _ready_model(user, device, graphs)
        model_us, compiled_us = model(), compiled()
        found_us, again = _time_regions(kinds, say)
        turns_left = 0
        if device.type == "cpu":  # whose times others disturb, for seconds on end
            say("timing all of them again, in turns")
            model_us, compiled_us = min(model_us, model()), min(compiled_us, compiled())
            turns_left = bursts.TURNS
        doubts = bursts.time_again(found_us, again, _wholes(kinds), compiled_us, turns_left)
    notes = [busy for share in others if (busy := busy_note(share)) is not None]
    notes += [_describe_doubt(kinds, doubt, found_us[doubt.part]) for doubt in doubts]
    times = _scaled(kinds, found_us | {doubt.part: doubt.whole_us for doubt in doubts}, compiled_us)
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
        "notes": notes,
        "output": str(output),
    }


def _ready_model(
    user: UserModel, device: torch.device, graphs: Sequence[Traced]
) -> tuple[bursts.Burst, bursts.Burst, list[dict[str, Any]]]:
    """Return what times a call of the model as it is, and compiled, and its own operators' times."""

    def restore() -> None:
        for traced in graphs:
            traced.restore()

    rows = measuring.operators(user.call, device)
    restore()
    torch._dynamo.reset()
    compiled = torch.compile(user.module, mode=MODES[device.type], dynamic=False)

    def call() -> Any:
        with torch.no_grad():
            return user.inputs.call(compiled)

    def time_compiled() -> float:
        with quiet():
            return turns.time_each(call, device, restore, MODEL_S)

    return partial(turns.time_each, user.call, device, restore, MODEL_S), time_compiled, rows


def _time_regions(kinds: Sequence[Kind], say: Say) -> tuple[dict[int, float], dict[int, bursts.Burst]]:
    """Return the microseconds of one place of each kind, and what times it again, by its number.

    A region that Inductor does not take has none, and its kind the reason.
    """
    found: dict[int, float] = {}
    again: dict[int, bursts.Burst] = {}
    for number, kind in enumerate(kinds):
        say(f"timing region {number + 1} of {len(kinds)}: {kind.region.title}")
        try:
            with quiet():
                burst = alone.ready(kind.region, kind.given)
                found[number] = burst()
        except Exception as error:  # noqa: BLE001 - one region that Inductor does not take is not the end of a profile
            kind.op = None
            kind.reason = f"Inductor does not compile it alone: {checking.first_line(error)}"
            continue
        on_gpu = kind.given[0].device.type == "cuda"  # where the copies of all regions' inputs would fill the memory
        again[number] = partial(_time_anew, kind) if on_gpu else burst
    return found, again


def _time_anew(kind: Kind) -> float:
    with quiet():
        return alone.ready(kind.region, kind.given)()


def _wholes(kinds: Sequence[Kind]) -> dict[int, list[int]]:
    """Return the numbers of the kinds a place of which contains the first place of a kind, and more."""
    costly = [
        [frozenset(node for node in region.nodes if not is_view(node)) for _, region in kind.places] for kind in kinds
    ]
    return {
        part: [whole for whole, places in enumerate(costly) if any(first < place for place in places)]
        for part, (first, *_) in enumerate(costly)
    }


def _describe_doubt(kinds: Sequence[Kind], doubt: bursts.Doubt, found_us: float) -> str:
    """Say which time cannot be, and what counts in its place."""
    whole = "the model" if doubt.whole is None else kinds[doubt.whole].region.title
    return (
        f"the time of {kinds[doubt.part].region.title} is unsure: {found_us:.1f} us alone, longer than {whole}, which "
        f"contains it, with {doubt.whole_us:.1f} us, and that counts; profile it again when the host is quiet"
    )


def _scaled(kinds: Sequence[Kind], found: Mapping[int, float], compiled_us: float) -> dict[int, float]:
    """Return the microseconds of one place of each kind, by its identity as an object.

    Scaled so that the regions that join no others take no longer together than the model: a call of a region alone has
    a beginning and an end of its own.
    """
    times = [found.get(number, 0.0) for number in range(len(kinds))]
    whole = sum(time * len(kind.places) for kind, time in zip(kinds, times, strict=True) if not kind.region.parts)
    scale = min(1.0, compiled_us / whole) if whole else 1.0
    return {id(kind): time * scale for kind, time in zip(kinds, times, strict=True)}


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
