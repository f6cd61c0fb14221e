"""Compare the search policies on recorded pools, at equal model cost.

    python -m benchmarks.policies [--seeds N] [--share F ...] [--png FILE] [--json FILE] [--measure] [--outcomes DIR]
        [--simulate TIMES]

Plays every pool that has measured outcomes under every policy, at equal model cost, with many seeds, and
prints for each policy the best speed-up that it found, by op and in the geometric mean, and the share of its
requests that were not recorded; then the ratio of every policy to every other with a paired 95 % interval.
`--measure` judges every candidate of the pools on this machine first (keep it quiet) and stores the outcomes.
`--simulate` plays larger budgets in a fitted simulation.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.policies import outcomes, recording
from benchmarks.policies.contestants import DEFAULT, NAMES, contestant
from benchmarks.policies.play import Play, Played, World
from benchmarks.policies.plot import draw
from benchmarks.policies.replay import Replay
from benchmarks.policies.simulator import Simulator, fit
from benchmarks.policies.statistics import geomean, ratio_interval
from warpsmith.kernels_db.store.pool_file import parse_pool
from warpsmith.workers.search.policy import Policy

POOLS = Path(__file__).resolve().parents[2] / "examples" / "pools"

SHARES = (0.3, 0.5)
"""Shares of a recording's cost that the policies may spend.

With more, most policies have used up what was recorded, and the comparison is of pools rather than of
policies.
"""

Worlds = dict[str, Callable[[random.Random], World]]


@dataclass(frozen=True)
class Arena:
    """A setting for comparing policies: its title, a world for each op, the money for each op."""

    what: str
    worlds: Worlds
    money: dict[str, float]


def main() -> int:
    """Compare the policies and return the exit status.

    It is 1 where the default certainly loses to a control, anywhere.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description="Policies at equal model cost.")
    parser.add_argument("--pools", nargs="*", type=Path, help="pool files; default: all of examples/pools")
    parser.add_argument("--seeds", type=int, default=30, help="plays of each op under each policy")
    parser.add_argument("--first-seed", type=int, default=0, help="of those; others than a policy was tuned on")
    parser.add_argument(
        "--share", nargs="+", type=float, default=SHARES, help="money, as shares of what the recording cost"
    )
    parser.add_argument(
        "--simulate", metavar="TIMES", type=float, help="also simulate so many times what the recording cost"
    )
    parser.add_argument("--outcomes", type=Path, default=outcomes.DIRECTORY, help="where the outcomes are kept")
    parser.add_argument("--measure", action="store_true", help="judge every candidate on this machine first")
    parser.add_argument("--png", metavar="FILE", type=Path, help="draw the best-so-far curves of the largest share")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every figure here")
    arguments = parser.parse_args()
    files = arguments.pools or sorted(POOLS.glob("*.jsonl"))
    if arguments.measure:
        for file in files:
            _measure(file, arguments.outcomes)
    recordings = {}
    for file in files:
        measured = outcomes.read(file, arguments.outcomes)
        if measured is None:
            print(f"{file.name}: nobody measured its candidates; --measure does", file=sys.stderr)
            continue
        recordings[file.stem] = recording.load(file, measured)
    if not recordings:
        print("no pool has outcomes", file=sys.stderr)
        return 2
    for name, found in recordings.items():
        accepted = sum(one.outcome is not None and one.outcome.verdict == "accepted" for one in found.judged)
        parents = sum(bool(one.asked) for one in found.candidates.values())
        print(
            f"{name}: {found.replies} replies, {len(found.candidates)} candidates ({accepted} accepted), ideas "
            f"recorded on the reference and {parents} candidates, ${recording.cost_usd(found):.2f} as priced"
        )
    cost = {name: recording.cost_usd(found) for name, found in recordings.items()}
    replayed: Worlds = {name: partial(Replay, found) for name, found in recordings.items()}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    document: dict[str, Any] = {}
    for share in sorted(arguments.share):
        arena = Arena(f"recorded pools, {share:g} of the money", replayed, _times(share, cost))
        png = arguments.png if share == max(arguments.share) else None
        document[f"replay {share:g}"] = _compare(arena, seeds, png)
    if arguments.simulate:
        fits = {name: fit(found) for name, found in recordings.items()}
        what = f"SIMULATION, fitted to the recordings, {arguments.simulate:g} of the money"
        simulated: Worlds = {name: partial(Simulator, fitted) for name, fitted in fits.items()}
        arena = Arena(what, simulated, _times(arguments.simulate, cost))
        png = arguments.png and arguments.png.with_stem(f"{arguments.png.stem}-simulated")
        document["simulation"] = _compare(arena, seeds, png)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    ratios = [ratio for compared in document.values() for ratio in compared["ratios"][DEFAULT].values()]
    return 1 if any(high < 1.0 for _, _, high in ratios) else 0


def _times(share: float, cost: Mapping[str, float]) -> dict[str, float]:
    return {name: share * usd for name, usd in cost.items()}


def _measure(file: Path, directory: Path) -> None:
    pool = parse_pool(file.read_text(encoding="utf-8"))
    found = recording.load(file, None)
    sources = {digest: candidate.source for digest, candidate in found.candidates.items()}
    say = partial(print, f"{file.stem}:", flush=True)
    with tempfile.TemporaryDirectory(prefix="warpsmith-outcomes-") as cache:
        measured = outcomes.measure(
            found.op, pool.header.target, pool.header.language, sources, Path(cache), time.time(), say
        )
    outcomes.write(file, measured, directory)


def _play(arena: Arena, op: str, policy: Policy, seed: int) -> Played:
    """Play once; the world and the clock's noise have the same luck under every policy."""
    world, noise = arena.worlds[op](random.Random(f"world {seed}")), random.Random(f"noise {seed}")  # noqa: S311
    return Play(policy, world, arena.money[op], noise).run()


def _compare(arena: Arena, seeds: range, png: Path | None) -> dict[str, Any]:
    plays = {
        name: {op: [_play(arena, op, contestant(name, seed), seed) for seed in seeds] for op in arena.worlds}
        for name in NAMES
    }
    silent = [
        name for name, by_op in plays.items() if not any(played.curve for those in by_op.values() for played in those)
    ]
    for name in silent:
        print(f"{name}: nothing that it asks for was recorded", file=sys.stderr)
        del plays[name]
    bests = {
        name: {op: [played.best_at(arena.money[op]) for played in those] for op, those in by_op.items()}
        for name, by_op in plays.items()
    }
    ops = list(arena.worlds)
    print(f"\n{arena.what}: best speed-up over the fastest baseline, {len(seeds)} seeds, the same money on each op")
    head = f"{'policy':24}" + "".join(f"{op[:18]:>20}" for op in ops)
    print(f"{head}{'geomean':>10}{'unanswered':>12}{'candidates':>12}")
    for name, by_op in bests.items():
        every = [played for those in plays[name].values() for played in those]
        unanswered = sum(played.unanswered for played in every) / max(1, sum(played.asked for played in every))
        judged = sum(played.curve[-1].candidates if played.curve else 0 for played in every) / len(every)
        by_op_shown = "".join(f"{geomean({op: values}):>20.3f}" for op, values in by_op.items())
        print(f"{name:24}{by_op_shown}{geomean(by_op):>10.3f}{unanswered:>12.0%}{judged:>12.1f}")
    ratios = {
        one: {other: ratio_interval(bests[one], bests[other]) for other in bests if other != one} for one in bests
    }
    print("\nthe policy of the line over that of the column, paired, 95 % intervals over ops and seeds")
    print(f"{'':14}" + "".join(f"{name:>22}" for name in bests))
    for one, others in ratios.items():
        cells = ["{:.3f} [{:.3f}, {:.3f}]".format(*others[name]) if name != one else "-" for name in bests]
        print(f"{one:14}" + "".join(f"{cell:>22}" for cell in cells))
    if png:
        draw(png, plays, arena.money, arena.what)
        print(f"curves: {png}")
    return {
        "seeds": list(seeds),
        "money_usd": arena.money,
        "geomean": {name: geomean(by_op) for name, by_op in bests.items()},
        "best": bests,
        "ratios": ratios,
    }


if __name__ == "__main__":
    sys.exit(main())
