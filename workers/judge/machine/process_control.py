"""Linux's means to control a process.

They are death signals, subreaping, capabilities, limits and the walk over a process's children. Every function acts on
the calling process unless it names a pid. Linux only: `prctl` and `/proc` are its interfaces (prctl(2), proc(5)).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_ADDR_NO_RANDOMIZE = 0x0040000
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_APART, _APART_IN_NAMESPACE = 1 << 30, 60_000
"""User numbers that no system hands out (Linux has process ids below 1 << 22)."""

_libc = ctypes.CDLL(None, use_errno=True)

own_children: set[int] = set()
"""Pids of children that this process started itself.

A dead fork server leaves other children behind; when those are killed, these are spared.
"""


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(ctypes.c_int(option), *padded) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent(parent: int, death: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal `death` when the thread that started this process ends.

    Ends at once where `parent` is already gone.
    """
    _prctl(_PR_SET_PDEATHSIG, death)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies.

    So none of them escapes by a double fork.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def adopts_orphans() -> bool:
    """Check whether `adopt_orphans` was called in this process."""
    flag = ctypes.c_int(0)
    if _libc.prctl(ctypes.c_int(_PR_GET_CHILD_SUBREAPER), ctypes.byref(flag), 0, 0, 0) != 0:
        return False
    return flag.value == 1


def hide_memory() -> None:
    """Forbid other processes of this user to trace this one.

    They cannot read its memory and environment either.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """Give up, for good, what set-user programs would add. Landlock and seccomp ask for it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_privileges(keep: Collection[int] = ()) -> None:
    """Give up every capability but those in `keep`, and the gaining of new ones.

    As root this leaves root's files but not ptrace, mount or limits. The programs that this process starts keep the
    same capabilities.
    """
    forbid_new_privileges()
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in keep:
            with contextlib.suppress(OSError):  # not permitted, or beyond the kernel's last capability
                _prctl(_PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):  # kernels before 4.3
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = (sum(1 << number % 32 for number in keep if number // 32 == word) for word in (0, 1))
    if _libc.capset(header, (ctypes.c_uint32 * 6)(low, low, low, high, high, high)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")
    for capability in keep:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def fix_addresses() -> None:
    """Have the next program of this process find its memory where it always lies (personality(2)).

    A sanitizer's shadow has a fixed place, which random addresses may take. Raises OSError.
    """
    if _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"personality: {os.strerror(number)}")


def count_apart(tasks: int) -> None:
    """Let this process, whose effective user is root, have at most `tasks` threads.

    RLIMIT_NPROC does not bind root's own processes (kernel/fork.c), so the real user becomes one that no other process
    has. Its number is made of the process id, or, where a user namespace maps too few numbers, taken from the end of
    those that it surely has. Files are opened by the effective user, which stays; but access(2) asks for the real one,
    and compilers call it. Raises OSError.
    """
    effective = os.geteuid()
    try:
        os.setresuid(_APART | os.getpid(), effective, effective)
    except OSError:
        os.setresuid(_APART_IN_NAMESPACE + os.getpid() % 4096, effective, effective)
    resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))


def set_writable(address: int, size: int, writable: bool) -> None:
    """Allow or forbid every thread of this process to write to its pages there (mprotect(2)).

    Every page that these bytes touch. They stay readable. Raises OSError.
    """
    before = address % mmap.PAGESIZE
    address, size = address - before, size + before
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(protection)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mprotect: {os.strerror(number)}")


def works_in_child(act: Callable[[], None]) -> bool:
    """Check whether `act` raises no OSError, tried in a child that ends there."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with contextlib.suppress(OSError):
                act()
                code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status. Raises OSError."""
    with open(f"/proc/{pid}/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def begin_session(parent: int, output_fd: int, keep: Iterable[int] = ()) -> None:
    """Set up a process that was just forked for untrusted code.

    It gets a session that dies with `parent`, no input, its output in `output_fd`, and of its other descriptors only
    those in `keep`.
    """
    os.setsid()
    die_with_parent(parent)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, output_fd), (2, output_fd)):
        os.dup2(source, target)
    close_other_fds({0, 1, 2, *keep})
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(0o077)


def kill_session(pid: int) -> None:
    """Kill a process that `begin_session` set up, or is about to, with its group.

    It may be gone already. The group dies at once, so that it cannot fork faster than it is killed. Before its own
    setsid a process has no group yet.
    """
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def close_other_fds(keep: Iterable[int]) -> None:
    """Close every descriptor but those in `keep`."""
    low = 0
    for fd in sorted(set(keep)):
        if low < fd:  # closerange(0, 0) closes everything: its end wraps around
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def set_limits(limits: dict[str, int]) -> None:
    """Set hard and soft limits by name (`AS`, `FSIZE` ...), never above the hard limit in force."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bounded, bounded))


def children(pid: int) -> list[int]:
    """Direct children of a process, all threads' together; empty where it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    members = [pid]
    for member in members:
        members += [child for child in children(member) if child not in members]
    return members


def resident_bytes(pid: int) -> int:
    """Return the private resident memory of a process and its descendants.

    Memory shared with the referee (the buffers) is not counted.
    """
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{member}/status") as file:
            for line in file:
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
    return total


def user_tasks() -> int:
    """Processes and threads of this user, which is what RLIMIT_NPROC counts."""
    total = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{entry.name}/task"))
    return total


def virtual_bytes(pid: int) -> int:
    """Size of a process's address space."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def is_stopped(pid: int) -> bool:
    """Check whether every thread of the process is stopped or dead."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] not in "TtZX":
                    return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def on_one_core(pid: int) -> Iterator[None]:
    """Hold every thread of the process, and the caller's, on one core inside the context.

    Threads that it starts meanwhile inherit that and are released with the others.

    Raises OSError where the process is not ours to bind.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        _bind_tasks(pid, {min(cores)})
        yield
    finally:
        os.sched_setaffinity(0, cores)
        _bind_tasks(pid, cores)


def _bind_tasks(pid: int, cores: set[int]) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):  # this thread is
                os.sched_setaffinity(int(task), cores)


def kill_children(pid: int, spare: Iterable[int], timeout_s: float = 5.0) -> list[int]:
    """Kill, until none is left, the children of `pid` that are not in `spare`.

    Dead ones are reaped where `pid` is this process. Descendants of the killed are adopted by the nearest subreaper, so
    a caller that is one sees them in the next round. Returns the pids that were killed; raises TimeoutError where
    processes are born faster than they die.
    """
    spared = set(spare)
    killed: list[int] = []
    deadline = time.monotonic() + timeout_s
    while victims := [child for child in children(pid) if child not in spared]:
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            if pid == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(victim, 0)
        killed += victims
        if time.monotonic() > deadline:
            raise TimeoutError(f"children of {pid} outlive their killing: {victims[:8]}")
    return killed
