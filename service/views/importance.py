"""How much tunables, and the technique, matter: shares of the variance of what was measured."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import BaseModel, Field

from warpsmith.kernels_db.job.sweep_documents import mean_ratio

MOST_TURNS = 200
SETTLED = 1e-9
"""The part of its squares by which a residual still falls when it counts as the least."""


class TunableImportance(BaseModel):
    """What one tunable explains of the differences in time between configurations."""

    name: str
    values: int = Field(description="Different values among the timed configurations")
    sweeps: int = Field(1, description="Sweeps in which it had several values: the share is of these alone")
    share: float = Field(
        description="Of the variance of the logarithm of time, from 0 to 1: its main effect alone, the mean over sweeps"
    )
    by_chance: float = Field(
        description="The share that a tunable of as many values is expected to have that does nothing"
    )


class ImportanceDocument(BaseModel):
    """The tunables of sweeps by what they explain of the times, the most first.

    Shares need not add up to 1: what is left is of tunables together and of noise. Where conditions or failures leave
    out combinations, two tunables may explain the same part, and the sum may exceed 1.
    """

    configurations: int = Field(description="Timed on every bench workload; the others are not used")
    sweeps: int = Field(1, description="Sweeps that were looked at")
    unused: int = Field(0, description="Those of them that could tell nothing, such as of too few configurations")
    tunables: list[TunableImportance] = Field(description="Those with two or more values; empty where it is unclear")
    unclear: str | None = Field(description="Why it cannot be told, such as too few configurations; else null")


class TechniqueImportance(BaseModel):
    """What the choice of a technique explains of the differences in gain between candidates."""

    candidates: int = Field(description="Accepted, with a known speed-up over what they were built on")
    techniques: int
    share: float | None = Field(description="Of the variance of the logarithm of that gain, from 0 to 1")
    by_chance: float | None = Field(description="The share that is expected where the technique does nothing")
    unclear: str | None = Field(description="Why it cannot be told, such as too few candidates; else null")


@dataclass(frozen=True)
class _Variance:
    """Sums of squares of a response: of all of it, of each factor's means, and what a factor has by chance."""

    whole: float
    explained: Mapping[str, float]
    by_chance: Mapping[str, float]


class _UnclearError(Exception):
    """The measurements are too few, or too alike, to say what they depend on."""


def time_ratios(sweep: Mapping[str, Any], weights: Mapping[str, float]) -> list[tuple[Mapping[str, int], float]]:
    """Return the configurations that were timed on every bench workload, with their time over the chosen one's.

    `sweep` is the judge's `Sweep` document, times in microseconds; `weights` are those of its bench workloads. The
    ratio is the weighted geometric mean over the workloads.
    """
    names: Mapping[str, int] = sweep["chosen"]
    times = [entry for entry in sweep["configurations"] if "failure" not in entry and _has_times(entry["time_us"])]
    chosen: Mapping[str, float] = next((entry["time_us"] for entry in times if entry["values"] == names), {})
    timed = [e for e in times if e["time_us"].keys() == chosen.keys() and e["values"].keys() == names.keys()]
    return [(entry["values"], mean_ratio(entry["time_us"], chosen, weights)) for entry in timed]


def _has_times(time_us: Mapping[str, float]) -> bool:
    """Whether a configuration was timed, and each of its times has a logarithm."""
    return bool(time_us) and all(0 < time < math.inf for time in time_us.values())


def explain_times(sweep: Mapping[str, Any], weights: Mapping[str, float]) -> ImportanceDocument:
    """Compute the share of variance that each tunable of a sweep explains: `explain_sweeps` of one."""
    return explain_sweeps([time_ratios(sweep, weights)])


def explain_sweeps(sweeps: Iterable[Sequence[tuple[Mapping[str, int], float]]]) -> ImportanceDocument:
    """Compute the share of variance that each tunable explains within sweeps, each as `time_ratios` has it.

    A configuration's response is the logarithm of its time over the chosen one's. A tunable's share is the variance of
    the means of its values, each weighted by its configurations, over the variance of all: the correlation ratio
    (K. Pearson, "On the general theory of skew correlation", 1905), which on a full grid is the first-order index of
    I. M. Sobol' ("Sensitivity estimates for nonlinear mathematical models", 1993) and the main effect of functional
    ANOVA (F. Hutter, H. Hoos and K. Leyton-Brown, "An efficient approach for assessing hyperparameter importance",
    ICML 2014), there without its fitted forest: a sweep measures its grid.

    Of several sweeps, it is the mean of the shares in those in which a tunable of this name had several values. Each
    sweep counts once: one whose times differ much does not outweigh the others. What a candidate is slower than another
    counts for nothing, and a value may be best in one and worst in another.

    What is left is of tunables together and of noise: the residual of the additive fit of all of them by least
    squares, as in an analysis of variance (R. A. Fisher, "Statistical Methods for Research Workers", 1925). A tunable
    of k values that does nothing is expected to explain k - 1 times the residual's share for each of its degrees of
    freedom. With fewer of these than the tunables take, the times are too few to tell.
    """
    found, used, configurations = 0, 0, 0
    reasons: list[tuple[int, str]] = []
    shares: defaultdict[str, list[float]] = defaultdict(list)
    by_chance: defaultdict[str, list[float]] = defaultdict(list)
    values: defaultdict[str, set[int]] = defaultdict(set)
    for timed in sweeps:
        found += 1
        try:
            parts = _explain_sweep(timed)
        except _UnclearError as error:
            reasons.append((len(timed), str(error)))
            continue
        used += 1
        configurations += len(timed)
        for name, square in parts.explained.items():
            shares[name].append(square / parts.whole)
            by_chance[name].append(parts.by_chance[name] / parts.whole)
            values[name].update(one[name] for one, _ in timed)
    tunables = [
        TunableImportance(
            name=name,
            values=len(values[name]),
            sweeps=len(shares[name]),
            share=fmean(shares[name]),
            by_chance=fmean(by_chance[name]),
        )
        for name in shares
    ]
    tunables.sort(key=lambda one: -one.share)
    unclear = None if used else _say_unclear([why for _, why in reasons])
    return ImportanceDocument(
        configurations=configurations if used else sum(count for count, _ in reasons),
        sweeps=found,
        unused=found - used,
        tunables=tunables,
        unclear=unclear,
    )


def _explain_sweep(timed: Sequence[tuple[Mapping[str, int], float]]) -> _Variance:
    if not timed:
        raise _UnclearError("no configuration was timed on every bench workload")
    names = timed[0][0]
    if len(names) == 1:
        raise _UnclearError("one tunable alone has nothing to be compared with")
    columns = {name: [values[name] for values, _ in timed] for name in names}
    varied = {name: column for name, column in columns.items() if len(set(column)) > 1}
    if len(varied) < 2:
        raise _UnclearError("fewer than two tunables had several values timed: there is nothing to compare")
    return _split_variance(varied, [math.log(ratio) for _, ratio in timed], "configurations")


def _say_unclear(reasons: Sequence[str]) -> str:
    if not reasons:
        return "no candidate was swept"
    if len(reasons) == 1:
        return reasons[0]
    [(reason, times)] = Counter(reasons).most_common(1)
    of_them = "all" if times == len(reasons) else times
    return f"none of {len(reasons)} sweeps can tell, {of_them} of them because: {reason}"


def explain_gains(gains: Sequence[tuple[str, float]]) -> TechniqueImportance:
    """Compute what the technique explains of the logarithm of candidates' gains, given as (technique, gain).

    A gain that is not positive has no logarithm and is left out: a score can be 0 where times are rounded.
    """
    gains = [(technique, gain) for technique, gain in gains if 0 < gain < math.inf]
    names = [technique for technique, _ in gains]
    share = by_chance = unclear = None
    try:
        if len(set(names)) < 2:
            raise _UnclearError("fewer than two techniques have an accepted candidate: there is nothing to compare")
        parts = _split_variance({"technique": names}, [math.log(gain) for _, gain in gains], "candidates")
        share = parts.explained["technique"] / parts.whole
        by_chance = parts.by_chance["technique"] / parts.whole
    except _UnclearError as error:
        unclear = str(error)
    return TechniqueImportance(
        candidates=len(gains), techniques=len(set(names)), share=share, by_chance=by_chance, unclear=unclear
    )


def _split_variance(columns: Mapping[str, Sequence[Hashable]], measured: Sequence[float], noun: str) -> _Variance:
    """Split the squares of a response by factors, each given as its values; a factor has two values at least.

    Raises `_UnclearError` where there are fewer than twice the degrees of freedom that the factors take, or all of the
    `noun` measured the same.
    """
    freedom = {name: len(set(column)) - 1 for name, column in columns.items()}
    taken, count = sum(freedom.values()), len(measured)
    if count < 1 + 2 * taken:
        raise _UnclearError(f"too few {noun} to tell: found {count} timed, expected at least {1 + 2 * taken}")
    response = _centre(measured)
    whole = _sum_squares(response)
    if whole == 0:
        raise _UnclearError(f"all {noun} measured the same")
    left = _sum_squares(_subtract_additive_fit(list(columns.values()), response)) / (count - 1 - taken)
    return _Variance(
        whole=whole,
        explained={name: _sum_squares(_fit_means(column, response)) for name, column in columns.items()},
        by_chance={name: freedom[name] * left for name in columns},
    )


def _centre(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _sum_squares(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in values)


def _fit_means(column: Sequence[Hashable], response: Sequence[float]) -> list[float]:
    """Return for each measurement the mean response of those with its value of one factor."""
    groups: defaultdict[Hashable, list[float]] = defaultdict(list)
    for value, one in zip(column, response, strict=True):
        groups[value].append(one)
    means = {value: fmean(group) for value, group in groups.items()}
    return [means[value] for value in column]


def _subtract_additive_fit(columns: Sequence[Sequence[Hashable]], response: Sequence[float]) -> list[float]:
    """Return the residual of the least squares fit by a sum of one function of each factor.

    Projections by turns (I. Halperin, "The product of projection operators", 1962): each takes the means of one factor
    away. On a full grid one turn is all that is needed.
    """
    left = list(response)
    for _ in range(MOST_TURNS):
        before = _sum_squares(left)
        for column in columns:
            left = [one - mean for one, mean in zip(left, _fit_means(column, left), strict=True)]
        if before - _sum_squares(left) <= SETTLED * before:
            break
    return left
