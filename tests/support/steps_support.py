"""A search driven by hand: an op, verdicts, a small policy, and a driver that plays every worker."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from warpsmith.kernels_db.job.documents import Verdict, VerdictWord
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, ModelCallRow, NodeRow, SearchRow, VerdictRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelRequest
from warpsmith.workers.search.policy import Policy
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree
from warpsmith.workers.settings import Settings

TARGET = Target("cpu", "x86_64")
OP = parse_op(
    {
        "schema_version": 1,
        "name": "add_relu",
        "axes": {"n": {"kind": "var"}},
        "inputs": [
            {"name": "x", "shape": ["n"], "dtype": "float32"},
            {"name": "y", "shape": ["n"], "dtype": "float32"},
        ],
        "outputs": [{"name": "out", "shape": ["n"], "dtype": "float32"}],
        "reference": "import torch\n\ndef run(x, y):\n    return torch.relu(x + y)\n",
        "workloads": [
            {"id": "large", "role": "bench", "axes": {"n": 1048576}},
            {"id": "ragged", "role": "test", "axes": {"n": 1021}},
        ],
    }
)
LEASE_S = 30.0
SETTINGS = Settings(lease_s=LEASE_S, resend_after_s=10.0, max_tries=3)


def create(db: Database, now: float = 1000.0, **changes: Any) -> str:
    """A queued search."""
    values: dict[str, Any] = {"policy": {"name": "idea_beam"}, "budget": {}, "model": {"provider": "agent"}, **changes}
    return steps.create_search(db, OP, TARGET, language="cpp", now=now, **values)


def source(number: int) -> str:
    """A candidate like no other."""
    return f"def run(x, y, out):\n    return {number}\n"


def idea(number: int, technique: str = "fusion") -> dict[str, str]:
    """An idea like no other."""
    return {"technique": technique, "title": f"idea {number}", "mechanism": f"mechanism {number}"}


def call(number: int = 0, *, error: str | None = None, reply: str | None = "reply", tokens: int = 5) -> steps.ModelCall:
    """A recorded call."""
    return steps.ModelCall(
        kind="code",
        request=f"{number:064x}",
        ordinal=0,
        provider="agent",
        messages=({"role": "user", "content": "?"},),
        reply=reply,
        error=error,
        prompt_tokens=tokens,
        completion_tokens=tokens,
        cost_usd=0.25,
    )


def request(number: int = 0, ordinal: int = 0, attempt_id: str = "") -> ModelRequest:
    """A model request."""
    messages = ({"role": "user", "content": "what now?"},)
    return ModelRequest("code", f"{number:064x}", ordinal, messages, "code 'idea'", attempt_id)


def verdict(  # a verdict has this many parts
    level: str, word: VerdictWord = "accepted", score: float | None = None, *, low: float | None = None, **changes: Any
) -> Verdict:
    """A verdict as the judge writes it; `low` is the lower end of every speed-up's interval."""
    ids = [("large", "bench")] if level == "screen" else [("large", "bench"), ("ragged", "test")]
    ratio = score or 1.0
    end = ratio * 0.98 if low is None else low
    document: dict[str, Any] = {
        "id": "job_1",
        "level": level,
        "verdict": word,
        "gate": "time" if word == "accepted" else "screen",
        "reason": f"{word} by the test",
        "op": OP.name,
        "target": str(TARGET),
        "language": None if level == "baseline" else "cpp",
        "workloads": [
            {
                "id": name,
                "role": role,
                "error": {"candidate": 0.0, "eager": 0.0, "limit": 1.0},
                "time_us": {"eager": 100.0, "candidate": 100.0 / ratio},
                "speedup": {"eager": ratio, "compile": ratio, "max_autotune": ratio},
                "ci95": {name: [end, ratio * 1.02] for name in ("eager", "compile", "max_autotune")},
                "limit_us": 10.0,
                "limit_by": "bytes",
                "limit_fraction": 0.1 * ratio,
                "samples": {},
            }
            for name, role in ids
        ],
        "failure": None if word == "accepted" else {"kind": "wrong_value", "message": "wrong"},
        "compile": None,
        "score": score,
        "score_ci95": None if score is None else [end, ratio * 1.02],
        "sandbox": {},
        "device": {},
        "versions": {"torch": "2"},
        "fingerprint": "f",
        "seconds": {},
    }
    return {**document, **changes}  # type: ignore[return-value,typeddict-item] # as JSON brings it


def small_policy(codes: int = 2, ideas: int = 2, repairs: int = 1, rounds: int = 1) -> Callable[..., list[Step]]:
    """A policy that fits a page: ideas on the root each round, code, judge, repair; verify the best; stop."""

    def decide(tree: Tree, _policy: Policy, _budget: Budget, _spend: Spend) -> list[Step]:
        root, found = tree.nodes[0], []
        nodes = [node for node in tree.nodes[1:] if node.mark != "banned"]
        if root.state == "coded":
            return [Step("judge", root.id)]
        for node in nodes:
            if node.state == "planned":
                found.append(Step("code", node.id))
            elif node.state == "coded":
                found.append(Step("judge", node.id, ordinal=node.repairs))
            elif node.state == "judged" and node.verdict == "rejected" and node.repairs < repairs:
                found.append(Step("code", node.id, ordinal=node.repairs + 1))
        if found or any(_open(node) for node in tree.nodes):
            return found
        if root.ideated < rounds:
            return [Step("ideate", root.id, root.ideated + 1, {"ideas": ideas, "codes": codes, "calls": 3})]
        good = [node for node in nodes if node.verdict == "accepted" and node.verification != "failed"]
        best = max(good, key=lambda node: node.score or 0.0, default=None)
        if best is not None and best.verification == "none":
            return [Step("verify", best.id, ordinal=best.repairs)]
        return [Step("stop", reason="all was played")]

    return decide


def _open(node: NodeView) -> bool:
    return node.state in ("coding", "judging") or "open" in (node.ideation, node.verification)


@dataclass
class Driver:
    """Plays broker and workers for one search; `luck` decides verdicts."""

    db: Database
    search_id: str
    decide: Callable[..., list[Step]] = field(default_factory=small_policy)
    now: float = 1000.0
    luck: random.Random = field(default_factory=lambda: random.Random(0))
    owners: int = 0
    sources: int = 0

    def advance(self) -> list[steps.Message]:
        """Ask the policy."""
        return steps.advance(self.db, self.search_id, self.now, self.decide)

    def owner(self) -> str:
        """An owner like no other."""
        self.owners += 1
        return f"worker-{self.owners}"

    def claim(self, attempt_id: str, owner: str = "me") -> steps.Work:
        """Claim; must succeed."""
        work = steps.claim(self.db, attempt_id, owner, LEASE_S, self.now)
        assert work is not None
        return work

    def complete(self, work: steps.Work, owner: str = "me", also: steps.Following | None = None) -> bool:
        """Bring a plausible result for `work`; `also` runs in its transaction."""
        self.now += 1.0
        if work.kind == "ideate":
            ideas = [idea(work.ordinal * 100 + number) for number in range(work.params["ideas"])]
            calls = [call(self.sources)]
            return steps.complete_ideate(self.db, work.attempt_id, owner, ideas, calls, self.now, also)
        if work.kind == "code":
            self.sources += 1
            calls, text = [call(self.sources)], source(self.sources)
            return steps.complete_code(self.db, work.attempt_id, owner, text, "cpp", calls, self.now, also)
        assert work.level is not None
        return steps.complete_judge(self.db, work.attempt_id, owner, self.outcome(work.level), self.now, also)

    def outcome(self, level: str) -> Verdict:
        """A verdict by luck."""
        if level == "baseline":
            return verdict(level)
        if self.luck.random() < 0.4:
            return verdict(level, "rejected")
        return verdict(level, score=round(self.luck.uniform(0.8, 3.0), 3))

    def step(self, message: steps.Message) -> bool:
        """Claim, complete, done."""
        owner = self.owner()
        work = steps.claim(self.db, message.attempt_id, owner, LEASE_S, self.now)
        return work is not None and self.complete(work, owner)

    def run(self, messages: list[steps.Message] | None = None, limit: int = 1000) -> SearchRow:
        """Play until the search ends."""
        waiting = self.advance() if messages is None else list(messages)
        for _ in range(limit):
            if not waiting:
                break
            self.step(waiting.pop(0))
            waiting += self.advance()
        return self.search()

    def until(self, kind: str) -> steps.Work:
        """Play until a step of this kind can be claimed, and claim it as `me`; other messages are dropped."""
        waiting = self.advance()
        for _ in range(1000):
            message = waiting.pop(0)
            work = self.claim(message.attempt_id)
            if work.kind == kind and (kind != "judge" or work.level != "baseline"):
                return work
            assert self.complete(work)
            waiting += self.advance()
        raise AssertionError(f"no {kind} step came")

    def search(self) -> SearchRow:
        """The search's row."""
        with self.db.reading() as session:
            return session.get_one(SearchRow, self.search_id)

    def nodes(self) -> list[NodeRow]:
        """Every node."""
        with self.db.reading() as session:
            query = select(NodeRow).where(NodeRow.search_id == self.search_id).order_by(NodeRow.seq)
            return list(session.scalars(query))

    def attempts(self) -> list[AttemptRow]:
        """Every attempt."""
        with self.db.reading() as session:
            query = select(AttemptRow).where(AttemptRow.search_id == self.search_id).order_by(AttemptRow.id)
            return list(session.scalars(query))

    def attempt(self, attempt_id: str) -> AttemptRow:
        """One attempt."""
        with self.db.reading() as session:
            return session.get_one(AttemptRow, attempt_id)

    def events(self) -> list[str]:
        """The types of the events, in order."""
        with self.db.reading() as session:
            query = select(EventRow.type).where(EventRow.search_id == self.search_id).order_by(EventRow.id)
            return list(session.scalars(query))

    def check(self) -> None:
        """What must hold at every moment."""
        search, nodes, attempts = self.search(), self.nodes(), self.attempts()
        assert [node.seq for node in nodes] == list(range(len(nodes)))
        assert search.next_seq == len(nodes)
        with self.db.reading() as session:
            of_search = ModelCallRow.search_id == self.search_id
            calls, prompts, replies, cost = session.execute(
                select(
                    func.count(ModelCallRow.reply),
                    func.coalesce(func.sum(ModelCallRow.prompt_tokens), 0),
                    func.coalesce(func.sum(ModelCallRow.completion_tokens), 0),
                    func.coalesce(func.sum(ModelCallRow.cost_usd), 0.0),
                ).where(of_search)
            ).one()
            replied = set(
                session.scalars(select(ModelCallRow.attempt_id).where(of_search, ModelCallRow.reply.is_not(None)))
            )
            levels = session.scalars(select(VerdictRow.level).where(VerdictRow.search_id == self.search_id)).all()
        assert (search.model_calls, search.tokens, search.cost_usd) == (calls, prompts + replies, cost)
        by_id = {node.id: node for node in nodes}
        unjudged = [a for a in attempts if a.kind == "judge" and a.state == "failed" and by_id[a.node_id].seq > 0]
        unreadable = [a for a in attempts if a.kind == "code" and a.state == "failed" and a.id in replied]
        repeated = [
            a
            for a in attempts
            if (a.kind, a.state, by_id[a.node_id].state) == ("code", "succeeded", "closed")
            and not any((b.node_id, b.kind, b.ordinal) == (a.node_id, "judge", a.ordinal) for b in attempts)
        ]
        # Each code step with a reply counts once, and each seed: with its screening, or where it ends before one.
        assert search.candidates == levels.count("screen") + len(unjudged) + len(unreadable) + len(repeated)
        assert search.running_since is None or search.state == "running"
        if search.state == "running" and search.running_since is None:  # the model is away
            assert {a.state for a in attempts} & {"pending", "waiting"}
            assert not [a for a in attempts if a.state == "running"]
        by_node: dict[str, list[AttemptRow]] = {}
        for attempt in attempts:
            assert (attempt.state == "running") == (attempt.owner is not None and attempt.lease_expires_at is not None)
            by_node.setdefault(attempt.node_id, []).append(attempt)
        for node in nodes:
            opened = [a.kind for a in by_node.get(node.id, []) if a.state in ("pending", "running", "waiting")]
            assert opened.count("code") == (node.state == "coding")
            assert opened.count("judge") == (node.state == "judging")
            assert opened.count("ideate") == (node.ideation == "open")
            assert opened.count("verify") == (node.verification == "open")
        if search.state in ("finished", "failed", "cancelled"):
            assert not [a for a in attempts if a.state in ("pending", "running", "waiting")]
