"""`apply` and `ablate`: put kernels into the user's model and measure what each brings."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from warpsmith.workers.exports.project import Project
from warpsmith.workers.judge.clock.timing import ratio_with_interval
from warpsmith.workers.optimize import measuring, packages
from warpsmith.workers.optimize.applied import comparing
from warpsmith.workers.optimize.applied.applying import Applied, prepare
from warpsmith.workers.optimize.contract import UserModel

Say = Callable[[str], None]
MODEL, GRAPH, ALL = "model", "graph", "all"
"""Variants: the model as it is, its graph without kernels, every kernel."""
FEWEST_ROUNDS = 6
"""With fewer, resampling rounds says nothing of a 95 % interval."""


def apply(user: UserModel, projects: Sequence[Project], output: Path | None, say: Say) -> dict[str, Any]:
    """Put packages into a model, compare its results, take them out again.

    Returns the document that the command prints. With `output`, write the package that does so in the user's own
    process, where something was replaced and all is well. Raises NotExportable.
    """
    say("looking for places")
    kernels, unusable = packages.kernels(projects)
    before = comparing.run(user.module, user.inputs)
    weights = {name: value.detach().clone() for name, value in _tensors(user.module)}
    modules = dict(user.module.named_modules())
    applied = prepare(user.module, user.inputs.args or dict(user.inputs.kwargs), kernels)
    compared = applied.compare()
    served = applied.status()
    applied.undo()
    untouched = _untouched(weights, user.module)
    undone = _undone(modules, user) and comparing.same(before, comparing.run(user.module, user.inputs))
    generated = None
    if output is not None and applied.kernels and compared.agrees and untouched and undone:
        used = [project for project in projects if project.module in applied.kernels]
        generated = str(packages.generate(user.path, used, output))
    return {
        "model": user.path.name,
        "places": [{**dataclasses.asdict(place), "replaced": place.replaced} for place in applied.places],
        "unusable": unusable,
        "graph": applied.has_regions,
        "served": {name: status["served"] for name, status in served["kernels"].items()},
        **compared.document(),
        "weights_untouched": untouched,
        "undone": undone,
        "package": generated,
    }


def _tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters and buffers by name."""
    return [*module.named_parameters(), *module.named_buffers()]


def _untouched(weights: dict[str, torch.Tensor], module: torch.nn.Module) -> bool:
    """Check whether parameters and buffers are what they were, bit by bit."""
    found = dict(_tensors(module))
    return list(found) == list(weights) and all(
        found[name].dtype is value.dtype and torch.equal(_bits(found[name]), _bits(value))
        for name, value in weights.items()
    )


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.detach().contiguous().flatten().view(torch.uint8)


def _undone(modules: dict[str, torch.nn.Module], user: UserModel) -> bool:
    """Check whether every submodule is the very object that it was."""
    found = dict(user.module.named_modules())
    return found.keys() == modules.keys() and all(found[name] is module for name, module in modules.items())


def ablate(
    user: UserModel, device: torch.device, projects: Sequence[Project], time_s: float, say: Say
) -> dict[str, Any]:
    """Measure a model without kernels, with all, with each alone and with all but each.

    Raises NotExportable.
    """
    say("looking for places")
    kernels, unusable = packages.kernels(projects)
    wide, before = comparing.exact(user.module, user.inputs), comparing.run(user.module, user.inputs)
    applied = prepare(user.module, user.inputs.args or dict(user.inputs.kwargs), kernels)
    variants = _variants(applied)
    results: dict[str, Any] = {}
    try:
        for name, chosen in variants.items():
            _ready(applied, chosen)
            results[name] = comparing.run(user.module, user.inputs)
        say(f"timing {len(variants)} variants in turns")
        samples = measuring.time_in_turns(
            {name: _starter(user, applied, chosen) for name, chosen in variants.items()}, device, time_s
        )
    finally:
        applied.undo()
    rows = []
    for name in variants:
        ms, interval = _ratio([value / 1e3 for value in samples[name]], [1.0] * len(samples[name]))
        speedup, ci95 = _ratio(samples[MODEL], samples[name])
        row = {"variant": name, "ms": ms, "ms_ci95": interval, "speedup": speedup, "speedup_ci95": ci95}
        rows.append(row | comparing.compare(before, results[name], wide).document())
    return {
        "model": user.path.name,
        "device": str(device),
        "rounds": len(samples[MODEL]),
        "kernels": applied.kernels,
        "brings": [_brings(name, samples) for name in applied.kernels],
        "variants": rows,
        "places": [{**dataclasses.asdict(place), "replaced": place.replaced} for place in applied.places],
        "unusable": unusable,
    }


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, list[float] | None]:
    """Compute the ratio of the medians and its 95 % interval.

    The interval is None where there are too few rounds to tell one.
    """
    ratio, interval = ratio_with_interval(slow, fast, 0)
    return ratio, list(interval) if len(slow) >= FEWEST_ROUNDS else None


_Variant = tuple[list[str] | None, bool]
"""The packages that are on, and whether the model runs as its graph.

None for packages: the model as it is.
"""


def _variants(applied: Applied) -> dict[str, _Variant]:
    names, graph = applied.kernels, applied.has_regions
    variants: dict[str, _Variant] = {MODEL: (None, False)}
    if graph:
        variants[GRAPH] = ([], True)
    if names:
        variants[ALL] = (names, graph)
    if len(names) > 1:
        variants |= {f"only {name}": ([name], graph) for name in names}
        variants |= {f"without {name}": ([other for other in names if other != name], graph) for name in names}
    return variants


def _ready(applied: Applied, variant: _Variant) -> None:
    names, graph = variant
    if names is None:
        applied.undo()
    else:
        applied.install(names, graph=graph)


def _starter(user: UserModel, applied: Applied, variant: _Variant) -> Callable[[], Callable[[], Any]]:
    def start() -> Callable[[], Any]:
        _ready(applied, variant)
        return user.call

    return start


def _brings(name: str, samples: dict[str, list[float]]) -> dict[str, Any]:
    """Compute the gain of a kernel by itself, and beside the others.

    Ratios of times without it to times with it.
    """
    off = GRAPH if GRAPH in samples else MODEL
    alone, without = f"only {name}", f"without {name}"
    pairs = {
        "alone": (off, alone if alone in samples else ALL),
        "beside": (without if without in samples else off, ALL),
    }
    found: dict[str, Any] = {"kernel": name}
    for key, (slow, fast) in pairs.items():
        ratio, interval = _ratio(samples[slow], samples[fast])
        saved = statistics.median(samples[slow]) - statistics.median(samples[fast])
        found[key] = {"speedup": ratio, "ci95": interval, "saved_us": saved}
    return found
