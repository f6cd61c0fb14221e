"""A seccomp filter: which system calls untrusted code may make, on x86_64 and aarch64.

Written by hand.

A refused call fails with EPERM, so that a library that only tried goes on; a call newer than this table fails with
ENOSYS, as on an older kernel. A call of another architecture's or x32's table kills the process: its numbers mean
something else. The rest is allowed without a look at its arguments, which the kernel remembers since 5.11, so the calls
of the timed exchange cost nothing more.

The rules are in `refused` and `conditions`; `program` turns them into classic BPF, `evaluate` runs that in Python for
tests, `install` loads it into the kernel.

Source: Documentation/userspace-api/seccomp_filter.rst, include/uapi/linux/{seccomp,filter,audit}.h, the syscall tables
of Linux 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.workers.judge.sandbox.syscalls import NEWEST, NUMBERS

_X32 = 0x40000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_* of what `platform.machine` names."""

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER = 1
_TSYNC, _SPEC_ALLOW = 1, 4

_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_KIND = 1, 1, 5, 0xF
_CLONE_PARENT, _CLONE_THREAD = 0x8000, 0x10000
_CLONE_NAMESPACES = 0x7E020000
_O_TRUNC, _O_ACCMODE, _O_RDONLY = 0o1000, 3, 0
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY = 8, 10, 15, 1026
_FIOSETOWN, _SIOCSPGRP, _TIOCSTI, _TIOCLINUX = 0x8901, 0x8902, 0x5412, 0x541C
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_PTRACER = 1, 4, 36, 0x59616D61
_ANY = 0xFFFFFFFF

_ALWAYS = """
    connect
    ptrace process_vm_readv process_vm_writev pidfd_getfd pidfd_open pidfd_send_signal kcmp
    process_madvise process_mrelease move_pages migrate_pages
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr
    statmount listmount unshare setns
    bpf perf_event_open userfaultfd keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register
    kexec_load kexec_file_load init_module finit_module delete_module create_module reboot swapon swapoff
    open_by_handle_at name_to_handle_at fanotify_init fanotify_mark inotify_init inotify_init1 inotify_add_watch
    acct quotactl quotactl_fd syslog vhangup lookup_dcookie nfsservctl uselib iopl ioperm modify_ldt
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    setpriority ioprio_set setsid setpgid
    setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset
    chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat
    setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
    utime utimes utimensat futimesat truncate
    shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink
    memfd_secret
""".split()  # noqa: SIM905 - a hundred names read better so
"""Refused in every case.

They concern other processes, the kernel's own interfaces, and what Landlock leaves open (`landlock`).

Kept to this process are also: the group that dies as one (setsid, setpgid), the user by which its threads are counted
(setuid ...), and memory that no limit counts and that outlives it (System V, message queues).
"""
_PROCESSES = ("fork", "vfork", "execve", "execveat")
_SCHEDULING = ("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
_SIGNALS = {"kill": 1, "tgkill": 2, "rt_sigqueueinfo": 1, "rt_tgsigqueueinfo": 2}
"""Calls that signal a process named by their first argument, with the signal's position."""
_SIGKILL, _SIGCONT = 9, 18
_UNKNOWN = ("clone3", "openat2")
"""Calls that fail with ENOSYS, as their arguments are in memory, hidden from a filter.

Libraries fall back to clone and openat.
"""


@dataclass(frozen=True)
class Condition:
    """A call is allowed where an argument has one of some values.

    The low 32 bits of argument `position`, under `mask`, are among `values` (or, with `refused`, are not).
    """

    name: str
    position: int
    values: tuple[int, ...]
    mask: int = _ANY
    refused: bool = False


@dataclass(frozen=True)
class Rules:
    """The options of a filter.

    processes: other programs may be started; otherwise threads are all that can be created, and nothing can be
    signalled but the process itself: not to go on where the referee has stopped it, nor to die as if from outside.
    memory_files: memfd_create is allowed. scheduled: the referee says where and when its threads run
    (`process_control.on_one_core`, SIGSTOP), so it has no timers that signal; otherwise it may for itself. pid: of the
    process. becomes: it may execute a program in its own place, though it may create none.
    """

    processes: bool
    memory_files: bool
    scheduled: bool
    pid: int
    becomes: bool = False


Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, k."""


def available() -> bool:
    """Check whether this kernel takes filters and this architecture has a table."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    action = ctypes.c_uint32(ERRNO)
    get_action = 2  # SECCOMP_GET_ACTION_AVAIL
    return _seccomp(get_action, 0, ctypes.byref(action)) == 0


def refused(rules: Rules) -> dict[str, int]:
    """Return the calls that fail whatever their arguments, with their errors."""
    names = dict.fromkeys(_ALWAYS, errno.EPERM) | dict.fromkeys(_UNKNOWN, errno.ENOSYS)
    if not rules.processes:
        ended = [name for name in _PROCESSES if not rules.becomes or name != "execve"]
        names |= dict.fromkeys([*ended, "tkill"], errno.EPERM)
    if not rules.memory_files:
        names["memfd_create"] = errno.EPERM
    if rules.scheduled:
        names |= dict.fromkeys([*_SCHEDULING, "timer_create"], errno.EPERM)  # a timer can send SIGCONT
    return names


def conditions(rules: Rules) -> list[Condition]:
    """Return the calls whose arguments decide."""
    own = (0, rules.pid)
    found = [
        # Unix sockets that can name no peer: connecting is refused, and datagrams could carry an address.
        Condition("socket", 0, (_AF_UNIX,)),
        Condition("socket", 1, (_SOCK_STREAM, _SOCK_SEQPACKET), mask=_SOCK_KIND),
        Condition("socketpair", 0, (_AF_UNIX,)),
        Condition("socketpair", 1, (_SOCK_STREAM, _SOCK_SEQPACKET), mask=_SOCK_KIND),
        # No namespaces, and no child that counts as a sibling.
        Condition("clone", 0, (0,), mask=_CLONE_NAMESPACES | _CLONE_PARENT),
        # A file may be cut only by who may write it; before ABI 3 Landlock does not see to that.
        Condition("open", 1, (_O_TRUNC | _O_RDONLY,), mask=_O_TRUNC | _O_ACCMODE, refused=True),
        Condition("openat", 2, (_O_TRUNC | _O_RDONLY,), mask=_O_TRUNC | _O_ACCMODE, refused=True),
        # Signals by way of a descriptor's owner; typing into a terminal.
        Condition("fcntl", 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY), refused=True),
        Condition("ioctl", 1, (_FIOSETOWN, _SIOCSPGRP, _TIOCSTI, _TIOCLINUX), refused=True),
        # It dies with its parent, shows its memory to no process and adopts none.
        Condition(
            "prctl", 0, (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_PTRACER), refused=True
        ),
        # Limits and scheduling of other processes of this user.
        Condition("prlimit64", 0, own),
        *(Condition(name, 0, own) for name in _SCHEDULING if not rules.scheduled),
    ]
    if not rules.processes:
        found.append(Condition("clone", 0, (_CLONE_THREAD,), mask=_CLONE_THREAD))
        for name, position in _SIGNALS.items():
            found.append(Condition(name, 0, (rules.pid,)))
            found.append(Condition(name, position, (_SIGKILL, _SIGCONT), refused=True))
    return found


def program(rules: Rules, machine: str | None = None) -> list[Instruction]:
    """Return the filter in classic BPF for `machine` (x86_64, aarch64; default: this one).

    Raises KeyError for another.
    """
    machine = machine or platform.machine()
    numbers = NUMBERS[machine]
    code = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    code += [(_AT_LEAST, 0, 1, NEWEST + 1), (_RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    by_name: dict[str, list[Condition]] = {}
    for condition in conditions(rules):
        by_name.setdefault(condition.name, []).append(condition)
    for name, tests in by_name.items():
        if name in numbers:
            body = [instruction for test in tests for instruction in _tested(test)] + [(_RETURN, 0, 0, ALLOW)]
            code += [(_EQUAL, 0, len(body), numbers[name]), *body]
    for name, error in refused(rules).items():
        if name in numbers:
            code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, ERRNO | error)]
    return [*code, (_RETURN, 0, 0, ALLOW)]


def _tested(condition: Condition) -> list[Instruction]:
    """Return instructions that return EPERM where the condition fails and else continue."""
    load = [(_LOAD, 0, 0, _AT_ARGUMENTS + 8 * condition.position), (_AND, 0, 0, condition.mask)]
    count = len(condition.values)
    refuse = (_RETURN, 0, 0, ERRNO | errno.EPERM)
    if condition.refused:  # a match jumps onto the refusal, the last test over it
        tests = [(_EQUAL, count - 1 - n, int(n == count - 1), value) for n, value in enumerate(condition.values)]
    else:  # a match jumps over the refusal
        tests = [(_EQUAL, count - n, 0, value) for n, value in enumerate(condition.values)]
    return [*load, *tests, refuse]


def evaluate(code: Sequence[Instruction], machine: str, number: int, arguments: Sequence[int] = ()) -> int:
    """Return the kernel's answer to a call: an interpreter of the few instructions used here."""
    data = {_AT_NUMBER: number, _AT_ARCHITECTURE: _ARCHITECTURES.get(machine, 0)}
    for position in range(6):
        value = arguments[position] if position < len(arguments) else 0
        data[_AT_ARGUMENTS + 8 * position] = value & _ANY
        data[_AT_ARGUMENTS + 8 * position + 4] = value >> 32 & _ANY
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == _RETURN:
            return constant
        if operation == _LOAD:
            accumulator = data[constant]
        elif operation == _AND:
            accumulator &= constant
        else:
            held = accumulator == constant if operation == _EQUAL else accumulator >= constant
            at += if_true if held else if_false


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def install(code: Sequence[Instruction]) -> None:
    """Bind every thread of this process permanently. Raises OSError.

    Without SPEC_ALLOW kernels before 5.16 would also switch off speculation, and a confined kernel would be slower than
    it is anywhere else. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).
    """
    instructions = (_Instruction * len(code))(*(_Instruction(*instruction) for instruction in code))
    loaded = _Program(len(code), instructions)
    result = _seccomp(_SET_MODE_FILTER, _TSYNC | _SPEC_ALLOW, ctypes.byref(loaded))
    if result != 0:
        number = ctypes.get_errno() if result < 0 else errno.EBUSY  # above 0: a thread that has another filter
        raise OSError(number, f"seccomp: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)


def _seccomp(operation: int, flags: int, argument: object) -> int:
    number = NUMBERS[platform.machine()]["seccomp"]
    result: int = _libc.syscall(ctypes.c_long(number), ctypes.c_uint(operation), ctypes.c_uint(flags), argument)
    return result
