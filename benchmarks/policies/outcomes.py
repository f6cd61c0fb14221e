"""Outcomes of a pool's candidates: measured once, on one quiet machine, kept beside it.

Policies are compared on these figures rather than on the verdicts of the recording: the recording's were taken at
different times, while others used the machine. Replies are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from warpsmith.kernels_db.job.documents import Job, JobCandidate, Verdict
from warpsmith.kernels_db.job.means import geometric_mean, limit_fraction
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError

DIRECTORY = Path(__file__).resolve().parents[1] / "outcomes"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FORMAT = "warpsmith-outcomes"
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """A screening.

    `score` is the speed-up over the fastest baseline (geometric mean over bench workloads), `low` and `high` its
    95 % interval, `limit_fraction` the share of the physical limit. `workloads`: the same by bench workload, speed-up
    with the ends of its interval.
    """

    verdict: str
    gate: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    limit_fraction: float | None = None
    workloads: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class OutcomeFile:
    """Outcomes by the candidates' normalised digests, and where they were measured."""

    op: str
    op_digest: str
    device: str
    measured_at: float
    candidates: dict[str, Outcome]


def join_outcomes(chosen: Mapping[str, Outcome]) -> Outcome:
    """Return the outcome of a candidate that runs each bench workload as the one does that is chosen for it.

    Speed-ups and intervals by workload are theirs, the score is their geometric mean. The share of the limit is left
    out: it is not known by workload.
    """
    by_workload = {name: outcome.workloads[name] for name, outcome in chosen.items()}
    even = [1.0] * len(by_workload)
    score, low, high = (geometric_mean([found[end] for found in by_workload.values()], even) for end in range(3))
    return Outcome("accepted", "time", score, low, high, None, by_workload)


def path_of(pool_file: Path, directory: Path = DIRECTORY) -> Path:
    """Return the path of a pool's outcomes.

    Those of `examples/pools/softmax.cpu.jsonl` are in `softmax.cpu.json`.
    """
    return directory / f"{pool_file.stem}.json"


def read(pool_file: Path, directory: Path = DIRECTORY) -> OutcomeFile | None:
    """Read the outcomes of a pool from `directory`, that of one machine; None where none were measured."""
    path = path_of(pool_file, directory)
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.pop("format", None) != FORMAT:
        raise ValueError(f"{path.name}: found no {FORMAT} file")
    candidates = {digest: _outcome(outcome) for digest, outcome in document.pop("candidates").items()}
    return OutcomeFile(**document, candidates=candidates)


def _outcome(document: dict[str, Any]) -> Outcome:
    by_workload = {name: (ratio, low, high) for name, (ratio, low, high) in document.pop("workloads", {}).items()}
    return Outcome(**document, workloads=by_workload)


def write(pool_file: Path, outcomes: OutcomeFile, directory: Path = DIRECTORY) -> None:
    """Keep the outcomes of a pool."""
    document = {"format": FORMAT, **asdict(outcomes)}
    directory.mkdir(parents=True, exist_ok=True)
    path_of(pool_file, directory).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def measure(
    op_name: str,
    target: str,
    language: str,
    sources: dict[str, str],
    cache: Path,
    now: float,
    say: Callable[[str], None],
) -> OutcomeFile:
    """Screen every source (by digest) with the real judge on this machine, one after another."""
    op = load_op(EXAMPLES / f"{op_name}.yaml")
    outcomes: dict[str, Outcome] = {}
    device = ""
    with JudgeClient(cache=cache) as judge:
        for number, (digest, source) in enumerate(sorted(sources.items()), 1):
            candidate = cast("JobCandidate", {"language": language, "source": source})
            job: Job = build_job(op, Target.parse(target), level="screen", candidate=candidate)
            try:
                verdict = judge.judge(job, TIMEOUT_S)
            except JudgeError as error:
                say(f"{number} of {len(sources)}: no verdict: {error}")
                continue
            device = str(verdict["device"].get("name", target))
            low, high = verdict["score_ci95"] or (None, None)
            share = limit_fraction(verdict["workloads"])
            outcomes[digest] = Outcome(
                verdict["verdict"], verdict["gate"], verdict["score"], low, high, share, _by_workload(verdict)
            )
            shown = "" if verdict["score"] is None else f" {verdict['score']:.3f}"
            say(f"{number} of {len(sources)}: {verdict['verdict']} at {verdict['gate']}{shown}")
    return OutcomeFile(op_name, op.semantic_digest, device, now, outcomes)


def _by_workload(verdict: Verdict) -> dict[str, tuple[float, float, float]]:
    """Return the speed-up over each bench workload's fastest baseline, with its 95 % interval."""
    found = {}
    for entry in verdict["workloads"]:
        if entry["role"] == "bench" and entry["speedup"]:
            fastest = min(entry["speedup"], key=entry["speedup"].__getitem__)
            low, high = entry["ci95"][fastest]
            found[entry["id"]] = (entry["speedup"][fastest], low, high)
    return found
