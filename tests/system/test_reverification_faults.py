"""Two judge workers serve the queue; one is killed while it judges a stored kernel anew. The other one does it, nothing
is lost, and nothing is judged twice. Real processes, a real broker, a real judge."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.services import RedisServer, migrate
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from tests.support.reverifying import history, keep, kernel, report_judge
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ReverificationRow
from warpsmith.workers import reverification
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings

PATIENCE_S = 240.0


class TwoJudges(Fleet):
    """A fleet whose `judge-2` serves the queue of `judge`."""

    def command(self, name: str) -> list[str]:
        """How process `name` is started."""
        if name != "judge-2":
            return super().command(name)
        return [word.replace("judge@", "judge-2@") for word in super().command("judge")]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_kill_amid_the_judging_loses_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    url = f"sqlite:///{tmp_path / 'library.db'}"
    db = Database(url)
    migrate(db)
    source = scenario.candidate(scenario.LOOP)
    kernels = [keep(db, scenario.op(), source, at=float(number), evidence={}) for number in range(2)]
    settings = Settings(broker_url=redis_server.url)
    app = make_app(settings)

    def rows() -> list[ReverificationRow]:
        with db.reading() as session:
            return list(session.scalars(select(ReverificationRow).order_by(ReverificationRow.id)))

    def running() -> ReverificationRow | None:
        return next((row for row in rows() if row.state == "running"), None)

    with TwoJudges(tmp_path / "home", redis_server.url, url) as fleet:
        report_judge(db, 0.0, time.time())  # what the workers say once they are up
        messages = reverification.sweep(db, time.time(), settings)
        assert [row.kernel_id for row in rows()] == kernels
        # The first message is lost before anybody gets it: the reconciler sends it again.
        assert dispatch.send_reverifications(app, messages[1:]) == 1
        fleet.start("judge", "judge-2", "reconciler")
        wait_until(lambda: running() is not None, PATIENCE_S, lambda: f"a claim\n{fleet.logs()}")
        taken = running()
        assert taken is not None
        fleet.kill(str(taken.owner).partition("@")[0])
        wait_until(
            lambda: all(row.state == "done" for row in rows()), PATIENCE_S, lambda: f"the results\n{fleet.logs()}"
        )
        assert "re-verified" in fleet.log("judge") + fleet.log("judge-2")
        told = (fleet.log("judge") + fleet.log("judge-2")).count('"event": "re-verified"')
    assert told == len(kernels)
    assert [row.outcome for row in rows()] == ["holds", "holds"], [row.reason for row in rows()]
    assert next(row for row in rows() if row.id == taken.id).tries == 2
    for kernel_id in kernels:
        assert kernel(db, kernel_id).standing == "holds"
        assert len(history(db, kernel_id)) == 1
    assert {row.fingerprint for row in rows()} == {rows()[0].fingerprint}
    report_judge(db, 0.0, time.time(), TARGET)
    assert reverification.sweep(db, time.time(), settings) == []
    db.dispose()
