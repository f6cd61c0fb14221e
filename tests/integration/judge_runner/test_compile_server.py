"""The compile server: who gets which build, what its children can reach, and what ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import REPOSITORY
from tests.judging import alive, output, tensor, workload
from tests.support.waiting import wait_until
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.languages import CompileError, CompileLimits, compile_service
from warpsmith.workers.judge.machine.process_control import children
from warpsmith.workers.judge.protocol.client import judge_environment

Language = Literal["cpp", "cuda", "triton"]
CANDIDATES = REPOSITORY / "tests" / "candidates"
PLACE = workload("bench", "bench", [tensor("x", (64,)), tensor("bias", (64,))], [output("y", (64,))])


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    compile_service.close()
    yield
    compile_service.close()


def prepare(source: str, language: Language, cache: Path, seconds: float = 60.0) -> languages.Prepared:
    limits = CompileLimits(seconds=seconds)
    return languages.prepare(source, language, target_arch="sm_90", cache_dir=cache, limits=limits, workloads=[PLACE])


def candidate(language: Language) -> str:
    return (CANDIDATES / f"add_relu_{language}.py").read_text()


def triton(first: str) -> str:
    """A Triton candidate that does something when it is imported."""
    return f"{first}\n{candidate('triton').partition(chr(10))[2]}"


def server() -> int:
    """The running server."""
    found = [pid for pid in children(os.getpid()) if b"compile_server" in command(pid)]
    assert len(found) == 1
    return found[0]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """What each returns or raises, all called at once."""
    together = threading.Barrier(len(work))

    def guarded(one: Callable[[], Any]) -> Any:
        together.wait(30)
        try:
            return one()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(guarded, work))


@pytest.mark.parametrize("language", ["cpp", "cuda", pytest.param("triton", marks=pytest.mark.nightly)])
def test_one_source_built_by_many_at_once_is_whole_and_then_cached(language: Language, tmp_path: Path) -> None:
    source = candidate(language)
    found = at_once(*[lambda: prepare(source, language, tmp_path)] * 4)
    assert not [one for one in found if isinstance(one, Exception)], found
    assert all(one["kernels"] == found[0]["kernels"] for one in found)
    assert prepare(source, language, tmp_path)["cached"]
    assert not list(tmp_path.rglob(".build-*"))
    assert not list(tmp_path.rglob("tmp.*"))
    suffix = {"cpp": ".so", "cuda": ".cubin", "triton": ".cubin"}[language]
    built = [path for path in tmp_path.rglob(f"*{suffix}") if path.is_file()]
    assert built
    assert all(path.read_bytes()[:4] == b"\x7fELF" for path in built)


@pytest.mark.nightly
def test_another_source_flag_or_architecture_is_another_build(tmp_path: Path) -> None:
    source = candidate("cuda")
    assert not prepare(source, "cuda", tmp_path)["cached"]
    assert prepare(f"# another comment\n{source}", "cuda", tmp_path)["cached"], "the kernels are the same"
    assert not prepare(source.replace("0.0f", "0.f"), "cuda", tmp_path)["cached"]
    assert not prepare(source.replace('""")', '""", flags=["--use_fast_math"])'), "cuda", tmp_path)["cached"]
    other = languages.prepare(
        source, "cuda", target_arch="sm_80", cache_dir=tmp_path, limits=CompileLimits(), workloads=[PLACE]
    )
    assert not other["cached"]


def test_a_compilation_that_does_not_end_is_killed_with_all_it_started(tmp_path: Path) -> None:
    mark = "3517.25"
    forks = f"import subprocess\nsubprocess.Popen(['sleep', '{mark}'], start_new_session=True)\nwhile True: pass"

    def started() -> list[int]:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and mark.encode() in command(int(entry))]

    begun = time.monotonic()
    with pytest.raises(CompileError):  # past its time; or, where it may start nothing, at once
        prepare(triton(forks), "triton", tmp_path, seconds=3)
    assert time.monotonic() - begun < 60
    wait_until(lambda: not started())
    assert prepare(candidate("cuda"), "cuda", tmp_path)["kernels"]


def test_a_server_killed_from_outside_costs_a_repetition(tmp_path: Path) -> None:
    prepare(candidate("cuda"), "cuda", tmp_path / "first")
    first = server()
    slow = triton("import time\ntime.sleep(2)")

    def kill() -> None:
        wait_until(lambda: len(children(first)) >= 2, 30)
        os.kill(first, signal.SIGKILL)

    found = at_once(
        lambda: prepare(slow, "triton", tmp_path / "a"), lambda: prepare(slow, "triton", tmp_path / "b"), kill
    )
    assert [one["kernels"][0]["name"] for one in found[:2]] == ["bias_relu", "bias_relu"], found
    assert not alive(first)


@pytest.mark.nightly
def test_a_server_that_is_killed_twice_is_the_hosts_fault_and_no_candidates(tmp_path: Path) -> None:
    stopped = threading.Event()

    def kill_all() -> None:
        while not stopped.wait(0.05):
            for pid in children(os.getpid()):
                if b"compile_server" in command(pid) and children(pid):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(OSError, match="killed twice"):
            prepare(triton("import time\ntime.sleep(5)"), "triton", tmp_path)
    finally:
        stopped.set()
        killer.join()
    assert prepare(candidate("cuda"), "cuda", tmp_path)["kernels"]


def test_the_server_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from warpsmith.workers.judge import languages\nfrom warpsmith.workers.judge.machine import process_control\n"
        "from warpsmith.workers.judge.languages import CompileLimits\n"
        "languages.prepare(Path(sys.argv[1]).read_text(), 'cuda', target_arch='sm_90', cache_dir=Path(sys.argv[2]),\n"
        "                  limits=CompileLimits(), workloads=[])\n"
        "print(*process_control.own_children, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(CANDIDATES / "add_relu_cuda.py"), str(tmp_path / "cache")],
        stdout=subprocess.PIPE,
        text=True,
        env=judge_environment(tmp_path, tmp_path),
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        assert b"compile_server" in command(pid)
        parent.kill()
    wait_until(lambda: not alive(pid))


def test_what_is_timed_waits_for_a_server_that_starts_and_its_children_have_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one here, for it needs a server that starts in an environment of its own: to start one takes seconds."""
    compile_service.close()
    monkeypatch.setenv("WARPSMITH_OPENAI_API_KEY", "secret")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    compile_service.settle()
    assert compile_service._SHARED.running() is None  # none is started for it
    compile_service.start()
    compile_service.settle()
    assert (started := compile_service._SHARED.running()) is not None
    assert started._ability is not None
    say = "import os\nraise KeyError(sorted(os.environ.items()))"
    with pytest.raises(CompileError) as said:
        prepare(triton(say), "triton", tmp_path)
    text = said.value.message
    assert "('TRITON_INTERPRET', '0')" in text
    assert "('CUDA_VISIBLE_DEVICES', '')" in text
    assert "secret" not in text
    assert "secret" not in Path(f"/proc/{server()}/environ").read_text()
