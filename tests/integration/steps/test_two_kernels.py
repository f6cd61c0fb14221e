"""An idea that names another candidate is coded with that one at hand."""

from __future__ import annotations

from tests.support.steps_support import Driver, create, idea, source
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import NodeRow
from warpsmith.workers.llm.prompt.requests import build
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.steps.claims import read_work


def candidate(search_id: str, parent_id: str, seq: int, **changes: object) -> NodeRow:
    """An accepted candidate on the root."""
    values: dict[str, object] = {"verdict": "accepted", "source": source(seq), "source_digest": f"d{seq}", **changes}
    return NodeRow(
        id=f"nd_{seq}",
        search_id=search_id,
        seq=seq,
        parent_id=parent_id,
        round=1,
        state="judged",
        language="cpp",
        idea=idea(seq),
        created_at=1.0,
        updated_at=1.0,
        **values,
    )


def test_the_first_candidate_that_is_usable_is_at_hand(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")
    root = driver.nodes()[0]
    with db.writing() as session:
        session.add_all(
            [
                candidate(work.search_id, root.id, 101),
                candidate(work.search_id, root.id, 102),
                candidate(work.search_id, root.id, 103, mark="banned"),
                candidate(work.search_id, root.id, 104, verdict="rejected"),
            ]
        )
        node = session.get_one(NodeRow, work.node.id)
        node.parent_id = "nd_101"
        node.idea = idea(1) | {"mechanism": "large sizes as #103, #104, #999 and #102 do, else as #101"}
    again = read_work(db, work.attempt_id, driver.now)
    assert again.other is not None
    assert again.other.seq == 102, "not the parent, not a banned, wrong or unknown one"
    text = build(request_context(again)).messages[1]["content"]
    assert "## The other kernel that the idea names (#102)" in text
    assert source(102) in text
    with db.writing() as session:
        session.get_one(NodeRow, work.node.id).idea = idea(1)
    assert read_work(db, work.attempt_id, driver.now).other is None
