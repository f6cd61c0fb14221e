"""One launcher on one home; the others are told where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warpsmith.service.local.home import HomeInUseError, HomeLock, find_running_service


def test_nobody_runs_on_a_home_that_does_not_exist(tmp_path: Path) -> None:
    assert find_running_service(tmp_path / "none") is None


def test_a_second_launcher_is_told_of_the_first(tmp_path: Path) -> None:
    first, second = HomeLock(tmp_path / "home"), HomeLock(tmp_path / "home")
    first.acquire()
    with pytest.raises(HomeInUseError, match="just starting"):
        second.acquire()
    first.announce("http://127.0.0.1:1234")
    assert find_running_service(tmp_path / "home") == {"pid": os.getpid(), "url": "http://127.0.0.1:1234"}
    with pytest.raises(HomeInUseError, match=rf"process {os.getpid()} at http://127.0.0.1:1234.*WARPSMITH_HOME"):
        second.acquire()
    first.release()
    assert find_running_service(tmp_path / "home") is None
    second.acquire()
    second.release()


def test_what_a_dead_launcher_left_does_not_count(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        lock = HomeLock(tmp_path)
        lock.acquire()
        lock.announce("http://127.0.0.1:1")
        os._exit(0)
    os.waitpid(pid, 0)
    assert (tmp_path / "launcher.lock").read_text() != ""
    assert find_running_service(tmp_path) is None
    lock = HomeLock(tmp_path)
    lock.acquire()
    lock.release()


def test_the_home_is_private(tmp_path: Path) -> None:
    lock = HomeLock(tmp_path / "home")
    lock.acquire()
    lock.release()
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0
    assert (tmp_path / "home" / "launcher.lock").stat().st_mode & 0o077 == 0
