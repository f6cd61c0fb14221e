"""Estimate against actual: searches with bad models, none of which may take more than the worst of its estimate.

`python -m benchmarks.estimates [--searches 200] [--seed 1] [--json]`

Each search is one of the service: its rows in SQLite, its policy, its budget, its prompts, its steps as workers take
them. Stand-ins answer for the model and the judge. The model repeats ideas and sources, answers nothing or nonsense,
is cut off, is away amid a step, and bills up to the longest reply, each as often as the search's luck has it; the judge
rejects most, finds binaries that it knows, and refuses some. Policy, parameters and budget are drawn too. The exit
code is 1 where a figure exceeds its worst.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import structlog
from sqlalchemy import select

from benchmarks.op import OP, TARGET
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ModelCallRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelReply, ModelRequest, ModelUnavailable, approximate_tokens
from warpsmith.workers.llm.estimate import Forecast, estimate
from warpsmith.workers.llm.providers.cost import Prices
from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.queue.model_step import ModelStep
from warpsmith.workers.search.policy import POLICIES
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Work

MODEL = "gpt-5"
SETTINGS = Settings(model_max_tokens=1024, openai_model=MODEL)
LEASE_S = 600.0
RESTS = 4
"""Rounds of the reconciler without a message after which a search is taken to be over."""

FAULTS = ("duplicate", "empty", "nonsense", "cut", "away")
FIGURES = ("model_calls", "candidates", "tokens", "prompt_tokens", "completion_tokens", "cost_usd")


@dataclass
class BadModel:
    """A model that fails in `FAULTS`, by weights; `good` is that of an answer that is none of them."""

    luck: random.Random
    weights: dict[str, float]
    provider: str = field(default="openai", init=False)
    written: list[str] = field(default_factory=list, init=False)
    prices: Prices = field(default_factory=Prices.load, init=False)

    def complete(self, request: ModelRequest) -> ModelReply:
        """Answer, or be away."""
        how = self.luck.choices(list(self.weights), list(self.weights.values()))[0]
        if how == "away":
            raise ModelUnavailable("503: away")
        text = {"empty": "", "nonsense": "I would rather not."}.get(how)
        if text is None:
            text = self._ideas(how) if request.kind in ("ideate", "reflect") else self._code(how)
        prompt = approximate_tokens(sum(len(message["content"]) for message in request.messages))
        least = min(approximate_tokens(len(text)), SETTINGS.model_max_tokens)
        completion = self.luck.randint(least, SETTINGS.model_max_tokens)  # with thoughts that nobody sees
        return ModelReply(
            text=text,
            model=MODEL,
            finish_reason="length" if how == "cut" else "stop",
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost_usd=self.prices.cost(MODEL, prompt, completion),
            latency_s=1.0,
        )

    def _ideas(self, how: str) -> str:
        number = 0 if how == "duplicate" else self.luck.randrange(10**6)
        size = self.luck.choice((20, 200, 800))
        ideas = [
            {
                "technique": self.luck.choice(TECHNIQUES) if number else TECHNIQUES[0],
                "title": f"idea {number + place}",
                "mechanism": f"by way {number + place} " + "m" * size,
            }
            for place in range(4)
        ]
        text = json.dumps(ideas)
        return text[: len(text) // 2] if how == "cut" else text

    def _code(self, how: str) -> str:
        if how == "cut":
            return "```python\ndef run(x, y):\n    y[:] ="
        if how == "duplicate" and self.written:
            source = self.luck.choice(self.written)
        else:
            filler = "# " + "x" * self.luck.choice((10, 500, 3_000)) + "\n"
            source = f"def run(x, y):\n    {filler}    y[:] = {self.luck.randrange(10**9)}\n"
        self.written.append(source)
        return f"```python\n{source}```"


@dataclass(frozen=True)
class Compared:
    """A search, its estimate, and what it took."""

    policy: dict[str, Any]
    budget: dict[str, Any]
    expected: Forecast
    worst: Forecast
    actual: dict[str, float]
    calls: dict[str, int]
    ended: str

    def exceeded(self) -> list[str]:
        """Name the figures that exceed their worst."""
        figures = [name for name in FIGURES if self.actual[name] > _of(self.worst, name) * (1 + 1e-9)]
        kinds = [kind for kind, count in self.calls.items() if count > self.worst.calls.get(kind, 0)]
        return [*figures, *(f"calls.{kind}" for kind in kinds)]


def compare(db: Database, luck: random.Random) -> Compared:
    """Estimate a search that `luck` draws, and run it to its end."""
    policy, budget = draw_policy(luck), draw_budget(luck)
    document = {"provider": "openai", "model": MODEL}
    found = estimate(OP, TARGET, language="cpp", policy=policy, budget=budget, model=document, settings=SETTINGS)
    search_id = steps.create_search(
        db, OP, TARGET, language="cpp", policy=policy, budget=budget, model=document, now=0.0
    )
    # Seldom so bad that no reply can be read three times in a row: that pauses a search for a person, and ends it here.
    unreadable = {name: 0.3 * luck.random() ** 2 for name in FAULTS if name != "duplicate"}
    weights = {"good": luck.random(), "duplicate": luck.random()} | unreadable
    model = BadModel(luck, weights)
    _run(db, search_id, model, luck)
    with db.reading() as session:
        row = session.get_one(SearchRow, search_id)
        replied = select(ModelCallRow).where(ModelCallRow.search_id == search_id, ModelCallRow.reply.is_not(None))
        calls = session.scalars(replied).all()
    actual = {
        "model_calls": row.model_calls,
        "candidates": row.candidates,
        "tokens": row.tokens,
        "prompt_tokens": sum(call.prompt_tokens or 0 for call in calls),
        "completion_tokens": sum(call.completion_tokens or 0 for call in calls),
        "cost_usd": row.cost_usd,
    }
    ended = f"{row.state}: {row.reason}"
    return Compared(
        policy, budget, found.expected, found.worst, actual, dict(Counter(call.kind for call in calls)), ended
    )


def draw_policy(luck: random.Random) -> dict[str, Any]:
    """Draw a small policy of any kind."""
    name = luck.choice(sorted(POLICIES))
    rounds, ideas, codes = luck.randint(1, 6), luck.randint(1, 3), luck.randint(1, 2)
    more: dict[str, dict[str, Any]] = {
        "idea_beam": {
            "beam": 2,
            "rounds": rounds,
            "max_rounds": rounds + luck.randint(0, 4),
            "flat_rounds": luck.randint(1, 5),
            "ideas": ideas,
            "codes": codes,
            "reflect": luck.random() < 0.5,
        },
        "best_of_n": {"n": luck.randint(1, 12), "batch": ideas},
        "greedy": {"rounds": rounds},
        "prose_first": {"bank": 2, "rounds": rounds, "ideas": ideas, "codes": codes, "prose": luck.random() < 0.7},
        "survey": {"rounds": min(rounds, 3), "root_ideas": ideas, "root_codes": codes, "parents": 3, "ideas": 2},
    }
    drawn = more.get(name, {"rounds": rounds, "ideas": ideas, "codes": codes})
    return {"name": name, "repairs": luck.randint(0, 3), **drawn}


def draw_budget(luck: random.Random) -> dict[str, Any]:
    """Draw limits; often there is none but the candidates, as by default."""
    budget: dict[str, Any] = {"candidates": luck.randint(1, 20)} if luck.random() < 0.8 else {}
    if luck.random() < 0.3:
        budget["model_calls"] = luck.randint(3, 60)
    if luck.random() < 0.2:
        budget["tokens"] = luck.randint(5_000, 200_000)
    if luck.random() < 0.2:
        budget["cost_usd"] = round(luck.uniform(0.02, 1.0), 3)
    return budget


def _run(db: Database, search_id: str, model: BadModel, luck: random.Random) -> None:
    """Play broker, workers and reconciler until nothing more comes."""
    now, rests = 0.0, 0
    waiting = steps.advance(db, search_id, now)
    while rests < RESTS:
        if not waiting:
            now += SETTINGS.resend_after_s + SETTINGS.model_probe_longest_s
            waiting, rests = steps.reconcile(db, now, SETTINGS), rests + 1
            continue
        rests = 0
        now += 1.0
        message = waiting.pop(luck.randrange(len(waiting)))  # many workers, in any order
        work = steps.claim(db, message.attempt_id, "worker", LEASE_S, now)
        if work is None:
            continue
        if work.kind in ("ideate", "code"):
            ModelStep(db, SETTINGS, work, "worker", lambda now=now: now).run(model)  # type: ignore[misc]
        else:
            _judge(db, work, luck, now)
        waiting += steps.advance(db, search_id, now)
    with db.reading() as session:
        state = session.get_one(SearchRow, search_id).state
    if state == "paused":  # it waits for a person, who does not come
        steps.cancel(db, search_id, now)


def _judge(db: Database, work: Work, luck: random.Random, now: float) -> None:
    how = luck.choices(("rejected", "duplicate", "refused", "ambiguous", "accepted"), (6, 1, 1, 1, 2))[0]
    if work.level == "baseline" or (work.level == "verify" and luck.random() < 0.7):
        how = "accepted"
    if how == "refused":
        steps.give_up(db, work.attempt_id, "worker", "the judge refuses the job", now)
        return
    score = None if work.level == "baseline" or how != "accepted" else luck.uniform(0.5, 3.0)
    failure = {"kind": "wrong_value", "message": "wrong"}
    if how == "duplicate":
        failure = {"kind": "duplicate", "message": "the same binary", "found": work.node.seq}  # type: ignore[dict-item]
    document: dict[str, Any] = {
        "id": work.attempt_id,
        "level": work.level,
        "verdict": "rejected" if how == "duplicate" else how,
        "gate": "time" if how == "accepted" else "screen",
        "reason": "as luck has it",
        "op": OP.name,
        "target": work.target,
        "language": work.node.language,
        "workloads": [],
        "failure": None if how == "accepted" else failure,
        "compile": None,
        "score": score,
        "score_ci95": None if score is None else [score * 0.99, score * 1.01],
        "sandbox": {"level": "none", "layers": []},
        "device": {},
        "versions": {},
        "fingerprint": "",
        "seconds": {"exclusive": 1.0},
    }
    steps.complete_judge(db, work.attempt_id, "worker", cast("Verdict", document), now)


def _of(forecast: Forecast, name: str) -> float:
    found = getattr(forecast, name)
    assert found is not None, f"{name} is not known"
    return float(found)


def measure(searches: int, seed: int) -> list[Compared]:
    """Compare so many searches, each with luck of its own."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-estimates-") as directory:
        db = Database(f"sqlite:///{Path(directory) / 'searches.db'}")
        try:
            db.upgrade()
            return [compare(db, random.Random(f"{seed}.{number}")) for number in range(searches)]  # noqa: S311
        finally:
            db.dispose()


def main() -> None:
    """Print each figure's share of its worst, and the searches that exceeded one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = measure(arguments.searches, arguments.seed)
    over = [one for one in found if one.exceeded()]
    if arguments.json:
        print(json.dumps([asdict(one) | {"exceeded": one.exceeded()} for one in found]))
        sys.exit(bool(over))
    replies = sum(one.actual["model_calls"] for one in found)
    print(f"{len(found)} searches, {replies:,.0f} calls; {len(over)} took more than their worst")
    print(f"{'figure':18} {'of the worst: median':>21} {'largest':>8} {'above the expected':>19}")
    for name in FIGURES:
        shares = [one.actual[name] / _of(one.worst, name) for one in found]
        above = sum(one.actual[name] > _of(one.expected, name) for one in found)
        print(f"{name:18} {statistics.median(shares):21.2f} {max(shares):8.2f} {above:19}")
    for one in over:
        print(f"exceeded {', '.join(one.exceeded())}: {one.policy} {one.budget}; {one.ended}")
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
