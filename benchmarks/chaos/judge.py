"""A judge that knows its verdicts: `python -m benchmarks.chaos.judge`, one job a line in, one answer a line out.

It speaks the protocol of `warpsmith.workers.judge` to the real client, so that it can be killed, frozen and started
again as a real judge, in milliseconds. A candidate's verdict is the outcome that `benchmarks/outcomes` holds for its
normalised source; one without an outcome is rejected. As the real one it writes beside its cache, and says where the
host has no room for that.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.policies import outcomes
from benchmarks.policies.outcomes import Outcome
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.judge.machine import process_control

SHORTEST_S, LONGEST_S = 0.02, 0.2
"""How long a job takes: long enough for a fault to meet it."""
WRITTEN_BYTES = 256 * 1024
REJECTED = Outcome("rejected", "compile")
ADMITTED = Outcome("accepted", "time")
UNIT_US = 100.0


def known_outcomes() -> dict[str, Outcome]:
    """Return every measured outcome by the candidate's digest."""
    found: dict[str, Outcome] = {}
    for file in sorted(outcomes.DIRECTORY.glob("*.cpu.json")):
        read = outcomes.read(file)
        found |= {} if read is None else read.candidates
    return found


def verdict(job: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Make the verdict on a job from an outcome."""
    ratio = outcome.score or 1.0
    interval = [outcome.low or ratio, outcome.high or ratio]
    baselines = job["op"]["baselines"]
    judged = outcome.verdict == "accepted"
    workloads = [
        {
            "id": workload["id"],
            "role": workload["role"],
            "error": {"candidate": 0.0, "eager": 0.0, "limit": 1.0},
            "time_us": {**dict.fromkeys(baselines, UNIT_US), "candidate": UNIT_US / ratio},
            "speedup": dict.fromkeys(baselines, ratio),
            "ci95": dict.fromkeys(baselines, interval),
            "limit_us": UNIT_US / 10,
            "limit_by": "bytes",
            "limit_fraction": outcome.limit_fraction,
            "samples": {},
        }
        for workload in job["workloads"]
    ]
    candidate = job["candidate"]
    return {
        "id": job["id"],
        "level": job["level"],
        "verdict": outcome.verdict,
        "gate": outcome.gate,
        "reason": "as measured before",
        "op": job["op"]["name"],
        "target": job["target"],
        "language": candidate and candidate["language"],
        "workloads": workloads if judged else [],
        "failure": None if judged else {"kind": "compile", "message": "as measured before"},
        "compile": None,
        "score": outcome.score,
        "score_ci95": None if outcome.score is None else interval,
        "sandbox": {"level": "none", "layers": []},
        "device": {},
        "versions": {},
        "fingerprint": "",
        "seconds": {},
    }


def answer(job: dict[str, Any], known: dict[str, Outcome], cache: Path) -> dict[str, Any]:
    """Take a job's time, write what a compiler would, and return the answer."""
    source = (job["candidate"] or {}).get("source")
    digest = None if source is None else normalised_digest(source)
    time.sleep(random.Random(f"{digest} {job['level']}").uniform(SHORTEST_S, LONGEST_S))  # noqa: S311 - no secret
    binary = cache / f"{job['id']}.so"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        binary.write_bytes(bytes(WRITTEN_BYTES))
    except OSError as error:
        return {"id": job["id"], "unfit": {"part": "disk", "reason": str(error)}}
    finally:
        binary.unlink(missing_ok=True)
    return verdict(job, ADMITTED if digest is None else known.get(digest, REJECTED))


def main() -> None:
    """Answer every line until the end of input."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.chaos.judge", description=__doc__)
    arguments.add_argument("--die-with-parent", type=int, required=True, metavar="PID")
    process_control.die_with_parent(arguments.parse_args().die_with_parent)
    known, cache = known_outcomes(), Path(os.environ["WARPSMITH_JUDGE_CACHE"])
    for line in sys.stdin:
        document = json.loads(line)
        if "cancel" in document:  # read after the job is done, for jobs come one at a time
            found: dict[str, Any] = {"id": document["cancel"], "cancel": "unknown"}
        else:
            found = answer(document, known, cache)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
