"""`warpsmith search --detach` against a service: its default limit, and the question before money is spent."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.support.api_support import application, command_line, settings_for

OP = str(REPOSITORY / "examples" / "add_relu.yaml")
DEAR = ("--model", "openai:gpt-5", "--detach")
LIMITED = "limited to 20 candidates; another limit: --budget candidates=60,cost=2, no limit: none"


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis_url: str
) -> Iterator[Any]:
    """Run a command against a service without searches; returns exit code, standard output, standard error."""
    app = application(settings_for(tmp_path, openai_api_key="sk-test", broker_url=redis_url))
    monkeypatch.setenv("COLUMNS", "200")
    with command_line(app, capsys, monkeypatch) as run_it:
        yield run_it


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def budget_of(said: Any, search_id: str) -> Any:
    return json.loads(said("tree", search_id, "--json")[1])["search"]["budget"]


@pytest.mark.parametrize(
    ("option", "budget"),
    [((), {"candidates": 20}), (("--budget", "none"), {}), (("--budget", "calls=9"), {"model_calls": 9})],
)
def test_a_search_has_the_dashboards_limit_unless_it_names_one(
    said: Any, option: tuple[str, ...], budget: dict[str, int]
) -> None:
    code, out, err = said("search", OP, "--model", "agent", "--detach", *option)
    assert code == 0, err
    assert budget_of(said, out.strip()) == budget
    assert (LIMITED in err) == (not option)
    assert "at worst" in err


@pytest.mark.parametrize(("text", "read"), [("10", "0:10"), ("90s", "1:30")])
def test_a_search_says_how_it_read_its_budget(said: Any, text: str, read: str) -> None:
    code, _, err = said("search", OP, "--model", "agent", "--detach", "--budget", f"candidates=3,time={text}")
    assert code == 0, err
    assert f"limited to 3 candidates, {read} of running time\n" in err
    assert "another limit" not in err


def test_the_dashboard_has_the_same_limit() -> None:
    draft = REPOSITORY / "service" / "dashboard" / "src" / "pages" / "submit" / "draft.ts"
    assert 'budget: { candidates: "20" }' in draft.read_text(encoding="utf-8")


def test_a_search_that_costs_money_asks_before_it_begins(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, "n")
    code, out, err = said("search", OP, *DEAR)
    assert (code, out.strip()) == (1, "")
    assert "nothing was submitted" in err
    assert json.loads(said("searches", "--json")[1]) == []
    at_a_terminal(monkeypatch, "")
    assert said("search", OP, *DEAR)[0] == 0


@pytest.mark.parametrize("option", [("--yes",), ("--json",), ("--model", "agent")])
def test_what_costs_nothing_and_a_script_are_not_asked(
    said: Any, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    at_a_terminal(monkeypatch, "n")
    assert said("search", OP, *DEAR, *option)[0] == 0


def test_without_a_terminal_nobody_is_asked(said: Any) -> None:
    assert said("search", OP, *DEAR)[0] == 0
