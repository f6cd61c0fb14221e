"""Outcomes of a pool's candidates: measured once, on one quiet machine, kept beside it.

Policies are compared on these figures rather than on the verdicts of the recording: the recording's were taken at
different times, while others used the machine. Replies are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from warpsmith.kernels_db.job.documents import Job, JobCandidate
from warpsmith.kernels_db.job.means import limit_fraction
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
    95 % interval, `limit_fraction` the share of the physical limit.
    """

    verdict: str
    gate: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    limit_fraction: float | None = None


@dataclass(frozen=True)
class OutcomeFile:
    """Outcomes by the candidates' normalised digests, and where they were measured."""

    op: str
    op_digest: str
    device: str
    measured_at: float
    candidates: dict[str, Outcome]


def path_of(pool_file: Path) -> Path:
    """Return the path of a pool's outcomes.

    Those of `examples/pools/softmax.cpu.jsonl` are in `softmax.cpu.json`.
    """
    return DIRECTORY / f"{pool_file.stem}.json"


def read(pool_file: Path) -> OutcomeFile | None:
    """Read the outcomes of a pool; None where none were measured."""
    path = path_of(pool_file)
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.pop("format", None) != FORMAT:
        raise ValueError(f"{path.name}: found no {FORMAT} file")
    candidates = {digest: Outcome(**outcome) for digest, outcome in document.pop("candidates").items()}
    return OutcomeFile(**document, candidates=candidates)


def write(pool_file: Path, outcomes: OutcomeFile) -> None:
    """Keep the outcomes of a pool."""
    document = {"format": FORMAT, **asdict(outcomes)}
    path_of(pool_file).parent.mkdir(exist_ok=True)
    path_of(pool_file).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


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
            outcomes[digest] = Outcome(verdict["verdict"], verdict["gate"], verdict["score"], low, high, share)
            shown = "" if verdict["score"] is None else f" {verdict['score']:.3f}"
            say(f"{number} of {len(sources)}: {verdict['verdict']} at {verdict['gate']}{shown}")
    return OutcomeFile(op_name, op.semantic_digest, device, now, outcomes)
