"""docs/candidates.md is what models are told."""

from __future__ import annotations

from warpsmith.workers.llm import candidate_docs


def test_the_page_is_up_to_date() -> None:
    written = candidate_docs.PAGE.read_text(encoding="utf-8")
    assert written == candidate_docs.page(), "run python -m warpsmith.workers.llm.candidate_docs"
