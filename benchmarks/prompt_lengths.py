"""Measure how long the requests of recorded searches are as they are built today, by kind and by section.

    python -m benchmarks.prompt_lengths [--pools DIR] [--sections | --long] [--markdown]

Each pool in DIR (those of an H200 that ship) is walked as its search made it: for every reply that a replay reaches the
request is built anew, with the op, the parent, the idea, the ledger, and the kernels of other ops from the library. A
pool holds no verdicts. The evidence of the kernel that ships for the op stands in for them: its times, baselines and
compile report. For an op without one the times are multiples of its least traffic at the measured bandwidth. What no
pool has is not in the requests: code that torch.compile generates, Nsight Compute's figures, lessons, a second leader.
Tokens are counted as the product does where nobody else counts: characters / 4. `--sections` prints the median length
of each section and how many requests have it, `--long` each request that is longer than its aim.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from benchmarks.policies import recording
from benchmarks.policies.recording import Asked, Candidate, Code
from benchmarks.showcase import ROOT, columns
from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, Verdict
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.exemplars import find_exemplars
from warpsmith.kernels_db.store.pool_file import parse_pool
from warpsmith.workers.llm.base import approximate_tokens
from warpsmith.workers.llm.prompt import requests
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import LedgerEntry, RequestContext

POOLS = ROOT / "examples" / "pools" / "cuda-sm_90"
IDEAS_ON_NONE, IDEAS = "ideas on no kernel", "ideas on a kernel"
CODE_ON_NONE, CODE_WITHOUT, CODE = "code on no kernel", "code without an idea", "code on a kernel"
REPAIR = "repair"
AIMS = {IDEAS_ON_NONE: 5_000, IDEAS: 5_000, CODE_ON_NONE: 6_000, CODE_WITHOUT: 6_000, CODE: 6_000, REPAIR: 6_000}
"""Tokens that a request of each kind shall not be longer than."""
STAND_IN = {"eager": 3.0, "compile": 1.5, "max_autotune": 1.4, "candidate": 1.2}
"""Times of an op without evidence, in multiples of its least traffic at the measured bandwidth."""


@dataclass(frozen=True)
class Length:
    """A request of a pool: its kind, and its tokens, those of the code that it is built on, and of each section."""

    pool: str
    kind: str
    tokens: int
    parent: int
    sections: Mapping[str, int]


def measure(pools: Iterable[Path], library: Sequence[Entry]) -> Iterator[Length]:
    """Yield each request of these pools; `library`: the evidence, and the kernels that requests show."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-lengths-") as directory:
        db = Database(f"sqlite:///{Path(directory) / 'library.db'}")
        db.upgrade()
        stock(db, library)
        for pool in pools:
            yield from _Search(pool, library, db).requests()
        db.dispose()


@dataclass(frozen=True)
class _Node:
    """A candidate where its search had it; `failed`: it was rejected, and repaired in its place."""

    facts: NodeFacts
    place: Candidate
    number: int
    failed: bool


class _Search:
    """The requests of one recorded search, in its order."""

    def __init__(self, pool: Path, library: Sequence[Entry], db: Database) -> None:
        header = parse_pool(pool.read_text(encoding="utf-8")).header
        self._name, self._language, self._db = pool.stem, header.language, db
        self._op, self._target = load_op(ROOT / "examples" / f"{header.op}.yaml"), Target.parse(header.target)
        workloads = tuple(resolve_workload(self._op, each) for each in self._op.workloads_for(self._target))
        self._judged = stand_in(self._op, self._language, workloads, library)
        self._context = RequestContext(
            kind="ideate",
            attempt_id="",
            op=self._op,
            target=self._target,
            language=self._language,
            workloads=workloads,
            baselines=as_baselines(self._judged),
            parent=None,
        )
        self._root = recording.load(pool, None).root
        self._nodes: dict[str, _Node] = {}

    def requests(self) -> Iterator[Length]:
        """Yield the requests, round by round."""
        asked: list[tuple[int, _Node | None]] = [(1, None)]
        done: set[tuple[int, str]] = set()
        while asked:
            number = min(number for number, _ in asked)
            places = [node for each, node in asked if each == number]
            asked = [(each, node) for each, node in asked if each != number]
            known = list(self._nodes.values())
            best = next((node.facts for node in places if node is not None), None)
            for node in places:
                place = self._root if node is None else node.place
                turn = number - (0 if node is None else node.number) - 1
                if (number, place.digest) in done:
                    continue
                done.add((number, place.digest))
                context = replace(self._context, parent=node.facts if node else None, best=best)
                if turn < len(place.asked):
                    yield from self._round(context, place.asked[turn], turn, known, number)
                    asked.append((number + 1, node))
                if turn == 0:
                    codes = [(replace(context, kind="code", variants=len(place.plain)), place.plain)]
                    yield from self._codes(codes, number)
            asked += [(number + 1, node) for node in self._nodes.values() if node.number == number and not node.failed]

    def _round(
        self, context: RequestContext, asked: Asked, turn: int, known: Sequence[_Node], number: int
    ) -> Iterator[Length]:
        """Yield the request for ideas and those for their code."""
        ledger = tuple(self._tried(node) for node in known)
        ideas = replace(context, asked=turn, ideas=len(asked.ideas) or 1, ledger=ledger)
        yield self._length(ideas)
        codes = [
            (replace(context, kind="code", idea=each.idea, variants=len(each.codes)), each.codes)
            for each in asked.ideas
        ]
        yield from self._codes(codes, number)

    def _codes(self, asked: Iterable[tuple[RequestContext, Sequence[Code]]], number: int) -> Iterator[Length]:
        for context, codes in asked:
            for variant, code in enumerate(codes):
                yield self._length(replace(context, variant=variant))
                yield from self._written(context, code.candidate, number)

    def _written(self, context: RequestContext, place: Candidate | None, number: int) -> Iterator[Length]:
        """Put a candidate among the nodes that does not repeat one, and yield the request for its repair."""
        if place is None or place.digest in self._nodes:
            return
        failed = place.repair is not None
        verdict = rejected(self._judged) if failed else self._judged
        facts = NodeFacts(len(self._nodes) + 1, context.idea, place.source, place.digest, verdict)
        self._nodes[place.digest] = _Node(facts, place, number, failed)
        if place.repair is not None:
            yield self._length(replace(context, kind="repair", failing=facts))
            yield from self._written(context, place.repair.candidate, number)

    def _tried(self, node: _Node) -> LedgerEntry:
        facts = node.facts
        verdict = cast("Verdict", facts.verdict)
        low, high = verdict["score_ci95"] or (None, None)
        return requests.ledger_entry(
            seq=facts.seq,
            idea=facts.idea,
            verdict=verdict["verdict"],
            gate=verdict["gate"],
            score=verdict["score"],
            reason=verdict["reason"],
            ci_low=low,
            ci_high=high,
            times=[
                (entry["id"], entry["time_us"]["candidate"], min(entry["speedup"].values()))
                for entry in verdict["workloads"]
                if entry["role"] == "bench" and entry["speedup"]
            ],
            built=verdict["compile"],
        )

    def _length(self, context: RequestContext) -> Length:
        most = requests.most_exemplars(context)
        if most:
            technique = context.idea["technique"] if context.idea else None
            with self._db.reading() as session:
                found = find_exemplars(session, self._op, self._target, self._language, technique, most, None)
            context = replace(context, exemplars=found)
        system, user = (message["content"] for message in requests.build(context).messages)
        return Length(
            pool=self._name,
            kind=kind_of(context),
            tokens=approximate_tokens(len(system) + len(user)),
            parent=0 if context.parent is None else approximate_tokens(len(context.parent.source)),
            sections={"system": approximate_tokens(len(system)), **sections(user)},
        )


def kind_of(context: RequestContext) -> str:
    """Return the row of the table that a request belongs to."""
    if context.kind == "ideate":
        return IDEAS if context.parent else IDEAS_ON_NONE
    if context.kind == "repair":
        return REPAIR
    if context.idea is None:
        return CODE_WITHOUT
    return CODE if context.parent else CODE_ON_NONE


def sections(text: str) -> dict[str, int]:
    """Return the tokens of each section of a request, by its heading without what is in parentheses or code.

    A line in a code block is no heading.
    """
    found, name, fence = {"head": 0}, "head", ""
    for line in text.splitlines(keepends=True):
        opened = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line.rstrip("\n") == fence else fence
        elif opened:
            fence = opened[0]
        elif line.startswith("## "):
            name = re.split(r"[:,(`]", line[3:])[0].strip()
        found[name] = found.get(name, 0) + len(line)
    return {name: approximate_tokens(length) for name, length in found.items()}


def stand_in(op: Op, language: str, workloads: Sequence[ResolvedWorkload], library: Sequence[Entry]) -> Verdict:
    """Return an accepted verdict of the op: its shipped kernel's evidence, first one in this language.

    For an op without one that has these workloads: a verdict like another's, with times by the least traffic.
    """
    bench = {each["id"] for each in workloads if each["role"] == "bench"}
    own = [
        entry
        for entry in library
        if entry.op.name == op.name and bench <= {each["id"] for each in entry.evidence["workloads"]}
    ]
    if own:
        found = min(own, key=lambda entry: entry.language != language).evidence
        return cast("Verdict", found)
    like = min(library, key=lambda entry: entry.language != language).evidence
    rate = max(like["device"]["peaks"]["bandwidth_gbs"].values())
    timed = []
    for each in workloads:
        limit = each["min_bytes"] / rate / 1e3
        times = {name: factor * limit for name, factor in STAND_IN.items()} if each["role"] == "bench" else {}
        ratios = {name: time / times["candidate"] for name, time in times.items() if name != "candidate"}
        timed.append(
            {
                "id": each["id"],
                "role": each["role"],
                "error": {"eager": 6e-8, "limit": 1.2e-7},
                "time_us": times,
                "speedup": ratios,
                "ci95": {name: [0.99 * ratio, 1.01 * ratio] for name, ratio in ratios.items()},
                "limit_us": limit,
                "limit_by": "bytes",
                "limit_fraction": 1 / STAND_IN["candidate"],
            }
        )
    score = STAND_IN["max_autotune"] / STAND_IN["candidate"]
    told = {"op": op.name, "score": score, "score_ci95": [0.99 * score, 1.01 * score]}
    return cast("Verdict", {**like, **told, "workloads": timed})


def as_baselines(judged: Verdict) -> Verdict:
    """Return the root's verdict: the times without the candidate's."""
    timed = [
        {**each, "time_us": {name: time for name, time in each["time_us"].items() if name != "candidate"}}
        for each in judged["workloads"]
    ]
    return cast("Verdict", {**judged, "level": "baseline", "workloads": timed, "score": None, "compile": None})


def rejected(judged: Verdict) -> Verdict:
    """Return the verdict of a candidate that was wrong on the first bench workload."""
    at = next(each["id"] for each in judged["workloads"] if each["role"] == "bench")
    told = f"workload {at}: found 0.0, expected 1.25"
    failure: Failure = {"kind": "wrong_value", "message": told, "workload": at, "expected": 1.25, "found": 0.0}
    failure |= {"wrong_elements": 37, "elements": 37296}
    ended = {"verdict": "rejected", "gate": "screen", "reason": told, "failure": failure}
    return cast("Verdict", {**judged, **ended, "score": None, "score_ci95": None})


def table(lengths: Sequence[Length]) -> list[list[str]]:
    """Return the table by kind: requests, median and largest, how many are above the aim, and with long parents."""
    lines = [["requests", "number", "median", "largest", "aim", "above it", "their code to build on, at least"]]
    for kind, aim in AIMS.items():
        found = [each for each in lengths if each.kind == kind]
        if found:
            tokens = [each.tokens for each in found]
            above = [each for each in found if each.tokens > aim]
            least = f"{min(each.parent for each in above):,}" if above else "-"
            figures = [f"{statistics.median(tokens):,.0f}", f"{max(tokens):,}", f"{aim:,}", str(len(above)), least]
            lines.append([kind, str(len(found)), *figures])
    return lines


def section_table(lengths: Sequence[Length]) -> list[list[str]]:
    """Return the median tokens of each section, by kind, and in how many requests it is."""
    lines = [["requests", "section", "median", "largest", "in"]]
    for kind in AIMS:
        found = [each for each in lengths if each.kind == kind]
        for name in dict.fromkeys(name for each in found for name in each.sections):
            tokens = [each.sections[name] for each in found if name in each.sections]
            share = f"{len(tokens)} of {len(found)}"
            lines.append([kind, name, f"{statistics.median(tokens):,.0f}", f"{max(tokens):,}", share])
    return lines


def long_table(lengths: Sequence[Length]) -> list[list[str]]:
    """Return each request that is longer than its aim, the longest first."""
    above = sorted((each for each in lengths if each.tokens > AIMS[each.kind]), key=lambda each: -each.tokens)
    head = ["pool", "requests", "tokens", "code to build on"]
    return [head, *([each.pool, each.kind, f"{each.tokens:,}", f"{each.parent:,}"] for each in above)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prompt_lengths", description="Tokens of requests.")
    parser.add_argument("--pools", type=Path, default=POOLS, help="the directory of the pools, or one of them")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--sections", action="store_true", help="by section")
    shown.add_argument("--long", action="store_true", help="those longer than their aim")
    parser.add_argument("--markdown", action="store_true", help="for a page")
    arguments = parser.parse_args(argv)
    pools = [arguments.pools] if arguments.pools.is_file() else sorted(arguments.pools.rglob("*.jsonl"))
    if not pools:
        parser.error(f"--pools: found no pool in {arguments.pools}, expected *.jsonl")
    lengths = list(measure(pools, list(entries())))
    lines = (section_table if arguments.sections else long_table if arguments.long else table)(lengths)
    if arguments.markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        print(columns(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
