"""From replies to ideas and sources: what models really write, and what nobody should."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpsmith import prompts
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.llm.reply.parsing import Unreadable
from warpsmith.workers.llm.reply.techniques import TECHNIQUES, technique

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


def test_what_is_left_out_is_named_in_order_with_why() -> None:
    text = listed({"title": "x" * 200_000}, {"title": "A"}, {"title": "a"}, {"technique": "vectorize"}, {"title": "B"})
    found = parsing.read_ideas(reply(text), 1)
    assert [idea["title"] for idea in found.taken] == ["A"]
    long, again, wrong, beyond = found.left_out
    assert re.fullmatch(
        r"'x+\S*' has 200\d{3} characters, at most 40000 are read of an idea; its title has 200000", long
    ), long
    assert again == "'a' repeats the title of an idea before it"
    assert "has technique 'vectorize', expected one of " in wrong
    assert beyond == "'B' is more than the ask wants (1)"
    assert found.unusable == [long, wrong]


def test_a_long_wrapper_with_a_title_is_looked_into() -> None:
    text = json.dumps({"title": "All", "ideas": [IDEA | {"title": f"{n}", "sketch": "x" * 30_000} for n in range(3)]})
    assert [idea["title"] for idea in ideas(text)] == ["0", "1", "2"]


def test_thoughts_before_the_answer_are_no_answer() -> None:
    draft = listed({"title": "A draft"})
    for thoughts in (f"<think>{draft}</think>", f"<Thinking>\n{draft}\n</THINKING>", f"{draft}</think>"):
        assert [idea["title"] for idea in ideas(f"{thoughts}\n{listed({})}")] == ["Idea 0"]
    assert ideas(f"<think>a</think>\n<think>b</think>{listed({})}")
    assert ideas(listed({"mechanism": "ends in </think>"}))
    assert ideas(f"<think>{'x' * 1_000_000}</think>{listed({})}")


def test_ideas_in_another_language_are_ideas() -> None:
    (idea,) = ideas(listed({"technique": "FUSION", "title": "一次遍历", "mechanism": "Каждый байт читается один раз"}))
    assert (idea["technique"], idea["title"], idea["mechanism"]) == (
        "fusion",
        "一次遍历",
        "Каждый байт читается один раз",
    )


def test_an_answer_after_code_with_many_braces_is_found() -> None:
    snippet = "for (;;) { if (a) { b(); } else { c(); } }\n" * 300
    assert ideas(f"```cpp\n{snippet}```\n{listed({})}")


def lessons(text: str, finish_reason: str = "stop") -> list[parsing.Lesson]:
    return parsing.lessons(reply(text, finish_reason))


def test_lessons_are_read_as_ideas_are() -> None:
    found = lessons(
        'Here:\n```json\n[{"lesson": "Stores bind", "evidence": "#3 and #7: 1.2x"}, {"lesson": "no evidence"},'
        ' {"lesson": "a\nb", "evidence": ["#1", "#2"],}, // last\n]\n```'
    )
    assert found == [
        {"lesson": "Stores bind", "evidence": "#3 and #7: 1.2x"},
        {"lesson": "a b", "evidence": "#1 #2"},
    ]
    many = json.dumps([{"lesson": f"{n} " + "x" * 5000, "evidence": "y"} for n in range(9)])
    assert len(lessons(many)) == parsing.MAX_LESSONS
    assert all(len(entry["lesson"]) <= parsing.MAX_LESSON_CHARS for entry in lessons(many))


@pytest.mark.parametrize("text", ["[]", "Nothing was learned.", '[{"lesson": "a"}]', "", '[{"lesson": "a", "evi'])
def test_unreadable_lessons_say_what_is_wrong(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        lessons(text)
    assert "no JSON list of lessons" in caught.value.problem or caught.value.problem == "The reply is empty."


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
        ("", "length", "token limit was reached before it began"),
        ("I am sorry, I cannot help.", "stop", "The reply declines the task; it begins: 'I am sorry, I"),
        ("Tut mir leid.", "stop", "no JSON list of ideas in the reply, which begins: 'Tut mir leid.'"),
        ("", "content_filter", "the provider's filter withheld it"),
        ("<think>What now?", "stop", "ended within its thoughts"),
        ("<think>What now?</think>\n", "stop", "The reply holds thoughts and no answer"),
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
        assert technique(spelled) == name


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("fusion, memory access", "fusion"),
        ("Memory Access / Data Layout", "memory_access"),
        ("something new (tiling)", "memory_access"),
        ("fusion" + " " * 300, None),
        ("融合", None),
        ("", None),
        (None, None),
    ],
)
def test_a_technique_by_another_name(name: object, known: str | None) -> None:
    assert technique(name) == known


def test_techniques_are_known_by_their_titles() -> None:
    for play in prompts.playbook():
        assert technique(play.title) == technique(play.title.upper()) == play.technique


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
        f"```python\n{RUN}```\nIn short:\n```python\ndef run(x, y): ...as above...\n```",
        f"```text\ndef run(x, y) is the entry point\n```\n```python\n{RUN}```",
        f"<think>\n```python\ndef run(x, y):\n    no\n```\n</think>\n\n```python\n{RUN}```",
        f"first I thought\n```python\ndef run(x, y):\n    no\n```\n</think>\n```python\n{RUN}```",
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
        ("I can't help with that.", "stop", 'The reply declines the task; it begins: "I can\'t help with that."'),
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
        "<think>",
        "</think>",
        '"lesson"',
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
        assert 1 <= len(parsing.lessons(answer)) <= parsing.MAX_LESSONS
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


HOSTILE = [
    '"\\',
    "/*",
    '{"a":',
    '{"title":',
    ",//",
    "{",
    '{"//":',
    "{/*",
    '{"x":[',
    '{"x":[1,1,1,1,',
    "{ \n\t",
    "```\n",
    "\n```",
    "```python\ndef run(x):\n```\n",
    "~~~ ",
    '{"title": "',
    '[{"title": "a", "technique": "no", "mechanism": "m"},',
    "def run(\n",
    "def run ",
    "<think>",
    "</think>",
    "<think></think>",
    "I'm sorry ",
    " ",
]


@pytest.mark.parametrize("size", [parsing.MAX_REPLY_CHARS, 1_000_000])
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_replies_are_read_in_bounded_time(piece: str, size: int) -> None:
    """A megabyte takes well under a second on an idle machine; a quadratic step would take minutes."""
    text = (piece * (size // len(piece) + 1))[:size]
    started = time.process_time()
    for read in (lambda: ideas(text), lambda: lessons(text), lambda: code(text)):
        with suppress(Unreadable):
            read()
    assert time.process_time() - started < 10


@given(st.lists(st.sampled_from(HOSTILE) | FRAGMENTS, min_size=1, max_size=4).map("".join))
@settings(max_examples=40, deadline=None)
def test_the_time_to_read_grows_as_the_reply(piece: str) -> None:
    text = (piece * (100_000 // len(piece) + 1))[:100_000]
    started = time.process_time()
    for read in (lambda: ideas(text), lambda: lessons(text), lambda: code(text)):
        with suppress(Unreadable):
            read()
    assert time.process_time() - started < 5
