"""`apply` and `ablate`: compile the user's model with kernels in it, and measure what each brings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from warpsmith.workers.exports.project import Project
from warpsmith.workers.judge.clock.timing import ratio_with_interval
from warpsmith.workers.optimize import packages
from warpsmith.workers.optimize.compiled import comparing, turns
from warpsmith.workers.optimize.compiled.backend import NOWHERE
from warpsmith.workers.optimize.compiled.choice import FEWEST_ROUNDS
from warpsmith.workers.optimize.compiled.comparing import Ran
from warpsmith.workers.optimize.compiled.handle import Optimized
from warpsmith.workers.optimize.compiled.rewriting import Keep, Placed
from warpsmith.workers.optimize.compiled.served import Served
from warpsmith.workers.optimize.contract import NoModel, UserModel
from warpsmith.workers.optimize.shipped import served

Say = Callable[[str], None]
MODEL, COMPILED, REWRITES, ALL = "model", "compiled", "rewrites", "all"
"""Variants: the model as it is, Inductor's code, that of the rewritten graph without kernels, and with every kernel."""


@dataclass(frozen=True)
class How:
    """How a model is compiled: Inductor's mode (None: its default), and which kernels stay."""

    mode: str | None
    keep: Keep

    @classmethod
    def of(cls, mode: str | None, keep: str) -> How:
        """Raises NoModel for what is neither."""
        modes = list(torch._inductor.list_mode_options())
        if mode is not None and mode not in modes:
            raise NoModel("--mode", mode, f"one of {', '.join(modes)}")
        for known in get_args(Keep):
            if keep == known:
                return cls(mode, known)
        raise NoModel("--keep", keep, f"one of {', '.join(get_args(Keep))}")

    def optimized(self, user: UserModel, kernels: Sequence[Served]) -> Optimized:
        """Compile the model at its first call, with these kernels: no call is made without them."""
        return Optimized(user.module, self.mode, None, lambda _: kernels, self.keep, tried=False)


def apply(user: UserModel, projects: Sequence[Project], output: Path | None, how: How, say: Say) -> dict[str, Any]:
    """Compile a model with kernels, compare its results, and look whether the model itself is as it was.

    Returns the document that the command prints. With `output`, write the package that compiles it so in the user's own
    process, where a kernel has a place and all is well.
    """
    say("compiling, and looking for places")
    kernels, unusable = served(projects)
    before = comparing.run(user.module, user.inputs)
    weights = {name: value.detach().clone() for name, value in _tensors(user.module)}
    modules = dict(user.module.named_modules())
    fast = how.optimized(user, kernels)
    compared = comparing.compare(
        before, comparing.run(user.module, user.inputs, fast), comparing.exact(user.module, user.inputs)
    )
    untouched = _untouched(weights, user.module)
    unchanged = _unchanged(modules, user) and comparing.same(before, comparing.run(user.module, user.inputs))
    places = list(_places(fast, kernels))
    used = {place["kernel"] for place in places if place["replaced"]}
    generated = None
    if output is not None and used and compared.agrees and untouched and unchanged:
        generated = str(
            packages.generate(user.path, [each for each in projects if each.module in used], output, how.keep)
        )
    return {
        "model": user.path.name,
        "mode": how.mode,
        "graphs": len(fast.graphs),
        "masks": sum(bool(mask.means) for graph in fast.graphs for mask in graph.masks),
        "places": places,
        "unusable": unusable,
        **compared.document(),
        "weights_untouched": untouched,
        "unchanged": unchanged,
        "package": generated,
    }


def _places(fast: Optimized, kernels: Sequence[Served]) -> Iterator[dict[str, Any]]:
    """Yield every place of every graph, then the kernels that have none."""
    seen = set()
    for graph in fast.graphs:
        for place in graph.kernels:
            seen.add(place.kernel)
            yield _document(place)
    for kernel in kernels:
        if kernel.name not in seen:
            why = next((graph.why or graph.without.get(kernel.name, "") for graph in fast.graphs), NOWHERE) or NOWHERE
            nowhere = {"where": "", "shapes": "", "replaced": False, "reason": why}
            yield {"op": kernel.op, "kernel": kernel.name, **nowhere, "us": None, "inductor_us": None, "ci95": None}


def _document(place: Placed) -> dict[str, Any]:
    found = place.decision
    return {
        "op": place.op,
        "kernel": place.kernel,
        "where": place.where,
        "shapes": place.shapes,
        "replaced": not place.why,
        "reason": place.why or None,
        "us": found.us,
        "inductor_us": found.inductor_us,
        "ci95": None if found.ci95 is None else list(found.ci95),
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


def _unchanged(modules: dict[str, torch.nn.Module], user: UserModel) -> bool:
    """Check whether every submodule is the very object that it was."""
    found = dict(user.module.named_modules())
    return found.keys() == modules.keys() and all(found[name] is module for name, module in modules.items())


def ablate(
    user: UserModel, device: torch.device, projects: Sequence[Project], how: How, time_s: float, say: Say
) -> dict[str, Any]:
    """Measure a model as it is, compiled, with rewrites, with all kernels, each alone and all but each."""
    kernels, unusable = served(projects)
    wide, before = comparing.exact(user.module, user.inputs), comparing.run(user.module, user.inputs)
    say("compiling, and looking for places")
    fast = how.optimized(user, kernels)
    results: dict[str, Ran] = {MODEL: before, ALL: comparing.run(user.module, user.inputs, fast)}
    places = list(_places(fast, kernels))
    given = {each.name for each in kernels}  # grouped bags are among the rewrites, and in every variant
    names = [name for name in dict.fromkeys(each["kernel"] for each in places if each["replaced"]) if name in given]
    calls: dict[str, Callable[..., Any]] = {MODEL: user.module, **({ALL: fast} if names else {})}
    sets = _sets(names)
    say(f"compiling {len(sets) + 1} variants more")
    calls[COMPILED] = torch.compile(user.module, mode=how.mode)
    for name, chosen in sets.items():
        calls[name] = how.optimized(user, [each for each in kernels if each.name in chosen])
    order = list(dict.fromkeys(name for name in (MODEL, COMPILED, REWRITES, ALL, *sets) if name in calls))
    with _many_variants(len(order)):
        for name in order:
            if name not in results:
                results[name] = comparing.run(user.module, user.inputs, calls[name])
        say(f"timing {len(order)} variants in turns")
        samples = turns.time_in_turns({name: _starter(user, calls[name]) for name in order}, device, time_s)
    rows = []
    for name in order:
        ms, interval = _ratio([value / 1e3 for value in samples[name]], [1.0] * len(samples[name]))
        speedup, ci95 = _ratio(samples[MODEL], samples[name])
        over, over_ci95 = _ratio(samples[COMPILED], samples[name])
        row = {"variant": name, "ms": ms, "ms_ci95": interval, "speedup": speedup, "speedup_ci95": ci95}
        row |= {"over_compiled": over, "over_compiled_ci95": over_ci95}
        rows.append(row | comparing.compare(before, results[name], wide).document())
    return {
        "model": user.path.name,
        "device": str(device),
        "mode": how.mode,
        "rounds": len(samples[MODEL]),
        "kernels": names,
        "brings": [_brings(name, samples) for name in names],
        "variants": rows,
        "places": places,
        "unusable": unusable,
    }


def _many_variants(count: int) -> AbstractContextManager[Any]:
    """Let Dynamo compile the same code for each variant, where it would give up after a few."""
    config: Any = torch._dynamo.config
    found: AbstractContextManager[Any] = config.patch(recompile_limit=config.recompile_limit * count)
    return found


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, list[float] | None]:
    """Compute the ratio of the medians and its 95 % interval.

    The interval is None where there are too few rounds to tell one.
    """
    ratio, interval = ratio_with_interval(slow, fast, 0)
    return ratio, list(interval) if len(slow) >= FEWEST_ROUNDS else None


def _sets(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the sets of kernels that are compiled beside all of them, by variant."""
    found: dict[str, list[str]] = {REWRITES: []}
    if len(names) > 1:
        found |= {f"only {name}": [name] for name in names}
        found |= {f"without {name}": [other for other in names if other != name] for name in names}
    return found


def _starter(user: UserModel, call: Callable[..., Any]) -> Callable[[], Callable[[], Any]]:
    def once() -> Any:
        with torch.no_grad():
            return user.inputs.call(call)

    return lambda: once


def _brings(name: str, samples: dict[str, list[float]]) -> dict[str, Any]:
    """Compute the gain of a kernel by itself over the rewritten model, and beside the others.

    Ratios of times without it to times with it.
    """
    alone, without = f"only {name}", f"without {name}"
    pairs = {
        "alone": (REWRITES, alone if alone in samples else ALL),
        "beside": (without if without in samples else REWRITES, ALL),
    }
    found: dict[str, Any] = {"kernel": name}
    for key, (slow, fast) in pairs.items():
        ratio, interval = _ratio(samples[slow], samples[fast])
        saved = statistics.median(samples[slow]) - statistics.median(samples[fast])
        found[key] = {"speedup": ratio, "ci95": interval, "saved_us": saved}
    return found
