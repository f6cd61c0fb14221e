"""A sweep over a candidate's tunables: its part of the verdict, and in words. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

SWEEP_S = 60.0
"""Device seconds of a sweep: no timing is begun that they do not suffice for, by what those before took."""

MOST_SHOWN = 3
"""Other configurations that a line of words has; and a kernel's by key on one workload."""


SURE_LEAD = 1.05
"""Ratio of two times in a sweep from which the shorter is taken for a lead: its timings are short."""

MOST_LEADERS = 2
"""Configurations beside the chosen one that are verified, each as long as it was."""

LONGEST = 600
"""Characters of a sweep, or of the tuner's choices, in words."""

_MORE = " ..."


class SweptConfiguration(TypedDict):
    """One configuration: the value of each tunable, and microseconds by bench workload.

    rounds: how many rounds of the sweep timed it. Its times are the last's; of one that left earlier they are scaled by
    what the chosen one took in the last round and in that one, so that they compare. Where its first calls were clearly
    slower than the fastest so far, its time is theirs, and no result was checked.
    unscaled: workloads on which its time could not be scaled, since it or the chosen one was left so in that round: it
    takes no lead there.
    failure: why it has no times, or none that count: it does not compile, is wrong, or fails.
    """

    values: dict[str, int]
    time_us: dict[str, float]
    rounds: int
    unscaled: NotRequired[list[str]]
    failure: NotRequired[str]


class Sweep(TypedDict):
    """What the judge found of a candidate's configurations, the fastest first.

    chosen: the one that the verdict is on. seconds: wall clock. compile_s: of the compilations, added up. left_out:
    those for which there was no time. not_compiled: of these, those that were not even compiled. limit_s: the job's
    `limits.sweep_s`, where that ended the sweep.
    """

    chosen: dict[str, int]
    configurations: list[SweptConfiguration]
    seconds: float
    compile_s: NotRequired[float]
    left_out: NotRequired[int]
    not_compiled: NotRequired[int]
    limit_s: NotRequired[float]


def mean_ratio(times: Mapping[str, float], chosen: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return how many times as long as `chosen` a configuration takes: the weighted geometric mean over workloads."""
    total = math.fsum(weights.get(name, 1.0) for name in chosen)
    logs = math.fsum(weights.get(name, 1.0) * math.log(times[name] / chosen[name]) for name in chosen)
    return math.exp(logs / total)


def find_leaders(sweep: Mapping[str, Any]) -> tuple[dict[str, int], ...]:
    """Return the values of configurations that serve some bench workload best, and surely better than the chosen one.

    Each workload names its fastest; of more than MOST_LEADERS those with the largest product of leads.
    """
    entries = [entry for entry in sweep["configurations"] if "failure" not in entry and entry["time_us"]]
    chosen = next((entry for entry in entries if entry["values"] == sweep["chosen"]), None)
    if chosen is None:
        return ()
    gains: dict[int, float] = {}
    for name, time_us in chosen["time_us"].items():
        times = [_time_that_leads(entry, name) for entry in entries]
        position = times.index(min(times))
        if time_us >= SURE_LEAD * times[position]:
            gains[position] = gains.get(position, 1.0) * time_us / times[position]
    best = sorted(gains, key=lambda position: -gains[position])[:MOST_LEADERS]
    return tuple(dict(entries[position]["values"]) for position in best)


def _time_that_leads(entry: Mapping[str, Any], name: str) -> float:
    """Return a configuration's time on a workload, infinite where it has none that compares with the chosen one's."""
    time_us: float = math.inf if name in entry.get("unscaled", ()) else entry["time_us"].get(name, math.inf)
    return time_us


def describe_sweep(sweep: Mapping[str, Any], weights: Mapping[str, float] | None = None, longest: int = LONGEST) -> str:
    """Write a sweep in a line: the best configuration, by how much others are slower, and where another is faster.

    `longest`: characters of the line; what does not fit is left out at the end, which then is ` ...`.
    """
    entries = [entry for entry in sweep["configurations"] if "failure" not in entry and entry["time_us"]]
    chosen = next((entry for entry in entries if entry["values"] == sweep["chosen"]), None)
    if chosen is None:
        return _within([f"{_named(sweep['chosen'])} chosen"], longest)
    best = chosen["time_us"]
    others = [entry for entry in entries if entry is not chosen and entry["time_us"].keys() == best.keys()]
    failed = sum("failure" in entry for entry in sweep["configurations"])
    told = [f"{_named(chosen['values'])} best of {len(entries)} timed"]
    told += [f", {failed} failed"] if failed else []
    within = f" within {sweep['limit_s']:.3g} s" if "limit_s" in sweep else ""
    told += [f", {sweep['left_out']} not timed{within}"] if sweep.get("left_out") else []
    slower = sorted((mean_ratio(entry["time_us"], best, weights or {}), _named(entry["values"])) for entry in others)
    for position, (ratio, name) in enumerate(slower[:MOST_SHOWN]):
        told.append(f"{', ' if position else '; others '}{_percent(ratio)} ({name})")
    if len(slower) > MOST_SHOWN:
        told.append(f", the slowest {_percent(slower[-1][0])}")
    if len(best) > 1:
        for name in best:
            fastest = min(entries, key=lambda entry: _time_that_leads(entry, name))
            if fastest is not chosen and fastest["time_us"][name] < 0.98 * best[name]:
                gain = _percent(fastest["time_us"][name] / best[name])
                told.append(f"; on {name} {_named(fastest['values'])} {gain}")
    return _within(told, longest)


def describe_tuned(workloads: Sequence[Mapping[str, Any]]) -> str | None:
    """Write in a line what Triton's autotuner took on the bench workloads of a verdict; None where it chose nothing.

    At most LONGEST characters.
    """
    first, *more = list_tuned(workloads) or ("",)
    return _within([first, *(f"; {one}" for one in more)], LONGEST) or None


def _within(pieces: Sequence[str], longest: int) -> str:
    """Join as many pieces as fit, and say by ` ...` that there are more; a first one that is too long is cut."""
    text = "".join(pieces)
    if len(text) <= longest:
        return text
    room = longest - len(_MORE)
    text = ""
    for piece in pieces:
        if len(text) + len(piece) > room:
            break
        text += piece
    return (text or pieces[0][:room]) + _MORE


def list_tuned(workloads: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what Triton's autotuner took on the bench workloads of a verdict, by kernel and workload.

    What is the same on all of a kernel's workloads is told once. A kernel that is launched at several keys on a
    workload has a configuration for each; they are told with their keys where they differ.
    """
    took: dict[str, dict[str, dict[str, list[str]]]] = {}
    for workload in workloads:
        for one in workload.get("configurations", ()) if workload["role"] == "bench" else ():
            shown = {name: value for name, value in one["configuration"].items() if (name, value) != ("num_ctas", 1)}
            by_configuration = took.setdefault(one["kernel"], {}).setdefault(workload["id"], {})
            by_configuration.setdefault(_named(shown), []).append(f"[{', '.join(map(str, one['key']))}]")
    told: list[str] = []
    for kernel, by_workload in took.items():
        found = {name: _by_key(keys) for name, keys in by_workload.items()}
        alike = len(set(found.values())) == 1
        first, *others = list(found.values())[:1] if alike else [f"{name} {values}" for name, values in found.items()]
        told += [f"autotuned {kernel}: {first}", *others]
    return tuple(told)


def _by_key(keys: Mapping[str, Sequence[str]]) -> str:
    """Write the configurations of a kernel on one workload, each with its keys where there are several."""
    if len(keys) == 1:
        return next(iter(keys))
    shown = [
        f"{values} at key {', '.join([*at[:MOST_SHOWN], *['...'][: len(at) - MOST_SHOWN]])}"
        for values, at in list(keys.items())[:MOST_SHOWN]
    ]
    more = [f"{len(keys) - MOST_SHOWN} more"] if len(keys) > MOST_SHOWN else []
    return " and ".join(shown + more)


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.3g} % time" if abs(ratio - 1) >= 0.0005 else "the same time"
