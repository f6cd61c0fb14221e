"""Which judges a try at level compile goes to, by what they announce."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from warpsmith.workers.judge.protocol import client
from warpsmith.workers.judging import machine
from warpsmith.workers.judging.machine import describe_compilers
from warpsmith.workers.queue import celery_app, process
from warpsmith.workers.queue.heartbeat import Worker, collect_facts
from warpsmith.workers.queue_names import compile_queue
from warpsmith.workers.settings import Settings, get_settings
from warpsmith.workers.steps.compiling import JudgeWorker, choose_queues, describe_lack

SM_90 = "cuda:sm_90"


def of_gpu(name: str = "judge-gpu0@far", target: str = SM_90, *, busy: bool = False) -> JudgeWorker:
    return JudgeWorker(name, target, {target: {"cuda": [], "triton": []}}, busy)


def of_processor(missing: Sequence[str] = (), *, busy: bool = False, name: str = "judge@near") -> JudgeWorker:
    return JudgeWorker(name, "cpu:x86_64", {"cpu:x86_64": {"cpp": []}, "cuda": {"cuda": missing}}, busy)


@pytest.mark.parametrize(
    ("judges", "queues"),
    [
        ([], []),
        ([of_processor()], ["compile.cpu-x86_64"]),
        ([of_processor(busy=True)], ["compile.cpu-x86_64"]),
        ([of_processor(), of_gpu()], ["compile.cuda-sm_90"]),
        ([of_processor(), of_gpu(busy=True), of_gpu("judge-gpu1@far")], ["compile.cuda-sm_90"]),
        ([of_processor(), of_gpu(busy=True)], ["compile.cuda-sm_90", "compile.cpu-x86_64"]),
        ([of_processor(["cuda-core is not installed"]), of_gpu(busy=True)], ["compile.cuda-sm_90"]),
        ([of_gpu(target="cuda:sm_80")], []),
        ([JudgeWorker("judge@old", SM_90)], ["judge.cuda-sm_90"]),
        ([JudgeWorker("judge@old", "cpu:x86_64")], []),
        ([JudgeWorker("judge@near", "cpu:x86_64", {})], []),
        ([JudgeWorker("judge@near", "cpu:x86_64", {}), of_processor(name="compile@near")], ["compile.cpu-x86_64"]),
    ],
)
def test_a_free_judge_of_the_target_is_preferred_and_another_compiles_where_there_is_none(
    judges: list[JudgeWorker], queues: list[str]
) -> None:
    assert choose_queues(judges, SM_90, "cuda") == queues


def test_a_lack_is_named() -> None:
    assert describe_lack([], SM_90, "cuda") == "no judge worker is alive"
    assert "compiles for it (judge@near of cpu:x86_64)" in describe_lack([of_processor()], "cpu:aarch64", "cpp")
    lacks = [of_processor(["cuda-core is not installed: pip install it"]), of_gpu(target="cuda:sm_80")]
    told = "no judge that is alive has the compiler; judge@near: cuda-core is not installed: pip install it"
    assert describe_lack(lacks, SM_90, "cuda") == told


def test_a_judge_announces_what_it_compiles_and_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda module: module != "triton")
    monkeypatch.setattr(machine, "compiler", lambda: "/usr/bin/c++")
    here = describe_compilers("cpu:x86_64")
    assert set(here) == {"cpu:x86_64", "cuda"}
    assert (here["cpu:x86_64"]["cpp"], here["cuda"]["cuda"]) == ([], [])
    assert "triton is not installed" in here["cuda"]["triton"][0]
    assert set(describe_compilers(SM_90)) == {SM_90}


def test_a_compile_queue_is_named_after_its_judges() -> None:
    assert compile_queue(SM_90) == "compile.cuda-sm_90"
    with pytest.raises(ValueError, match="expected device and architecture"):
        compile_queue("cuda")


def test_a_judge_that_leaves_compiling_to_others_announces_nothing() -> None:
    assert collect_facts(Worker("judge@here", "judge", "cpu:x86_64"))["compiles"] == {}
    told = collect_facts(Worker("compile@here", "compile", "cpu:x86_64", compiles=True))["compiles"]
    assert told == describe_compilers("cpu:x86_64")


@pytest.mark.parametrize(
    ("queue", "given", "served", "compiles"),
    [
        ("judge.cuda-sm_90", "", ["judge.cuda-sm_90", "compile.cuda-sm_90"], True),
        ("judge.cpu-x86_64", "true", ["judge.cpu-x86_64", "compile.cpu-x86_64"], True),
        ("judge.cpu-x86_64", "false", ["judge.cpu-x86_64"], False),
        ("compile.cpu-x86_64", "false", ["compile.cpu-x86_64"], True),
        ("model", "", ["model"], False),
    ],
)
def test_a_judge_serves_its_compile_queue_too_unless_it_is_left_to_others(
    queue: str, given: str, served: list[str], compiles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_JUDGE_COMPILES", given)
    get_settings.cache_clear()
    monkeypatch.setattr(process, "worker", process.worker)
    monkeypatch.setattr(celery_app, "Database", MagicMock())
    monkeypatch.setattr(celery_app, "await_schema", lambda _: None)
    app = celery_app.make_app(Settings(home=tmp_path))
    app.amqp.queues.select([queue])
    celery_app._set_up_worker("judge@here", SimpleNamespace(app=app, concurrency=8, pool_cls=object))
    assert list(app.amqp.queues.consume_from) == served
    assert (process.worker.slots, process.worker.compiles) == (8, compiles)
    assert process.worker.role == queue.partition(".")[0]


@pytest.mark.parametrize(
    ("target", "compiles", "at_start", "lacking", "started"),
    [
        ("cpu:x86_64", True, True, "", [True]),
        ("cpu:x86_64", False, True, "", [False]),
        (SM_90, True, True, "", [True]),
        (SM_90, False, True, "", [True]),
        ("cpu:x86_64", True, True, "cuda triton cutlass tilelang", [False]),
        ("cpu:x86_64", True, False, "", []),
        (None, False, True, "", []),
    ],
)
def test_a_worker_starts_its_judge_and_the_compilers_that_it_has(
    target: str | None,
    compiles: bool,
    at_start: bool,
    lacking: str,
    started: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = MagicMock()
    monkeypatch.setattr(client, "JudgeClient", lambda **_: judge)
    monkeypatch.setattr(machine, "installed", lambda module: module not in lacking.split())
    role = "model" if target is None else "judge"
    monkeypatch.setattr(process, "worker", Worker("worker@here", role, target, compiles=compiles))
    monkeypatch.setattr(process, "Heartbeat", MagicMock())
    try:
        process.open_worker(Settings(home=tmp_path, judge_at_start=at_start))
        assert [call.kwargs["compilers"] for call in judge.start.call_args_list] == started
    finally:
        process.close_process()
