"""`python -m benchmarks.policies [--seeds N] [--share F] [--png FILE] [--json FILE] [--measure] [--simulate TIMES]`

Plays every pool that has measured outcomes under every policy, at equal model cost, with many seeds, and prints for
each policy the best speed-up that it found, by op and in the geometric mean, the ratio of the default to it with a
paired 95 % interval, and the share of its requests that nobody had recorded. `--measure` judges every candidate of the
pools on this machine first (keep it quiet) and stores the outcomes. `--simulate` plays larger budgets in a fitted
simulation.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
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
from kernels_db.formats.pool import parse_pool
from workers.search.policy import Policy

POOLS = Path(__file__).resolve().parents[2] / "examples" / "pools"

SHARE = 0.3
"""Of what a recording cost: with more, policies that go by rounds have used up what was recorded and stand still, and
the comparison is of pools rather than of policies."""

Worlds = dict[str, Callable[[random.Random], World]]


@dataclass(frozen=True)
class Arena:
    """Where policies are compared: a world for each op, the money for each op, and whether anything in it is real."""

    worlds: Worlds
    money: dict[str, float]
    simulated: bool


def main() -> int:
    """Compare; returns the exit status: 1 where the default loses to a control for sure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description="Policies at equal model cost.")
    parser.add_argument("--pools", nargs="*", type=Path, help="pool files; default: all of examples/pools")
    parser.add_argument("--seeds", type=int, default=30, help="plays of each op under each policy")
    parser.add_argument("--share", type=float, default=SHARE, help="money, as a share of what the recording cost")
    parser.add_argument("--simulate", metavar="TIMES", type=float, help="also simulate so many times that money")
    parser.add_argument("--measure", action="store_true", help="judge every candidate on this machine first")
    parser.add_argument("--png", metavar="FILE", type=Path, help="draw the best-so-far curves")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every figure here")
    arguments = parser.parse_args()
    files = arguments.pools or sorted(POOLS.glob("*.jsonl"))
    if arguments.measure:
        for file in files:
            _measure(file)
    recordings = {}
    for file in files:
        measured = outcomes.read(file)
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
    replay = Arena(
        {name: partial(Replay, found) for name, found in recordings.items()},
        {name: arguments.share * recording.cost_usd(found) for name, found in recordings.items()},
        simulated=False,
    )
    document: dict[str, Any] = {"replay": _compare(replay, arguments.seeds, arguments.png)}
    if arguments.simulate:
        fits = {name: fit(found) for name, found in recordings.items()}
        simulated = Arena(
            {name: partial(Simulator, fitted) for name, fitted in fits.items()},
            {name: arguments.simulate * recording.cost_usd(found) for name, found in recordings.items()},
            simulated=True,
        )
        png = arguments.png and arguments.png.with_stem(f"{arguments.png.stem}-simulated")
        document["simulation"] = _compare(simulated, arguments.seeds, png)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(low_high[1] < 1.0 for low_high in document["replay"]["default_over"].values()) else 0


def _measure(file: Path) -> None:
    pool = parse_pool(file.read_text(encoding="utf-8"))
    found = recording.load(file, None)
    sources = {digest: candidate.source for digest, candidate in found.candidates.items()}
    say = partial(print, f"{file.stem}:", flush=True)
    with tempfile.TemporaryDirectory(prefix="warpsmith-outcomes-") as cache:
        measured = outcomes.measure(
            found.op, pool.header.target, pool.header.language, sources, Path(cache), time.time(), say
        )
    outcomes.write(file, measured)


def _play(arena: Arena, op: str, policy: Policy, seed: int) -> Played:
    """One play; the world and the clock's noise have the same luck under every policy."""
    world, noise = arena.worlds[op](random.Random(f"world {seed}")), random.Random(f"noise {seed}")  # noqa: S311
    return Play(policy, world, arena.money[op], noise).run()


def _compare(arena: Arena, seeds: int, png: Path | None) -> dict[str, Any]:
    plays = {
        name: {op: [_play(arena, op, contestant(name, seed), seed) for seed in range(seeds)] for op in arena.worlds}
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
    what = "SIMULATION, fitted to the recordings" if arena.simulated else "recorded pools"
    print(f"\n{what}: the best speed-up over the fastest baseline, {seeds} seeds, for the same money on each op")
    head = f"{'policy':24}" + "".join(f"{op[:18]:>20}" for op in ops)
    print(f"{head}{'geomean':>10}  {'default over it':24}{'unanswered':>11}{'candidates':>12}")
    over: dict[str, tuple[float, float, float]] = {}
    for name, by_op in bests.items():
        over[name] = ratio_interval(bests[DEFAULT], by_op)
        every = [played for those in plays[name].values() for played in those]
        unanswered = sum(played.unanswered for played in every) / max(1, sum(played.asked for played in every))
        judged = sum(played.curve[-1].candidates if played.curve else 0 for played in every) / len(every)
        shown = "-" if name == DEFAULT else "{:.3f} [{:.3f}, {:.3f}]".format(*over[name])
        cells = "".join(f"{geomean({op: values}):>20.3f}" for op, values in by_op.items())
        print(f"{name:24}{cells}{geomean(by_op):>10.3f}  {shown:24}{unanswered:>10.0%} {judged:>11.1f}")
    if png:
        draw(png, plays, arena.money, what)
        print(f"curves: {png}")
    return {
        "seeds": seeds,
        "money_usd": arena.money,
        "geomean": {name: geomean(by_op) for name, by_op in bests.items()},
        "best": bests,
        "default_over": {name: [low, high] for name, (_, low, high) in over.items() if name != DEFAULT},
    }


if __name__ == "__main__":
    sys.exit(main())
