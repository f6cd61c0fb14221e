"""A command asks the service of its own home, and no other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api_support import application, served, settings_for
from warpsmith.service.cli import connection, run
from warpsmith.service.cli.connection import service_url
from warpsmith.service.client.errors import NoServiceOnHomeError
from warpsmith.service.local.home import HomeLock


def test_a_home_without_a_service_is_told_and_the_default_address_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WARPSMITH_PORT", raising=False)
    monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path / "mine"))
    for command in ("searches", "ask", "search softmax --model agent --detach"):
        assert run(command.split()) == 1
        said = capsys.readouterr().err
        assert f"WARPSMITH_HOME: found {tmp_path / 'mine'}, on which no service runs" in said
        assert "warpsmith up" in said
    with pytest.raises(NoServiceOnHomeError):
        service_url(None)


def test_an_address_that_is_named_counts_and_so_does_the_launcher_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path / "mine"))
    with served(application(settings_for(tmp_path / "other"))) as url:
        monkeypatch.setenv("WARPSMITH_PORT", url.rpartition(":")[2])
        assert run(["searches", "--json"]) == 0
        monkeypatch.delenv("WARPSMITH_PORT")
        assert run(["searches", "--json", "--url", url]) == 0
    capsys.readouterr()
    lock = HomeLock(tmp_path / "mine")
    lock.acquire()
    try:
        lock.announce("http://127.0.0.1:1234")
        assert service_url(None) == "http://127.0.0.1:1234"
    finally:
        lock.release()


def test_without_a_named_home_the_address_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARPSMITH_HOME", raising=False)
    monkeypatch.setenv("WARPSMITH_PORT", "9321")
    monkeypatch.setattr(connection, "find_running_service", lambda home: None)  # on the home of whoever runs the tests
    assert service_url(None) == "http://127.0.0.1:9321"
