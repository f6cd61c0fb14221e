"""From replies to ideas and sources: what models really write, and what nobody should."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workers.model import parsing
from workers.model.base import ModelReply
from workers.model.parsing import TECHNIQUES, Unreadable

RUN = "from kernels_db.runtime import cpp\n\n\ndef run(x, y):\n    pass\n"
IDEA = {
    "technique": "fusion",
    "title": "One pass",
    "mechanism": "less traffic",
    "evidence": "12 GB/s",
    "expected_gain": "2x",
    "risk": "none",
    "sketch": "for (i) {\n  y[i] = x[i];\n}",
}


def reply(text: str, finish_reason: str = "stop") -> ModelReply:
    return ModelReply(text, None, finish_reason, None, None, None, 0.0)


def ideas(text: str, expected: int = 4, finish_reason: str = "stop") -> list[parsing.Idea]:
    return parsing.ideas(reply(text, finish_reason), expected)


def code(text: str, finish_reason: str = "stop") -> str:
    return parsing.code(reply(text, finish_reason))


def listed(*changes: dict[str, object]) -> str:
    return json.dumps([IDEA | {"title": f"Idea {number}"} | change for number, change in enumerate(changes)])


@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        "```json\n{}\n```",
        "Here are the ideas:\n\n```\n{}\n```\nGood luck!",
        '{{"ideas": {}}}',
        'Sure: 5" wide, {{x}} {}',
        "~~~\n{}\n~~~",
    ],
)
def test_a_list_in_many_frames(frame: str) -> None:
    found = ideas(frame.format(listed({}, {"technique": "compute"})))
    assert [(idea["title"], idea["technique"]) for idea in found] == [("Idea 0", "fusion"), ("Idea 1", "compute")]
    assert found[0]["sketch"] == IDEA["sketch"]


def test_json_as_models_write_it() -> None:
    text = """[
      // the best first
      {"technique": "Latency hiding", "title": "a", "mechanism": "see http://x/ \\d and
a raw line", "risk": ["one", "two",], "expected_gain": 1.5,},
      /* second */ {"technique": "tiling", "title": "b", "mechanism": "m", "sketch": {"tile": 8}},
    ]"""
    first, second = ideas(text)
    assert first["technique"] == "asynchrony"
    assert first["mechanism"] == "see http://x/ \\d and\na raw line"
    assert (first["risk"], first["expected_gain"], first["evidence"]) == ("one\ntwo", "1.5", "")
    assert (second["technique"], second["sketch"]) == ("memory_access", '{"tile": 8}')


def test_more_than_asked_for_are_left_out_and_repeated_titles_too() -> None:
    assert len(ideas(listed({}, {}, {}), expected=2)) == 2
    assert len(ideas(listed({"title": "Same"}, {"title": "same"}))) == 1


def test_readable_ideas_count_even_where_others_are_not() -> None:
    found = ideas(listed({"technique": "magic"}, {}, {"mechanism": ""}))
    assert [idea["title"] for idea in found] == ["Idea 1"]


def test_a_list_that_was_cut_off_gives_its_complete_ideas() -> None:
    whole = listed({}, {}, {})
    assert [idea["title"] for idea in ideas(whole[:-60], finish_reason="length")] == ["Idea 0", "Idea 1"]


@pytest.mark.parametrize(
    ("text", "finish_reason", "problem"),
    [
        ("", "stop", "The reply is empty"),
        ("", "length", "token limit was reached before the answer began"),
        ("I am sorry, I cannot help.", "stop", "no JSON list of ideas in the reply, which begins: 'I am sorry"),
        ('[{"technique": "fusion", "ti', "length", "cut off at the token limit before the first complete idea"),
        (listed({"technique": "magic"}), "stop", "'Idea 0' has technique 'magic', expected one of memory_access, "),
        (listed({"technique": 3}), "stop", "'Idea 0' has technique '3', expected one of"),
        (listed({"mechanism": None}), "stop", "'Idea 0' has no mechanism"),
        ('[{"technique": "fusion", "mechanism": "m"}]', "stop", "'an idea without a title' has no title"),
        ("x" * 400_001, "stop", "The reply has 400001 characters; at most 400000 are read"),
    ],
)
def test_unreadable_ideas_say_what_is_wrong(text: str, finish_reason: str, problem: str) -> None:
    with pytest.raises(Unreadable) as caught:
        ideas(text, finish_reason=finish_reason)
    assert problem in caught.value.problem


@pytest.mark.parametrize("name", TECHNIQUES)
def test_techniques_are_known_in_any_spelling(name: str) -> None:
    for spelled in (name, name.upper(), name.replace("_", " "), name.replace("_", "-").title(), f" {name}. "):
        assert parsing.technique(spelled) == name


def test_long_fields_are_cut_and_odd_characters_replaced() -> None:
    (idea,) = ideas(listed({"title": "a\x00\ud800 b\n" + "t" * 500, "mechanism": "m" * 10_000}))
    assert idea["title"].startswith("a\ufffd\ufffd b ttt")
    assert len(idea["title"]) == 160
    assert len(idea["mechanism"]) < parsing.MAX_FIELD_CHARS + 100
    assert "characters left out" in idea["mechanism"]


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{RUN}```",
        f"Here it is:\r\n\r\n```py\r\n{RUN}```\r\nIt is fast.".replace("\n", "\r\n").replace("\r\r", "\r"),
        f"```cpp\nvoid f();\n```\nand\n```python\n{RUN}```\n```\nrun(x, y)\n```",
        f"```python\ndef run(x, y):\n    old\n```\nBetter:\n```python\n{RUN}```",
        f"````python\n{RUN}````",
        f"~~~\n{RUN}~~~",
        f"   ```python\n{RUN}   ```",
        RUN,
        f"\n\n{RUN}\n",
        f"```python\n{RUN}```\n```python\ndef run(x, y):  # cut",
    ],
)
def test_code_in_many_frames(text: str) -> None:
    assert code(text) == RUN


def test_a_fence_inside_a_longer_one_is_text() -> None:
    source = 'TEXT = """\n```\n"""\n' + RUN
    assert code(f"````python\n{source}````") == source


@pytest.mark.parametrize(
    ("text", "finish_reason", "problem"),
    [
        ("", "stop", "The reply is empty"),
        ("I refuse.", "stop", "no fenced code block in the reply, which begins: 'I refuse.'"),
        (f"```python\n{RUN}", "length", "cut off before its end"),
        (f"```python\n{RUN}", "stop", "cut off before its end"),
        ("```python\nimport torch", "length", "cut off before its end"),
        ("def run(x", "length", "cut off before its end"),
        ("```cpp\nvoid run();\n```", "stop", "No code block defines the entry point `def run(...)`"),
        ("def run(x:", "stop", "no fenced code block"),
        (f"```python\n{RUN}{'#' * 200_001}\n```", "stop", "at most 200000 are taken"),
    ],
)
def test_unreadable_code_says_what_is_wrong(text: str, finish_reason: str, problem: str) -> None:
    with pytest.raises(Unreadable) as caught:
        code(text, finish_reason)
    assert problem in caught.value.problem


FRAGMENTS = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        '"',
        "\\",
        ",",
        ":",
        "//",
        "/*",
        "*/",
        "\n",
        "```",
        "~~~",
        "def run(",
        '"title"',
        '"technique"',
        "fusion",
        "\x00",
        "é",
    ]
)


@given(
    st.text() | st.lists(FRAGMENTS | st.text(max_size=5), max_size=60).map("".join),
    st.sampled_from(["stop", "length", None]),
)
@example('{"title": 1e999, "technique": "fusion", "mechanism": "m"}', "stop")
@example("```python\n" + "(" * 5000 + "\ndef run(x):\n```", "stop")
@example("def run(x):\n" + "-" * 50_000 + "1", "stop")
def test_no_text_surprises_the_parsers(text: str, finish_reason: str | None) -> None:
    answer = ModelReply(text, None, finish_reason, None, None, None, 0.0)
    with suppress(Unreadable):
        found = parsing.ideas(answer, 3)
        assert 1 <= len(found) <= 3
        for idea in found:
            assert idea["technique"] in TECHNIQUES
            assert all(isinstance(value, str) for value in idea.values())
            json.dumps(idea, ensure_ascii=False).encode()
    with suppress(Unreadable):
        parsing.code(answer).encode()


@given(st.lists(st.dictionaries(st.sampled_from([*IDEA, "extra"]), st.text(max_size=20), max_size=7), max_size=4))
def test_any_well_formed_list_is_read_whole(entries: list[dict[str, str]]) -> None:
    given_ideas = [
        IDEA | entry | {"title": f"Idea {number}", "technique": "compute", "mechanism": "m"}
        for number, entry in enumerate(entries)
    ]
    if given_ideas:
        found = ideas(json.dumps(given_ideas), expected=10)
        assert [idea["title"] for idea in found] == [idea["title"] for idea in given_ideas]


@pytest.mark.parametrize(
    "piece",
    [
        '"\\',
        "/*",
        '{"a":',
        '{"title":',
        ",//",
        "{",
        '{"//":',
        "{/*",
        '{"x":[',
        "```\n",
        "\n```",
        "~~~ ",
        '{"title": "',
        "def run(\n",
    ],
)
def test_hostile_replies_are_read_in_bounded_time(piece: str) -> None:
    text = (piece * (parsing.MAX_REPLY_CHARS // len(piece)))[: parsing.MAX_REPLY_CHARS]
    started = time.monotonic()
    for read in (lambda: ideas(text), lambda: code(text)):
        with pytest.raises(Unreadable):
            read()
    assert time.monotonic() - started < 30
