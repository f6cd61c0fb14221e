"""Steering by a person: ideas, marks, budgets, branches, on both databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.steps_support import LEASE_S, SETTINGS, Driver, create, idea, request, small_policy, verdict
from warpsmith.kernels_db.spec.op import SpecError
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, EventRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.search.policy import next_steps
from warpsmith.workers.steps import steering
from warpsmith.workers.steps.asks import AskClosed, tell


@dataclass
class Player(Driver):
    """A driver that keeps the messages which `until` passes over."""

    waiting: list[steps.Message] = field(default_factory=list)

    def until(self, kind: str) -> steps.Work:
        """Play until a step of this kind can be claimed, and claim it as `me`."""
        self.waiting += self.advance()
        while self.waiting:
            work = self.claim(self.waiting.pop(0).attempt_id)
            if work.kind == kind and work.level != "baseline":
                return work
            assert self.complete(work)
            self.waiting += self.advance()
        raise AssertionError(f"no {kind} step came")

    def end(self) -> SearchRow:
        """Play on until the search ends."""
        return self.run(self.waiting + self.advance())


FEW_ROUNDS = {"name": "idea_beam", "rounds": 2, "max_rounds": 2}


def driver(db: Database, **changes: Any) -> Player:
    """A search whose root asks for two ideas of one code each, twice."""
    return Player(db, create(db, **changes), small_policy(codes=1, ideas=2, rounds=2))


def accepted(driver: Player, score: float) -> steps.Work:
    """Play until a screening comes, accept it with `score`, and return its work."""
    work = driver.until("judge")
    assert steps.complete_judge(driver.db, work.attempt_id, "me", verdict("screen", score=score), driver.now)
    return work


def ideating_on_a_candidate(driver: Player) -> steps.Work:
    """Accept a candidate, and play until a request for ideas on it can be claimed."""
    accepted(driver, 3.0)
    while (work := driver.until("ideate")).node.seq == 0:
        assert driver.complete(work)
    return work


def awaits_answer(driver: Player, work: steps.Work) -> str:
    """Let a claimed step wait for somebody's answer; the id of its ask."""
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(), driver.now)
    with driver.db.reading() as session:
        return session.scalars(select(AskRow.id).where(AskRow.attempt_id == work.attempt_id)).one()


def payloads(driver: Driver, kind: str) -> list[dict[str, Any]]:
    """The payloads of the events of one type."""
    with driver.db.reading() as session:
        query = select(EventRow.payload).where(EventRow.search_id == driver.search_id, EventRow.type == kind)
        return list(session.scalars(query.order_by(EventRow.id)))


def test_an_idea_is_planned_in_the_current_round_and_coded_like_any_other(db: Database) -> None:
    play = driver(db)
    best = accepted(play, 2.0)
    ids = steering.add_idea(db, play.search_id, idea(900), play.now, codes=2, by="ada")
    nodes = [node for node in play.nodes() if node.id in ids]
    assert [(node.origin, node.round, node.state, node.variant) for node in nodes] == [
        ("person", 1, "planned", 0),
        ("person", 1, "planned", 1),
    ]
    assert {node.parent_id for node in nodes} == {best.node.id}, "the best so far"
    assert payloads(play, "idea.added") == [
        {
            "seq": nodes[0].seq,
            "parent_id": best.node.id,
            "title": "idea 900",
            "technique": "fusion",
            "codes": 2,
            "by": "ada",
        }
    ]
    opened = {message.attempt_id for message in play.advance()}
    assert {attempt.node_id for attempt in play.attempts() if attempt.id in opened} >= set(ids)
    assert play.search().state == "running"
    play.check()


def test_before_the_baselines_an_idea_waits_on_the_root(db: Database) -> None:
    play = driver(db)
    (node_id,) = steering.add_idea(db, play.search_id, idea(900), play.now)
    root, node = play.nodes()
    assert (node.id, node.parent_id, node.round) == (node_id, root.id, 0), "the first round is the policy's"
    assert payloads(play, "idea.added")[0].keys() == {"seq", "parent_id", "title", "technique", "codes"}, "nobody's key"
    assert play.end().state == "finished"
    assert play.nodes()[1].verdict is not None
    play.check()


def test_an_idea_before_the_first_round_takes_none_of_the_policys(db: Database) -> None:
    play = Player(db, create(db, policy={"name": "greedy", "rounds": 2, "repairs": 0}), next_steps)
    steering.add_idea(db, play.search_id, idea(900), play.now)
    assert play.end().reason == "2 rounds were played"
    assert {attempt.ordinal for attempt in play.attempts() if attempt.kind == "ideate"} == {1, 2}
    play.check()


def test_an_idea_that_the_search_had_is_refused_as_a_models_is(db: Database) -> None:
    play = driver(db)
    play.until("code")
    with pytest.raises(
        steps.WrongState, match="idea: found the same idea as node #1, expected one that the search has"
    ):
        steering.add_idea(db, play.search_id, idea(100) | {"title": "IDEA,  100!"}, play.now)
    assert len(play.nodes()) == 3
    steering.add_idea(db, play.search_id, idea(100, technique="compute"), play.now)
    assert len(play.nodes()) == 4


def test_an_idea_needs_a_parent_that_can_be_built_on(db: Database) -> None:
    play = driver(db)
    other = Driver(db, create(db), small_policy())
    good = accepted(play, 2.0)
    planned = next(node for node in play.nodes() if node.state == "planned" or node.verdict is None)
    with pytest.raises(LookupError, match="expected the id of a node of this search"):
        steering.add_idea(db, play.search_id, idea(900), play.now, parent_id=other.nodes()[0].id)
    with pytest.raises(steps.WrongState, match="expected the root or an accepted candidate that is not banned"):
        steering.add_idea(db, play.search_id, idea(900), play.now, parent_id=planned.id)
    steering.mark_node(db, good.node.id, "banned", True, play.now)
    with pytest.raises(steps.WrongState, match="parent: found a banned node"):
        steering.add_idea(db, play.search_id, idea(900), play.now, parent_id=good.node.id)
    (node_id,) = steering.add_idea(db, play.search_id, idea(900), play.now, parent_id=play.nodes()[0].id)
    assert node_id in {node.id for node in play.nodes()}


def test_on_a_paused_search_a_steer_waits_for_the_resume(db: Database) -> None:
    play = driver(db)
    accepted(play, 2.0)
    steps.pause(db, play.search_id, "on request", play.now, by="ada")
    (node_id,) = steering.add_idea(db, play.search_id, idea(900), play.now)
    assert play.advance() == []
    assert not [attempt for attempt in play.attempts() if attempt.node_id == node_id]
    steps.resume(db, play.search_id, play.now, play.decide, by="bob")
    assert [attempt.kind for attempt in play.attempts() if attempt.node_id == node_id] == ["code"]
    assert payloads(play, "search.paused")[0]["by"] == "ada"
    assert payloads(play, "search.resumed")[0]["by"] == "bob"


def test_a_ban_dethrones_the_best_and_lifting_it_restores_it(db: Database) -> None:
    play = driver(db)
    first, second = accepted(play, 3.0), accepted(play, 2.0)
    assert play.search().best_node_id == first.node.id
    steering.mark_node(db, first.node.id, "banned", True, play.now, by="ada")
    assert play.search().best_node_id == second.node.id
    assert payloads(play, "node.banned") == [{"seq": first.node.seq, "best_node_id": second.node.id, "by": "ada"}]
    steering.mark_node(db, first.node.id, "banned", True, play.now)
    assert len(payloads(play, "node.banned")) == 1, "nothing changed"
    steering.mark_node(db, first.node.id, "pinned", False, play.now)
    assert play.search().best_node_id == second.node.id, "unpinning lifts no ban"
    steering.mark_node(db, first.node.id, "banned", False, play.now)
    assert play.search().best_node_id == first.node.id
    steering.mark_node(db, second.node.id, "pinned", True, play.now)
    steering.mark_node(db, second.node.id, "banned", True, play.now)
    assert [node.mark for node in play.nodes()].count("banned") == 1
    assert play.events()[-1] == "node.banned"


def test_a_banned_candidate_is_never_verified_nor_kept(db: Database) -> None:
    play = driver(db)
    best = accepted(play, 3.0)
    steering.mark_node(db, best.node.id, "banned", True, play.now)
    search = play.end()
    assert search.state == "finished"
    assert search.best_node_id != best.node.id
    assert "verify" not in {attempt.kind for attempt in play.attempts() if attempt.node_id == best.node.id}
    play.check()


def test_a_ban_during_its_verification_keeps_the_winner_out(db: Database) -> None:
    play = driver(db)
    work = play.until("verify")
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    assert steps.complete_judge(db, work.attempt_id, "me", verdict("verify", score=9.0), play.now)
    search = play.end()
    assert search.state == "finished"
    assert search.best_node_id != work.node.id
    assert all(payload["seq"] != work.node.seq for payload in payloads(play, "kernel.kept"))


def test_a_cancelled_search_keeps_what_it_had_verified(db: Database) -> None:
    play = driver(db)
    accepted(play, 3.0)
    work = play.until("verify")
    assert steps.complete_judge(db, work.attempt_id, "me", verdict("verify", score=3.0), play.now)
    steps.cancel(db, play.search_id, play.now)
    (kept,) = payloads(play, "kernel.kept")
    assert kept["score"] == 3.0
    with db.reading() as session:
        search = session.get_one(SearchRow, play.search_id)
    assert (search.state, search.best_node_id) == ("cancelled", work.node.id)


def test_a_search_cancelled_before_its_verification_keeps_nothing(db: Database) -> None:
    play = driver(db)
    accepted(play, 3.0)
    play.until("verify")
    steps.cancel(db, play.search_id, play.now)
    assert payloads(play, "kernel.kept") == []


def test_a_node_banned_while_it_is_coded_goes_no_further(db: Database) -> None:
    play = driver(db)
    work = play.until("code")
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    assert play.complete(work), "what runs is finished"
    assert play.end().state == "finished"
    node = next(node for node in play.nodes() if node.id == work.node.id)
    assert (node.state, node.verdict) == ("coded", None)
    play.check()


def test_a_node_unbanned_is_taken_up_where_it_was_left(db: Database) -> None:
    play = driver(db)
    work = play.until("code")
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    assert play.complete(work)
    play.advance()
    steering.mark_node(db, work.node.id, "banned", False, play.now)
    opened = {message.attempt_id for message in play.advance()}
    (attempt,) = [item for item in play.attempts() if item.id in opened and item.node_id == work.node.id]
    assert attempt.kind == "judge"


@pytest.mark.parametrize(("kind", "state"), [("code", "closed"), ("ideate", "judged")])
def test_a_ban_takes_back_what_waits_for_an_answer(db: Database, kind: str, state: str) -> None:
    play = Player(db, create(db, policy=FEW_ROUNDS), next_steps)
    work = play.until(kind) if kind == "code" else ideating_on_a_candidate(play)
    ask_id = awaits_answer(play, work)
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    with pytest.raises(AskClosed, match=r"withdrawn.*nothing waits for its answer"):
        tell(db, ask_id, "a late answer", None, play.now)
    assert play.end().state == "finished", "no round waits for it"
    node = next(node for node in play.nodes() if node.id == work.node.id)
    assert (node.state, node.ideation) == (state, "done" if kind == "ideate" else "none")
    assert [item.state for item in play.attempts() if item.id == work.attempt_id] == ["cancelled"]
    play.check()


def test_a_ban_leaves_a_node_that_waits_to_be_repaired_as_it_was_judged(db: Database) -> None:
    play = driver(db)
    rejected = play.until("judge")
    assert steps.complete_judge(db, rejected.attempt_id, "me", verdict("screen", "rejected"), play.now)
    repair = play.until("code")
    while repair.node.id != rejected.node.id:
        assert play.complete(repair)
        repair = play.until("code")
    awaits_answer(play, repair)
    steering.mark_node(db, repair.node.id, "banned", True, play.now)
    node = next(node for node in play.nodes() if node.id == repair.node.id)
    assert (node.state, node.verdict, node.repairs) == ("judged", "rejected", 1)
    assert play.end().state == "finished"
    play.check()


def pending(play: Player, kind: str) -> tuple[AttemptRow, NodeRow]:
    """A pending step of this kind of a node that may be banned, and the node."""
    for _ in range(40):
        play.waiting += play.advance()
        nodes = {node.id: node for node in play.nodes()}
        for one in play.attempts():
            if (one.kind, one.state) == (kind, "pending") and nodes[one.node_id].seq > 0:
                return one, nodes[one.node_id]
        assert play.complete(play.claim(play.waiting.pop(0).attempt_id))
    raise AssertionError(f"no {kind} step came")


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("code", ("planned", "none", "none")),
        ("judge", ("coded", "none", "none")),
        ("verify", ("judged", "none", "none")),
        ("ideate", ("judged", "done", "none")),
    ],
)
def test_a_ban_takes_back_what_is_queued_and_no_round_waits_for_it(
    db: Database, kind: str, left: tuple[str, str, str]
) -> None:
    play = Player(db, create(db, policy=FEW_ROUNDS), next_steps)
    step, node = pending(play, kind)
    steering.mark_node(db, node.id, "banned", True, play.now)
    assert payloads(play, "node.banned")[-1]["taken_back"] == [kind]
    (banned,) = (one for one in play.nodes() if one.id == node.id)
    assert (banned.state, banned.ideation) == left[:2]
    assert banned.verification != "open"
    assert steps.claim(db, step.id, "a worker that has the message", 30.0, play.now) is None
    play.check()
    assert play.end().state == "finished", "no round waits for it"
    assert [one.state for one in play.attempts() if one.id == step.id] == ["cancelled"]
    play.check()


@pytest.mark.parametrize("kind", ["code", "judge", "verify"])
def test_what_a_ban_took_back_is_queued_again_once_it_is_lifted(db: Database, kind: str) -> None:
    play = Player(db, create(db, policy=FEW_ROUNDS), next_steps)
    step, node = pending(play, kind)
    steering.mark_node(db, node.id, "banned", True, play.now)
    steering.mark_node(db, node.id, "banned", False, play.now)
    assert step.id in {message.attempt_id for message in play.advance()}
    play.check()
    assert play.complete(play.claim(step.id))
    assert play.end().state == "finished"
    assert [one.state for one in play.attempts() if one.id == step.id] == ["succeeded"]
    play.check()


def test_a_queued_repair_that_was_taken_back_is_the_same_repair_again(db: Database) -> None:
    play = driver(db)
    rejected = play.until("judge")
    assert steps.complete_judge(db, rejected.attempt_id, "me", verdict("screen", "rejected"), play.now)
    play.waiting += play.advance()
    of_it = (rejected.node.id, "code", 1)
    (repair,) = (one for one in play.attempts() if (one.node_id, one.kind, one.ordinal) == of_it)
    assert repair.state == "pending"
    steering.mark_node(db, rejected.node.id, "banned", True, play.now)
    (node,) = (one for one in play.nodes() if one.id == rejected.node.id)
    assert (node.state, node.verdict, node.repairs) == ("judged", "rejected", 0)
    steering.mark_node(db, rejected.node.id, "banned", False, play.now)
    assert repair.id in {message.attempt_id for message in play.advance()}
    assert play.end().state == "finished"
    play.check()


def test_a_step_whose_worker_died_under_a_ban_is_taken_back(db: Database) -> None:
    play = driver(db)
    work = play.until("judge")
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    assert [one.state for one in play.attempts() if one.id == work.attempt_id] == ["running"], "what runs is finished"
    play.now += LEASE_S + 1
    sent = steps.reconcile(db, play.now, SETTINGS, play.decide)
    assert work.attempt_id not in {message.attempt_id for message in sent}
    assert [one.state for one in play.attempts() if one.id == work.attempt_id] == ["cancelled"]
    play.check()


def test_a_step_that_ran_when_its_node_was_banned_asks_nobody(db: Database) -> None:
    play = Player(db, create(db, policy=FEW_ROUNDS), next_steps)
    work = play.until("code")
    steering.mark_node(db, work.node.id, "banned", True, play.now)
    assert steps.wait_for_answer(db, work.attempt_id, "me", request(), play.now)
    with db.reading() as session:
        assert session.scalars(select(AskRow)).all() == []
    assert [item.state for item in play.attempts() if item.id == work.attempt_id] == ["cancelled"]
    assert play.end().state == "finished", "no round waits for it"
    play.check()


def test_a_ban_keeps_what_a_verification_said_from_the_ledger(db: Database) -> None:
    play = Player(db, create(db, policy={"name": "greedy", "repairs": 2}), next_steps)
    hidden = "workload holdout-1: y[3, 16] is 2, expected 1"
    accepted(play, 3.0)
    verified = play.until("verify")
    told = verdict("verify", "rejected", gate="verify", reason=hidden)
    assert steps.complete_judge(db, verified.attempt_id, "me", told, play.now)
    repair = play.until("code")
    assert repair.node.id == verified.node.id
    awaits_answer(play, repair)
    steering.mark_node(db, repair.node.id, "banned", True, play.now)
    node = next(node for node in play.nodes() if node.id == repair.node.id)
    assert (node.state, node.verdict, node.verification) == ("judged", "rejected", "failed")
    ledger = play.until("ideate").ledger
    assert ledger
    assert not any(hidden in (tried.reason or "") for tried in ledger)


def test_what_cannot_be_marked(db: Database) -> None:
    play = driver(db)
    root = play.nodes()[0]
    with pytest.raises(steps.WrongState, match="found the root, expected a node with an idea"):
        steering.mark_node(db, root.id, "banned", True, play.now)
    steering.mark_node(db, root.id, "pinned", True, play.now)
    with pytest.raises(LookupError):
        steering.mark_node(db, "nd_0", "pinned", True, play.now)
    steps.cancel(db, play.search_id, play.now)
    with pytest.raises(steps.WrongState, match=r"found cancelled, expected one that has not ended; .*branch"):
        steering.mark_node(db, root.id, "pinned", False, play.now)


def test_a_budget_is_raised_lifted_and_never_lowered_below_the_spending(db: Database) -> None:
    play = driver(db, budget={"candidates": 4, "model_calls": 9})
    accepted(play, 2.0)
    spent = play.search().model_calls
    assert spent > 1
    steering.change_budget(db, play.search_id, {"candidates": 80, "model_calls": None}, play.now, by="ada")
    assert play.search().budget == {"candidates": 80}
    assert payloads(play, "budget.changed") == [
        {"before": {"candidates": 4, "model_calls": 9}, "after": {"candidates": 80}, "by": "ada"}
    ]
    steering.change_budget(db, play.search_id, {"candidates": 80}, play.now)
    assert len(payloads(play, "budget.changed")) == 1, "nothing changed"
    with pytest.raises(SpecError) as refused:
        steering.change_budget(db, play.search_id, {"cost_usd": 2.0, "model_calls": spent - 1}, play.now)
    assert (refused.value.field, refused.value.found) == ("budget.model_calls", spent - 1)
    assert f"at least what is spent, which is {spent}" in str(refused.value.expected)
    assert play.search().budget == {"candidates": 80}, "all or nothing"
    for wrong in ({"candidates": 0}, {"minutes": 3}, {"tokens": "many"}):
        with pytest.raises(SpecError, match="budget"):
            steering.change_budget(db, play.search_id, wrong, play.now)
    steps.cancel(db, play.search_id, play.now)
    with pytest.raises(steps.WrongState, match="branch a new search"):
        steering.change_budget(db, play.search_id, {"candidates": 90}, play.now)


def test_a_branch_starts_from_the_candidate_of_an_ended_search(db: Database) -> None:
    play = driver(db)
    best = accepted(play, 2.0)
    steps.cancel(db, play.search_id, play.now)
    with db.reading() as session:
        source = session.get_one(NodeRow, best.node.id).source
    new_id = steering.branch(
        db,
        best.node.id,
        policy={"name": "idea_beam"},
        budget={"candidates": 3},
        model={"provider": "agent"},
        now=play.now,
        by="ada",
    )
    branched = Driver(db, new_id, small_policy(rounds=0))
    with db.reading() as session:
        search, old = session.get_one(SearchRow, new_id), session.get_one(SearchRow, play.search_id)
        assert (search.op_id, search.target, search.language) == (old.op_id, old.target, old.language)
    assert (search.branched_from, search.state, search.budget) == (best.node.id, "queued", {"candidates": 3})
    root, node = branched.nodes()
    assert (node.seq, node.parent_id, node.round, node.state, node.origin) == (1, root.id, 0, "coded", "branch")
    assert (node.source, node.technique, node.idea) == (source, best.node.technique, best.node.idea)
    assert node.verdict is None, "it is judged anew"
    assert payloads(branched, "search.branched") == [
        {"from_search": play.search_id, "from_node": best.node.id, "from_seq": best.node.seq, "by": "ada"}
    ]
    assert branched.run().state == "finished"
    assert branched.nodes()[1].verdict is not None
    branched.check()


def test_what_has_no_code_cannot_be_branched_from(db: Database) -> None:
    play = driver(db)
    work = play.until("code")
    fields: dict[str, Any] = {"policy": {"name": "idea_beam"}, "budget": {}, "model": {}, "now": play.now}
    for node_id, found in ((work.node.id, "coding, without code"), (play.nodes()[0].id, "the root")):
        with pytest.raises(steps.WrongState, match=f"found {found}, expected a node that has code"):
            steering.branch(db, node_id, **fields)
    with pytest.raises(LookupError):
        steering.branch(db, "nd_0", **fields)
