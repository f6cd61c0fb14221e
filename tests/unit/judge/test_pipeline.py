"""The pipeline's core with a referee that only notes who called it when, and the turns of its threads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import judging
from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.workers.judge.gates.referee import Ready
from warpsmith.workers.judge.gates.verdict import Report, Unfit
from warpsmith.workers.judge.machine.timing_guard import Quiet
from warpsmith.workers.judge.protocol.pipeline import TEMPORARY_FAILURE, Pipeline

CUDA = "cuda:sm_90"


class Notes:
    """A referee that decides nothing."""

    def __init__(self, quiet: Quiet, raising: set[str] | None = None) -> None:
        self.must_restart = False
        self.quiet = quiet
        self.raising = raising or set()
        self.preparing = 0
        self.most_preparing = 0
        self.judged: list[str] = []
        self.became_ready: list[str] = []
        self.threads: set[int] = set()
        self.faults: list[str] = []
        self.idle = 0
        self.hold: threading.Event | None = None
        self.tell: Callable[[str, Progress], None] | None = None
        self._lock = threading.Lock()
        self._judging = False

    def prepare(self, job: Job) -> Ready:
        cpu = job["target"].startswith("cpu")
        with self._lock:
            self.preparing += 1
            self.most_preparing = max(self.most_preparing, self.preparing)
            if cpu and self.preparing > 1:
                self.faults.append(f"{job['id']} was prepared for a CPU beside another")
        if self.tell is not None:
            self.tell(job["id"], {"gate": "compile", "workload": None, "number": 0, "total": 0})
        try:
            with self.quiet.resting():
                time.sleep(0.001)
            if job["id"] in self.raising:
                raise RuntimeError(f"no compiler for {job['id']}")
            return Ready(job, Report(job), None, None)
        finally:
            with self._lock:
                self.preparing -= 1

    def compiled(self, ready: Ready) -> Verdict | None:
        if ready.job["level"] != "compile":
            return None
        return {"id": ready.job["id"], "verdict": "ambiguous"}  # type: ignore[return-value]  # all that the tests read

    def judge(self, ready: Ready) -> Verdict:
        job = ready.job
        self.threads.add(threading.get_ident())
        if self._judging:
            self.faults.append("two jobs were judged at once")
        self._judging = True
        if job["target"].startswith("cpu") and self.preparing:
            self.faults.append(f"{job['id']} was judged on a CPU beside a compiler")
        if self.hold is not None:
            self.hold.wait(10)
        with self.quiet.timing():
            time.sleep(0.0005)
        self._judging = False
        self.judged.append(job["id"])
        if ready.stopped is not None:
            return {"id": job["id"], "verdict": ready.stopped.verdict, "reason": str(ready.stopped)}  # type: ignore[typeddict-item]
        return {"id": job["id"], "verdict": "accepted"}  # type: ignore[typeddict-item]  # all that the tests read

    def end_idle(self) -> None:
        self.idle += 1


def line(name: str, target: str) -> str:
    """A job, as it stands on a line."""
    language: Literal["cpp", "cuda"] = "cpp" if target == judging.CPU else "cuda"
    job = judging.job(judging.LAYER_NORM, judging.LAYER_NORMS[:1], "x = 1", language=language, target=target)
    return json.dumps({**job, "id": name})


def run(referee: Notes, lines: Iterator[str], **options: Any) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the answers."""
    answers: list[dict[str, Any]] = []
    options = {"width": 3, "room": 8, **options}
    status = Pipeline(referee, answers.append, quiet=referee.quiet, **options).run(lines)
    return status, answers


kinds = st.sampled_from(["cuda", "cuda", "cuda", "raises", "cpu", "broken"])


@settings(max_examples=60, deadline=None)
@given(st.lists(kinds, max_size=12), st.integers(1, 4), st.integers(1, 5))
def test_every_line_gets_one_answer_and_the_clock_is_left_alone(kinds: list[str], width: int, room: int) -> None:
    lines = {
        f"{kind}-{number}": json.dumps({"id": f"{kind}-{number}"})
        if kind == "broken"
        else line(f"{kind}-{number}", judging.CPU if kind == "cpu" else CUDA)
        for number, kind in enumerate(kinds)
    }
    referee = Notes(Quiet(), {name for name in lines if name.startswith("raises")})
    read = 0
    answered: list[dict[str, Any]] = []
    most_open = 0

    def counted() -> Iterator[str]:
        nonlocal read, most_open
        for text in lines.values():
            read += 1
            most_open = max(most_open, read - len(answered))
            yield text

    pipeline = Pipeline(referee, answered.append, quiet=referee.quiet, width=width, room=room)
    assert pipeline.run(counted()) == 0
    assert sorted(answer["id"] for answer in answered) == sorted(lines)
    for answer in answered:
        kind = answer["id"].partition("-")[0]
        assert ("error" in answer) == (kind == "broken")
        if kind == "raises":
            assert answer["verdict"] == "ambiguous"
            assert "no compiler" in answer["reason"]
        elif kind != "broken":
            assert answer["verdict"] == "accepted"
    assert referee.faults == []
    assert referee.threads <= {threading.get_ident()}
    assert referee.most_preparing <= width
    assert most_open <= room + 1  # one more is read and waits for room
    in_order = [answer["id"] for answer in answered if answer["id"].startswith("cpu")]
    assert in_order == [name for name in lines if name.startswith("cpu")]


def test_jobs_are_prepared_while_another_is_judged() -> None:
    referee = Notes(Quiet())
    referee.hold = threading.Event()
    names = [f"job-{number}" for number in range(4)]
    done: list[str] = []

    def prepared(job: Job) -> Ready:
        ready = Notes.prepare(referee, job)
        done.append(job["id"])
        if len(done) == len(names):
            referee.hold.set()  # type: ignore[union-attr]  # the first is judged only when all are prepared
        return ready

    referee.prepare = prepared  # type: ignore[method-assign]
    status, answers = run(referee, iter(line(name, CUDA) for name in names))
    assert status == 0
    assert len(done) == 4
    assert [answer["id"] for answer in answers] == done, "in the order in which they became ready"


def test_a_job_that_waits_can_be_taken_back_and_one_that_is_judged_cannot() -> None:
    referee = Notes(Quiet())
    referee.hold = threading.Event()
    said: list[dict[str, Any]] = []

    def lines() -> Iterator[str]:
        yield line("first", judging.CPU)
        while pipeline._judging != "first":
            time.sleep(0.001)
        yield line("second", judging.CPU)
        yield line("third", judging.CPU)
        for name in ("second", "first", "nobody"):
            yield json.dumps({"cancel": name})
        assert referee.hold is not None
        referee.hold.set()

    pipeline = Pipeline(referee, said.append, quiet=referee.quiet, width=1, room=8)
    assert pipeline.run(lines()) == 0
    assert said[:3] == [
        {"id": "second", "cancel": "dropped"},
        {"id": "first", "cancel": "judging"},
        {"id": "nobody", "cancel": "unknown"},
    ]
    assert [answer["id"] for answer in said[3:]] == ["first", "third"]
    assert referee.judged == ["first", "third"]


@pytest.mark.parametrize("progress", [True, False])
def test_progress_comes_before_the_answer_where_it_was_asked_for(progress: bool) -> None:
    status, said = run(Notes(Quiet()), iter([line("one", judging.CPU)]), progress=progress)
    assert status == 0
    where = {"gate": "compile", "workload": None, "number": 0, "total": 0}
    assert said == [*([{"id": "one", "progress": where}] if progress else []), {"id": "one", "verdict": "accepted"}]


def test_a_job_that_only_compiles_is_answered_while_another_holds_the_device() -> None:
    referee = Notes(Quiet())
    referee.hold = threading.Event()
    said: list[dict[str, Any]] = []

    def lines() -> Iterator[str]:
        assert referee.hold is not None
        yield line("timed", CUDA)
        while pipeline._judging != "timed":
            time.sleep(0.001)
        yield json.dumps({**json.loads(line("compiled", CUDA)), "level": "compile"})
        while not said:
            time.sleep(0.001)
        referee.hold.set()

    pipeline = Pipeline(referee, said.append, quiet=referee.quiet, width=1, room=8)
    assert pipeline.run(lines()) == 0
    assert [answer["id"] for answer in said] == ["compiled", "timed"]
    assert referee.judged == ["timed"], "the judging thread had nothing to do with it"


def test_for_a_processor_a_job_that_only_compiles_goes_between_those_that_are_judged() -> None:
    referee = Notes(Quiet())
    said: list[dict[str, Any]] = []

    def lines() -> Iterator[str]:
        yield json.dumps({**json.loads(line("compiled", judging.CPU)), "level": "compile"})
        for number in range(3):
            yield line(f"timed-{number}", judging.CPU)

    assert Pipeline(referee, said.append, quiet=referee.quiet, width=1, room=8).run(lines()) == 0
    assert referee.judged == ["timed-0", "timed-1", "timed-2"], "the judging thread had nothing to do with it"
    assert referee.faults == []
    assert sorted(answer["id"] for answer in said) == ["compiled", *referee.judged]


def test_a_fault_of_the_judges_own_is_one_jobs_answer_and_the_process_is_replaced() -> None:
    referee = Notes(Quiet())

    def judge(ready: Ready) -> Verdict:
        if ready.job["id"] == "second":
            raise ZeroDivisionError("a mistake of ours")
        return {"id": ready.job["id"], "verdict": "accepted"}  # type: ignore[typeddict-item]

    referee.judge = judge  # type: ignore[method-assign]
    status, answers = run(referee, iter(line(name, judging.CPU) for name in ("first", "second", "third")))
    assert status == TEMPORARY_FAILURE
    assert [answer["id"] for answer in answers] == ["first", "second"]
    assert "a mistake of ours" in answers[1]["fault"]


def test_a_host_that_cannot_judge_is_said_for_one_job() -> None:
    referee = Notes(Quiet())

    def judge(ready: Ready) -> Verdict:
        if ready.job["id"] == "first":
            raise Unfit("disk", "No space left on device")
        return {"id": ready.job["id"], "verdict": "accepted"}  # type: ignore[typeddict-item]

    referee.judge = judge  # type: ignore[method-assign]
    status, answers = run(referee, iter([line("first", judging.CPU), line("second", judging.CPU)]))
    assert (status, answers[0]["unfit"]) == (0, {"part": "disk", "reason": "No space left on device"})
    assert answers[1]["verdict"] == "accepted"


def test_a_referee_that_lost_its_device_answers_and_is_replaced() -> None:
    referee = Notes(Quiet())
    referee.must_restart = True
    status, answers = run(referee, iter([line("first", judging.CPU), line("second", judging.CPU)]))
    assert (status, [answer["id"] for answer in answers]) == (TEMPORARY_FAILURE, ["first"])


def test_what_was_kept_warm_is_ended_while_nothing_comes() -> None:
    referee = Notes(Quiet())

    def lines() -> Iterator[str]:
        while referee.idle < 3:
            time.sleep(0.001)
        yield line("late", judging.CPU)

    assert run(referee, lines(), idle_s=0.005)[0] == 0
    assert referee.judged == ["late"]


def test_a_door_that_cannot_be_read_ends_the_pipeline() -> None:
    def lines() -> Iterator[str]:
        yield line("first", judging.CPU)
        raise OSError("the pipe is broken")

    with pytest.raises(OSError, match="the pipe is broken"):
        run(Notes(Quiet()), lines())


def test_a_thread_beside_stops_for_the_clock_and_its_other_process_does_not() -> None:
    quiet = Quiet()
    steps: list[str] = []
    at_rest, measured = threading.Event(), threading.Event()

    def beside() -> None:
        with quiet.beside():
            with quiet.resting():
                at_rest.set()
                measured.wait(10)
                steps.append("its process ended")
            steps.append("it went on")

    thread = threading.Thread(target=beside)
    thread.start()
    assert at_rest.wait(10)
    with quiet.timing():
        measured.set()
        while "its process ended" not in steps:
            time.sleep(0.001)
        time.sleep(0.02)
        steps.append("the clock stopped")
    thread.join(10)
    assert steps == ["its process ended", "the clock stopped", "it went on"]


def test_whoever_is_alone_waits_for_the_last_one_beside() -> None:
    quiet = Quiet()
    inside = threading.Event()
    ended: list[float] = []

    def beside() -> None:
        with quiet.beside(), quiet.resting():
            inside.set()
            time.sleep(0.05)
            ended.append(time.monotonic())

    thread = threading.Thread(target=beside)
    thread.start()
    assert inside.wait(10)
    with quiet.alone():
        assert ended
        late = threading.Thread(target=beside)
        late.start()
        time.sleep(0.02)
        assert len(ended) == 1
    thread.join(10)
    late.join(10)
    assert len(ended) == 2


def test_a_row_of_jobs_alone_lets_in_what_waits_beside() -> None:
    quiet = Quiet()
    steps: list[str] = []

    def beside() -> None:
        with quiet.beside():
            steps.append("beside")

    thread = threading.Thread(target=beside)
    with quiet.alone():
        thread.start()
        while not quiet._waiting:
            time.sleep(0.001)
    for _ in range(3):
        with quiet.alone():
            steps.append("alone")
    thread.join(10)
    assert steps == ["beside", "alone", "alone", "alone"]
