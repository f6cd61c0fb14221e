"""Faults: a candidate, a reference or a kill costs what it should and nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.redteam_catalogue.text import HIDDEN, LIBC
from tests import degraded, judging
from tests.judging import ALL_ROWS, GOOD_NORM, LAYER_NORM, LAYER_NORMS, alive, norm_candidate
from tests.support.waiting import wait_until
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.workers.judge.gates.referee import COMPILED
from warpsmith.workers.judge.machine.process_control import family
from warpsmith.workers.judge.protocol.client import (
    JobRefused,
    JudgeClient,
    JudgeDied,
    JudgeTimeout,
    JudgeUnfit,
    judge_environment,
)

TIMEOUT_S = 120.0
SLOW_NORM = norm_candidate(ALL_ROWS + "usleep(30000);", LIBC)
"""Right, and slow enough that something can be killed while it is judged."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge-cache")


@pytest.fixture(scope="module")
def client(cache: Path) -> Iterator[JudgeClient]:
    with JudgeClient(cache=cache) as judge:
        yield judge


def _candidate(client: JudgeClient, body: str, before: str = "", **options: Any) -> Verdict:
    job = judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate(body, before), **options)
    return client.judge(job, timeout_s=TIMEOUT_S)


def _seen(name: str, count: int) -> AbstractContextManager[None]:
    """Fails unless, while the block runs, so many processes of that name are alive at once."""

    def look() -> None:
        wait_until(lambda: len(judging.named(name)) >= count, 60.0, f"{name} to be alive {count} times")

    return judging.meanwhile(look)


def _still_judges(client: JudgeClient) -> None:
    verdict = client.judge(judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM), timeout_s=TIMEOUT_S)
    assert verdict["verdict"] == "accepted", verdict["reason"]


# Candidates


def test_a_crash_names_its_signal(client: JudgeClient) -> None:
    judge = client.pid
    verdict = _candidate(client, "*(volatile int*)8 = 1;")
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "screen")
    assert verdict["failure"] is not None
    assert (verdict["failure"]["kind"], verdict["failure"]["found"]) == ("crash", "SIGSEGV")
    assert verdict["failure"]["workload"] == "bench"
    _still_judges(client)
    assert judge in (None, client.pid)


def test_an_exit_is_no_result(client: JudgeClient) -> None:
    verdict = _candidate(client, ALL_ROWS + "_exit(0);", LIBC)
    assert verdict["failure"] is not None
    assert (verdict["failure"]["kind"], verdict["failure"]["found"]) == ("crash", "exit code 0")


@pytest.mark.parametrize(("seed", "times"), [(0, 1), (4, torch.get_num_threads())])
def test_an_endless_loop_ends_at_the_call_limit(client: JudgeClient, seed: int, times: int) -> None:
    """By these seeds the first call is one like any other, and one on a single core, which has the limit once for each
    thread.
    """
    start = time.monotonic()
    job = judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate("volatile int go = 1; while (go) {}", ""), call_s=1.0)
    verdict = client.judge(job | {"seed": seed}, timeout_s=TIMEOUT_S)
    assert verdict["failure"] is not None
    assert (verdict["failure"]["kind"], verdict["failure"]["expected"]) == ("timeout", f"{times} s")
    assert time.monotonic() - start < 120
    _still_judges(client)


def test_a_call_with_one_thread_has_the_limit_once_for_each_core(client: JudgeClient) -> None:
    verdict = _candidate(
        client,
        ALL_ROWS + "volatile int go = omp_get_max_threads() == 1; while (go) {}",
        level="verify",
        call_s=1.0,
    )
    assert verdict["failure"] is not None
    assert (verdict["gate"], verdict["failure"]["kind"]) == ("verify", "timeout"), verdict["reason"]
    assert verdict["failure"]["expected"] == f"{torch.get_num_threads()} s"
    assert "cannot be written and one thread of OpenMP" in verdict["failure"]["message"]


def test_a_loop_in_only_one_call_of_many_ends_too(client: JudgeClient) -> None:
    body = ALL_ROWS + "int& calls = hidden<int>(0); volatile int go = 1; if (++calls > 9) while (go) {}"
    verdict = _candidate(client, body, LIBC + HIDDEN, call_s=1.0)
    assert verdict["failure"] is not None
    assert (verdict["gate"], verdict["failure"]["kind"]) == ("time", "timeout")


def test_eaten_memory_is_seen_and_named(client: JudgeClient) -> None:
    body = "for (;;) { volatile char* p = (char*)malloc(1 << 24); for (long i = 0; i < 1 << 24; i += 512) p[i] = 1; }"
    before = "#include <cstdlib>\n"
    # Half a gigabyte is the least that runners are given; the buffers of this job are small.
    verdict = _candidate(client, body, before, memory_bytes=1 << 29, call_s=30.0)
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] == "memory", verdict["reason"]
    _still_judges(client)


@pytest.fixture
def unfiltered(cache: Path, tmp_path: Path) -> Iterator[JudgeClient]:
    """A judge on a machine without seccomp, where candidates can start processes."""
    with JudgeClient(cache=cache) as judge:
        degraded.start(judge, tmp_path, ("seccomp",))
        yield judge


def test_what_a_candidate_forks_ends_with_it(unfiltered: JudgeClient) -> None:
    """Children in its session, in sessions of their own, and orphans of both are gone when the verdict is there."""
    client = unfiltered
    name = f"wf{uuid.uuid4().hex[:8]}"
    born = 'static void born() { prctl(15, "NAME"); prctl(1, 0); for (;;) sleep(100); }'
    before = LIBC + HIDDEN + born.replace("NAME", name)
    body = (
        ALL_ROWS
        + """
    int& calls = hidden<int>(0);
    if (calls++ == 0)
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) { born(); }
            if (fork() == 0) { setsid(); if (fork() == 0) born(); if (fork() == 0) { setsid(); born(); } _exit(0); }
        }
    else if (calls == 2) sleep(1);"""
    )
    with _seen(name, 9):
        verdict = _candidate(client, body, before)
    assert verdict["gate"] in ("time", "physics"), verdict["reason"]  # right; its children take the clock's cores
    wait_until(lambda: not judging.named(name))
    _still_judges(client)


@pytest.mark.nightly
def test_a_fork_bomb_costs_its_own_verdict(unfiltered: JudgeClient) -> None:
    client = unfiltered
    name = f"wb{uuid.uuid4().hex[:8]}"
    # All of them double every 20 ms, up to 512.
    body = f'prctl(15, "{name}"); for (int i = 0; i < 9; i++) {{ fork(); usleep(20000); }} for (;;) usleep(100000);'
    with _seen(name, 32):
        verdict = _candidate(client, body, LIBC, call_s=2.0)
    assert verdict["verdict"] == "rejected"
    wait_until(lambda: not judging.named(name))
    _still_judges(client)


def test_an_exception_of_run_is_told(client: JudgeClient) -> None:
    run = judging.NORM_RUN + "    raise ValueError('no such shape')\n"
    job = judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate(ALL_ROWS, run=run))
    verdict = client.judge(job, timeout_s=TIMEOUT_S)
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] == "raises"
    assert "ValueError: no such shape" in verdict["reason"]


# References

REFERENCES = {
    "raises": ("def run(x):\n    raise ValueError('unfit')\n", "raises"),
    "is no Python": ("def run(x)\n    return x\n", "raises"),
    "defines no run": ("def go(x):\n    return x\n", "raises"),
    "returns too many": ("def run(x):\n    return x * 2, x\n", "outputs"),
    "returns nothing": ("def run(x):\n    pass\n", "outputs"),
    "returns another shape": ("def run(x):\n    return x[:, :4] * 2\n", "shape"),
    "returns another dtype": ("def run(x):\n    return x.double()\n", "dtype"),
    "returns no tensor": ("def run(x):\n    return 3\n", "dtype"),
    "is not deterministic": ("import torch\n\ndef run(x):\n    return x + torch.rand_like(x)\n", "nondeterministic"),
    "writes its input": ("def run(x):\n    return x.mul_(2) * 1\n", "input_modified"),
    "is never finite": ("def run(x):\n    return x * float('nan')\n", "non_finite"),
    "overflows in float32 alone": ("def run(x):\n    return ((x + 2) * 3e38) / 3e38\n", "non_finite"),
    "exits": ("import os\n\ndef run(x):\n    os._exit(3)\n", "crash"),
    "never returns": ("def run(x):\n    while True:\n        pass\n", "timeout"),
    "is killed when it is imported": ("import ctypes\nctypes.string_at(0)\n", "crash"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_at_fault_is_rejected_by_name(client: JudgeClient, name: str) -> None:
    reference, kind = REFERENCES[name]
    place = judging.workload("bench", "bench", [judging.tensor("x", (8, 8))], [judging.output("y", (8, 8))])
    verdict = client.judge(judging.job(reference, [place], call_s=1.0), timeout_s=TIMEOUT_S)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "reference"), verdict["reason"]
    assert verdict["failure"] is not None
    assert (verdict["failure"]["kind"], verdict["failure"]["field"]) == (kind, "reference")
    assert verdict["failure"]["workload"] == "bench"
    if kind == "shape":
        assert (verdict["failure"]["found"], verdict["failure"]["expected"]) == ([8, 4], [8, 8])
    if kind == "dtype" and "double" in reference:
        assert (verdict["failure"]["found"], verdict["failure"]["expected"]) == ("float64", "float32")
    if kind == "outputs":
        assert verdict["failure"]["expected"] == 1


def test_a_generator_at_fault_is_rejected_by_name(client: JudgeClient) -> None:
    make = "def make(shape, dtype, generator):\n    raise KeyError('vocabulary')\n"
    place = judging.workload(
        "bench", "bench", [judging.tensor("x", (8,), kind="code", source=make)], [judging.output("y", (8,))]
    )
    verdict = client.judge(judging.job("def run(x):\n    return x * 1\n", [place]), timeout_s=TIMEOUT_S)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "reference")
    assert "generator of input x: KeyError: 'vocabulary'" in verdict["reason"]


def test_a_distribution_that_cannot_be_drawn_is_named(client: JudgeClient) -> None:
    ids = judging.tensor("ids", (8,), dtype="int64", kind="randint", low=5, high=5)
    place = judging.workload("bench", "bench", [ids], [judging.output("y", (8,), dtype="int64")])
    verdict = client.judge(judging.job("def run(ids):\n    return ids + 1\n", [place]), timeout_s=TIMEOUT_S)
    assert verdict["failure"] is not None
    assert verdict["failure"]["field"] == "inputs.ids.dist"
    _still_judges(client)


# Broken lines


def _change(job: Job, path: str, value: Any) -> dict[str, Any]:
    document: Any = json.loads(json.dumps(job))
    place = document
    *above, last = path.split(".")
    for key in above:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return dict(document)


BROKEN: list[tuple[str, Any, str]] = [
    ("level", "quick", "level"),
    ("target", "tpu:v5", "target"),
    ("target", "cpu:s390x", "target"),
    ("workloads", [], "workloads"),
    ("workloads.0.inputs.0.dtype", "float31", "workloads[0].inputs[0].dtype"),
    ("workloads.0.inputs.0.shape", [4, 0], "workloads[0].inputs[0].shape"),
    ("workloads.0.inputs.0.strides", [1], "workloads[0].inputs[0].strides"),
    ("workloads.0.outputs.0.shape", "big", "workloads[0].outputs[0].shape"),
    ("workloads.1.id", "bench", "workloads[1].id"),
    ("op.baselines", ["numpy"], "op.baselines[0]"),
    ("op.math", "fast", "op.math"),
    ("limits.call_s", 0, "limits.call_s"),
    ("limits.memory_bytes", -1, "limits.memory_bytes"),
    ("candidate", {"language": "cobol", "source": ""}, "candidate.language"),
    ("candidate", None, "candidate"),
]


@pytest.mark.parametrize(("path", "value", "field"), BROKEN)
def test_a_job_that_is_none_is_refused_by_field(client: JudgeClient, path: str, value: Any, field: str) -> None:
    job = _change(judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM), path, value)
    with pytest.raises(JobRefused) as refused:
        client.judge(job, timeout_s=TIMEOUT_S)  # type: ignore[arg-type]  # it is the point
    assert refused.value.field == field
    assert refused.value.expected


def _run_judge(cache: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warpsmith.workers.judge"],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=judge_environment(cache, cache),
        check=False,
    )


def test_broken_lines_are_answered_and_the_end_of_input_ends_it(cache: Path) -> None:
    good = judging.job(LAYER_NORM, LAYER_NORMS[:1], GOOD_NORM)
    finished = _run_judge(cache, ["{broken", "[1, 2]", '{"id": "half"}', "", json.dumps(good), "\x00\xff"])
    assert finished.returncode == 0, finished.stderr
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [None, None, "half", good["id"], None]
    assert answers[2]["error"] == {"field": "level", "found": None, "expected": "this field"}
    assert answers[3]["verdict"] == "accepted"


# Kills


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # a runner that ended just now, as some do between two questions
        os.kill(pid, signal.SIGKILL)


def _at_work(client: JudgeClient) -> bool:
    """The judge runs and the candidate's runner is there: its server has more children than the reference's two."""
    return client.pid is not None and len(judging.runners_of(client.pid)) >= 3


def test_a_runner_killed_from_outside_costs_a_repetition(client: JudgeClient) -> None:
    def kill() -> None:
        wait_until(lambda: _at_work(client), 60.0)
        assert client.pid is not None
        for pid in judging.runners_of(client.pid):
            _kill(pid)

    with judging.meanwhile(kill):
        verdict = client.judge(judging.job(LAYER_NORM, LAYER_NORMS, SLOW_NORM), timeout_s=TIMEOUT_S)
    assert verdict["verdict"] == "accepted", verdict["reason"]


def test_a_fork_server_killed_from_outside_costs_a_repetition(client: JudgeClient) -> None:
    killed: list[int] = []

    def kill() -> None:
        wait_until(lambda: _at_work(client), 60.0)
        assert client.pid is not None
        killed.extend(judging.runners_of(client.pid))
        server = judging.fork_server_of(client.pid)
        assert server is not None
        _kill(server)

    with judging.meanwhile(kill):
        verdict = client.judge(judging.job(LAYER_NORM, LAYER_NORMS, SLOW_NORM), timeout_s=TIMEOUT_S)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert not any(alive(pid) for pid in killed)


def test_a_killed_judge_leaves_no_orphan_and_the_next_job_starts_another(cache: Path) -> None:
    with JudgeClient(cache=cache) as own:
        left: list[int] = []

        def whole() -> bool:
            """Its fork server, the runners and itself: some of them end and are started while it works."""
            left[:] = family(own.pid) if own.pid is not None and _at_work(own) else []
            return len(left) >= 5

        def kill() -> None:
            wait_until(whole, 60.0)
            assert own.pid is not None
            _kill(own.pid)

        with judging.meanwhile(kill), pytest.raises(JudgeDied):
            own.judge(judging.job(LAYER_NORM, LAYER_NORMS, SLOW_NORM), timeout_s=TIMEOUT_S)
        wait_until(lambda: not any(alive(pid) for pid in left))
        _still_judges(own)
        assert own.pid not in left


def test_a_judge_dies_with_the_process_that_started_it(cache: Path, tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom warpsmith.workers.judge.protocol.client import JudgeClient\n"
        "client = JudgeClient(cache=Path(sys.argv[1]))\nclient.start()\n"
        "print(client.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(cache)],
        stdout=subprocess.PIPE,
        text=True,
        env=judge_environment(cache, tmp_path),
    )
    assert parent.stdout is not None
    with parent:
        judge = int(parent.stdout.readline())
        wait_until(lambda: judging.fork_server_of(judge) is not None, 60.0)
        below = family(judge)
        parent.kill()
    wait_until(lambda: not any(alive(pid) for pid in below))


@pytest.mark.nightly
def test_a_timeout_kills_the_judge_and_everything_under_it(cache: Path) -> None:
    with JudgeClient(cache=cache) as own:
        seen: set[int] = set()

        def watch() -> None:
            if own.pid is not None:
                seen.update(family(own.pid))

        endless = norm_candidate("volatile int go = 1; while (go) {}")
        with pytest.raises(JudgeTimeout):
            own.judge(judging.job(LAYER_NORM, LAYER_NORMS, endless, call_s=300.0), timeout_s=15.0, on_wait=watch)
        assert len(seen) >= 2
        wait_until(lambda: not any(alive(pid) for pid in seen))


def test_what_on_wait_raises_ends_the_job(client: JudgeClient) -> None:
    class CancelledError(Exception):
        pass

    def cancel() -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        client.judge(judging.job(LAYER_NORM, LAYER_NORMS, SLOW_NORM), timeout_s=TIMEOUT_S, on_wait=cancel)
    _still_judges(client)


@pytest.mark.parametrize("below", ["", "cache"])
def test_a_cache_that_cannot_be_made_is_told_for_every_job_until_it_can(tmp_path: Path, below: str) -> None:
    occupied = tmp_path / "file"
    told: list[str] = []
    occupied.write_text("")
    job = judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM, level="compile")
    reason = f"WARPSMITH_JUDGE_CACHE: cannot make the directory {occupied / below}: Not a directory"
    with JudgeClient(cache=occupied / below, log=told.append) as own:
        judges = set()
        for level in ("compile", "screen"):
            asked: Job = {**job, "level": level}  # type: ignore[typeddict-item]  # mypy takes it for any string
            with pytest.raises(JudgeUnfit, match=f"{re.escape(reason)}$") as unfit:
                own.judge(asked, timeout_s=TIMEOUT_S)
            assert unfit.value.part == "disk"
            judges.add(own.pid)
        assert (len(judges), told) == (1, [])
        occupied.unlink()
        verdict = own.judge(job, timeout_s=TIMEOUT_S)
    assert verdict["reason"] == COMPILED


def test_the_judge_sees_nothing_of_the_callers_environment(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_OPENAI_API_KEY", "secret")
    monkeypatch.setenv("WARPSMITH_DATABASE_URL", "postgresql://somebody:secret@host/db")
    assert "secret" not in json.dumps(judge_environment(cache, cache))


def test_a_judge_sees_the_gpu_that_it_is_given(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert judge_environment(cache, cache)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert judge_environment(cache, cache, visible="GPU-1")["CUDA_VISIBLE_DEVICES"] == "GPU-1"


TWO_SERVERS = """
import sys
from pathlib import Path

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.runner.fork_server_client import ForkServer

process_control.adopt_orphans()
first, second = (ForkServer(1, Path(place)) for place in sys.argv[1:])
first.start()
second.start()
print(first.pid)
second.close()
print(Path(f"/proc/{first.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX")
first.close()
"""


def test_the_end_of_one_devices_fork_server_leaves_the_others(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "other"]
    for place in places:
        place.mkdir()
    told = subprocess.run(
        [sys.executable, "-c", TWO_SERVERS, *places], capture_output=True, text=True, check=True, timeout=60
    )
    pid, lives = told.stdout.split()
    assert lives == "True"
    assert not alive(int(pid))
