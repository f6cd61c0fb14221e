"""The filter's program, run in Python for both architectures: what it answers to which call."""

from __future__ import annotations

import errno
import platform
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.sandbox import seccomp
from warpsmith.workers.judge.sandbox.seccomp import ALLOW, ERRNO, KILL, Instruction, Rules, evaluate, program
from warpsmith.workers.judge.sandbox.syscalls import NEWEST, NUMBERS

MACHINES = ("x86_64", "aarch64")
PID = 4711
RULES = {
    "strict": Rules(processes=False, memory_files=False, scheduled=True, pid=PID),
    "gpu": Rules(processes=False, memory_files=True, scheduled=False, pid=PID),
    "compiler": Rules(processes=True, memory_files=True, scheduled=False, pid=PID),
}
REFUSED = ERRNO | errno.EPERM
PROGRAMS = {(machine, name): program(rules, machine) for machine in MACHINES for name, rules in RULES.items()}
every_program = pytest.mark.parametrize(("machine", "name"), PROGRAMS)

AF_UNIX, AF_INET, SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_CLOEXEC = 1, 2, 1, 2, 5, 0o2000000
THREAD = 0x3D0F00  # what glibc's pthread_create passes
FORK, VFORK = 0x1200011, 0x4111
O_WRONLY, O_RDWR, O_CREAT, O_TRUNC = 1, 2, 0o100, 0o1000


def _answer(machine: str, name: str, call: str, *arguments: int) -> int:
    return evaluate(PROGRAMS[machine, name], machine, NUMBERS[machine][call], arguments)


@every_program
def test_jumps_stay_inside_and_fit_a_byte(machine: str, name: str) -> None:
    code = PROGRAMS[machine, name]
    assert len(code) <= 4096
    for at, (operation, if_true, if_false, constant) in enumerate(code):
        assert 0 <= if_true <= 255
        assert 0 <= if_false <= 255
        assert 0 <= constant < 1 << 32
        if operation in (0x15, 0x35):
            assert at + 1 + max(if_true, if_false) < len(code)
    assert code[-1] == (0x06, 0, 0, ALLOW)


@every_program
def test_another_architecture_is_killed(machine: str, name: str) -> None:
    other = next(item for item in MACHINES if item != machine)
    for number in (0, 1, 59, 221):
        assert evaluate(PROGRAMS[machine, name], other, number) == KILL
        assert evaluate(PROGRAMS[machine, name], "i386", number) == KILL


@given(number=st.integers(0x40000000, 0xFFFFFFFF))
def test_x32_is_killed(number: int) -> None:
    assert evaluate(PROGRAMS["x86_64", "strict"], "x86_64", number) == KILL


@given(number=st.integers(NEWEST + 1, 0x3FFFFFFF), machine=st.sampled_from(MACHINES), name=st.sampled_from([*RULES]))
def test_calls_that_nobody_looked_at_are_not_there(number: int, machine: str, name: str) -> None:
    assert evaluate(PROGRAMS[machine, name], machine, number) == ERRNO | errno.ENOSYS


@given(
    number=st.integers(0, NEWEST),
    machine=st.sampled_from(MACHINES),
    name=st.sampled_from([*RULES]),
    arguments=st.lists(st.integers(0, (1 << 64) - 1), min_size=6, max_size=6),
)
def test_what_has_no_rule_is_allowed(number: int, machine: str, name: str, arguments: list[int]) -> None:
    rules = RULES[name]
    ruled = {*seccomp.refused(rules), *(item.name for item in seccomp.conditions(rules))}
    numbers = {NUMBERS[machine][call] for call in ruled if call in NUMBERS[machine]}
    answer = evaluate(PROGRAMS[machine, name], machine, number, arguments)
    assert number in numbers or answer == ALLOW
    assert answer in (ALLOW, REFUSED, ERRNO | errno.ENOSYS)


@every_program
def test_what_is_refused_is_refused_whatever_its_arguments(machine: str, name: str) -> None:
    for call, error in seccomp.refused(RULES[name]).items():
        if call in NUMBERS[machine]:
            for arguments in ((), (PID,) * 6, ((1 << 64) - 1,) * 6):
                assert _answer(machine, name, call, *arguments) == ERRNO | error, call


@every_program
def test_every_rule_names_a_call_of_the_table(machine: str, name: str) -> None:
    rules = RULES[name]
    ruled = {*seccomp.refused(rules), *(item.name for item in seccomp.conditions(rules))}
    assert ruled <= {*NUMBERS["x86_64"], *NUMBERS["aarch64"]}
    assert len(set(NUMBERS[machine].values())) == len(NUMBERS[machine])


@every_program
def test_sockets_reach_nobody(machine: str, name: str) -> None:
    for kind in (SOCK_STREAM, SOCK_SEQPACKET, SOCK_STREAM | SOCK_CLOEXEC):
        assert _answer(machine, name, "socket", AF_UNIX, kind) == ALLOW
        assert _answer(machine, name, "socketpair", AF_UNIX, kind) == ALLOW
    assert _answer(machine, name, "socket", AF_UNIX, SOCK_DGRAM) == REFUSED
    assert _answer(machine, name, "socketpair", AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC) == REFUSED
    for family in (0, AF_INET, 10, 16, 17, 38, 40):
        assert _answer(machine, name, "socket", family, SOCK_STREAM) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_and_nothing_else_for_candidates(machine: str) -> None:
    for name in RULES:
        assert _answer(machine, name, "clone", THREAD) == ALLOW
        for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
            assert _answer(machine, name, "clone", THREAD | namespace) == REFUSED
            assert _answer(machine, name, "clone", 17 | namespace) == REFUSED
        assert _answer(machine, name, "clone", FORK | 0x8000) == REFUSED
    for flags in (FORK, VFORK, 17, 0):
        assert _answer(machine, "strict", "clone", flags) == REFUSED
        assert _answer(machine, "gpu", "clone", flags) == REFUSED
        assert _answer(machine, "compiler", "clone", flags) == ALLOW
    assert _answer(machine, "compiler", "execve") == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_signals_of_candidates_stay_at_home(machine: str) -> None:
    for call in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        # The signal is the last argument but for rt_sigqueueinfo's information.
        def answer(whom: int, signal: int, call: str = call) -> int:
            return _answer(machine, "strict", call, whom, *([PID + 1] if "tg" in call else []), signal)

        assert answer(PID, 6) == ALLOW
        for whom in (1, PID - 1, 0, (1 << 64) - 1, (1 << 64) - PID):
            assert answer(whom, 6) == REFUSED
        # Not to go on where the referee stopped it, nor to die as if somebody else had killed it.
        assert answer(PID, 18) == answer(PID, 9) == REFUSED
    assert _answer(machine, "strict", "timer_create") == REFUSED
    assert _answer(machine, "gpu", "timer_create") == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_who_runs_where_is_the_referees_to_say_on_a_cpu(machine: str) -> None:
    for call in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        for whom in (0, PID):
            assert _answer(machine, "strict", call, whom) == REFUSED
            assert _answer(machine, "gpu", call, whom) == _answer(machine, "compiler", call, whom) == ALLOW
        for name in RULES:
            assert _answer(machine, name, call, PID - 1) == REFUSED


@every_program
def test_a_file_is_cut_only_by_who_opens_it_for_writing(machine: str, name: str) -> None:
    for flags, answer in ((O_TRUNC, REFUSED), (O_TRUNC | O_CREAT, REFUSED), (O_TRUNC | O_WRONLY, ALLOW), (0, ALLOW)):
        assert _answer(machine, name, "openat", 3, 0, flags) == answer
        if machine == "x86_64":
            assert _answer(machine, name, "open", 0, flags) == answer
    assert _answer(machine, name, "openat", 3, 0, O_TRUNC | O_RDWR | O_CREAT) == ALLOW


@every_program
def test_what_holds_the_process_cannot_be_changed(machine: str, name: str) -> None:
    for option in (1, 4, 36, 0x59616D61):
        assert _answer(machine, name, "prctl", option, 0) == REFUSED
    for option in (15, 16, 22, 38):
        assert _answer(machine, name, "prctl", option, 0) == ALLOW
    assert _answer(machine, name, "prlimit64", 0, 7) == ALLOW
    assert _answer(machine, name, "prlimit64", PID, 7) == ALLOW
    assert _answer(machine, name, "prlimit64", 1, 7) == REFUSED


HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+)\s+(\d+)"),
    "aarch64": ("/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_the_kernels(machine: str) -> None:
    name, pattern = HEADERS[machine]
    path = Path(name)
    if not path.is_file():
        pytest.skip(f"no kernel headers at {path} on this {platform.machine()}")
    found = {call: int(number) for call, number in re.findall(pattern, path.read_text())}
    newest = max(found.values())
    for call, number in NUMBERS[machine].items():
        if number <= newest:
            assert found[call] == number, call


def test_the_interpreter_follows_jumps() -> None:
    code: list[Instruction] = [(0x20, 0, 0, 0), (0x15, 1, 0, 5), (0x06, 0, 0, KILL), (0x06, 0, 0, ALLOW)]
    assert evaluate(code, "x86_64", 5) == ALLOW
    assert evaluate(code, "x86_64", 6) == KILL
