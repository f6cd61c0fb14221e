"""Landlock by its three system calls: a process gives up all but what it names.

It gives up the file system but for what it names, TCP, and signals and abstract sockets to processes outside.

A ruleset is built and enforced in one step by `restrict`. Rules unknown to the running kernel are left out, so one
description serves every ABI from 1 to 7. Landlock binds the calling thread and what that creates: threads that a
library started earlier stay outside.

Not held by Landlock at any ABI: stat, chmod, chown, utime, extended attributes, inotify, UDP, connecting to a socket
that has a path; before ABI 3 truncation. `seccomp` refuses those.

Source: Documentation/userspace-api/landlock.rst, include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System call numbers, the same on every architecture."""
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8
_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = 1 << 9, 1 << 10, 1 << 11, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

_READ = _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""The rights that a rule for anything but a directory may name."""
_RIGHTS = {
    "read": _READ,
    "run": _READ | _EXECUTE,
    "write": _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE,
    "device": _READ | _WRITE_FILE | _IOCTL_DEV,
}
_NEWER = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""ABI with which a right became known."""
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_BIND_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

Right = Literal["read", "run", "write", "device"]

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Rule:
    """Allows `right` on a path and all below it. A path that is not there is passed over."""

    path: str
    right: Right


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """Return the Landlock ABI of this kernel; 0 where it has none or it is switched off."""
    found: int = _libc.syscall(
        ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION)
    )
    return max(0, found)


def scopes_signals(version: int) -> bool:
    """Check whether `restrict` keeps signals and abstract sockets inside."""
    return version >= _SCOPE_ABI


def handles_tcp(version: int) -> bool:
    """Check whether `restrict` forbids binding and connecting TCP sockets."""
    return version >= _NETWORK_ABI


def restrict(rules: Iterable[Rule], version: int) -> None:
    """Permanently give up what the rules do not allow; `version` is what `abi` returned.

    The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS). Raises OSError.
    """
    known = (_MAKE_SYM << 1) - 1
    for since, right in _NEWER:
        if version >= since:
            known |= right
    attributes = _Ruleset(known, 0, 0)
    size = 8
    if handles_tcp(version):
        attributes.handled_access_net = _BIND_AND_CONNECT_TCP
        size = 16
    if scopes_signals(version):
        attributes.scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS
        size = 24
    ruleset = _call("landlock_create_ruleset", CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), _NONE)
    try:
        for rule in rules:
            _allow(ruleset, rule, known)
        _call("landlock_restrict_self", RESTRICT_SELF, ctypes.c_int(ruleset), _NONE)
    finally:
        os.close(ruleset)


_NONE = ctypes.c_uint32(0)


def _allow(ruleset: int, rule: Rule, known: int) -> None:
    try:
        path = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        rights = _RIGHTS[rule.right] & known
        if not stat.S_ISDIR(os.fstat(path).st_mode):
            rights &= _OF_FILES
        beneath = _PathBeneath(rights, path)
        what = ctypes.c_int(_RULE_PATH_BENEATH)
        _call(f"landlock_add_rule({rule.path})", ADD_RULE, ctypes.c_int(ruleset), what, ctypes.byref(beneath), _NONE)
    finally:
        os.close(path)


def _call(name: str, number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
