"""What holds a process, tried on children."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal

import pytest

from warpsmith.workers.judge.machine import process_control


def outcome(writable: bool | None) -> int:
    """The exit code of a child that reads and then writes to pages that were closed; None: and opened again."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()  # its end is meant, and would look like a fault of the tests'
        process_control.set_writable(address, len(pages), bool(writable))
        if writable is None:
            process_control.set_writable(address, len(pages), True)
        read = ctypes.string_at(address + mmap.PAGESIZE, 1)
        ctypes.memset(address + mmap.PAGESIZE, 7, 1)
        os._exit(0 if read == b"\0" and pages[mmap.PAGESIZE] == 7 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_closed_pages_are_read_and_kill_who_writes() -> None:
    assert outcome(True) == 0
    assert outcome(False) == -signal.SIGSEGV
    assert outcome(None) == 0


def test_what_is_no_page_is_refused() -> None:
    with pytest.raises(OSError, match="mprotect"):
        process_control.set_writable(1, mmap.PAGESIZE, False)
