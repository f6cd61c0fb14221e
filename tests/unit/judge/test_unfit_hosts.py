"""A host that cannot judge says so, instead of a verdict that is its own fault."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import judging
from warpsmith.workers.judge.gates.referee import FULL, Referee, _without_neighbours
from warpsmith.workers.judge.gates.verdict import Unfit
from warpsmith.workers.judge.machine import device, host
from warpsmith.workers.judge.protocol.client import JudgeUnfit, _verdict

CRASHED = ("rejected", "screen", "crashed", {"kind": "crash", "message": "broke its CUDA context"})
JOB: Any = {"id": "job_1", "target": judging.CPU, "candidate": {"language": "cpp", "source": "int main;"}}


def referee(directory: Path) -> Referee:
    """A referee without processes."""
    made = Referee.__new__(Referee)
    made._cache = made._scratch = directory
    made.must_restart = False
    return made


def bench(*, fault: str | None, lost: str | None) -> Any:
    """A bench with a GPU that answers as the test says."""
    gpu = SimpleNamespace(kind="cuda", name="NVIDIA H100", fault=lambda: fault, lost=lambda: lost)
    return SimpleNamespace(device=gpu, warm=SimpleNamespace(drop_broken=lambda: None))


def test_a_device_that_only_this_process_lost_costs_a_restart(tmp_path: Path) -> None:
    judge = referee(tmp_path)
    word, _, reason, failure = judge._proven(CRASHED, bench(fault="an illegal access", lost=None))  # type: ignore[arg-type]
    assert (word, judge.must_restart) == ("rejected", True)
    assert failure is not None
    assert failure["cause"] == "device"
    assert "the judge starts anew" in reason


def test_a_device_that_no_process_can_use_is_no_verdict(tmp_path: Path) -> None:
    judge = referee(tmp_path)
    with pytest.raises(Unfit, match="NVIDIA H100 is lost: no device") as unfit:
        judge._proven(CRASHED, bench(fault="an illegal access", lost="no device"))  # type: ignore[arg-type]
    assert (unfit.value.part, judge.must_restart) == ("device", True)


def test_a_fresh_process_proves_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = device.Gpu.__new__(device.Gpu)
    said = iter([(0, ""), (1, "Traceback\nRuntimeError: No CUDA GPUs are available\n"), (3, "")])

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        status, text = next(said)
        return subprocess.CompletedProcess(command, status, "", text)

    monkeypatch.setattr(subprocess, "run", run)
    assert gpu.lost() is None
    assert gpu.lost() == "RuntimeError: No CUDA GPUs are available"
    assert gpu.lost() == "exit status 3"


def test_a_compiler_without_room_is_no_verdict_and_a_candidate_cannot_say_so(tmp_path: Path) -> None:
    judge = referee(tmp_path)
    outcome: Any = ("rejected", "compile", "", {"kind": "compile", "message": "", "log": f"as: {FULL}"})
    with pytest.raises(Unfit, match=FULL):
        judge._check_room(outcome, JOB)
    saying_so: Any = {**JOB, "candidate": {"language": "cpp", "source": f"#error {FULL}"}}
    judge._check_room(outcome, saying_so)
    judge._check_room(("accepted", "time", "", None), JOB)


def test_a_full_disk_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = referee(tmp_path)
    judge._check_room(CRASHED, JOB)  # type: ignore[arg-type]
    monkeypatch.setattr(host, "LEAST_ROOM", 1 << 62)
    with pytest.raises(Unfit, match="has no room left"):
        judge._check_room(CRASHED, JOB)  # type: ignore[arg-type]


def test_what_took_no_write_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = referee(tmp_path)
    monkeypatch.setattr(host, "LEAST_ROOM", 1 << 62)
    words = "No space left on device"
    assert judge._place(OSError(errno.ENOSPC, words)) == f"{tmp_path} has no room left: [Errno 28] {words}"
    assert judge._place(OSError(errno.ENOSPC, words, "/cache/file")) == f"[Errno 28] {words}: '/cache/file'"


def test_a_candidate_that_cannot_be_prepared_for_want_of_room_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = referee(tmp_path)
    judge._gpu, judge._cores, judge.tell = None, 1, None
    errors: Iterator[int] = iter([errno.ENOSPC, errno.EACCES])

    def prepare(*_: Any, **__: Any) -> Any:
        number = next(errors)
        raise OSError(number, "as the system says")

    monkeypatch.setattr("warpsmith.workers.judge.gates.referee.prepare", prepare)
    job = judging_job()
    stopped = judge.prepare(job).stopped
    assert isinstance(stopped, Unfit)
    assert str(stopped) == f"[Errno 28] as the system says, in {tmp_path} or {tmp_path}"
    with pytest.raises(PermissionError):
        judge.prepare(job)


def judging_job() -> Any:
    """A job on this CPU."""
    return {**JOB, "op": {"name": "op"}, "level": "screen", "workloads": [], "limits": {}}


def test_the_client_tells_an_unfit_host_from_a_fault() -> None:
    with pytest.raises(JudgeUnfit, match="the judge's host cannot judge, disk: full") as unfit:
        _verdict({"id": "1", "unfit": {"part": "disk", "reason": "full"}}, JOB)
    assert unfit.value.part == "disk"


class Warm(list[str]):
    """Warm ops by name, which hold memory of a GPU until they end."""

    close = list.clear


def crowd(others: int, warm: list[str]) -> Any:
    """A bench of which programs of others hold so many of 100 bytes, and each warm op ten."""
    kept = Warm(warm)
    gpu = SimpleNamespace(kind="cuda", release=lambda: None, all_bytes=lambda: 100)
    gpu.free_bytes = lambda: 100 - others - 10 * len(kept)
    return SimpleNamespace(device=gpu, warm=kept)


SHORT: Any = ("rejected", "time", "ran out of memory", {"kind": "memory", "message": "ran out of memory"})


def test_memory_that_other_programs_hold_is_no_verdict() -> None:
    (word, gate, reason, failure), again = _without_neighbours(SHORT, crowd(60, ["its own"]))
    assert (word, gate, again) == ("ambiguous", "memory", False)
    assert failure is not None
    assert failure["kind"] == "host"
    assert reason == "ran out of memory; other programs hold 60 bytes of the 100 that an empty device has"


def test_memory_that_warm_runners_of_other_ops_held_is_worth_another_try() -> None:
    neighbours = crowd(5, ["another", "its own"])
    assert _without_neighbours(SHORT, neighbours) == (SHORT, True)
    assert not neighbours.warm


def test_who_runs_out_of_an_empty_gpu_is_rejected() -> None:
    assert _without_neighbours(SHORT, crowd(5, ["its own"])) == (SHORT, False)


@pytest.mark.parametrize("outcome", [CRASHED, ("accepted", "physics", "", None), (*SHORT[:1], "memory", *SHORT[2:])])
def test_other_outcomes_leave_warm_runners_alone(outcome: Any) -> None:
    neighbours = crowd(60, ["another", "its own"])
    assert _without_neighbours(outcome, neighbours) == (outcome, False)
    assert len(neighbours.warm) == 2
