"""Fields of bodies that label a search: its name, tags and notes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from warpsmith.workers import steps

LONGEST_TAG = 40
LONGEST_NAME = 120
LONGEST_NOTES = 20_000
TAG_PATTERN = r"^[^\s,\x00-\x1f\x7f]+( [^\s,\x00-\x1f\x7f]+)*$"


def _clear_if_blank(text: str | None) -> str | None:
    """Strip the ends; a blank text is none."""
    return (text or "").strip() or None


Name = Annotated[
    str | None,
    Field(max_length=LONGEST_NAME, pattern=r"^[^\x00-\x1f\x7f]*$", description="One line; null or blank: none"),
    AfterValidator(_clear_if_blank),
]
Notes = Annotated[
    str | None,
    Field(max_length=LONGEST_NOTES, description="Plain text; null or blank: none"),
    AfterValidator(_clear_if_blank),
]
Tag = Annotated[str, Field(min_length=1, max_length=LONGEST_TAG, pattern=TAG_PATTERN)]
Tags = Annotated[
    list[Tag], Field(max_length=steps.MOST_TAGS, description="Words that group searches, without commas; each once")
]
