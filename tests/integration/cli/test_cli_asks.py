"""`warpsmith ask` and `warpsmith tell` against a served API: prompts printed and in files, answers, refusals."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.support.api_support import application, seed, served, settings_for
from tests.support.tried import announce
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, NodeRow
from warpsmith.service.api.auth import create_key
from warpsmith.service.cli import run
from warpsmith.service.client.trying import find_fault
from warpsmith.workers import steps
from warpsmith.workers.settings import Settings

PROMPT = "write code"

LINE = "ak_0  code     open      search sr_seed  node nd_bad  add_relu #2 <script>alert('x')</script>"


@dataclass
class Desk:
    """The commands, run in this process against the served application."""

    app: FastAPI
    url: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Standard output and standard error of a command that ends with `code`."""
        self.capsys.readouterr()
        found = run([*arguments, "--url", self.url])
        said = self.capsys.readouterr()
        assert found == code, said.err
        return said.out, said.err

    def document(self, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints."""
        return json.loads(self(*arguments, "--json", code=code)[0])

    def expire(self, ask_id: str) -> None:
        """Let an ask run out."""
        db = self.app.state.service.db
        with db.writing() as session:
            session.get_one(AskRow, ask_id).expires_at = 1.0
        steps.reconcile(db, time.time(), Settings(_env_file=None))


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    with app.state.service.db.writing() as session:
        session.get_one(NodeRow, "nd_bad").state = "coding"
        session.get_one(AttemptRow, "at_2").state = "waiting"
    with served(app) as url:
        yield Desk(app, url, capsys)


def test_the_open_asks_of_a_search_come_with_their_prompts(desk: Desk) -> None:
    out, err = desk("ask", "sr_seed")
    assert out == f"=== {LINE} ===\n--- user ---\nwrite code\n"
    assert "warpsmith tell ASK" in err
    [document] = desk.document("ask", "sr_seed")
    assert document["messages"] == [{"role": "user", "content": PROMPT}]
    assert desk.document("ask", "ak_0") == document


def test_without_a_search_asks_are_listed_without_prompts(desk: Desk) -> None:
    out, err = desk("ask")
    assert out == f"{LINE}\n"
    assert "warpsmith ask SEARCH" in err
    [item] = desk.document("ask")
    assert "messages" not in item


def test_all_shows_the_closed_ones_too(desk: Desk) -> None:
    desk.expire("ak_0")
    [new] = desk.document("ask", "sr_seed")
    both = desk.document("ask", "sr_seed", "--all")
    assert [(item["id"], item["state"], item["replaced_by"]) for item in both] == [
        ("ak_0", "expired", new["id"]),
        (new["id"], "open", None),
    ]
    assert f"--- {new['id']} asks the same now ---" in desk("ask", "sr_seed", "--all")[0]
    assert len(desk.document("ask", "--all")) == 2
    assert len(desk.document("ask")) == 1


def test_prompts_are_written_to_files_and_never_over_others(desk: Desk, tmp_path: Path) -> None:
    directory = tmp_path / "asks"
    [document] = desk.document("ask", "sr_seed", "--output", str(directory))
    path = Path(document["file"])
    assert (path.name, path.read_text()) == ("ak_0.md", f"--- user ---\n{PROMPT}\n")
    out, _ = desk("ask", "sr_seed", "--output", str(directory))
    assert out.rstrip().endswith(str(path))
    assert PROMPT not in out
    path.write_text("# my notes")
    assert "with another content" in desk("ask", "ak_0", "--output", str(directory), code=1)[1]
    assert path.read_text() == "# my notes"


def test_control_characters_of_a_prompt_are_shown_and_not_obeyed(desk: Desk) -> None:
    with desk.app.state.service.db.writing() as session:
        session.get_one(AskRow, "ak_0").messages = [{"role": "user", "content": "a\x1b[2Jb\r\x9bc\td"}]
    assert "a\ufffd[2Jb\ufffd\ufffdc\td" in desk("ask", "ak_0")[0]
    assert desk.document("ask", "ak_0")["messages"][0]["content"] == "a\x1b[2Jb\r\x9bc\td"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["ask", "no_such_op"],
            2,
            "SEARCH|ASK: found 'no_such_op', expected a search's id (sr_...), its name, or the name of its op",
        ),
        (["ask", "--output", "x"], 2, "--output: found 'x', expected a SEARCH or an ASK"),
        (["ask", "sr_none"], 1, "sr_none"),
        (["ask", "ak_none"], 1, "ak_none"),
        (["tell", "ak_0", "nothing.txt"], 2, "FILE: found 'nothing.txt', expected a file that exists"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], code: int, message: str, desk: Desk) -> None:
    assert message in desk(*arguments, code=code)[1]


def test_an_answer_comes_from_a_file_or_from_standard_input(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = tmp_path / "reply.txt"
    for content, message in (
        (b" \n", "a reply that is not empty"),
        (b"\xff", "text in UTF-8 (invalid start byte at byte 0)"),
        (b"hello", "FILE: found not the code that ask ak_0 wants: There is no fenced code block in the reply"),
        (b"```python\nx = 1\n```", "No code block defines the entry point `def run(...)`"),
    ):
        reply.write_bytes(content)
        assert message in desk("tell", "ak_0", str(reply), code=2)[1]
    assert desk.document("ask", "ak_0")["state"] == "open"
    answer = "def run(x, y, out):\n    pass  # größer\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(answer.encode()), encoding="ascii"))
    told = desk("tell", "ak_0", "-", "--by", "ada")[0]
    assert told.startswith("ask ak_0 is answered: ")
    assert "not compiled here: " in told
    assert "no judge worker is alive" in told
    assert "no open asks" in desk("ask", "sr_seed")[1]
    shown = desk("ask", "ak_0")[0]
    assert shown.endswith(f"--- reply of ada ---\n{answer}\n")


def test_a_word_that_comes_later_than_the_wait_is_told_where_to_read(desk: Desk, tmp_path: Path) -> None:
    announce(desk.app.state.service.db, "cpu:x86_64", time.time())
    reply = tmp_path / "reply.txt"
    reply.write_text("def run(x, y, out):\n    pass\n")
    told = desk("tell", "ak_0", str(reply), "--wait", "0.1")[0]
    assert "not compiled after 0.1 s (--wait): warpsmith node nd_bad shows what ty_" in told


def test_what_cannot_be_read_is_sent_as_it_is_where_that_is_asked_for(desk: Desk, tmp_path: Path) -> None:
    reply = tmp_path / "reply.txt"
    reply.write_text("I do not know.")
    assert desk("tell", "ak_0", str(reply), "--as-is")[0].startswith("ask ak_0 is answered: ")


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("ideate", '[{"technique": "fusion", "title": "One pass", "mechanism": "Read once."}]'),
        ("reflect", '[{"lesson": "Short loops win.", "evidence": "#3 over #2"}]'),
        ("repair", "```python\ndef run(x, out):\n    pass\n```"),
    ],
)
def test_an_answer_is_read_as_what_was_asked_for(kind: str, good: str) -> None:
    assert find_fault(kind, good) is None
    assert find_fault(kind, "Let me think about it.") is not None


def test_an_idea_that_the_search_would_leave_out_is_named() -> None:
    good = {"technique": "fusion", "title": "One pass", "mechanism": "Read once."}
    fault = find_fault("ideate", json.dumps([good, good | {"title": "Wide", "technique": "vectorize"}]))
    assert fault is not None
    assert "1 of the ideas cannot be used: 'Wide' has technique 'vectorize', expected one of memory_access" in fault


def write_ideas(*titles: str) -> str:
    idea = {"technique": "fusion", "mechanism": "Read once."}
    return json.dumps([idea | {"title": title} for title in titles])


def ask_for_ideas(desk: Desk, **params: Any) -> None:
    with desk.app.state.service.db.writing() as session:
        ask = session.get_one(AskRow, "ak_0")
        ask.kind = "ideate"
        session.get_one(AttemptRow, ask.attempt_id).params = params


def test_an_idea_that_is_too_long_is_named_and_the_ask_stays_open(desk: Desk, tmp_path: Path) -> None:
    ask_for_ideas(desk, ideas=2)
    reply = tmp_path / "reply.txt"
    reply.write_text(write_ideas("x" * 200_000, "Two", "Three", "Four"))
    said = desk("tell", "ak_0", str(reply), code=2)[1]
    assert "1 of the ideas cannot be used: 'xxx" in said
    assert "characters, at most 40000 are read of an idea; its title has 200000." in said
    assert desk.document("ask", "ak_0")["state"] == "open"


def test_ideas_that_become_no_node_are_told_with_why(desk: Desk, tmp_path: Path) -> None:
    ask_for_ideas(desk, ideas=2)
    reply = tmp_path / "reply.txt"
    reply.write_text(write_ideas("x" * 200_000, "Two", "two", "Three", "Four"))
    told = desk("tell", "ak_0", str(reply), "--as-is")[0].splitlines()
    assert told[1] == "2 ideas become nodes, as many as the ask wants"
    assert told[2].startswith("left out: 'xxx")
    assert "at most 40000 are read of an idea; its title has 200000" in told[2]
    assert told[3:] == [
        "left out: 'two' repeats the title of an idea before it",
        "left out: 'Four' is more than the ask wants (2)",
    ]
    found = desk.document("tell", "ak_0", str(reply), "--as-is")["ideas"]
    assert (found["wanted"], found["taken"], len(found["left_out"])) == (2, ["Two", "Three"], 3)


def test_fewer_ideas_than_were_asked_for_are_remarked(desk: Desk, tmp_path: Path) -> None:
    ask_for_ideas(desk, ideas=4, technique_not_in="compute")
    assert desk.document("ask", "ak_0")["ideas"] is None
    barred = json.dumps({"technique": "compute", "title": "Two", "mechanism": "Fewer."})
    (tmp_path / "reply.txt").write_text(write_ideas("One") + barred)
    told = desk("tell", "ak_0", str(tmp_path / "reply.txt"))[0].splitlines()[1:]
    assert told == [
        "1 idea becomes a node; the ask wants 4",
        "left out: 'Two' uses the technique compute, which is ruled out",
    ]


def test_an_answer_without_an_idea_is_told_what_was_wrong(desk: Desk, tmp_path: Path) -> None:
    ask_for_ideas(desk, ideas=1)
    (tmp_path / "reply.txt").write_text("<think>I do not know.")
    told = desk("tell", "ak_0", str(tmp_path / "reply.txt"), "--as-is")[0].splitlines()[1:]
    assert told == [
        "no idea becomes a node: the search says what was wrong, and asks again",
        "left out: The reply ended within its thoughts, before an answer. Think less and answer.",
    ]


def test_who_comes_second_is_told_who_was_first(desk: Desk, tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("def run(x, y, out):\n    pass  # one\n")
    second.write_text("def run(x, y, out):\n    pass  # two\n")
    desk("tell", "ak_0", str(first), "--by", "ada")
    desk("tell", "ak_0", str(first), "--by", "bob")
    err = desk("tell", "ak_0", str(second), "--by", "bob", code=1)[1]
    assert "ask ak_0: found answered, expected open; the first answer stands, by ada at 20" in err
    problem = desk.document("tell", "ak_0", str(second), code=1)["error"]["problem"]
    assert (problem["type"], problem["answered_by"]) == ("urn:warpsmith:problem:ask-closed", "ada")


def test_an_answer_to_an_expired_ask_is_told_where_to_go(desk: Desk, tmp_path: Path) -> None:
    reply = tmp_path / "reply.txt"
    reply.write_text("def run(x, y, out):\n    pass\n")
    desk.expire("ak_0")
    problem = desk.document("tell", "ak_0", str(reply), code=1)["error"]["problem"]
    assert f"{problem['replaced_by']}, which is open and asks the same: answer that one" in problem["detail"]
    assert desk.document("tell", problem["replaced_by"], str(reply))["state"] == "answered"


def test_a_key_that_may_steer_and_not_read_answers_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = application(settings_for(tmp_path, auth="always"))
    db = app.state.service.db
    seed(db)
    with db.writing() as session:
        session.get_one(NodeRow, "nd_bad").state = "coding"
        session.get_one(AttemptRow, "at_2").state = "waiting"
    monkeypatch.setenv("WARPSMITH_API_KEY", create_key(db, "steers", scopes=("steer",)))
    (tmp_path / "reply.md").write_text("no code at all")
    with served(app) as url:
        assert run(["tell", "ak_0", str(tmp_path / "reply.md"), "--wait", "0", "--url", url]) == 0, capsys.readouterr()
    with db.reading() as session:
        assert session.get_one(AskRow, "ak_0").reply == "no code at all"
