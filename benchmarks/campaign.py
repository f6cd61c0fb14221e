"""Run the recorded searches again, judged on this machine.

    python -m benchmarks.campaign [POOL ...] [--seconds S] [--home DIR] [--save FILE] [--go-on]

For each pool (by default `examples/pools/cuda-sm_90/*.jsonl`) the search that it was recorded from is
submitted with its own policy and budget to one service, whose judges share the searches: one for each GPU.
Every candidate is printed as it ends, and a table at the end has one row for each search. What a recording
does not have ends its branch; with `--go-on` it is asked for instead (agent mode), so that the same home can
be answered and continued later: a search that the home holds already is resumed, not submitted again.

The run ends when no search has anything to do but wait for answers, or after `--seconds`; `--save` writes a copy of the
database every 20 seconds and at the end, whole at any moment. Exits with 1 where a search failed.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.spec.op import Op, load_op
from warpsmith.kernels_db.store.pool_file import PoolHeader, parse_pool
from warpsmith.service.cli.commands.search import model_document
from warpsmith.service.cli.connection import embedded_service
from warpsmith.service.cli.output import say, tell
from warpsmith.service.client.errors import CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.client.http import Client
from warpsmith.service.client.progress import count_nodes, describe_outcome
from warpsmith.service.documents.figures import format_ratio
from warpsmith.service.documents.nodes import NodeSummary
from warpsmith.service.documents.searches import SearchDocument, SearchSummary
from warpsmith.workers.judging import machine
from warpsmith.workers.search.tree import ENDED

EXAMPLES = Path(__file__).parents[1] / "examples"
POOLS = EXAMPLES / "pools" / "cuda-sm_90"
LOOK_EVERY_S, SAVE_EVERY_S = 2.0, 20.0
IDLE_LOOKS = 3
"""Idle looks in a row before the run ends.

A single one can fall between a step and the next, which is opened a moment later.
"""
MOST_FAILURES = 10
"""Looks in a row that the service may leave unanswered, as one whose host is busy may."""


class CampaignError(ValueError):
    """A pool that cannot be searched again here; the message names it."""


@dataclass(frozen=True)
class Recorded:
    """A pool and the op that it was recorded for."""

    pool: Path
    header: PoolHeader
    op: Op

    def body(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request that submits the recorded search again.

        Stored kernels would change the model's prompts, so none is taken as a seed.
        """
        return {
            "op": self.op.document(),
            "target": self.header.target,
            "language": self.header.language,
            "policy": self.header.policy,
            "budget": self.header.budget,
            "model": dict(model),
            "seeds": 0,
        }


def recorded(pool: Path, examples: Path, targets: Sequence[str]) -> Recorded:
    """Read the search that a pool was recorded from.

    Raises CampaignError where the pool, its op or its target is not available.
    """
    try:
        header = parse_pool(pool.read_text()).header
        op = load_op(examples / f"{header.op}.yaml")
    except (OSError, ValueError) as error:
        raise CampaignError(f"{pool.name}: {error}") from error
    if op.semantic_digest != header.op_digest:
        raise CampaignError(
            f"{pool.name}: op_digest: found {header.op_digest[:12]}, expected {op.semantic_digest[:12]}, "
            f"that of {examples / header.op}.yaml: the op has changed since, so no reply would be found"
        )
    if header.target not in targets:
        raise CampaignError(f"{pool.name}: target: found {header.target}, expected one of {', '.join(targets)}")
    return Recorded(pool, header, op)


def begin(client: Client, found: Sequence[Recorded], *, go_on: bool) -> list[str]:
    """Start or resume the searches and return their ids, in order.

    A search is resumed where this home has one that has not failed, else submitted.
    """
    provider = "agent" if go_on else "replay"
    here: dict[tuple[str, ...], SearchSummary] = {}
    for search in client.searches():  # newest first
        if search.state not in ("failed", "cancelled"):
            here.setdefault((search.op_name, search.target, search.language, search.provider), search)
    ids = []
    for one in found:
        known = here.get((one.header.op, one.header.target, one.header.language, provider))
        if known is None:
            model = model_document(client, {"provider": provider, "file": str(one.pool)})
            ids.append(client.create_search(one.body(model)).id)
            continue
        if known.state == "paused":
            client.change_search(known.id, "resume")
        ids.append(known.id)
    return ids


def is_idle(search: SearchDocument) -> bool:
    """Check whether a search has ended, or waits for nothing but answers or a person."""
    waits = {item.what for item in search.waiting_for}
    return search.state in ENDED or (bool(waits) and waits <= {"answer", "person"})


class Watcher:
    """Reports every candidate again whenever its state has changed."""

    def __init__(self, client: Client, ids: Sequence[str]) -> None:
        self._client = client
        self._ids = ids
        self._told: dict[str, tuple[str, str]] = {}
        self._ended: set[str] = set()
        self._start = time.monotonic()

    def look(self) -> list[SearchDocument]:
        """Return the searches as they are now."""
        searches = [self._client.search(search_id) for search_id in self._ids]
        for search in searches:
            if search.id not in self._ended:
                for node in self._client.tree(search.id):
                    self._tell(search, node)
            if search.state in ENDED:
                self._ended.add(search.id)
        return searches

    def _tell(self, search: SearchDocument, node: NodeSummary) -> None:
        now = (describe_outcome(node), node.verification)
        if node.verdict is None or self._told.get(node.id) == now:
            return
        self._told[node.id] = now
        what = "baselines" if node.seq == 0 else node.title or "code without an idea"
        verified = "" if node.verification == "none" else f", verification {node.verification}"
        seconds = time.monotonic() - self._start
        tell(f"{seconds:6.1f} s  {search.op_name} #{node.seq} (round {node.round}) {now[0]}{verified}: {what}")


def save(database: Path, copy: Path) -> None:
    """Write a whole copy of a database that is in use."""
    partial = copy.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(partial)) as target:
        source.backup(target)
    partial.replace(copy)


def run(client: Client, ids: Sequence[str], seconds: float, database: Path, copy: Path | None) -> list[SearchDocument]:
    """Watch until nothing is left to do or the time is up; return the searches' last state.

    However it ends, `copy` is whole.
    """

    def saved() -> float:
        if copy is not None:
            save(database, copy)
        return time.monotonic()

    watcher = Watcher(client, ids)
    end, last_saved = time.monotonic() + seconds, saved()  # a copy that cannot be written is found at once
    searches: list[SearchDocument] = []
    idle = failures = 0
    try:
        while idle < IDLE_LOOKS:
            try:
                searches = watcher.look()
                failures = 0
            except ServiceUnreachableError:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
            idle = idle + 1 if searches and all(map(is_idle, searches)) and failures == 0 else 0
            if time.monotonic() > end:
                break
            if time.monotonic() - last_saved > SAVE_EVERY_S:
                last_saved = saved()
            time.sleep(LOOK_EVERY_S)
    finally:
        saved()
    return searches


def table(searches: Sequence[SearchDocument]) -> str:
    """Return one row for each search, in Markdown."""
    lines = ["| op | target | language | state | rounds | nodes | best | verified |", "|" + "---|" * 8]
    for search in searches:
        best = search.best
        score = "-" if best is None else format_ratio(best.score, best.ci95)
        kept = ", ".join(search.kernels) or "-"
        cells = (
            search.op_name,
            search.target,
            search.language,
            search.state,
            str(search.round),
            count_nodes(search),
            score,
        )
        lines.append(f"| {' | '.join((*cells, kept))} |")
    return "\n".join(lines)


def main() -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.campaign", description="Recorded searches, judged here."
    )
    parser.add_argument("pools", nargs="*", type=Path, metavar="POOL", help="recorded pools; by default the H200's")
    parser.add_argument("--examples", type=Path, default=EXAMPLES, help="the directory of the ops' specs")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after so long")
    parser.add_argument("--home", type=Path, help="the service's home; by default one for this run alone")
    parser.add_argument("--save", type=Path, metavar="FILE", help="copies of the database, as the campaign goes on")
    parser.add_argument("--go-on", action="store_true", help="ask for what is not recorded (agent mode)")
    arguments = parser.parse_args()
    targets = [machine.cpu_target(), *(gpu.target for gpu in machine.gpus())]
    pools = arguments.pools or sorted(POOLS.glob("*.jsonl"))
    try:
        found = [recorded(pool, arguments.examples, targets) for pool in pools]
    except CampaignError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="warpsmith-campaign-") as scratch:
        home = (arguments.home or Path(scratch)).resolve()
        database = home / "warpsmith.db"
        os.environ |= {"WARPSMITH_HOME": str(home), "WARPSMITH_DATABASE_URL": f"sqlite:///{database}"}
        os.environ.setdefault("WARPSMITH_ASK_EXPIRES_S", "0")  # the answer may come another day
        try:
            with embedded_service() as url, Client(url) as client:
                ids = begin(client, found, go_on=arguments.go_on)
                searches = run(client, ids, arguments.seconds, database, arguments.save)
        except (CommandError, ProblemError, ServiceUnreachableError) as error:
            say(f"error: {error}")
            return 1
        except (sqlite3.Error, OSError) as error:
            say(f"error: --save: found {arguments.save}, which cannot be written: {error}")
            return 1
    tell(table(searches))
    return 1 if any(search.state == "failed" for search in searches) else 0


if __name__ == "__main__":
    sys.exit(main())
