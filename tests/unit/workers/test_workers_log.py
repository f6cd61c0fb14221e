"""Log lines: ids bound, JSON off a terminal, libraries alike."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from warpsmith.workers import log
from warpsmith.workers.settings import Settings


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_carry_the_bound_ids_as_json_off_a_terminal() -> None:
    stream = io.StringIO()
    log.configure(Settings(), stream)
    with log.bound(search="sr_1", node="nd_2"):
        log.get("warpsmith.workers.queue.tasks").info("judged", verdict="accepted")
    log.get("warpsmith.workers.queue.tasks").info("afterwards")
    first, second = lines(stream)
    assert (first["event"], first["search"], first["node"], first["verdict"]) == ("judged", "sr_1", "nd_2", "accepted")
    assert first["level"] == "info"
    assert first["timestamp"].endswith("Z")
    assert "search" not in second


def test_libraries_come_out_alike_and_quietly() -> None:
    stream = io.StringIO()
    log.configure(Settings(), stream)
    with log.bound(search="sr_1"):
        logging.getLogger("celery.worker").warning("lost %s", "connection")
        logging.getLogger("kombu.connection").info("routine")
    (line,) = lines(stream)
    assert (line["event"], line["search"], line["logger"]) == ("lost connection", "sr_1", "celery.worker")


def test_an_exception_stays_one_line() -> None:
    stream = io.StringIO()
    log.configure(Settings(), stream)
    secret = "sk-" + "1" * 8
    try:
        raise ValueError("broken")
    except ValueError:
        log.get("x").exception("failed")
    (line,) = lines(stream)
    assert line["exception"][0]["exc_value"] == "broken"
    assert secret not in stream.getvalue()


def test_for_people_the_ids_stand_in_the_line() -> None:
    stream = io.StringIO()
    log.configure(Settings(log_format="human"), stream)
    with log.bound(search="sr_1"):
        log.get("x").warning("slow model")
    assert "slow model" in stream.getvalue()
    assert "search=sr_1" in stream.getvalue()


def test_the_level_holds() -> None:
    stream = io.StringIO()
    log.configure(Settings(log_level="ERROR"), stream)
    log.get("x").warning("unheard")
    assert stream.getvalue() == ""


def test_lines_go_to_the_standard_error_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    log.configure(Settings())
    log.get("test").info("before")
    monkeypatch.setattr(sys, "stderr", second)
    first.close()
    log.get("test").info("after")
    assert json.loads(second.getvalue())["event"] == "after"
