"""A search joins candidates that win on different workloads, without a call to a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from sqlalchemy import select

from tests.support.steps_support import OP, TARGET, Driver, verdict
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.lineage import last_idea
from warpsmith.kernels_db.store.tables import KernelRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.search.policy import next_steps
from warpsmith.workers.search.tree import Step, Tree

TWO_SIZES = parse_op(
    OP.model_dump(mode="json", exclude_none=True)
    | {
        "name": "add_relu_twice",
        "workloads": [
            {"id": "large", "role": "bench", "axes": {"n": 1048576}},
            {"id": "small", "role": "bench", "axes": {"n": 4096}},
        ],
    }
)
VerdictOf: TypeAlias = Callable[[str], Verdict]

POLICY = {"name": "idea_beam", "beam": 2, "ideas": 1, "rounds": 1, "max_rounds": 1, "repairs": 1, "joins": True}
KERNEL = """from kernels_db.runtime import cpp

kernels = cpp.compile("int number = {number};")


def run(x, y, out):
    kernels.add_relu(x, y, out, out.numel())
"""


class Leaning(Driver):
    """Candidates lead on the large workload and on the small one in turn; a join has the better of both."""

    joined: VerdictOf

    def complete(self, work: steps.Work, owner: str = "me", also: steps.Following | None = None) -> bool:
        """Bring sources that can be joined, and verdicts on both workloads."""
        self.now += 1.0
        if work.kind == "code":
            self.sources += 1
            text = KERNEL.format(number=self.sources)
            return steps.complete_code(self.db, work.attempt_id, owner, text, "cpp", [], self.now, also)
        if work.level is None:
            return super().complete(work, owner, also)
        return steps.complete_judge(self.db, work.attempt_id, owner, self.found(work), self.now, also)

    def found(self, work: steps.Work) -> Verdict:
        """Return the verdict on a node."""
        level = str(work.level)
        if level == "baseline":
            return both(level, 1.0, 1.0)
        if self.nodes()[work.node.seq].joins is not None:
            return self.joined(level)
        return both(level, 3.0, 1.0) if work.node.seq % 2 else both(level, 1.0, 2.0)


def both(level: str, large: float, small: float, **changes: Any) -> Verdict:
    """A verdict on the two workloads."""
    entries = [
        {**verdict(level, score=speedup)["workloads"][0], "id": name}
        for name, speedup in (("large", large), ("small", small))
    ]
    return verdict(level, score=(large * small) ** 0.5, workloads=entries, **changes)


def driver(db: Database, joined: VerdictOf) -> Leaning:
    """A search whose joins get this verdict."""
    search_id = steps.create_search(
        db, TWO_SIZES, TARGET, language="cpp", policy=POLICY, budget={}, model={"provider": "agent"}, now=1000.0
    )
    found = Leaning(db, search_id, next_steps)
    found.joined = joined
    return found


def test_the_join_of_two_winners_is_judged_and_wins(db: Database) -> None:
    played = driver(db, lambda level: both(level, 3.0, 2.0))
    search = played.run()
    assert search.state == "finished"
    (joined,) = [node for node in played.nodes() if node.joins is not None]
    assert (joined.origin, joined.joins, joined.state, joined.verification) == ("joined", "1,2", "judged", "passed")
    assert search.best_node_id == joined.id
    assert joined.parent_id == played.nodes()[1].id
    assert joined.source is not None
    assert "if x.shape[0] <= 65536:\n        run_2(x, y, out)" in joined.source
    assert joined.idea is not None
    assert joined.idea["title"] == "Join #1 and #2 by size"
    assert {attempt.kind for attempt in played.attempts() if attempt.node_id == joined.id} == {"judge", "verify"}
    assert search.candidates == 3
    assert played.events().count("node.coded") == 3
    with db.reading() as session:
        (kernel,) = session.scalars(select(KernelRow))
    assert [step["origin"] for step in kernel.lineage] == ["model", "model", "model", "joined"]
    assert last_idea(kernel.lineage) == played.nodes()[2].idea


def test_a_join_that_is_wrong_is_left_at_that(db: Database) -> None:
    played = driver(db, lambda level: both(level, 3.0, 2.0, verdict="rejected", gate="screen"))
    search = played.run()
    (joined,) = [node for node in played.nodes() if node.joins is not None]
    assert (joined.verdict, joined.repairs) == ("rejected", 0)
    assert search.state == "finished"
    assert search.best_node_id == played.nodes()[1].id


def test_candidates_that_make_no_file_together_close_the_node_with_the_reason(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.KERNEL", KERNEL.replace("kernels = ", "run_2 = 1; kernels = "))
    played = driver(db, lambda level: both(level, 3.0, 2.0))
    search = played.run()
    (joined,) = [node for node in played.nodes() if node.joins is not None]
    assert (joined.state, joined.source, joined.idea) == ("closed", None, None)
    assert joined.reason == "#1 has two statements in line 3"
    assert (search.state, search.candidates) == ("finished", 2)


def test_a_policy_cannot_join_what_is_not_there(db: Database) -> None:
    played = driver(db, lambda level: both(level, 3.0, 2.0))

    def wrong(tree: Tree, *_: object) -> list[Step]:
        if tree.nodes[0].state == "coded":
            return [Step("judge", tree.nodes[0].id)]
        return [Step("join", tree.nodes[0].id, 1, {"parts": "7,9"})]

    played.decide = wrong
    search = played.run()
    assert search.state == "failed"
    assert "a join of 7,9" in (search.reason or "")


def test_requests_show_a_part_rather_than_the_join(db: Database) -> None:
    played = driver(db, lambda level: both(level, 3.0, 2.0))
    with db.writing() as session:
        search = session.get_one(SearchRow, played.search_id)
        search.policy = {**POLICY, "rounds": 2, "max_rounds": 2}
    waiting = played.advance()
    for _ in range(100):
        message = waiting.pop(0)
        work = played.claim(message.attempt_id)
        if work.kind == "ideate" and work.params["round"] == 2:
            break
        assert played.complete(work)
        waiting += played.advance()
    else:
        pytest.fail("no second round came")
    context = request_context(work)
    assert context.best is not None
    assert context.best.seq == 1
    assert context.parent is not None
    assert context.other is not None
    assert {context.parent.seq, context.other.seq} == {1, 2}
    assert any("Join #1 and #2" in entry.title for entry in context.ledger)
