"""Others' text beside our own: nothing of it steers a terminal, and nothing of JSON is lost."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.service.cli import output
from warpsmith.service.documents.escaping import clean_line, clean_text, escape_json

EVIL = "a\x1b[31mb\u202ec\u2066d\x9be\x7ff\u2028g\r\x07"
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def steers(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in STEERING} - {"\n", "\t"}


@given(st.text())
def test_what_is_visible_steers_nothing_and_keeps_its_lines(text: str) -> None:
    shown = clean_text(text)
    assert not steers(shown)
    assert len(shown) == len(text)
    assert all(new in (old, "\ufffd") for old, new in zip(text, shown, strict=True))
    assert not steers(clean_line(text, 1000))


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner)))
def test_escaped_json_says_the_same(value: object) -> None:
    document = json.dumps(value, ensure_ascii=False, indent=2)
    assert json.loads(escape_json(document)) == value
    assert not steers(escape_json(document))


def test_ordinary_text_is_left_as_it_is() -> None:
    for text in ("plain", "größer, 速い, :x: [bold]", "two\nlines\tand a tab"):
        assert clean_text(text) == text
        assert escape_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("command", [output.say, output.tell, output.print_json])
def test_commands_say_nothing_that_steers_the_terminal(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(command)
    command(EVIL)
    said = "".join(capsys.readouterr())
    assert "a" in said
    assert not steers(said)


def test_results_are_told_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    output.tell("y[:a:] = x[:m:]\t[bold]# :smile:[/bold]\n    next")
    assert capsys.readouterr().out == "y[:a:] = x[:m:]\t[bold]# :smile:[/bold]\n    next\n"


def test_progress_takes_no_text_for_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("error: x[:m:] [red]")
    assert capsys.readouterr().err == "error: x[:m:] [red]\n"
