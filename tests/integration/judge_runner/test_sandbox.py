"""The sandbox from inside: what is tried in a runner fails there and would succeed elsewhere."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from benchmarks.redteam_catalogue.text import LIBC
from tests import degraded, escapes, judging
from tests.field import REFUSALS, Field
from tests.judging import GOOD_NORM, LAYER_NORM, LAYER_NORMS, alive, norm_candidate
from tests.kinds import nightly_but
from tests.support.waiting import wait_until
from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.job.documents import Job, SandboxLevel, Verdict
from warpsmith.kernels_db.runtime import CompileError, cpp
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.protocol.client import JudgeClient, judge_environment
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox import sandbox

TIMEOUT_S = 120.0
RIGHT = ("time", "physics")
"""Gates that only a right candidate gets to; what the clock says is not the matter here."""

ABILITY = sandbox.detect()
whole = pytest.mark.skipif(
    sandbox.reachable(ABILITY) != "isolated", reason=f"this machine reaches {sandbox.reachable(ABILITY)}: {ABILITY}"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can do without the sandbox what is tried here")


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    made = Field(tmp_path_factory.mktemp("field"), torch.device("cpu"), [])
    yield made
    made.close()


def _probe(contender: RunnerHandle, name: str) -> int:
    contender.fill(0, [torch.tensor([escapes.NUMBER[name]])])
    contender.call(0, 20.0)
    return int(contender.slots[0].tensor(1).item())


@pytest.fixture(scope="module")
def prisoner(field: Field) -> Iterator[RunnerHandle]:
    contender = field.runner(field.source)
    contender.bind([TensorSpec("which", (1,), (1,), torch.int64)], [TensorSpec("out", (1,), (1,), torch.int64)], 1)
    yield contender
    contender.close()


@whole
@pytest.mark.parametrize("name", escapes.TRIES | escapes.UNSURE)
def test_an_escape_of_native_code_fails(prisoner: RunnerHandle, name: str) -> None:
    assert _probe(prisoner, name) in REFUSALS


@pytest.mark.parametrize("name", escapes.HONEST)
def test_what_honest_code_does_works(prisoner: RunnerHandle, name: str) -> None:
    assert _probe(prisoner, name) == 0


@pytest.mark.nightly
@as_root
def test_each_escape_succeeds_without_the_sandbox(field: Field) -> None:
    """Else the tests above would prove nothing."""
    failed = {}
    for name in escapes.TRIES | escapes.HONEST:
        script = (
            "import ctypes, os, sys\n"
            f"probe = ctypes.CDLL({str(field.library)!r}).probe\n"
            f"which, out = ctypes.c_int64({escapes.NUMBER[name]}), ctypes.c_int64(-1)\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    probe(ctypes.byref(which), ctypes.byref(out))\n"
            "    os._exit(out.value)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        code = subprocess.run([sys.executable, "-c", script], cwd=field.directory, check=False).returncode
        if code != 0:
            failed[name] = errno.errorcode.get(code, str(code))
    assert not failed


PYTHON = """
import os, socket, subprocess, torch

def attempt(act):
    try:
        act()
    except OSError as error:
        return error.errno or -1
    except subprocess.SubprocessError:
        return -1
    return 0

def run(x):
    tries = [
        lambda: open("SECRET").read(),
        lambda: os.listdir("CACHE"),
        lambda: open(f"/proc/{os.getppid()}/environ", "rb").read(),
        lambda: open("/tmp/warpsmith-left", "w"),
        lambda: open("/dev/shm/warpsmith-left", "w"),
        lambda: open("OWN/left", "w"),
        lambda: socket.create_connection(("127.0.0.1", PORT), timeout=5),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        lambda: subprocess.run(["/bin/true"], check=True),
        lambda: os.fork() or os._exit(0),
        lambda: os.kill(os.getppid(), 0),
        lambda: os.chmod("SECRET", 0o600),
    ]
    return torch.tensor([attempt(act) for act in tries], dtype=torch.int64) + 0 * x.long()
"""


@whole
@pytest.mark.parametrize("mode", ["eager", "float64"])
def test_an_escape_of_a_reference_fails(field: Field, mode: Mode) -> None:
    source = PYTHON
    for word, value in {
        "SECRET": str(field.directory / "secret"),
        "CACHE": str(field.cache),
        "OWN": str(field.own),
        "PORT": str(field.listener.getsockname()[1]),
    }.items():
        source = source.replace(word, value)
    contender = field.runner(source, mode)
    try:
        dtype = torch.float64 if mode == "float64" else torch.float32
        contender.bind([TensorSpec("x", (12,), (1,), dtype)], [TensorSpec("out", (12,), (1,), torch.int64)], 1)
        contender.fill(0, [torch.zeros(12, dtype=dtype)])
        contender.call(0, 20.0)
        contender.deliver()
        answers = contender.slots[0].tensor(1).tolist()
    finally:
        contender.close()
    assert set(answers) <= REFUSALS, answers


@whole
def test_a_compiled_reference_may_compile_and_nothing_else(field: Field, tmp_path: Path) -> None:
    source = f"""
import os, socket, subprocess, torch
subprocess.run(["g++", "--version"], check=True, stdout=subprocess.DEVNULL)
def refused(act):
    try:
        act()
    except OSError:
        return True
    return False
assert refused(lambda: open({str(field.directory / "secret")!r}))
assert refused(lambda: socket.create_connection(("127.0.0.1", {field.listener.getsockname()[1]}), timeout=5))
assert refused(lambda: os.kill(os.getppid(), 0))
assert refused(lambda: os.setsid())
child = subprocess.run(["cat", {str(field.directory / "secret")!r}], stderr=subprocess.DEVNULL)
assert child.returncode != 0
open("note", "w").close()
def run(x):
    return x + 1
"""
    contender = field.runner(source, "compile")
    contender.close()


def test_a_reference_that_may_start_processes_may_not_start_many(field: Field) -> None:
    """Orphans, which are no longer its own."""
    name = f"wm{uuid.uuid4().hex[:8]}"
    source = f"""
import ctypes, os, time
for _ in range(1500):
    if os.fork() == 0:
        if os.fork() != 0:
            os._exit(0)
        ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
        time.sleep(600)
time.sleep(600)
"""
    with pytest.raises(RunnerFault, match="too many processes") as raised:
        field.runner(source, "compile", memory_bytes=8 << 30)  # their memory is not what is to end them
    assert raised.value.kind == "processes"
    wait_until(lambda: not judging.named(name))


TRITON = """
import os, socket
import triton
import triton.language as tl

HERE
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n), i < n)

def run(x, out):
    copy[(1,)](x, out, x.numel(), BLOCK=64)
"""


@whole
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="no Triton")
def test_what_a_compiling_process_imports_is_confined(field: Field, tmp_path: Path) -> None:
    """Triton is compiled by importing the candidate."""
    attempts = {
        "": None,
        f"open({str(field.directory / 'secret')!r})": "PermissionError",
        f"open({str(tmp_path / 'left')!r}, 'w')": "PermissionError",
        "socket.socket(socket.AF_INET)": "PermissionError",
        "os.kill(os.getppid(), 0)": "PermissionError",
    }
    work = judging.workload("bench", "bench", [judging.tensor("x", (64,))], [judging.output("out", (64,))])
    for number, (attempt, error) in enumerate(attempts.items()):
        options: dict[str, Any] = {"target_arch": "sm_90", "limits": languages.CompileLimits(), "workloads": [work]}
        options["cache_dir"] = tmp_path / str(number)
        if error is None:
            assert languages.prepare(TRITON.replace("HERE", attempt), "triton", **options)["kernels"]
        else:
            with pytest.raises(CompileError, match=error):
                languages.prepare(TRITON.replace("HERE", attempt), "triton", **options)


# What one runner cannot keep from the next, and what it cannot keep going


THREADS = """
#include <pthread.h>
#include <unistd.h>
static void* born(void*) { for (;;) sleep(100); }
extern "C" void many(int64_t* out) {
    pthread_attr_t small; pthread_attr_init(&small); pthread_attr_setstacksize(&small, 16384);
    pthread_t thread; int64_t count = 0;
    while (count < 5000 && pthread_create(&thread, &small, born, nullptr) == 0) count++;
    *out = count;
}
"""


def test_threads_are_limited_and_end_with_their_runner(field: Field) -> None:
    cpp.build(THREADS, cache_dir=field.own)
    contender = field.runner(judging.cpp(THREADS, "def run(out):\n    kernels.many(out)\n"))
    pid = contender.pid
    try:
        contender.bind([], [TensorSpec("out", (1,), (1,), torch.int64)], 1)
        contender.fill(0, [])
        contender.call(0, 20.0)
        count = int(contender.slots[0].tensor(0).item())
        assert len(os.listdir(f"/proc/{pid}/task")) > count
    finally:
        contender.close()
    assert 16 <= count < 5000
    assert not alive(pid)


def test_a_runner_dies_with_referee_and_fork_server_at_once(tmp_path: Path) -> None:
    """It ignores what it can, starts threads, and asks to outlive its parent."""
    name = f"wo{uuid.uuid4().hex[:8]}"
    before = LIBC + "static void* born(void*) { for (;;) sleep(100); }\n"
    body = (
        f'prctl(15, "{name}"); prctl(1, 0); signal(15, (void*)1); signal(1, (void*)1);'
        "unsigned long thread; for (int i = 0; i < 8; i++) pthread_create(&thread, nullptr, born, nullptr);"
        "if (fork() == 0) { setsid(); for (;;) sleep(100); } for (;;) sleep(100);"
    )
    with JudgeClient(cache=tmp_path / "cache") as judge:

        def kill() -> None:
            wait_until(lambda: bool(judging.named(name)), 60.0)
            assert judge.pid is not None
            both = [judge.pid, judging.fork_server_of(judge.pid)]
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in both:
                    assert pid is not None
                    os.kill(pid, number)

        job = judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate(body, before), call_s=60.0)
        with judging.meanwhile(kill), pytest.raises(Exception, match="ended with status"):
            judge.judge(job, timeout_s=TIMEOUT_S)
        wait_until(lambda: not judging.named(name))


# Machines that can do less


def _verdict(cache: Path, directory: Path, hidden: tuple[degraded.Hidden, ...], job: Job) -> Verdict:
    program = degraded.interpreter(directory, hidden)
    finished = subprocess.run(
        [program, "-P", "-m", "warpsmith.workers.judge"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
        env=judge_environment(cache, directory),
    )
    answer: Verdict = json.loads(finished.stdout.splitlines()[-1])
    return answer


def _job(minimum: SandboxLevel | None) -> Job:
    job = judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM)
    if minimum is not None:
        job["limits"]["sandbox"] = minimum
    return job


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge-cache")


DEGRADED: dict[tuple[degraded.Hidden, ...], tuple[SandboxLevel, set[str]]] = {
    (): ("isolated", set()),
    ("namespaces",): ("confined", {sandbox.NETWORK}),
    ("landlock",): ("filtered", {sandbox.FILES}),
    ("seccomp",): ("process", {sandbox.SYSTEM_CALLS, sandbox.FILES, sandbox.THREADS_ONLY}),
    ("seccomp", "landlock", "namespaces"): (
        "process",
        {sandbox.SYSTEM_CALLS, sandbox.FILES, sandbox.THREADS_ONLY, sandbox.NETWORK, sandbox.SIGNALS},
    ),
    ("capabilities",): ("confined", {sandbox.NETWORK, sandbox.COUNTED}),
}


@whole
@as_root
@pytest.mark.parametrize("hidden", nightly_but(lambda hidden: len(hidden) == 3, DEGRADED), ids="-".join)
def test_the_verdict_says_what_stood(cache: Path, tmp_path: Path, hidden: tuple[degraded.Hidden, ...]) -> None:
    level, absent = DEGRADED[hidden]
    verdict = _verdict(cache, tmp_path, hidden, _job(None))
    assert verdict["gate"] in RIGHT, verdict["reason"]
    assert verdict["sandbox"]["level"] == level
    full = set(sandbox.expected(sandbox.profile("candidate", "cpu", "cpp", tmp_path, {}, 1), ABILITY).layers)
    assert full - set(verdict["sandbox"]["layers"]) == absent
    if "compiler" in verdict["sandbox"]:  # it is not where the build was found in the cache
        assert (sandbox.FILES in verdict["sandbox"]["compiler"]["layers"]) == (sandbox.FILES not in absent)


@whole
def test_a_minimum_that_is_not_reached_ends_the_job(cache: Path, tmp_path: Path) -> None:
    verdict = _verdict(cache, tmp_path, ("landlock",), _job("confined"))
    assert (verdict["verdict"], verdict["gate"]) == ("ambiguous", "sandbox")
    failure = verdict["failure"]
    assert failure is not None
    assert (failure["kind"], failure["field"]) == ("sandbox", "limits.sandbox")
    assert (failure["found"], failure["expected"]) == ("filtered", "confined")
    assert verdict["sandbox"].items() >= sandbox.NOTHING_RAN.items()


@whole
def test_a_minimum_that_is_reached_lets_the_job_pass(judge: JudgeClient) -> None:
    verdict = judge.judge(_job("isolated"), timeout_s=TIMEOUT_S)
    assert verdict["gate"] in RIGHT, verdict["reason"]
    assert verdict["sandbox"]["level"] == "isolated"


# One layer alone


def _alone(script: str, **arguments: Any) -> str:
    """What a fresh process prints that has this Python and one layer."""
    start = f"import sys; sys.path.insert(0, {str(IMPORT_ROOT)!r})\nimport os, socket\n"
    start += "import encodings.idna\n"  # what connecting imports
    start += "from warpsmith.workers.judge.machine import process_control\n"
    start += "from warpsmith.workers.judge.sandbox import landlock, network, seccomp\n"
    start += """
def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
def tcp():
    socket.create_connection(("127.0.0.1", PORT), timeout=5).close()
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
def read():
    open("SECRET").close()
def signal():
    os.kill(os.getppid(), 0)
def report():
    print(*[tried(act) for act in (tcp, udp, read, signal, lambda: os.fork() or os._exit(0))])
"""
    for word, value in arguments.items():
        start = start.replace(word, str(value))
    finished = subprocess.run([sys.executable, "-c", start + script], capture_output=True, text=True, check=True)
    return finished.stdout.strip()


@pytest.fixture
def places(field: Field) -> dict[str, Any]:
    return {"PORT": field.listener.getsockname()[1], "SECRET": field.directory / "secret"}


def test_no_layer_refuses_nothing(places: dict[str, Any]) -> None:
    assert _alone("report()", **places) == "done done done done done"


@pytest.mark.skipif(ABILITY.landlock < 6, reason=f"Landlock ABI {ABILITY.landlock}")
def test_landlock_alone_holds_files_tcp_and_signals(places: dict[str, Any]) -> None:
    script = """
process_control.drop_privileges()
landlock.restrict([landlock.Rule("/usr", "run")], landlock.abi())
report()
"""
    assert _alone(script, **places) == "PermissionError done PermissionError PermissionError done"


@pytest.mark.parametrize("version", range(1, 8))
def test_every_abi_of_landlock_holds_files(places: dict[str, Any], version: int) -> None:
    if version > ABILITY.landlock:
        pytest.skip(f"Landlock ABI {ABILITY.landlock}")
    script = f"""
process_control.drop_privileges()
landlock.restrict([landlock.Rule("/usr", "run")], {version})
report()
"""
    tcp = "PermissionError" if version >= 4 else "done"
    signals = "PermissionError" if version >= 6 else "done"
    assert _alone(script, **places) == f"{tcp} done PermissionError {signals} done"


@pytest.mark.skipif(not ABILITY.seccomp, reason="no seccomp")
def test_a_filter_alone_holds_sockets_signals_and_processes(places: dict[str, Any]) -> None:
    script = """
process_control.drop_privileges()
rules = seccomp.Rules(processes=False, memory_files=False, scheduled=True, pid=os.getpid())
seccomp.install(seccomp.program(rules))
report()
"""
    assert _alone(script, **places) == "PermissionError PermissionError done PermissionError PermissionError"


@pytest.mark.skipif(ABILITY.network == "none", reason="no network namespace")
def test_a_namespace_alone_holds_the_network(places: dict[str, Any]) -> None:
    script = "network.leave(network.way())\nreport()\n"
    assert _alone(script, **places) == "OSError done done done done"


@pytest.mark.skipif(ABILITY.network == "none", reason="no network namespace")
def test_a_namespace_without_capabilities_keeps_the_user(places: dict[str, Any]) -> None:
    script = """
import ctypes
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # else /proc/self stays root's
print(network.way())
before = os.geteuid(), os.getegid()
network.leave("user")
assert (os.geteuid(), os.getegid()) == before
print(tried(tcp), tried(udp))
"""
    assert _alone(script, **places).split() == ["user", "OSError", "done"]


def test_levels_stand_on_each_other() -> None:
    profile = sandbox.profile("candidate", "cpu", "cpp", Path("/nowhere"), {}, 2)
    assert get_args(SandboxLevel) == sandbox.LEVELS
    reached = [
        sandbox.expected(profile, sandbox.Ability(landlock, seccomp, network, "none")).level
        for landlock, seccomp, network in [(0, False, "none"), (0, True, "none"), (1, True, "none"), (1, True, "user")]
    ]
    assert reached == list(sandbox.LEVELS)
    compiler = sandbox.profile("compile", "cpu", None, Path("/nowhere"), {}, 2)
    assert sandbox.expected(compiler, sandbox.Ability(5, True, "plain", "none")).level == "confined"
    assert sandbox.expected(compiler, sandbox.Ability(6, True, "plain", "none")).level == "isolated"


def test_a_runner_that_is_held_less_than_it_says_is_found(tmp_path: Path) -> None:
    held = sandbox.Confinement((sandbox.SYSTEM_CALLS,))
    with pytest.raises(sandbox.NotConfined, match=r"NoNewPrivs is 0, expected 1"):
        sandbox.verify(os.getpid(), held)


def test_the_cost_is_small(field: Field, record_property: Any) -> None:
    """Milliseconds of processor time that confining one runner takes, on this machine; reported."""
    profile = sandbox.profile("candidate", "cpu", "cpp", field.directory, {CACHE_VARIABLE: str(field.own)}, 2)
    spent = []
    for _ in range(5):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            sandbox.count_tasks(profile, ABILITY)
            process_control.drop_privileges()
            start = time.process_time()
            sandbox.confine(profile, ABILITY)
            os.write(write, repr(1000 * (time.process_time() - start)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        spent.append(float(os.read(read, 64)))
        os.close(read)
        os.close(write)
    record_property("milliseconds", sorted(spent)[2])
    assert sorted(spent)[2] < 50
