"""The steps contract on both databases: a search from its creation to its end, and every way off the main path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.steps_support import (
    LEASE_S,
    OP,
    SETTINGS,
    TARGET,
    Driver,
    call,
    create,
    idea,
    request,
    small_policy,
    source,
    verdict,
)
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, EventRow, KernelRow, ModelCallRow, NodeRow, VerdictRow
from warpsmith.workers import steps
from warpsmith.workers.search.policy import next_steps
from warpsmith.workers.search.tree import Step, Tree


@pytest.fixture
def driver(db: Database) -> Iterator[Driver]:
    """A fresh search; what must always hold is checked at the end of every test."""
    driver = Driver(db, create(db))
    yield driver
    driver.check()


def the_kernel(driver: Driver) -> KernelRow:
    """The one kernel that was kept."""
    with driver.db.reading() as session:
        return session.scalars(select(KernelRow)).one()


def test_a_search_is_played_to_its_end(driver: Driver) -> None:
    search = driver.run()
    assert (search.state, search.reason) == ("finished", "all was played")
    assert search.candidates >= 4
    assert search.round == 1
    events = driver.events()
    assert events[:5] == ["search.created", "node.created", "search.started", "node.judged", "round.started"]
    assert events[-3:] == ["node.verified", "kernel.kept", "search.finished"]
    kernel, nodes = the_kernel(driver), driver.nodes()
    winner = next(node for node in nodes if node.id == search.best_node_id)
    assert kernel.node_id == winner.id
    assert kernel.source == winner.source
    assert kernel.evidence["level"] == "verify"
    assert kernel.envelope["axes"]["n"] == {"verified": [1021, 1048576], "min": 1021, "max": 1048576, "step": 1}
    assert [item["seq"] for item in kernel.lineage] == [0, winner.seq]
    assert kernel.lineage[1]["idea"] == winner.idea


def test_the_default_policy_plays_a_search_too(db: Database) -> None:
    policy = {"name": "idea_beam", "rounds": 2, "max_rounds": 2, "ideas": 2, "beam": 2}
    driver = Driver(db, create(db, policy=policy), next_steps)
    search = driver.run()
    assert search.state == "finished", search.reason
    assert search.best_node_id is not None
    driver.check()


def test_a_bad_policy_or_budget_creates_nothing(db: Database) -> None:
    with pytest.raises(SpecError, match=r"budget\.candidates"):
        create(db, budget={"candidates": 0})
    with pytest.raises(SpecError, match=r"policy\.name"):
        create(db, policy={"name": "none"})
    with db.reading() as session:
        assert listing.list_searches(session, limit=10).items == []


def test_what_is_created_with_a_search_is_undone_with_it(db: Database) -> None:
    def fail(_session: object, _search_id: str) -> None:
        raise RuntimeError("the answer could not be stored")

    with pytest.raises(RuntimeError, match="could not be stored"):
        create(db, also=fail)
    with db.reading() as session:
        assert listing.list_searches(session, limit=10).items == []
        assert listing.list_ops(session, limit=10).items == []


def test_completing_and_advancing_twice_change_nothing(driver: Driver) -> None:
    messages = driver.advance()
    assert [message.queue for message in messages] == ["judge.cpu-x86_64"]
    assert driver.advance() == []
    work = driver.claim(messages[0].attempt_id)
    assert steps.claim(driver.db, work.attempt_id, "me", LEASE_S, driver.now) is None
    assert driver.complete(work)
    assert not driver.complete(work)
    ideate = driver.advance()
    assert [message.queue for message in ideate] == ["model"]
    work = driver.claim(ideate[0].attempt_id)
    assert driver.complete(work)
    assert not driver.complete(work)
    assert len(driver.nodes()) == 5


def test_nobody_completes_another_ones_step(driver: Driver) -> None:
    work = driver.claim(driver.advance()[0].attempt_id)
    assert not driver.complete(work, "somebody else")
    assert not steps.renew(driver.db, work.attempt_id, "somebody else", LEASE_S, driver.now)
    assert not steps.give_up(driver.db, work.attempt_id, "somebody else", "?", driver.now)
    assert not steps.defer(driver.db, work.attempt_id, "somebody else", "?", 1.0, [], driver.now)
    assert not steps.close_branch(driver.db, work.attempt_id, "somebody else", "?", [], driver.now)
    assert not steps.wait_for_answer(driver.db, work.attempt_id, "somebody else", request(), driver.now)
    assert steps.renew(driver.db, work.attempt_id, "me", LEASE_S, driver.now)
    assert driver.attempt(work.attempt_id).state == "running"


def test_unknown_ids(db: Database) -> None:
    assert steps.claim(db, "at_none", "me", LEASE_S, 0.0) is None
    assert not steps.renew(db, "at_none", "me", LEASE_S, 0.0)
    assert not steps.give_up(db, "at_none", "me", "?", 0.0)
    for act in (steps.advance, steps.resume, steps.cancel):
        with pytest.raises(LookupError, match="sr_none"):
            act(db, "sr_none", 0.0)
    with pytest.raises(LookupError, match="ak_none"):
        steps.tell(db, "ak_none", "reply", None, 0.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {
                "gate": "reference",
                "failure": {
                    "kind": "shape",
                    "message": "m",
                    "field": "outputs[0].shape",
                    "found": [1],
                    "expected": [2],
                },
            },
            {"field": "outputs[0].shape", "found": [1], "expected": [2]},
        ),
        (
            {"gate": "memory", "failure": {"kind": "memory", "message": "needs 9 GB"}},
            {"field": "op.workloads", "found": "needs 9 GB", "expected": "a reference that the judge can admit"},
        ),
    ],
)
def test_a_reference_that_is_not_admitted_fails_the_search(
    driver: Driver, changes: dict[str, Any], problem: dict[str, Any]
) -> None:
    work = driver.claim(driver.advance()[0].attempt_id)
    bad = verdict("baseline", "rejected", reason="it is wrong", **changes)
    assert steps.complete_judge(driver.db, work.attempt_id, "me", bad, driver.now)
    search = driver.search()
    assert (search.state, search.problem) == ("failed", problem)
    assert "it is wrong" in (search.reason or "")
    assert driver.advance() == []


def test_baselines_that_cannot_be_measured_fail_the_search(driver: Driver) -> None:
    work = driver.claim(driver.advance()[0].attempt_id)
    assert steps.give_up(driver.db, work.attempt_id, "me", "the judge refuses the job", driver.now)
    assert driver.search().state == "failed"
    assert "the judge refuses the job" in (driver.search().reason or "")


def test_a_verdict_of_another_level_is_refused_whole(driver: Driver) -> None:
    work = driver.claim(driver.advance()[0].attempt_id)
    with pytest.raises(ValueError, match=r"verdict\.level: found 'screen', expected 'baseline'"):
        steps.complete_judge(driver.db, work.attempt_id, "me", verdict("screen"), driver.now)
    assert driver.attempt(work.attempt_id).state == "running"


def test_work_carries_what_a_step_needs(driver: Driver) -> None:
    judge = driver.claim(driver.advance()[0].attempt_id)
    assert (judge.level, judge.node.seq, judge.op["name"], judge.target) == ("baseline", 0, OP.name, str(TARGET))
    assert driver.complete(judge)
    ideate = driver.claim(driver.advance()[0].attempt_id)
    assert (ideate.parent, ideate.best, ideate.ledger, ideate.asked) == (None, None, (), 0)
    assert ideate.baselines is not None
    assert ideate.baselines["level"] == "baseline"
    assert driver.complete(ideate)
    code = driver.claim(driver.advance()[0].attempt_id)
    assert (code.variants, code.parent, code.node.idea) == (2, None, idea(100))
    driver.luck.random = lambda: 0.0  # type: ignore[method-assign] # every screening rejects
    assert driver.complete(code)
    assert driver.complete(driver.claim(driver.advance()[0].attempt_id))
    repair = driver.claim(driver.advance()[0].attempt_id)
    assert (repair.kind, repair.ordinal) == ("code", 1)
    assert repair.node.document is not None
    assert repair.node.document["verdict"] == "rejected"
    assert repair.node.source == source(1)


def test_the_ledger_and_the_champion_reach_a_later_round(db: Database) -> None:
    driver = Driver(db, create(db), small_policy(rounds=2, repairs=0))
    driver.luck.random = lambda: 1.0  # type: ignore[method-assign] # every screening accepts
    waiting = driver.advance()
    while (work := driver.claim(waiting.pop(0).attempt_id)).kind != "ideate" or work.ordinal != 2:
        assert driver.complete(work)
        waiting += driver.advance()
    assert [tried.seq for tried in work.ledger] == [1, 2, 3, 4]
    with db.reading() as session:
        query = select(NodeRow.seq, VerdictRow.document["workloads"]).join(NodeRow, NodeRow.id == VerdictRow.node_id)
        told = {seq: [entry for entry in found if entry["role"] == "bench"] for seq, found in session.execute(query)}
    for tried in work.ledger:
        assert tried.times
        assert [time.workload for time in tried.times] == [entry["id"] for entry in told[tried.seq]]
        assert tried.times[0].time_us == told[tried.seq][0]["time_us"]["candidate"]
        assert tried.times[0].speedup == min(told[tried.seq][0]["speedup"].values())
    assert work.best is not None
    assert work.best.score == max(tried.score or 0.0 for tried in work.ledger)
    assert work.asked == 1
    driver.check()


def test_duplicates_are_closed_and_named(driver: Driver) -> None:
    ideate = driver.until("ideate")
    same = [idea(7), {**idea(7), "title": "Idea  7!"}]
    assert steps.complete_ideate(driver.db, ideate.attempt_id, "me", same, [], driver.now)
    nodes = driver.nodes()
    assert [node.state for node in nodes[1:]] == ["planned", "planned", "closed"]
    assert nodes[3].reason == "the same idea as node #1"
    first, second = driver.advance()
    works = [driver.claim(first.attempt_id), driver.claim(second.attempt_id)]
    for work, text in zip(works, (source(1), source(1) + "\n\n# a comment\n"), strict=True):
        assert steps.complete_code(driver.db, work.attempt_id, "me", text, "cpp", [], driver.now)
    nodes = driver.nodes()
    assert [node.state for node in nodes[1:3]] == ["coded", "closed"]
    assert nodes[2].reason == "duplicate of node #1"
    [judge] = driver.advance()
    work = driver.claim(judge.attempt_id)
    assert steps.complete_judge(driver.db, work.attempt_id, "me", verdict("screen", "rejected"), driver.now)
    repair = driver.claim(driver.advance()[0].attempt_id)
    assert steps.complete_code(driver.db, repair.attempt_id, "me", source(1), "cpp", [], driver.now)
    assert driver.nodes()[1].reason == "the repair changed nothing: duplicate of node #1"
    assert driver.search().candidates == 3, "two duplicates and one that was judged"


def test_more_ideas_than_asked_for_are_dropped(driver: Driver) -> None:
    work = driver.until("ideate")
    assert steps.complete_ideate(driver.db, work.attempt_id, "me", [idea(n) for n in range(9)], [], driver.now)
    assert len(driver.nodes()) == 1 + 2 * 2


def test_a_repair_replaces_code_and_verdict(driver: Driver) -> None:
    work = driver.until("judge")
    assert steps.complete_judge(driver.db, work.attempt_id, "me", verdict("screen", "rejected"), driver.now)
    node = next(node for node in driver.nodes() if node.id == work.node.id)
    assert (node.state, node.verdict, node.gate) == ("judged", "rejected", "screen")
    repair = next(m for m in driver.advance() if driver.attempt(m.attempt_id).node_id == node.id)
    claimed = driver.claim(repair.attempt_id)
    assert steps.complete_code(driver.db, claimed.attempt_id, "me", source(99), "cpp", [], driver.now)
    node = next(row for row in driver.nodes() if row.id == node.id)
    assert (node.state, node.verdict, node.repairs, node.source) == ("coded", None, 1, source(99))
    with driver.db.reading() as session:
        verdicts = session.scalars(select(VerdictRow).where(VerdictRow.node_id == node.id)).all()
    assert [row.source for row in verdicts] == [work.node.source]


def test_a_failed_verification_dethrones_the_champion(driver: Driver) -> None:
    driver.luck.random = lambda: 1.0  # type: ignore[method-assign]
    work = driver.until("verify")
    assert driver.search().best_node_id == work.node.id
    wrong = verdict("verify", "rejected", gate="verify", reason="wrong on ragged")
    assert steps.complete_judge(driver.db, work.attempt_id, "me", wrong, driver.now)
    node = next(node for node in driver.nodes() if node.id == work.node.id)
    assert (node.verification, node.verdict, node.reason) == ("failed", "rejected", "wrong on ragged")
    search = driver.search()
    assert search.best_node_id not in (None, work.node.id)
    assert search.candidates == 4


@pytest.mark.parametrize(("low", "kept"), [(1.001, True), (0.999, False)])
def test_only_a_sure_speedup_is_kept(driver: Driver, low: float, kept: bool) -> None:
    driver.decide = small_policy(ideas=1, codes=1)
    driver.luck.random = lambda: 1.0  # type: ignore[method-assign]
    work = driver.until("verify")
    good = verdict("verify", score=1.05, low=low)
    assert steps.complete_judge(driver.db, work.attempt_id, "me", good, driver.now)
    assert driver.advance() == []
    search = driver.search()
    with driver.db.reading() as session:
        kernels = session.scalars(select(KernelRow)).all()
    assert len(kernels) == kept
    assert search.reason == ("all was played" if kept else "all was played; no candidate beat the baselines")
    assert ("kernel.kept" in driver.events()) == kept


def test_the_same_kernel_again_renews_the_evidence(db: Database) -> None:
    searches = [Driver(db, create(db)) for _ in range(2)]
    for driver in searches:
        driver.run()
    kernel = the_kernel(searches[0])
    assert kernel.search_id == searches[1].search_id
    with db.reading() as session:
        kept = session.scalars(select(EventRow.payload).where(EventRow.type == "kernel.kept")).all()
    assert [payload["kernel_id"] for payload in kept] == [kernel.id, kernel.id]


def test_a_step_that_cannot_be_done_ends_its_branch_alone(driver: Driver) -> None:
    work = driver.until("code")
    assert steps.give_up(driver.db, work.attempt_id, "me", "no\x00good", driver.now)
    node = driver.nodes()[work.node.seq]
    assert (node.state, node.reason) == ("closed", "no\ufffdgood")
    assert driver.attempt(work.attempt_id).state == "failed"
    assert steps.reconcile(driver.db, driver.now + 100, SETTINGS, driver.decide)
    assert driver.search().state == "running"


def test_ideas_that_do_not_come_end_no_node(driver: Driver) -> None:
    work = driver.until("ideate")
    assert steps.close_branch(driver.db, work.attempt_id, "me", "the pool has no reply", [], driver.now)
    assert driver.nodes()[0].ideation == "done"
    assert driver.advance() == []
    assert driver.search().state == "finished"
    assert driver.search().reason == "all was played; no candidate was judged"


def test_calls_are_recorded_with_the_step_that_made_them(driver: Driver) -> None:
    work = driver.until("code")
    before = driver.search()
    calls = [call(1, error="no code block"), call(1), call(2, reply=None, error="timeout", tokens=0)]
    assert steps.complete_code(driver.db, work.attempt_id, "me", source(1), "cpp", calls, driver.now)
    search = driver.search()
    assert search.model_calls == before.model_calls + 2, "a call that brought no reply spends nothing"
    assert search.tokens == before.tokens + 20
    assert search.cost_usd == before.cost_usd + 0.75
    with driver.db.reading() as session:
        rows = session.scalars(
            select(ModelCallRow).where(ModelCallRow.attempt_id == work.attempt_id).order_by(ModelCallRow.id)
        ).all()
    assert [(row.reply, row.error) for row in rows] == [("reply", "no code block"), ("reply", None), (None, "timeout")]


def test_a_model_that_stays_away_pauses_the_search_and_loses_nothing(driver: Driver) -> None:
    work = driver.until("code")
    pending = driver.attempt(work.attempt_id)
    for round_ in range(3):
        failed = [call(reply=None, error="503", tokens=0)]
        assert steps.defer(driver.db, work.attempt_id, "me", "503: away", 5.0, failed, driver.now, max_deferrals=2)
        assert driver.attempt(work.attempt_id).deferrals == round_ + 1
        if round_ < 2:
            assert driver.search().state == "running"
            assert steps.claim(driver.db, work.attempt_id, "me", LEASE_S, driver.now + 4.9) is None
            driver.now += 5.0
            sent = steps.reconcile(driver.db, driver.now, SETTINGS, driver.decide)
            assert work.attempt_id in [message.attempt_id for message in sent]
            driver.claim(work.attempt_id)
    search = driver.search()
    assert (search.state, search.reason) == ("paused", "503: away; it tries again by itself in 30 s")
    assert driver.advance() == []
    assert steps.reconcile(driver.db, driver.now + 29, SETTINGS, driver.decide) == []
    driver.now += 1000
    messages = steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    assert {pending.id} < {message.attempt_id for message in messages}
    assert driver.attempt(work.attempt_id).deferrals == 0
    assert driver.run(messages).state == "finished"
    assert driver.search().active_s < 100


def test_a_refused_key_pauses_at_once(driver: Driver) -> None:
    work = driver.until("ideate")
    assert steps.defer(driver.db, work.attempt_id, "me", "401", 5.0, [], driver.now, final=True)
    assert driver.search().state == "paused"
    assert driver.attempt(work.attempt_id).state == "pending"
    assert steps.reconcile(driver.db, driver.now + 1e6, SETTINGS, driver.decide) == []
    assert driver.search().state == "paused", "waiting does not mend a key"


def test_unreadable_replies_in_a_row_pause_the_search(driver: Driver) -> None:
    work = driver.until("code")
    unreadable = [call(n, error="no code block") for n in range(2)]
    assert steps.close_branch(driver.db, work.attempt_id, "me", "unreadable", unreadable, driver.now)
    assert driver.search().state == "running"
    assert driver.nodes()[work.node.seq].state == "closed"
    other = next(a for a in driver.attempts() if a.state == "pending")
    driver.claim(other.id)
    assert steps.close_branch(driver.db, other.id, "me", "unreadable", unreadable[:1], driver.now)
    assert driver.search().state == "paused"
    assert "the last 3 replies" in (driver.search().reason or "")
    assert driver.attempt(other.id).state == "pending"
    messages = steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    assert driver.run(messages).state == "finished"


def test_one_step_that_draws_nothing_readable_closes_its_branch_alone(driver: Driver) -> None:
    work = driver.until("code")
    unreadable = [call(n, error="no code block") for n in range(3)]
    assert steps.close_branch(driver.db, work.attempt_id, "me", "unreadable", unreadable, driver.now)
    assert driver.search().state == "running", "the request may be at fault: what others draw will tell"
    assert driver.nodes()[work.node.seq].state == "closed"


def test_a_pool_of_unreadable_replies_does_not_wait_for_somebody(db: Database) -> None:
    driver = Driver(db, create(db, model={"provider": "replay", "pool": "pl_1"}))
    work = driver.until("code")
    for attempt in [work.attempt_id, *(a.id for a in driver.attempts() if a.state == "pending")]:
        if attempt != work.attempt_id:
            driver.claim(attempt)
        unreadable = [call(n, error="no code block") for n in range(3)]
        assert steps.close_branch(db, attempt, "me", "unreadable", unreadable, driver.now)
    assert driver.run().state == "finished", "asked again, the pool would give the same replies for ever"


def test_the_ledger_keeps_what_a_verification_said_to_itself(db: Database) -> None:
    driver = Driver(db, create(db, policy={"name": "greedy", "repairs": 0}), next_steps)
    hidden = "workload holdout-1: y[3, 16] is 2, expected 1; 9 of 221 elements are wrong"
    for seq, word in enumerate(("rejected", "accepted"), start=1):
        work = driver.until("judge")
        screened = verdict("screen", score=2.0 * seq, reason=f"screened {seq}", compile={"kernels": [{"name": "k"}]})
        assert steps.complete_judge(db, work.attempt_id, "me", screened, driver.now)
        work = driver.until("verify")
        compiled = {"kernels": [{"name": "k"}, {"name": "for_the_hold_out"}]}
        told = verdict("verify", word, score=2.0 * seq, gate="verify", reason=hidden, compile=compiled)  # type: ignore[arg-type]
        assert steps.complete_judge(db, work.attempt_id, "me", told, driver.now)
    ledger = driver.until("ideate").ledger
    assert [(tried.verdict, tried.gate, tried.reason) for tried in ledger] == [
        ("rejected", "verify", None),
        ("accepted", "verify", None),
    ]
    assert [tried.built for tried in ledger] == [None, {"kernels": [{"name": "k"}]}]


def test_a_pool_miss_after_unreadable_replies_closes_its_branch(driver: Driver) -> None:
    work = driver.until("code")
    unreadable = [call(n, error="no code block") for n in range(3)]
    assert steps.complete_code(driver.db, work.attempt_id, "me", source(1), "cpp", unreadable, driver.now)
    other = next(a for a in driver.attempts() if a.state == "pending" and a.kind == "code")
    driver.claim(other.id)
    assert steps.close_branch(driver.db, other.id, "me", "the pool has no reply", [], driver.now)
    assert driver.search().state == "running"


def test_a_paused_search_opens_nothing_but_takes_what_runs(driver: Driver) -> None:
    work = driver.until("code")
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    steps.pause(driver.db, driver.search_id, "again", driver.now)
    assert driver.search().reason == "on request"
    other = next(a for a in driver.attempts() if a.state == "pending")
    assert steps.claim(driver.db, other.id, "me", LEASE_S, driver.now) is None
    assert steps.renew(driver.db, work.attempt_id, "me", LEASE_S, driver.now)
    assert driver.complete(work)
    assert driver.nodes()[work.node.seq].state == "coded"
    assert driver.advance() == []
    messages = steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    kinds = sorted(driver.attempt(message.attempt_id).kind for message in messages)
    assert kinds == ["code", "code", "code", "judge"]
    with pytest.raises(steps.WrongState, match="found running, expected paused"):
        steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    assert driver.run(messages).state == "finished"


def test_pauses_do_not_count_as_running_time(driver: Driver) -> None:
    driver.advance()
    driver.now += 10
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    driver.now += 1000
    steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    driver.now += 5
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    assert driver.search().active_s == 15.0


def test_a_queued_search_can_be_paused_and_cancelled(db: Database) -> None:
    paused, cancelled = create(db), create(db)
    steps.pause(db, paused, "on request", 1001.0)
    assert steps.advance(db, paused, 1002.0) == []
    assert len(steps.resume(db, paused, 1003.0)) == 1
    steps.cancel(db, cancelled, 1001.0)
    assert steps.advance(db, cancelled, 1002.0) == []


@pytest.mark.parametrize("kind", ["ideate", "code", "judge", "verify"])
def test_a_cancelled_search_discards_what_comes_later(driver: Driver, kind: str) -> None:
    work = driver.until(kind)
    steps.cancel(driver.db, driver.search_id, driver.now)
    steps.cancel(driver.db, driver.search_id, driver.now)
    calls = driver.search().model_calls
    assert not driver.complete(work)
    assert not steps.renew(driver.db, work.attempt_id, "me", LEASE_S, driver.now)
    assert driver.search().model_calls == calls
    assert driver.nodes()[work.node.seq].state == ("closed" if kind in ("code", "judge") else "judged")
    assert steps.advance(driver.db, driver.search_id, driver.now) == []
    assert steps.reconcile(driver.db, driver.now + 1e6, SETTINGS) == []
    with pytest.raises(steps.WrongState, match="found cancelled"):
        steps.resume(driver.db, driver.search_id, driver.now)
    with pytest.raises(steps.WrongState, match="found cancelled"):
        steps.pause(driver.db, driver.search_id, "?", driver.now)
    assert driver.events().count("search.cancelled") == 1


def test_a_finished_search_cannot_be_cancelled(driver: Driver) -> None:
    driver.run()
    with pytest.raises(steps.WrongState, match="found finished"):
        steps.cancel(driver.db, driver.search_id, driver.now)


def test_an_ask_waits_for_its_answer(driver: Driver) -> None:
    work = driver.until("code")
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(1), driver.now)
    assert driver.attempt(work.attempt_id).state == "waiting"
    assert steps.claim(driver.db, work.attempt_id, "me", LEASE_S, driver.now) is None
    with driver.db.reading() as session:
        [ask] = listing.list_asks(session, limit=10, state="open", search_id=driver.search_id).items
    assert ask.messages == [{"role": "user", "content": "what now?"}]
    [message] = steps.tell(driver.db, ask.id, "the answer", "a person", driver.now)
    assert message.attempt_id == work.attempt_id
    with pytest.raises(steps.WrongState, match="found answered, expected open"):
        steps.tell(driver.db, ask.id, "another", "a person", driver.now)
    assert driver.complete(driver.claim(work.attempt_id))


def test_an_answer_to_a_paused_search_is_kept_for_later(driver: Driver) -> None:
    work = driver.until("code")
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(1), driver.now)
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    with driver.db.reading() as session:
        [ask] = listing.list_asks(session, limit=10).items
    assert steps.tell(driver.db, ask.id, "the answer", None, driver.now) == []
    messages = steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    assert work.attempt_id in [message.attempt_id for message in messages]


def test_an_answer_that_lost_its_wake_up_is_found(driver: Driver) -> None:
    work = driver.until("code")
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(1), driver.now)
    with driver.db.writing() as session:
        session.scalars(select(AskRow)).one().state = "answered"
    sent = steps.reconcile(driver.db, driver.now, SETTINGS, driver.decide)
    assert work.attempt_id in [message.attempt_id for message in sent]
    assert driver.attempt(work.attempt_id).state == "pending"


def test_a_dead_workers_step_returns_and_is_given_up_in_the_end(driver: Driver) -> None:
    work = driver.until("code")
    for tries in range(1, SETTINGS.max_tries + 1):
        assert driver.attempt(work.attempt_id).tries == tries
        assert steps.reconcile(driver.db, driver.now + LEASE_S - 1, SETTINGS, driver.decide) is not None
        assert driver.attempt(work.attempt_id).state == "running"
        driver.now += LEASE_S + 1
        sent = [m.attempt_id for m in steps.reconcile(driver.db, driver.now, SETTINGS, driver.decide)]
        if tries < SETTINGS.max_tries:
            assert work.attempt_id in sent
            assert not driver.complete(work)
            driver.claim(work.attempt_id)
    assert driver.attempt(work.attempt_id).state == "failed"
    node = driver.nodes()[work.node.seq]
    assert (node.state, node.reason) == ("closed", "gave up after 3 tries: a worker died each time")
    assert driver.events().count("attempt.expired") == 2


def test_a_lease_that_is_renewed_does_not_expire(driver: Driver) -> None:
    work = driver.until("code")
    driver.now += LEASE_S - 1
    assert steps.renew(driver.db, work.attempt_id, "me", LEASE_S, driver.now)
    steps.reconcile(driver.db, driver.now + 2, SETTINGS, driver.decide)
    assert driver.attempt(work.attempt_id).state == "running"


def test_lost_messages_are_sent_again_ever_more_rarely(driver: Driver) -> None:
    [message] = driver.advance()
    start = driver.now

    def is_sent(second: int) -> bool:
        return steps.reconcile(driver.db, start + second, SETTINGS, driver.decide) == [message]

    sent = [second for second in range(0, 400, 10) if is_sent(second)]
    assert sent[:4] == [10, 20, 40, 80]
    assert {later - earlier for earlier, later in pairwise(sent[3:])} == {60}


def test_searches_that_stand_still_are_advanced(db: Database) -> None:
    driver = Driver(db, create(db))
    [message] = steps.reconcile(db, driver.now, SETTINGS, driver.decide)  # its creator died before the first step
    driver.step(message)  # and this worker before it asked for the next
    [message] = steps.reconcile(db, driver.now, SETTINGS, driver.decide)
    assert driver.attempt(message.attempt_id).kind == "ideate"
    assert driver.run([message]).state == "finished"


def test_expired_steps_of_a_paused_search_wait_for_its_resumption(driver: Driver) -> None:
    work = driver.until("code")
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    assert steps.reconcile(driver.db, driver.now + LEASE_S + 1, SETTINGS, driver.decide) == []
    assert driver.attempt(work.attempt_id).state == "pending"
    messages = steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    assert work.attempt_id in [message.attempt_id for message in messages]


def raises(*_: object) -> list[Step]:
    raise ZeroDivisionError("a fault of the policy")


@pytest.mark.parametrize(
    ("decide", "state", "reason"),
    [
        (raises, "failed", "the policy failed: ZeroDivisionError: a fault of the policy"),
        (
            lambda tree, *_: [Step("code", tree.nodes[0].id)],
            "failed",
            "the policy failed: it asked for code 0 on node #0",
        ),
        (lambda *_: [Step("judge", "nd_none")], "failed", "which is not in the tree"),
        (lambda *_: [], "finished", "the policy asked for nothing more"),
    ],
)
def test_a_faulty_policy_ends_its_search_with_the_reason(
    driver: Driver, decide: Callable[..., list[Step]], state: str, reason: str
) -> None:
    assert steps.advance(driver.db, driver.search_id, driver.now, decide) == []
    search = driver.search()
    assert search.state == state
    assert reason in (search.reason or "")


def test_a_step_that_was_done_is_not_opened_again(driver: Driver) -> None:
    def again(tree: Tree, *_: object) -> list[Step]:
        root = tree.nodes[0]
        ideate = Step("ideate", root.id, 1, {"ideas": 1, "codes": 1})
        return [Step("judge", root.id)] if root.state == "coded" else [ideate, ideate]

    driver.decide = again
    assert driver.complete(driver.claim(driver.advance()[0].attempt_id))
    [message] = driver.advance()
    assert driver.complete(driver.claim(message.attempt_id))
    assert driver.advance() == []
    search = driver.search()
    assert (search.state, search.round) == ("finished", 1)
    assert "asked for nothing more" in (search.reason or "")


def test_what_no_database_takes_is_stored_in_words(driver: Driver) -> None:
    work = driver.until("judge")
    failure = {"kind": "wrong_value", "message": "a\x00b", "found": float("nan"), "expected": float("inf")}
    bad = verdict("screen", "rejected", reason="\ud800", failure=failure)
    assert steps.complete_judge(driver.db, work.attempt_id, "me", bad, driver.now)
    with driver.db.reading() as session:
        document = session.scalars(select(VerdictRow.document).where(VerdictRow.level == "screen")).one()
    assert document["failure"] == {"kind": "wrong_value", "message": "a\ufffdb", "found": "nan", "expected": "inf"}
