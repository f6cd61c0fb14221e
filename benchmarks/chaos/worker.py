"""The real worker with the judge of `benchmarks.chaos.judge`: `celery -A benchmarks.chaos.worker worker ...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.chaos import judge
from warpsmith.workers.judge.protocol.client import JudgeClient, judge_environment
from warpsmith.workers.judge.protocol.connection import Connection
from warpsmith.workers.queue import celery_app
from warpsmith.workers.queue.process import WorkerProcess

app = celery_app.app

REPOSITORY = Path(__file__).parents[2]


class KnowingJudge(JudgeClient):
    """The client of a judge that answers at once."""

    def _connect(self) -> Connection:
        command = [sys.executable, "-P", "-m", judge.__name__, "--die-with-parent", str(os.getpid())]
        return Connection(command, self._environment, self._log)

    def _environment(self, home: Path) -> dict[str, str]:
        found = judge_environment(self._cache, home)
        return found | {"PYTHONPATH": f"{found['PYTHONPATH']}:{REPOSITORY}"}


def _judge(self: WorkerProcess) -> JudgeClient:
    if self._judge is None:
        self._judge = KnowingJudge(cache=self.settings.judge_cache_dir)
    return self._judge


WorkerProcess.judge = _judge  # type: ignore[method-assign] # the one part that is not the real one
