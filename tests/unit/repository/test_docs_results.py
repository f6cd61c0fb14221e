"""docs/results.md has the table that `python -m benchmarks.library --stored --markdown` prints."""

from __future__ import annotations

import sys

import pytest

from benchmarks import library
from benchmarks.showcase import Shown
from tests import REPOSITORY
from warpsmith.kernels_db.library import entries


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["benchmarks.library", "--stored", "--markdown"])
    assert library.main() == 0
    return capsys.readouterr().out


def test_the_page_has_the_table_of_the_verdicts_that_ship(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in page if line.startswith("|")]
    assert table == printed(monkeypatch, capsys).splitlines()
    assert len(table) == 2 + len(list(entries()))


def row(one: Shown) -> dict[str, str]:
    head, _, cells = (line.strip("| ").split(" | ") for line in library.markdown([one]).splitlines())
    return dict(zip(head, cells, strict=True))


def test_a_row_is_the_verdicts() -> None:
    entry = next(one for one in entries() if one.op.name == "softmax")
    sizes = {item["id"]: item for item in entry.evidence["workloads"] if item["role"] == "bench"}
    assert list(sizes) == ["wide", "narrow"]
    fastest = min(sizes["narrow"]["speedup"].items(), key=lambda each: each[1])[0]
    sizes["narrow"]["ci95"][fastest] = [0.98, 0.999]
    sizes["wide"]["ci95"] = {name: [0.9, 1.5] for name in sizes["wide"]["ci95"]}
    found = row(library.stored(entry))
    assert found["surely slower at"] == "narrow"
    assert found["slowest size"].startswith("narrow: ")
    assert found["slowest size"].endswith("[0.98, 1.00]")
    assert found["fastest size"].startswith("wide: ")
    assert found["speed-up"].startswith(f"{entry.evidence['score']:.2f}x [")
    assert found["GPU"] == "H200"
    sizes["narrow"]["ci95"][fastest] = [0.98, 1.0]
    assert row(library.stored(entry))["surely slower at"] == "-"


def test_what_a_verdict_does_not_have_is_a_dash() -> None:
    entry = next(one for one in entries() if one.op.name == "softmax")
    entry.evidence.update(score=None, score_ci95=None, workloads=[], device={}, host_us=None)
    nothing = dict.fromkeys(library.MARKDOWN[2:], "-")
    assert row(library.stored(entry)) == {"op": "softmax", "language": "cuda", **nothing}
    assert row(Shown("softmax", "cuda", 0.0, None)) == {"op": "softmax", "language": "cuda", **nothing}
