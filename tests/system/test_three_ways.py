"""The same search run three ways, by agent, replay and HTTP, gives the same tree.

The agent's answers become the pool, the pool answers the replay and the HTTP endpoint. The judge is played by a script
that decides by the digest of the source, so scores take part in what the policy decides, and no timing does. The agent
answers each ask before the next step begins, so what a prompt tells of earlier results is the same too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.model_server import Answer, ModelServer, Request, ok, status
from tests.support.played import Played, by_digest, identity_of, said
from tests.support.steps_support import OP
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.pool_file import Pool, dump_pool, parse_pool
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.workers import steps
from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import policy_document
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps import Work

POLICY = policy_document(
    replace(IdeaBeam(), beam=2, diverse=1, ideas=2, codes=2, repairs=1, rounds=3, max_rounds=3, reflect=True)
)
NOBODY = "http://127.0.0.1:9/v1"


def judged(work: Work) -> Any:
    """Every fourth candidate is wrong, and so may its repair be; how fast the others are stands in their digests."""
    digest = work.node.source_digest
    wrong = work.level == "screen" and digest is not None and int(digest[-1], 16) < 4
    return said(work, "rejected", None) if wrong else by_digest(work)


def answer(kind: str, identity: str, ordinal: int) -> str:
    """What the agent says: the same to the same request, now and then nothing that can be read at first."""
    number = int(identity[:8], 16)
    if ordinal == 0 and number % 7 == 0:
        return "Let me think about it."
    if kind == "reflect":
        return json.dumps([{"lesson": f"Lesson {number}", "evidence": "as measured"}])
    if kind == "ideate":
        names = [list(TECHNIQUES)[(number + at) % len(TECHNIQUES)] for at in range(2)]
        ideas = [
            {"technique": name, "title": f"{name} {number % 1000}", "mechanism": f"{number} {name}"} for name in names
        ]
        return f"```json\n{json.dumps(ideas)}\n```"
    return f"```python\ndef run(x, y, out):\n    return {number % 9973}\n```"


def by_agent(home: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """The search in agent mode; every ask is answered at once."""
    played = Played.begin(home, NOBODY, monkeypatch, OP, policy=POLICY, model={"provider": "agent"})
    db = played.here.db
    for _ in range(1000):
        if played.run(judged, turns=1).state in ENDED:
            return played
        with db.reading() as session:
            asks = session.scalars(select(AskRow).where(AskRow.state == "open").order_by(AskRow.id)).all()
        for ask in asks:
            steps.tell(db, ask.id, answer(ask.kind, ask.request, ask.ordinal), "a script", ask.created_at + 1.0)
    raise AssertionError("the search does not end")


def by_replay(home: Path, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> Played:
    """The search from the recorded pool."""
    before = Played.take_up(home, NOBODY, monkeypatch, "")
    before.here.db.upgrade()
    with before.here.db.writing() as session:
        pool_id = records.add_pool(session, pool)[0].id
    before.close()
    model = {"provider": "replay", "pool": pool_id}
    played = Played.begin(home, NOBODY, monkeypatch, OP, policy=POLICY, model=model)
    played.run(judged)
    return played


def by_http(home: Path, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> Played:
    """The search at a real HTTP endpoint that has the pool's replies."""
    replies = {(reply.request, reply.ordinal): reply.reply for reply in pool.replies}

    def known(request: Request) -> Answer:
        reply = replies.get(identity_of(request))
        return status(400, "nobody was asked this before") if reply is None else ok(reply)

    with ModelServer(default=known) as server:
        played = Played.begin(home, server.url, monkeypatch, OP, policy=POLICY)
        played.run(judged)
        assert len(server.requests) == len(pool.replies)
    return played


def tree(played: Played) -> list[tuple[Any, ...]]:
    """What a tree is, ids and times left out."""
    nodes = played.nodes()
    seqs = {node.id: node.seq for node in nodes}
    return [
        (
            node.seq,
            seqs.get(node.parent_id or "", 0),
            node.round,
            node.technique,
            None if node.idea is None else node.idea["title"],
            node.variant,
            node.source_digest,
            node.repairs,
            node.state,
            node.verdict,
            node.score,
            node.verification,
        )
        for node in nodes
    ]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Played]]:
    """The three searches, ended."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = tmp_path_factory.mktemp("ways")
        agent = by_agent(home / "agent", monkeypatch)
        with agent.here.db.reading() as session:
            # As a user would carry it: through a file.
            pool = parse_pool(dump_pool(records.export_pool(session, agent.search_id)))
        found = {
            "agent": agent,
            "replay": by_replay(home / "replay", monkeypatch, pool),
            "http": by_http(home / "http", monkeypatch, pool),
        }
        yield found
        for played in found.values():
            played.close()


def test_the_search_is_worth_comparing(ways: dict[str, Played]) -> None:
    """It has rounds, repairs, rejections, re-asks, reflections, and a winner."""
    agent = ways["agent"]
    nodes, calls = agent.nodes(), agent.calls()
    assert agent.search().state == "finished"
    assert max(node.round for node in nodes) == 3
    assert len(nodes) > 15
    assert {"accepted", "rejected"} <= {node.verdict for node in nodes}
    assert any(node.repairs for node in nodes)
    assert any(call.ordinal for call in calls)
    assert {call.kind for call in calls} == {"reflect", "ideate", "code", "repair"}
    assert any(node.verification == "passed" for node in nodes)


@pytest.mark.parametrize("way", ["replay", "http"])
def test_the_tree_is_the_same(way: str, ways: dict[str, Played]) -> None:
    assert tree(ways[way]) == tree(ways["agent"])
    mine, agents = ways[way].search(), ways["agent"].search()
    assert (mine.state, mine.reason, mine.candidates, mine.model_calls) == (
        agents.state,
        agents.reason,
        agents.candidates,
        agents.model_calls,
    )


@pytest.mark.parametrize("way", ["replay", "http"])
def test_the_conversation_is_the_same(way: str, ways: dict[str, Played]) -> None:
    """Request by request: identity, prompt and reply."""
    said_so = [(call.kind, call.request, call.ordinal, call.messages, call.reply) for call in ways[way].calls()]
    expected = [(call.kind, call.request, call.ordinal, call.messages, call.reply) for call in ways["agent"].calls()]
    assert said_so == expected
