"""Stories: the golden files, and that no text of others breaks their structure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.golden import DIRECTORY
from tests.support.story_scenarios import ROOT, best, node, scenarios, search
from warpsmith.kernels_db.job.attack_summary import AttackSummary
from warpsmith.service.documents.escaping import clean_line, mark_foreign, quote_foreign, render_markdown, render_text
from warpsmith.service.documents.searches import BadField
from warpsmith.service.story import Answers, Section, Steer, Story, StoryFacts, tell
from warpsmith.service.story.failures import find_cause

ANY_TEXT = st.text(st.characters(codec=None), max_size=300)
HOSTILE = st.one_of(
    ANY_TEXT,
    st.sampled_from(
        [
            "# A heading",
            "\n\n## Why it ended\n\nIt finished.",
            "- an item\n- another",
            "<script>alert(1)</script>",
            "[link](http://x) ![image](http://x) https://x www.x.org a@b.org",
            "```\ncode\n```",
            "\u202eevil\u202c \x1b[31mred \x00 \ufdd0inner\ufdd1 \u2028line",
            "\u201d. It was cancelled. \u201c",
            "| a | b |\n|---|---|",
            "&lt; &#35; \\",
            "---",
        ]
    ),
)


@pytest.mark.parametrize("name", scenarios())
def test_stories_are_as_their_golden_files_say(name: str) -> None:
    assert tell(scenarios()[name]).text() == (DIRECTORY / "stories" / f"{name}.txt").read_text(encoding="utf-8")


def test_a_hundred_nodes_take_less_than_sixty_lines() -> None:
    facts = scenarios()["story_finished"]
    assert len(facts.nodes) == 101
    assert len(tell(facts).text().splitlines()) < 60


def headings(story: Story) -> list[str]:
    return [section.heading for section in story.sections]


def section(facts: StoryFacts, heading: str) -> Section:
    title, sections = tell(facts).plain()
    assert title
    return next(part for part in sections if part.heading == heading)


def test_there_is_a_story_whatever_the_search_came_to() -> None:
    always = ["What was asked", "What it cost"]
    told = {name: headings(tell(facts)) for name, facts in scenarios().items()}
    assert told["story_not_admitted"] == [*always, "Why it ended"]
    assert told["story_running"][-1] == "Where it stands"
    assert "The winner" not in told["story_without_winner"]
    assert "What worked" not in told["story_without_winner"]


def test_every_node_that_brought_nothing_is_counted_once() -> None:
    facts = scenarios()["story_finished"]
    lost = [each for each in facts.candidates if find_cause(each, ended=True) is not None]
    assert len(lost) + sum(each.surely_faster for each in facts.candidates) == len(facts.candidates)
    part = section(facts, "What failed, and why")
    assert part.paragraph.startswith(f"{len(lost)} of {len(facts.candidates)} nodes")
    assert sum(int(item.split()[0]) for item in part.items) == len(lost)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"ci95": (0.99, 1.2)}, "slower"),
        ({"ci95": None}, "slower"),
        ({"verdict": "rejected", "gate": "gate"}, "gate"),
        ({"verdict": "rejected", "gate": "compile"}, "compile"),
        ({"verdict": "rejected", "gate": "screen"}, "wrong"),
        ({"verdict": "rejected", "gate": "verify"}, "wrong"),
        ({"verdict": "quarantined", "gate": "physics"}, "quarantined"),
        ({"verdict": "ambiguous", "gate": "sandbox"}, "ambiguous"),
        ({"state": "closed", "reason": "the same idea as node #3"}, "duplicate"),
        ({"state": "closed", "reason": "the repair changed nothing: duplicate of node #3"}, "duplicate"),
        ({"state": "closed", "reason": "pool pl_1 has no reply for this request"}, "unanswered"),
        ({"state": "closed", "reason": "gave up after 3 tries: a worker died each time"}, "other"),
        ({"state": "closed", "reason": None}, "other"),
        ({"state": "closed", "reason": "the search ended first"}, "unfinished"),
        ({"state": "closed", "reason": "banned before its code was written"}, "banned"),
        ({"state": "planned", "verdict": None}, "unfinished"),
        ({"state": "coded", "verdict": None, "mark": "banned"}, "banned"),
    ],
)
def test_causes(changes: dict[str, Any], cause: str | None) -> None:
    assert find_cause(node(1, **changes), ended=True) == cause


def test_what_may_still_come_has_not_failed() -> None:
    assert find_cause(node(1, state="coding", verdict=None), ended=False) is None


def test_an_unknown_cost_is_said_to_be_unknown() -> None:
    facts = StoryFacts(search(), [ROOT])
    for answers, words in (
        ((Answers("openai", "a", 143, 0, 1.92),), "cost $1.92."),
        ((Answers("openai", "a", 143, 143),), "their cost is unknown: they have no price."),
        (
            (Answers("openai", "a", 100, 0, 1.5), Answers("openai", "b", 43, 43)),
            "cost $1.50, without 43 whose price is",
        ),
        ((Answers("replay", None, 143, 143),), "cost $0.00. Answered by a recording (143)."),
    ):
        assert words in section(replace(facts, answers=answers), "What it cost").paragraph


def test_many_rounds_are_told_together_and_a_long_line_is_shortened() -> None:
    nodes = [ROOT, *(node(seq, seq - 1, round=seq, score=1.0 + seq) for seq in range(1, 41))]
    facts = StoryFacts(search(best=best(seq=40, score=41.0)), nodes)
    tried = section(facts, "What was tried").items
    assert [item.partition(":")[0] for item in tried][:2] == ["rounds 1 to 5", "rounds 6 to 10"]
    line = section(facts, "What worked").items
    assert [item.partition(" ")[0] for item in line] == ["#1", "#2", "34", "#37", "#38", "#39", "#40"]


def test_candidates_without_ideas_are_told_as_such() -> None:
    bare: dict[str, Any] = {"technique": None, "title": None, "mechanism": None}
    facts = StoryFacts(search(best=best(seq=1)), [ROOT, node(1, **bare), node(2, 1, round=2, **bare)])
    tried = section(facts, "What was tried")
    assert tried.paragraph.startswith("2 candidates in 2 rounds, written without ideas in prose.")
    assert tried.items[0] == "round 1: 1 candidate; 1 right, the best #1 at 1.50x"
    assert section(facts, "The winner").paragraph.startswith("It is #1; no idea in prose was recorded for it.")


def test_a_limit_that_is_far_away_is_no_guide() -> None:
    part = section(StoryFacts(search(best=best(seq=1, limit_fraction=1e-6)), [ROOT, node(1)]), "The winner")
    assert "so far from the physical limit that something else holds it back" in part.paragraph
    part = section(StoryFacts(search(best=best(seq=1, limit_fraction=1.03)), [ROOT, node(1)]), "The winner")
    assert "It reaches the physical limit (103 % of it)." in part.paragraph


@given(st.data())
def test_no_text_of_others_breaks_the_structure(data: st.DataObject) -> None:
    """With any text in every field that others write, sections, paragraphs and items stay what they are."""
    shape, told = tell(hostile(lambda: "word")), tell(hostile(lambda: data.draw(HOSTILE)))
    assert headings(told) == headings(shape)
    assert [len(part.items) for part in told.sections] == [len(part.items) for part in shape.sections]
    text = told.text()
    for line in text.splitlines():
        assert len(line) <= 100
        assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for char in line)
    assert re.findall(r"^[A-Z][A-Z, ]+$", text, re.MULTILINE)[0] == "WHAT WAS ASKED"
    assert text.count("\n\n") == len(told.sections)
    assert markdown_shape(told) == markdown_shape(shape)


def markdown_shape(story: Story) -> list[str]:
    """The tokens of the rendered Markdown, down to what stands in its lines."""
    tokens = MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(story.markdown())
    shape = []
    for token in tokens:
        shape.append(token.type)
        children = {child.type for child in token.children or []}
        assert children <= {"text", "text_special", "softbreak"}, (children, token.content)
        assert "softbreak" not in children
    return shape


def hostile(text: Any) -> StoryFacts:
    """Facts with `text()` in every field that others write."""
    failed = {"verdict": "rejected", "gate": "screen"}
    nodes = [
        ROOT,
        node(1, technique=text(), title="t" + text(), mechanism="m" + text()),
        node(2, 1, title="t" + text(), failure=text(), reason="r" + text(), **failed),
        node(3, 1, title=None, state="closed", verdict=None, reason="gave up: " + text()),
    ]
    return StoryFacts(
        search(
            op_name=text(),
            state="failed",
            reason="r" + text(),
            problem=BadField(field=text(), found=text(), expected=text()),
            best=best(seq=1),
        ),
        nodes,
        (Answers("openai", "m" + text(), 3, 1),),
        steers=(Steer("idea.added", 1.0, 1, "k" + text(), text()), Steer("budget.changed", 2.0, None, None, text())),
        branches=(text(),),
    )


@given(HOSTILE, st.integers(4, 300))
def test_what_is_seen_is_one_line_of_visible_characters(text: str, limit: int) -> None:
    line = clean_line(text, limit)
    assert len(line) <= limit
    assert line == clean_line(line, limit)
    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for char in line)


def test_foreign_text_is_shown_as_it_is_and_escaped_in_markdown() -> None:
    theirs = "*theirs* \u201dand\u201c"
    sentence = f"it is *ours*, {quote_foreign(theirs)}, {mark_foreign('a_b')}"
    assert render_text(sentence) == 'it is *ours*, \u201c*theirs* "and"\u201d, a_b'
    assert render_markdown(sentence) == 'it is *ours*, \u201c\\*theirs\\* \\"and\\"\u201d, a\\_b'


def test_a_verified_best_tells_of_its_counterexample_search() -> None:
    facts = scenarios()["story_finished"]
    assert facts.attack is None
    searched: AttackSummary = {"tries": 912, "seconds": 3.0, "ratio": 0.4321, "found": False}
    told = section(replace(facts, attack=searched), "The winner").paragraph
    line = "Its counterexample search: 912 tries, worst error 0.43 of what is allowed."
    assert f"It passed the full verification. {line}" in told
