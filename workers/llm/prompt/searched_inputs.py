"""Inputs that a counterexample search found, as prompts tell them: what failed, and what is known. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpsmith.kernels_db.job.documents import Failure
from warpsmith.workers.text import one_line

MOST_LINES = 8
MAX_LINE_CHARS = 300
MOST_KNOWN = 3
DECLARED = "the declared values"
"""The judge's description of values that nothing was changed in."""

_NUMBER = re.compile(r"\b2\^[-+]?\d{1,3}\b|\b[01]\b(?![.\d])|(?<!\w)[-+]?\d[\d.]*(?:e[-+]?\d+)?")
"""A number. Powers of two, whose exponents come from the dtype, 0 and 1 tell of no size."""


def failing_inputs(failure: Failure, *, hidden: bool) -> list[str]:
    """Describe the inputs of a failure that a search found, a line for each change; empty for any other.

    Of a `hidden` shape neither axes nor numbers that may tell of sizes.
    """
    said = failure.get("description")
    if not said:
        return []
    known = failure["kind"] == "counterexample"
    heading = "- the inputs on which it is wrong, and PyTorch eager right:" if known else "- the inputs:"
    lines = [one_line(line, MAX_LINE_CHARS) for line in said.splitlines() if line.strip()]
    return [heading, *(f"  - {without_sizes(line) if hidden else line}" for line in lines[:MOST_LINES])]


def own_message(failure: Failure) -> str:
    """Return a failure's message without the description of its inputs at the end, which has lines of its own."""
    said = "; ".join(failure.get("description", "").splitlines())
    return failure["message"].removesuffix(f", on these values: {said}") if said else failure["message"]


def without_sizes(line: str) -> str:
    """Take out of a description what may tell of a shape."""
    named = re.sub(r"\baxis \d+", "an axis", line)
    return _NUMBER.sub(lambda found: found[0] if found[0] in "01" or found[0].startswith("2^") else "N", named)


def known_inputs(descriptions: Iterable[str]) -> str:
    """Tell in one line of the inputs on which earlier candidates were wrong, newest first; empty without any."""
    told = dict.fromkeys(one_line("; ".join(said.splitlines()), MAX_LINE_CHARS) for said in descriptions)
    shown = [said for said in told if said and said != DECLARED][:MOST_KNOWN]
    return " ".join(f"({number}) {said}" for number, said in enumerate(shown, start=1))
