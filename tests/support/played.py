"""A search whose model is real HTTP and whose judge is a script, so that its tree depends on no timing.

The script decides by the digest of the candidate's normalised source. Either everything runs in this process, step by
step (`Played`), or real workers ask the model and only the judge is played (`judge_all`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import select

from tests.model_server import Request
from tests.services import migrate
from tests.support import steps_support
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Op, Target, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, ModelCallRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.queue import process, tasks
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Message, Work

JUDGED = ("judge", "verify")
Script = Callable[[Work], Verdict]


def kind_of(request: Request) -> str:
    """What was asked of the model: ideate, reflect, code or repair."""
    first = str(request.body["messages"][1]["content"]).lstrip().partition("\n")[0]
    words = {"# Propose": "ideate", "# Say": "reflect", "# Write": "code", "# Repair": "repair"}
    return next(kind for word, kind in words.items() if first.startswith(word))


def identity_of(request: Request) -> tuple[str, int]:
    """The request's identity and ordinal, as the header for endpoints' logs has them."""
    _, identity, ordinal = request.headers["x-client-request-id"].split(".")
    return identity, int(ordinal)


def by_digest(work: Work) -> Verdict:
    """Every candidate is right; how fast it is stands in its digest."""
    digest = work.node.source_digest
    return said(work, "accepted", None if digest is None else 1.1 + 3.0 * int(digest[:8], 16) / 2**32)


def all_wrong(work: Work) -> Verdict:
    """The reference is admitted, and no candidate is right."""
    return said(work, "accepted" if work.level == "baseline" else "rejected", None)


def said(work: Work, word: Any, score: float | None) -> Verdict:
    """A verdict on `work`, for the workloads of its op."""
    assert work.level is not None
    op = parse_op(work.op)
    roles = {item.id: item.role for item in op.workloads_for(Target.parse(work.target))}
    judged = {name: role for name, role in roles.items() if role == "bench" or work.level != "screen"}
    found = steps_support.verdict(work.level, word, score)
    template = found["workloads"][0]
    baselines = op.objective.baselines
    workloads = [
        template
        | {
            "id": name,
            "role": role,
            "speedup": {key: value for key, value in template["speedup"].items() if key in baselines},
            "ci95": {key: value for key, value in template["ci95"].items() if key in baselines},
        }
        for name, role in judged.items()
    ]
    return found | {"op": op.name, "target": work.target, "workloads": workloads}


def judge_all(db: Database, search_id: str, script: Script) -> list[Message]:
    """Play the judge for every step of the search that waits for one; what follows from it."""
    following: list[Message] = []
    while waiting := pending(db, search_id, JUDGED):
        for attempt_id in waiting:
            work = steps.claim(db, attempt_id, f"judge-{attempt_id}", 30.0, time.time())
            if work is None:
                return following  # the search paused or ended
            assert steps.complete_judge(db, attempt_id, f"judge-{attempt_id}", script(work), time.time())
            following += steps.advance(db, search_id, time.time())
    return following


def pending(db: Database, search_id: str, kinds: tuple[str, ...]) -> list[str]:
    """The attempts of these kinds that are due, oldest first."""
    query = select(AttemptRow.id).where(
        AttemptRow.search_id == search_id,
        AttemptRow.state == "pending",
        AttemptRow.kind.in_(kinds),
        AttemptRow.not_before <= time.time(),
    )
    with db.reading() as session:
        return list(session.scalars(query.order_by(AttemptRow.created_at, AttemptRow.id)))


@dataclass
class Played:
    """One search, played in this process against a model server."""

    here: WorkerProcess
    app: Celery
    search_id: str

    @classmethod
    def begin(cls, home: Path, url: str, monkeypatch: pytest.MonkeyPatch, op: Op, **changes: Any) -> Played:
        """A search for `op` at the model server `url`; `changes` to its documents."""
        played = cls.take_up(home, url, monkeypatch, "")
        migrate(played.here.db)
        values: dict[str, Any] = {
            "policy": {"name": "idea_beam"},
            "budget": {},
            "model": {"provider": "openai", "model": "gpt-5"},
            **changes,
        }
        played.search_id = steps.create_search(
            played.here.db, op, Target("cpu", "x86_64"), language="cpp", now=time.time(), **values
        )
        return played

    @classmethod
    def take_up(cls, home: Path, url: str, monkeypatch: pytest.MonkeyPatch, search_id: str) -> Played:
        """A new process on a home that may have a search already."""
        settings = Settings(home=home, openai_base_url=url, openai_api_key="sk-test", model_retries=0)
        here = WorkerProcess(settings)
        monkeypatch.setattr(process, "_current", here)
        return cls(here, make_app(settings.model_copy(update={"broker_url": "memory://"})), search_id)

    def run(self, script: Script, *, turns: int = 1000) -> SearchRow:
        """Play at most `turns` steps, or until the search ends or pauses."""
        db = self.here.db
        steps.advance(db, self.search_id, time.time())
        for _ in range(turns):
            judge_all(db, self.search_id, script)
            waiting = pending(db, self.search_id, ("ideate", "code"))
            if self.search().state != "running" or not waiting:
                break
            tasks.perform(self.app, waiting[0], tasks.ask)
        return self.search()

    def search(self) -> SearchRow:
        """The search's row."""
        with self.here.db.reading() as session:
            return session.get_one(SearchRow, self.search_id)

    def nodes(self) -> list[NodeRow]:
        """Every node but the root."""
        return nodes_of(self.here.db, self.search_id)

    def calls(self) -> list[ModelCallRow]:
        """Every recorded call."""
        with self.here.db.reading() as session:
            query = select(ModelCallRow).where(ModelCallRow.search_id == self.search_id).order_by(ModelCallRow.id)
            return list(session.scalars(query))

    def close(self) -> None:
        """End the process."""
        self.here.close()


def nodes_of(db: Database, search_id: str) -> list[NodeRow]:
    """Every node of a search but the root."""
    with db.reading() as session:
        query = select(NodeRow).where(NodeRow.search_id == search_id, NodeRow.seq > 0).order_by(NodeRow.seq)
        return list(session.scalars(query))


def events_of(db: Database, search_id: str, kind: str) -> list[dict[str, Any]]:
    """The payloads of a search's events of this type."""
    with db.reading() as session:
        query = select(EventRow.payload).where(EventRow.search_id == search_id, EventRow.type == kind)
        return list(session.scalars(query.order_by(EventRow.id)))
