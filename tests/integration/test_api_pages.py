"""The status page: readable, self-contained, and safe against what models write."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from kernels_db.models import NodeRow, SearchRow
from service import status_page
from service.schemas import NodeSummary
from tests.integration.api_support import HOSTILE, add_events, client_of, database, seed, settings_for

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects a page's elements and text, and fails on elements that do not close."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """What a reader sees, spaces folded."""
        return re.sub(r"\s+", " ", " ".join(self.words))

    def links(self) -> list[str]:
        """Every address in the page."""
        return [str(a[name]) for _, a in self.elements for name in ("href", "src", "action") if a.get(name)]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(settings_for(tmp_path)) as client:
        yield client


def page(client: TestClient, path: str) -> Page:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return Page(response.text)


def test_an_empty_service_says_what_to_do(client: TestClient) -> None:
    text = page(client, "/").text
    assert "No search yet" in text
    assert "warpsmith search" in text
    assert "No worker has reported in" in text


def test_the_home_page_shows_searches_kernels_and_workers(client: TestClient) -> None:
    seed(database(client))
    home = page(client, "/")
    for words in ("add_relu", "cpu:x86_64", "running", "2x", "$0.25", "model@here", "alive", "judge@here", "silent"):
        assert words in home.text, words
    assert "/searches/sr_seed" in home.links()
    assert "/v1/kernels/kn_0/export" in home.links()


def test_a_search_page_shows_the_tree_as_nested_lists(client: TestClient) -> None:
    seed(database(client))
    shown = page(client, "/searches/sr_seed")
    for words in (
        "Eight lanes at once",
        "vectorize",
        "best so far",
        "Reference and its baselines",
        "no live judge worker",
        "1 ask",
    ):
        assert words in shown.text, words
    assert [tag for tag, _ in shown.elements].count("ul") >= 3
    for words in ("150 µs", "3x", "40 %", "Candidates", "12"):
        assert words in shown.text, words


def test_a_node_page_shows_idea_code_verdict_and_calls(client: TestClient) -> None:
    seed(database(client))
    shown = page(client, "/nodes/nd_good")
    for words in ("Eight lanes at once", "# eight lanes", "screen", "accepted", "100 µs"):
        assert words in shown.text, words


def test_what_models_write_is_text_never_markup(client: TestClient) -> None:
    seed(database(client))
    for path in ("/searches/sr_seed", "/nodes/nd_bad"):
        source = client.get(path).text
        assert HOSTILE not in source
        assert html.escape(HOSTILE, quote=False).split("(")[0] in source
        assert "script" not in {tag for tag, _ in Page(source).elements}


def test_what_models_write_turns_no_reading_direction(client: TestClient) -> None:
    seed(database(client))
    with database(client).writing() as session:
        node = session.get_one(NodeRow, "nd_bad")
        node.source = "if access:\n\treturn  # \u202e\u2066 checked \u2069\u2066"
        node.idea = {"title": "a\u202eb", "mechanism": "c\x1bd", "technique": "fusion"}
        node.reason = "e\u2067f"
    for path in ("/searches/sr_seed", "/nodes/nd_bad"):
        source = client.get(path).text
        assert not {c for c in source if unicodedata.category(c) in {"Cf", "Cc"}} - {"\n", "\t"}
        assert "\ufffd" in source
    assert "if access:\n\treturn  # " in client.get("/nodes/nd_bad").text


def test_steering_shows(client: TestClient) -> None:
    seed(database(client))
    with database(client).writing() as session:
        good, bad = session.get_one(NodeRow, "nd_good"), session.get_one(NodeRow, "nd_bad")
        good.mark, good.origin, bad.mark = "pinned", "person", "banned"
        session.get_one(SearchRow, "sr_seed").branched_from = "nd_good"
    shown = page(client, "/searches/sr_seed")
    for words in ("pinned", "banned", "a person's idea", "Branched from"):
        assert words in shown.text, words
    assert shown.links().count("/nodes/nd_good") >= 2
    for path, mark in (("/nodes/nd_good", "pinned"), ("/nodes/nd_bad", "banned")):
        assert mark in page(client, path).text


def test_pages_ask_nothing_of_other_hosts(client: TestClient) -> None:
    seed(database(client))
    for path in ("/", "/searches/sr_seed", "/nodes/nd_bad"):
        for link in page(client, path).links():
            assert link.startswith(("/", "#", "data:,")), link
            assert not link.startswith("//")
    assert "url(" not in client.get("/style.css").text
    assert "@import" not in client.get("/style.css").text


def test_pages_reload_only_while_something_runs(client: TestClient) -> None:
    seed(database(client))
    for path in ("/", "/searches/sr_seed"):
        assert any(a.get("http-equiv") == "refresh" for _, a in page(client, path).elements)
    add_events(database(client), "sr_seed", "search.finished")
    for path in ("/", "/searches/sr_seed", "/nodes/nd_good"):
        assert not any(a.get("http-equiv") == "refresh" for _, a in page(client, path).elements)


def test_every_page_can_be_read_by_machines_for_people(client: TestClient) -> None:
    seed(database(client))
    for path in ("/", "/searches/sr_seed", "/nodes/nd_good"):
        elements = page(client, path).elements
        assert ("html", {"lang": "en"}) in elements
        assert [tag for tag, _ in elements].count("h1") == 1
        assert [tag for tag, _ in elements].count("main") == 1
        assert all("scope" in attributes for tag, attributes in elements if tag == "th")


def test_absent_things_have_a_page_too(client: TestClient) -> None:
    for path in ("/searches/sr_0", "/nodes/nd_0", "/nodes/%3Cscript%3E"):
        response = client.get(path)
        assert response.status_code == 404
        assert "script" not in {tag for tag, _ in Page(response.text).elements}


def test_branches_keep_every_node_even_without_its_parent() -> None:
    def node(seq: int, parent: str | None) -> NodeSummary:
        return NodeSummary(
            id=f"n{seq}",
            seq=seq,
            parent_id=parent,
            round=0,
            technique=None,
            title=None,
            state="judged",
            reason=None,
            language=None,
            variant=0,
            repairs=0,
            verdict=None,
            gate=None,
            score=None,
            ci95=None,
            limit_fraction=None,
            verification="none",
            best=False,
            created_at=0,
            updated_at=0,
        )

    roots = status_page.branches([node(0, None), node(1, "n0"), node(2, "n1"), node(3, "cut off")])
    assert [entry.node.id for entry in roots] == ["n0", "n3"]
    assert [entry.node.id for entry in roots[0].children[0].children] == ["n2"]


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (status_page.ratio, 1.2345, "1.23x"),
        (status_page.ratio, None, "-"),
        (status_page.microseconds, 1234.5, "1.23 ms"),
        (status_page.microseconds, 12.345, "12.3 µs"),
        (status_page.percent, 0.423, "42 %"),
        (status_page.dollars, 0.0042, "$0.0042"),
        (status_page.duration, 59.9, "59 s"),
        (status_page.duration, 200, "3 min 20 s"),
        (status_page.duration, 7500, "2 h 5 min"),
    ],
)
def test_numbers_read_well(show: object, value: float | None, text: str) -> None:
    assert callable(show)
    assert show(value) == text
