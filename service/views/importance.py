"""How much each tunable of a swept candidate matters: its share of the variance of the measured times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    share: float = Field(description="Of the variance of the logarithm of time, from 0 to 1: its main effect alone")
    by_chance: float = Field(
        description="The share that a tunable of as many values is expected to have that does nothing"
    )


class ImportanceDocument(BaseModel):
    """The tunables of a sweep by what they explain of its times, the most first.

    Shares need not add up to 1: what is left is of tunables together and of noise. Where conditions or failures leave
    out combinations, two tunables may explain the same part, and the sum may exceed 1.
    """

    configurations: int = Field(description="Timed on every bench workload; the others are not used")
    tunables: list[TunableImportance] = Field(description="Those with two or more values; empty where it is unclear")
    unclear: str | None = Field(description="Why it cannot be told, such as too few configurations; else null")


def explain_times(sweep: Mapping[str, Any], weights: Mapping[str, float]) -> ImportanceDocument:
    """Compute the share of variance that each tunable of a sweep explains.

    `sweep` is the judge's `Sweep` document, times in microseconds; `weights` are those of its bench workloads.

    A configuration's response is the logarithm of its time over the chosen one's, the weighted mean over the bench
    workloads. A tunable's share is the variance of the means of its values, each weighted by its configurations, over
    the variance of all: the correlation ratio (K. Pearson, "On the general theory of skew correlation", 1905), which
    on a full grid is the first-order index of I. M. Sobol' ("Sensitivity estimates for nonlinear mathematical models",
    1993) and the main effect of functional ANOVA (F. Hutter, H. Hoos and K. Leyton-Brown, "An efficient approach for
    assessing hyperparameter importance", ICML 2014), there without its fitted forest: a sweep measures its grid.

    What is left is of tunables together and of noise: the residual of the additive fit of all of them by least
    squares, as in an analysis of variance (R. A. Fisher, "Statistical Methods for Research Workers", 1925). A tunable
    of k values that does nothing is expected to explain k - 1 times the residual's share for each of its degrees of
    freedom. With fewer of these than the tunables take, the times are too few to tell.
    """
    names: Mapping[str, int] = sweep["chosen"]
    times = [entry for entry in sweep["configurations"] if "failure" not in entry and entry["time_us"]]
    chosen: Mapping[str, float] = next((entry["time_us"] for entry in times if entry["values"] == names), {})
    timed = [e for e in times if e["time_us"].keys() == chosen.keys() and e["values"].keys() == names.keys()]
    counts = {name: len({entry["values"][name] for entry in timed}) for name in names}
    varied = {name: count for name, count in counts.items() if count > 1}
    taken = sum(count - 1 for count in varied.values())
    if len(varied) < 2:
        return _say_unclear(timed, "fewer than two tunables had several values timed: there is nothing to compare")
    if len(timed) < 1 + 2 * taken:
        why = f"too few configurations to tell: found {len(timed)} timed, expected at least {1 + 2 * taken}"
        return _say_unclear(timed, why)
    response = _centre([math.log(mean_ratio(entry["time_us"], chosen, weights)) for entry in timed])
    whole = _sum_squares(response)
    if whole == 0:
        return _say_unclear(timed, "every configuration took the same time")
    columns = {name: [entry["values"][name] for entry in timed] for name in varied}
    left = _sum_squares(_subtract_additive_fit(list(columns.values()), response)) / (len(timed) - 1 - taken)
    tunables = [
        TunableImportance(
            name=name,
            values=varied[name],
            share=_sum_squares(_fit_means(column, response)) / whole,
            by_chance=(varied[name] - 1) * left / whole,
        )
        for name, column in columns.items()
    ]
    tunables.sort(key=lambda one: -one.share)
    return ImportanceDocument(configurations=len(timed), tunables=tunables, unclear=None)


def _say_unclear(timed: Sequence[Any], why: str) -> ImportanceDocument:
    return ImportanceDocument(configurations=len(timed), tunables=[], unclear=why)


def _centre(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _sum_squares(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in values)


def _fit_means(column: Sequence[int], response: Sequence[float]) -> list[float]:
    """Return for each configuration the mean response of those with its value of one tunable."""
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for value, one in zip(column, response, strict=True):
        groups[value].append(one)
    means = {value: fmean(group) for value, group in groups.items()}
    return [means[value] for value in column]


def _subtract_additive_fit(columns: Sequence[Sequence[int]], response: Sequence[float]) -> list[float]:
    """Return the residual of the least squares fit by a sum of one function of each tunable.

    Projections by turns (I. Halperin, "The product of projection operators", 1962): each takes the means of one tunable
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
