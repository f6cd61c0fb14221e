"""Crossover: which contenders one candidate should join, as they win on different workloads. Pure.

A join is one file with the kernels of two or three contenders, in which `run` chooses between them by size. The file is
put together from theirs (`workers.gate.joined`), so it takes no call to a model: what it costs is its screening.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.workers.search.ranking import score
from warpsmith.workers.search.tree import NodeView

SURE_LEAD = 1.05
"""Ratio of two speed-ups on one workload from which the greater is taken for a lead, if their intervals are apart."""

MOST_PARTS = 3
MOST_COMPARED = 64
"""Best contenders that are looked at for parts."""


class Standing(NamedTuple):
    """A candidate's speed-up over the fastest baseline on one bench workload.

    `low`, `high`: the ends of its 95 % interval; `weight`: how much the workload counts in the score.
    """

    speedup: float
    low: float
    high: float
    weight: float


@dataclass(frozen=True)
class Join:
    """Contenders to be joined, the fastest first, and the speed-up that their leads promise."""

    parts: tuple[NodeView, ...]
    promised: float

    @property
    def key(self) -> str:
        """The parts' numbers as a node's `joins` has them."""
        return write_parts([node.seq for node in self.parts])


def write_parts(seqs: Sequence[int]) -> str:
    """Write the numbers of a join's parts, its parent first: "3,7,5"."""
    return ",".join(map(str, [*seqs[:1], *sorted(seqs[1:])]))


def read_parts(joins: str) -> tuple[int, ...]:
    """Read what `write_parts` wrote."""
    return tuple(int(seq) for seq in joins.split(","))


def write_speedups(workloads: Sequence[Mapping[str, Any]]) -> str | None:
    """Write the speed-ups of an accepted verdict's bench workloads as a node's `speedups`; None where one has none."""
    bench = [entry for entry in workloads if entry["role"] == "bench"]
    found: dict[str, Standing] = {}
    for entry in bench:
        speedups = entry["speedup"]
        fastest = min(speedups, key=speedups.__getitem__, default=None)
        interval = None if fastest is None else entry["ci95"].get(fastest)
        if fastest is None or interval is None or min(speedups[fastest], *interval) <= 0.0:
            return None
        low, high = interval
        found[entry["id"]] = Standing(speedups[fastest], low, high, weight_of(entry))
    return json.dumps(found) if found else None


@lru_cache(maxsize=4096)
def read_speedups(speedups: str) -> dict[str, Standing]:
    """Read a node's `speedups`, by workload."""
    return {name: Standing(*found) for name, found in json.loads(speedups).items()}


def standings(node: NodeView) -> dict[str, Standing]:
    """Return a node's standings by bench workload; none where they are not known."""
    return read_speedups(node.speedups) if node.speedups else {}


def find_join(contenders: Sequence[NodeView], least_gain: float) -> Join | None:
    """Return the join that promises most; None where it does not beat the best contender by the share `least_gain`.

    `contenders` come best first. The fastest that is no join itself is the first part; then, as long as it adds
    `least_gain`, the contender whose leads over the parts so far are worth most. Only sure leads count, for the
    greatest of many short timings is flattered by luck.
    """
    whole = [node for node in contenders if node.origin != JOINED and node.speedups][:MOST_COMPARED]
    if not whole:
        return None
    parts, reached, promised = [whole[0]], standings(whole[0]), score(whole[0])
    for _ in range(MOST_PARTS - 1):
        gain, part = max(((_gain(standings(node), reached), node) for node in whole), key=lambda found: found[0])
        if gain < 1.0 + least_gain:
            break
        parts.append(part)
        promised *= gain
        reached = {name: _led(standings(part)[name], standing) for name, standing in reached.items()}
    serving = set(winners(parts).values())  # one may be led on every workload by those that came after it
    parts = [part for part in parts if part.seq in serving]
    if len(set(winners(parts).values())) < len(parts) or len(parts) == 1:
        return None
    return Join(tuple(parts), promised) if promised > score(contenders[0]) * (1.0 + least_gain) else None


def winners(parts: Sequence[NodeView]) -> dict[str, int]:
    """Return, by bench workload, the number of the part that is to serve it: the first unless another surely leads."""
    found: dict[str, int] = {}
    for name, standing in standings(parts[0]).items():
        best, seq = standing, parts[0].seq
        for part in parts[1:]:
            other = standings(part).get(name)
            if other is not None and _led(other, best) is other:
                best, seq = other, part.seq
        found[name] = seq
    return found


def _led(one: Standing, other: Standing) -> Standing:
    """Return `one` where it surely leads, else `other`."""
    return one if one.speedup >= SURE_LEAD * other.speedup and one.low > other.high else other


def _gain(one: Mapping[str, Standing], reached: Mapping[str, Standing]) -> float:
    """Return by how much `one` raises the mean of `reached` where it leads; 1 where the workloads are others."""
    if one.keys() != reached.keys():
        return 1.0
    total = math.fsum(standing.weight for standing in reached.values())
    logs = (
        standing.weight * math.log(_led(one[name], standing).speedup / standing.speedup)
        for name, standing in reached.items()
    )
    return math.exp(math.fsum(logs) / total)
