"""Machines that can do less: a judge under a filter that hides parts of the kernel, as an older or locked kernel would.

    with JudgeClient(cache=cache) as judge:
        degraded.start(judge, tmp_path, ("landlock",))

The filter sits on the judge and all below it, so what the judge detects is what the kernel really answers.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from tests import REPOSITORY
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judge.sandbox import landlock
from warpsmith.workers.judge.sandbox.seccomp import ALLOW, ERRNO, Instruction, install
from warpsmith.workers.judge.sandbox.syscalls import NUMBERS

Hidden = Literal["landlock", "seccomp", "namespaces", "capabilities"]


def interpreter(directory: Path, hidden: Sequence[Hidden]) -> str:
    """A program that is this Python where `hidden` is missing."""
    program = directory / f"python-without-{'-'.join(hidden)}"
    start = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from tests.degraded import main; main()"
    words = [sys.executable, "-c", start, ",".join(hidden)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def start(judge: JudgeClient, directory: Path, hidden: Sequence[Hidden]) -> None:
    """Start a client's judge where `hidden` is missing; should it die, the next one is whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", interpreter(directory, hidden))
        judge.start()


def main() -> None:
    """Hide what the first argument lists, then become Python with the others."""
    hide(sys.argv[1].split(","))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


def hide(hidden: Sequence[str]) -> None:
    """Take parts of the kernel from this process for good."""
    numbers = NUMBERS[os.uname().machine]
    answers: dict[int, int] = {}
    if "landlock" in hidden:
        answers[landlock.CREATE_RULESET] = errno.ENOSYS
    if "namespaces" in hidden:
        answers[numbers["unshare"]] = errno.EPERM
    if "seccomp" in hidden:
        answers[numbers["seccomp"]] = errno.EINVAL
    if "capabilities" in hidden:
        process_control.drop_privileges()
    else:
        process_control.forbid_new_privileges()
    load_number: Instruction = (0x20, 0, 0, 0)
    code = [load_number]
    for number, error in answers.items():
        code += [(0x15, 0, 1, number), (0x06, 0, 0, ERRNO | error)]
    install([*code, (0x06, 0, 0, ALLOW)])
