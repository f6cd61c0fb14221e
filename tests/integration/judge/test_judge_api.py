"""`warpsmith.Judge`: a scripted judge process for what may go wrong, a real one for what it does."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import REPOSITORY
from tests.support import scenario
from tests.support.waiting import wait_until
from warpsmith import Judge, JudgeClosed, SpecError, SpecErrors, load_op
from warpsmith.workers.judge.protocol.client import JudgeClient, judge_environment
from warpsmith.workers.judge.protocol.connection import Connection
from warpsmith.workers.judging.judgement import Judgement

QUICK = {"time_s": 0.05}
GOOD = scenario.candidate(scenario.LOOP)
WRONG = scenario.candidate(scenario.WRONG)

SCRIPTED = """
import json, os, sys
verdict = json.load(open(sys.argv[1]))
life = sum(1 for _ in open(sys.argv[2])) if os.path.exists(sys.argv[2]) else 0
open(sys.argv[2], "a").write(f"{os.getpid()}\\n")
jobs, at_work = [], None
def say(**document):
    print(json.dumps(document), flush=True)
def go_on():
    global at_work
    while at_work is None and jobs:
        job = jobs.pop(0)
        words = job["candidate"]["source"].split()
        if "hang" in words:
            at_work = job["id"]
            open(sys.argv[2] + ".hangs", "a").write(at_work + "\\n")
        elif "die" in words:
            sys.stderr.write("the last words\\n")
            sys.stderr.flush()
            os._exit(9)
        elif "fragile" in words and life == 0:
            os._exit(75)
        else:
            say(**verdict | {"id": job["id"], "reason": job["candidate"]["source"], "life": life})
for line in sys.stdin:
    job = json.loads(line)
    if "cancel" in job:
        waits = [one for one in jobs if one["id"] == job["cancel"]]
        jobs = [one for one in jobs if one not in waits]
        say(id=job["cancel"], cancel="dropped" if waits else "judging" if job["cancel"] == at_work else "unknown")
        continue
    jobs.append(job)
    go_on()
"""
"""Takes one job at a time, as a judge for a CPU does; a candidate's words say what becomes of it."""

VERDICT = {
    "verdict": "accepted",
    "gate": "time",
    "op": "scale_shift",
    "target": "cpu",
    "failure": None,
    "score": 2.0,
    "score_ci95": [1.5, 2.5],
}


class ScriptedClient(JudgeClient):
    def __init__(self, place: Path) -> None:
        super().__init__(cache=place)
        self.place = place
        (place / "verdict").write_text(json.dumps(VERDICT))

    def _connect(self) -> Connection:
        command = [sys.executable, "-S", "-c", SCRIPTED, str(self.place / "verdict"), str(self.place / "lives")]
        return Connection(command, lambda home: judge_environment(self.place, home), None)

    def lives(self) -> int:
        """How many judges there were."""
        return len((self.place / "lives").read_text().splitlines())

    def hangs(self) -> bool:
        """Whether a judge is or was at work on a candidate that hangs."""
        return (self.place / "lives.hangs").is_file()


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    """A judge whose process follows the candidates' words."""
    monkeypatch.setattr("warpsmith.workers.judging.judge.JudgeClient", lambda **_: ScriptedClient(tmp_path))
    with Judge() as judge:
        yield judge


def lives(judge: Judge) -> int:
    assert isinstance(judge._client, ScriptedClient)
    return judge._client.lives()


def test_one_that_takes_too_long_is_ended_and_those_behind_it_lose_nothing(scripted: Judge) -> None:
    """A judge's start counts as its first candidate's time, so that is not too short."""
    told = list(scripted.map(scenario.OP, ["a", "hang", "b", "hang", "c"], language="cpp", timeout=1.5))
    assert [one.unjudged for one in told] == [None, "timeout", None, "timeout", None]
    assert [one.reason for one in told if one.accepted] == ["a", "b", "c"]
    assert told[1].reason == "no verdict within 1.5 s"


@pytest.mark.nightly
def test_more_that_hang_than_a_job_is_sent_by_its_client(scripted: Judge) -> None:
    told = list(scripted.map(scenario.OP, [*["hang"] * 5, "last"], language="cpp", timeout=0.2))
    assert [one.unjudged for one in told] == ["timeout"] * 5 + [None]


def test_a_judge_that_dies_is_said_and_another_goes_on(scripted: Judge) -> None:
    died = scripted(scenario.OP, "die", language="cpp")
    assert (died.unjudged, died.verdict, died.accepted, died.speedup) == ("died", None, False, None)
    assert "the last words" in died.reason
    assert json.loads(died.to_json())["unjudged"] == "died"
    assert scripted(scenario.OP, "next", language="cpp").accepted
    assert scripted(scenario.OP, "fragile", language="cpp").accepted  # by a judge that lives already
    assert lives(scripted) == 2


def test_as_completed_names_each_and_takes_only_as_many_as_are_under_way(scripted: Judge) -> None:
    taken: list[int] = []

    def sources() -> Iterator[str]:
        for number in range(20):
            taken.append(number)
            yield f"{number}"

    found = scripted.as_completed(scenario.OP, sources(), at_once=3, language="cpp")
    first = next(found)
    assert first[1].reason == str(first[0])
    assert len(taken) == 3
    rest = dict(found)
    assert {number: one.reason for number, one in rest.items()} == {n: str(n) for n in range(20) if n != first[0]}


def test_an_iterator_that_is_closed_takes_the_rest_back(scripted: Judge) -> None:
    def given() -> Iterator[str]:
        """The judge has done with the first before it gets the second: which of two is sent first, chance decides."""
        yield "a"
        wait_until(lambda: scripted._client.pid is not None and scripted._line.wait_until_empty(0.0), 60)
        yield from ("hang", "b")

    found = scripted.map(scenario.OP, given(), language="cpp")
    assert next(found).reason == "a"
    found.close()  # type: ignore[attr-defined] # a generator
    assert scripted(scenario.OP, "after", language="cpp").accepted


def test_a_cancelled_task_takes_its_candidate_back(scripted: Judge) -> None:
    async def impatient() -> list[Judgement]:
        task = asyncio.create_task(scripted.ajudge(scenario.OP, "hang", language="cpp"))
        client = scripted._client
        assert isinstance(client, ScriptedClient)
        await asyncio.to_thread(wait_until, client.hangs, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await asyncio.gather(*(scripted.ajudge(scenario.OP, f"{n}", language="cpp") for n in range(20)))

    assert [one.reason for one in asyncio.run(impatient())] == [str(number) for number in range(20)]
    assert lives(scripted) == 2


def test_closing_ends_those_who_wait_and_starts_nothing_again(scripted: Judge) -> None:
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            scripted(scenario.OP, "hang", language="cpp")
        except JudgeClosed as error:
            raised.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: scripted._client.pid is not None, 30)
    pid = scripted._client.pid
    assert pid is not None
    scripted.close()
    for thread in threads:
        thread.join(30)
    assert len(raised) == 3
    assert not psutil.pid_exists(pid)
    for call in (lambda: scripted(scenario.OP, "a", language="cpp"), lambda: scripted.map(scenario.OP, ["a"])):
        with pytest.raises(JudgeClosed):
            call()


def test_a_judge_that_is_let_go_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpsmith.workers.judging.judge.JudgeClient", lambda **_: ScriptedClient(tmp_path))
    judge = Judge()
    assert judge(scenario.OP, "a", language="cpp").accepted
    pid = judge._client.pid
    assert pid is not None
    del judge
    gc.collect()
    assert not psutil.pid_exists(pid)


def test_a_judge_is_of_the_process_that_made_it(scripted: Judge) -> None:
    assert scripted(scenario.OP, "a", language="cpp").accepted
    owner = scripted._owner
    try:
        scripted._owner = owner + 1  # as a forked child sees it
        with pytest.raises(JudgeClosed, match="make one in each process"):
            scripted(scenario.OP, "a", language="cpp")
    finally:
        scripted._owner = owner


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"level": "fast"}, "level: found 'fast', expected one of screen, verify, profile"),
        ({"level": "baseline"}, "level: found 'baseline'"),
        (
            {"language": "rust"},
            "language: found 'rust', expected one of cpp, triton, cuda, gluon, cute, tilelang, python",
        ),
        ({"language": None}, "source: imports: found 'no kernel language'"),
        ({"target": "tpu"}, "target: found 'tpu'"),
        ({"target": "cuda:sm_90"}, "target: found 'cuda:sm_90', expected cpu for a cpp candidate"),
        ({"workloads": ["none"]}, "workload: found 'none', expected one of even, odd"),
        ({"workloads": "even"}, "workloads: found 'even', expected a list of ids"),
        ({"timeout": 0}, "timeout: found 0, expected seconds, more than 0"),
        ({"timeout": float("nan")}, "timeout: found 'nan'"),
        ({"source": 7}, "source: found 'a int'"),
        ({"op": 7}, "op: found 'a int'"),
        ({"op": "nothing.yaml"}, "op: found 'nothing.yaml', expected a file that exists"),
    ],
)
def test_a_bad_argument_is_named(scripted: Judge, changes: dict[str, Any], field: str) -> None:
    given: dict[str, Any] = {"op": scenario.OP, "source": "text", "language": "cpp"} | changes
    with pytest.raises((SpecError, SpecErrors)) as raised:
        scripted(given.pop("op"), given.pop("source"), **given)
    assert field in str(raised.value)


def test_bad_settings_of_a_judge_are_named() -> None:
    for limits, message in (
        ({"tiem_s": 1.0}, "limits.tiem_s: found 1.0, expected one of compile_s, call_s, time_s, memory_bytes"),
        ({"time_s": 0}, "limits.time_s: found 0, expected seconds"),
        ({"memory_bytes": 0.5}, "limits.memory_bytes: found 0.5, expected bytes"),
    ):
        with pytest.raises(SpecError) as raised:
            Judge(limits=limits)
        assert message in str(raised.value)
    with Judge() as judge, pytest.raises(SpecError, match="at_once: found 0"):
        judge.map(scenario.OP, [], at_once=0)


def test_an_op_is_taken_in_each_of_its_forms(scripted: Judge, tmp_path: Path) -> None:
    op = load_op(scenario.OP)
    path = tmp_path / "op.yaml"
    path.write_text(scenario.OP)
    (tmp_path / "candidate.py").write_text(GOOD)
    for form in (op, op.document(), scenario.OP, path, str(path)):
        assert scripted(form, tmp_path / "candidate.py").reason == GOOD


# A real judge


@pytest.fixture(scope="module")
def judge(judge_cache: Path) -> Iterator[Judge]:
    with Judge(limits=QUICK, cache=judge_cache) as made:
        yield made


@pytest.mark.alone
def test_candidates_are_judged_from_one_process_that_never_imports_torch(judge: Judge, tmp_path: Path) -> None:
    admitted = judge.check(scenario.OP, target="cpu")
    assert admitted.document is not None
    assert admitted.admitted, admitted.reason
    assert not admitted.accepted
    good, wrong, broken = judge.map(scenario.OP, [GOOD, WRONG, "def run("], language="cpp", level="screen")
    assert good.accepted, good.reason
    assert good.speedup is not None
    assert good.speedup_ci95 is not None
    assert good.tier == "gated"
    assert (wrong.verdict, wrong.accepted, wrong.speedup) == ("rejected", False, None)
    assert wrong.failure is not None
    assert wrong.failure["kind"] == "not_written"
    assert (broken.verdict, broken.gate) == ("rejected", "gate")
    assert json.loads(good.to_json())["verdict"]["device"] == good.document["device"]  # type: ignore[index]
    profile = judge(scenario.OP, GOOD, level="profile", workloads=["even"])
    assert profile.document is not None
    assert profile.document.get("profile")
    assert not profile.accepted


@pytest.mark.alone
def test_a_real_judge_that_is_killed_is_said_and_restarted(judge: Judge) -> None:
    endless = scenario.candidate("volatile int go = 1; while (go) {}")
    pid = judge._client.pid

    def kill() -> None:
        running = judge._client.pid
        assert running is not None
        wait_until(lambda: bool(psutil.Process(running).children()), 60)
        os.kill(running, signal.SIGKILL)

    judge._client.start()
    killer = threading.Timer(1.0, kill)
    killer.start()
    died = judge(scenario.OP, endless, level="screen")
    killer.join()
    assert died.unjudged == "died"
    assert judge(scenario.OP, WRONG, level="screen").verdict == "rejected"
    assert judge._client.pid != pid


PROGRAM = """
import sys
from warpsmith import Judge
judge = Judge(limits={{"time_s": 0.05}})
verdict = judge({op!r}, {source!r}, language="cpp", level="screen")
assert "torch" not in sys.modules and "numpy" not in sys.modules, "this process needs neither"
print(verdict.verdict, judge._client.pid, flush=True)
{end}
"""


@pytest.mark.alone
@pytest.mark.parametrize("end", ["", pytest.param("import os; os.kill(os.getpid(), 9)", marks=pytest.mark.nightly)])
def test_a_program_that_does_not_close_it_leaves_nothing(judge_cache: Path, tmp_path: Path, end: str) -> None:
    program = PROGRAM.format(op=scenario.OP, source=WRONG, end=end)
    variables = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "src")}
    variables["WARPSMITH_JUDGE_CACHE"] = str(judge_cache)
    found = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    word, pid = found.stdout.split()
    assert word == "rejected", found.stderr
    wait_until(lambda: not psutil.pid_exists(int(pid)), 30)
    if not end:
        assert found.returncode == 0, found.stderr
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("warpsmith-judge")] == []
