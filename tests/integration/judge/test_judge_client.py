"""Many threads share one judge process: a scripted one for what a judge may do, a real one for what it does."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY, judging
from tests.support.waiting import wait_until
from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.workers.judge.protocol.client import (
    MOST_SENDS,
    JobRefused,
    JudgeClient,
    JudgeDied,
    JudgeTimeout,
    judge_environment,
)
from warpsmith.workers.judge.protocol.connection import Connection

SCRIPTED = """
import json, os, sys, time
life = int(open(sys.argv[1]).read() or 0) if os.path.exists(sys.argv[1]) else 0
open(sys.argv[1], "w").write(str(life + 1))
waiting, judging = {}, set()
def say(**document):
    sys.stdout.write(json.dumps(document) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    job = json.loads(line)
    if "cancel" in job:
        word = "judging" if job["cancel"] in judging else "dropped" if job["cancel"] in waiting else "unknown"
        if not waiting.get(job["cancel"], {}).get("deaf"):
            say(id=job["cancel"], cancel=word)
        continue
    do = job["do"]
    if isinstance(do, list):
        do = do[min(life, len(do) - 1)]
    waiting[job["id"]] = job
    if do == "hold" and len(waiting) != job.get("holds"):
        continue
    if do == "hold":  # all that are to be held together are here
        do = job["then"]
    if do == "judge":
        judging.add(job["id"])
    elif do == "answer all":
        for name in reversed(waiting):
            say(id=name, verdict="accepted", life=life, echo=waiting[name]["name"])
        waiting.clear()
    elif do == "progress":
        say(id=job["id"], progress={"gate": "compile"})
        say(id=job["id"], progress={"gate": "time"})
        say(id=job["id"], verdict="accepted")
    elif do == "refuse":
        say(id=job["id"], error={"field": "level", "found": 1, "expected": "a level"})
    elif do == "fault":
        say(id=job["id"], fault="Traceback: ours")
    elif do == "junk":
        print("not json", flush=True)
    elif do == "nobody's":
        say(id="somebody", verdict="accepted")
    elif isinstance(do, int):
        sys.stderr.write("the last words\\n")
        sys.exit(do)
"""


class Scripted(JudgeClient):
    """A client whose judge follows its jobs' orders."""

    def __init__(self, place: Path) -> None:
        super().__init__(cache=place)
        self.place = place
        self.started = 0

    def _connect(self) -> Connection:
        self.started += 1
        command = [sys.executable, "-c", SCRIPTED, str(self.place / "lives")]
        return Connection(command, lambda home: judge_environment(self.place, home), None)

    def do(self, do: Any, name: str = "", **options: Any) -> dict[str, Any]:
        """The answer to a job that orders something."""
        job: Any = {"id": "same", "do": do, "name": name, "deaf": options.pop("deaf", False)}
        return dict(self.judge(job, **{"timeout_s": 60, **options}))

    def hold(self, count: int, then: Any, name: str) -> dict[str, Any]:
        """The answer to one of `count` jobs that are held until the judge has all of them, which it then does `then`
        with."""
        job: Any = {"id": "same", "do": "hold", "holds": count, "then": then, "name": name}
        return dict(self.judge(job, timeout_s=60))


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    client = Scripted(tmp_path)
    with client:
        yield client


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` returns or raises, called from `count` threads at once."""

    def guarded(number: int) -> Any:
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(guarded, range(count)))


def test_answers_go_to_who_asked_in_whatever_order_they_come(scripted: Scripted) -> None:
    answers = together(9, lambda number: scripted.hold(9, "answer all", str(number)))
    assert [answer["echo"] for answer in answers] == [str(number) for number in range(9)]
    assert {answer["id"] for answer in answers} == {"same"}
    assert scripted.started == 1


def test_a_judge_that_asks_for_another_gets_one_without_an_error(scripted: Scripted) -> None:
    assert scripted.do([75, "answer all"])["life"] == 1
    assert scripted.do("answer all")["life"] == 1
    with pytest.raises(JudgeDied, match="status 75\nthe last words"):
        scripted.do(75)
    assert scripted.started == 2 + MOST_SENDS - 1


def test_a_judge_that_dies_fails_all_and_the_next_job_finds_another(scripted: Scripted) -> None:
    answers = together(4, lambda number: scripted.hold(4, 3, str(number)))
    assert [type(answer) for answer in answers] == [JudgeDied] * 4
    assert "status 3" in str(answers[0])
    assert "the last words" in str(answers[0])
    assert scripted.do("answer all")["life"] == 1


def test_a_job_that_only_waits_is_taken_back_and_the_judge_lives(scripted: Scripted) -> None:
    def cut() -> None:
        raise InterruptedError("nobody wants it")

    assert scripted.do("answer all")["life"] == 0  # it runs, so that it says in time what it is at
    with pytest.raises(JudgeTimeout):
        scripted.do("hold", timeout_s=0.2)
    with pytest.raises(InterruptedError, match="nobody wants it"):
        scripted.do("hold", on_wait=cut)
    assert scripted.do("answer all")["life"] == 0


@pytest.mark.parametrize("deaf", [False, True])
def test_a_judge_at_work_on_what_nobody_wants_is_killed_and_others_are_sent_again(
    scripted: Scripted, deaf: bool
) -> None:
    def ask(number: int) -> dict[str, Any]:
        if number == 0:
            return scripted.do("hold" if deaf else "judge", timeout_s=1.0, deaf=deaf)
        return scripted.do(["hold", "answer all"], name=str(number))

    answers = together(3, ask)
    assert isinstance(answers[0], JudgeTimeout)
    assert [answer["life"] for answer in answers[1:]] == [1, 1]
    assert {answer["echo"] for answer in answers[1:]} == {"1", "2"}


def test_refusals_and_faults_are_one_jobs(scripted: Scripted) -> None:
    with pytest.raises(JobRefused, match="level: found 1, expected a level"):
        scripted.do("refuse")
    with pytest.raises(JudgeDied, match="Traceback: ours"):
        scripted.do("fault")
    with pytest.raises(JobRefused, match="id: found None"):
        scripted.judge({}, timeout_s=1)  # type: ignore[typeddict-item]  # it is the point
    assert scripted.do("answer all")["life"] == 0


@pytest.mark.parametrize(("do", "said"), [("junk", "not JSON"), ("nobody's", "which nobody sent")])
def test_a_judge_that_talks_nonsense_is_ended(scripted: Scripted, do: str, said: str) -> None:
    with pytest.raises(JudgeDied, match=said):
        scripted.do(do)
    assert scripted.do("answer all")["life"] == 1


# A real judge

ENDLESS = "volatile int go = 1; while (go) {}"


def norm_job(body: str, number: int = 0, call_s: float = 10.0) -> Job:
    """A layer norm candidate whose source no other has."""
    source = judging.norm_candidate(f"/* {number} */ {body}")
    return judging.job(judging.LAYER_NORM, judging.LAYER_NORMS, source, call_s=call_s)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge-cache")


def test_verdicts_of_jobs_sent_at_once_go_to_the_right_threads(judge: JudgeClient) -> None:
    def ask(number: int) -> tuple[Job, Verdict]:
        job = norm_job(judging.ALL_ROWS if number % 2 else "y[0] = 1;", number)
        return job, judge.judge(job, timeout_s=120)

    seen = together(6, ask)
    for number, (job, verdict) in enumerate(seen):
        assert verdict["id"] == job["id"]
        assert verdict["verdict"] == ("accepted" if number % 2 else "rejected"), verdict["reason"]


@pytest.mark.nightly
def test_cuda_candidates_compile_beside_each_other(cache: Path) -> None:
    source = (REPOSITORY / "tests" / "candidates" / "add_relu_cuda.py").read_text()
    inputs = [judging.tensor("x", (64,)), judging.tensor("bias", (64,))]
    place = judging.workload("bench", "bench", inputs, [judging.output("y", (64,))])
    reference = "import torch\n\ndef run(x, bias):\n    return torch.relu(x + bias)\n"
    with JudgeClient(cache=cache) as client:

        def ask(number: int) -> Verdict:
            text = source.replace('extern "C"', f'// {number}\nextern "C"' + ("!" if number == 3 else ""), 1)
            job = judging.job(reference, [place], text, language="cuda", target="cuda:sm_90")
            return client.judge(job, timeout_s=120)

        verdicts = together(6, ask)
        assert [verdict["gate"] == "compile" for verdict in verdicts] == [number == 3 for number in range(6)], [
            verdict["reason"] for verdict in verdicts
        ]
        assert all(verdict["compile"] and not verdict["compile"]["cached"] for verdict in verdicts[:3])
        assert client.judge(
            judging.job(reference, [place], source.replace('extern "C"', '// 0\nextern "C"', 1),
                        language="cuda", target="cuda:sm_90"), timeout_s=60
        )["compile"]["cached"]  # type: ignore[index]  # fmt: skip


@pytest.mark.nightly
def test_one_jobs_timeout_costs_no_other_its_verdict(cache: Path) -> None:
    with JudgeClient(cache=cache) as client:

        def ask(number: int) -> Verdict:
            if number == 0:
                return client.judge(norm_job(ENDLESS, call_s=300.0), timeout_s=8)
            time.sleep(0.5)
            return client.judge(norm_job(judging.ALL_ROWS, 10 + number), timeout_s=120)

        answers = together(3, ask)
        assert isinstance(answers[0], JudgeTimeout)
        assert [answer["verdict"] for answer in answers[1:]] == ["accepted", "accepted"]


@pytest.mark.nightly
def test_a_killed_judge_tells_all_who_wait_and_leaves_nothing(cache: Path) -> None:
    with JudgeClient(cache=cache) as client:
        client.start()
        judge = client.pid
        assert judge is not None
        wait_until(lambda: judging.fork_server_of(judge) is not None, 60)

        def ask(number: int) -> Verdict | None:
            if number == 0:
                wait_until(lambda: len(judging.runners_of(judge)) >= 2, 60)
                os.kill(judge, signal.SIGKILL)
                return None
            return client.judge(norm_job(ENDLESS, number, call_s=300.0), timeout_s=60)

        answers = together(4, ask)
        assert [type(answer) for answer in answers[1:]] == [JudgeDied] * 3
        assert client.judge(norm_job(judging.ALL_ROWS, 20), timeout_s=120)["verdict"] == "accepted"
        assert client.pid != judge
        assert not judging.alive(judge)


@dataclass
class Left:
    """A judge that a thread started which has ended since, and what it told of its jobs."""

    client: JudgeClient
    pid: int
    told: list[tuple[str, Progress]]


@pytest.fixture(scope="module")
def left(judge_cache: Path) -> Iterator[Left]:
    told: list[tuple[str, Progress]] = []
    with JudgeClient(cache=judge_cache, progress=lambda job, where: told.append((job, where))) as client:
        pids: list[int] = []

        def ask() -> None:
            client.judge(norm_job(judging.ALL_ROWS, 30), timeout_s=120)
            assert client.pid is not None
            pids.append(client.pid)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        yield Left(client, pids[0], told)


def test_progress_tells_the_gates_in_their_order_and_each_workload(left: Left) -> None:
    job = norm_job(judging.ALL_ROWS, 40)
    assert left.client.judge(job, timeout_s=120)["verdict"] == "accepted"
    told = [(name, where) for name, where in left.told if name == job["id"]]
    assert {name for name, _ in left.told} - {job["id"]}, "and those of the job before under its own id"
    gates = list(dict.fromkeys(where["gate"] for _, where in told))
    assert gates == ["gate", "compile", "memory", "reference", "screen", "time"]
    timed = [(where["workload"], where["total"]) for _, where in told if where["gate"] == "time" and where["number"]]
    assert timed == [(job["workloads"][0]["id"], len(job["workloads"]))]


def test_a_progress_function_that_raises_is_logged_once_and_the_answers_come(
    tmp_path: Path, logged: list[logging.LogRecord]
) -> None:
    told: list[Any] = []

    def progress(_: str, where: Any) -> None:
        told.append(where)
        raise ValueError("a broken pipe of the caller")

    command = [sys.executable, "-c", SCRIPTED, str(tmp_path / "lives")]
    connection = Connection(command, lambda home: judge_environment(tmp_path, home), None, progress)
    try:
        waiting = connection.ask({"id": "one", "do": "progress"})
        assert waiting.done.wait(20)
        assert waiting.document == {"id": "one", "verdict": "accepted"}
        assert told == [{"gate": "compile"}]
        assert len(logged) == 1
        assert "a broken pipe of the caller" in logging.Formatter().format(logged[0])
    finally:
        connection.kill()


def test_the_judge_outlives_the_thread_that_asked_first(left: Left) -> None:
    """Linux's death signal would have come with the end of a thread that had started it itself."""
    assert left.client.judge(norm_job(judging.ALL_ROWS, 31), timeout_s=120)["verdict"] == "accepted"
    assert left.client.pid == left.pid
