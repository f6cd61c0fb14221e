"""Exemplars in words: verified kernels of other ops as reading matter, within a cap. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warpsmith.kernels_db.store.exemplar import Exemplar
from warpsmith.workers.llm.base import CHARS_PER_TOKEN
from warpsmith.workers.llm.prompt.facts import significant
from warpsmith.workers.text import middle_cut, one_line

MOST_TOKENS, MOST_TOKENS_WITH_CODE = 1_500, 2_500
"""Tokens of all exemplars of a request, in words alone and where code may be shown.

Code that does not fit is left out: half a kernel teaches little. Under 1,500 tokens most kernels that ship did not fit.
"""

MAX_DESCRIPTION_CHARS = 600
MAX_MECHANISM_CHARS = 1_000
"""Enough for every mechanism that ships: what is cut out of the middle is what the writer wanted to read."""


def exemplars(found: Sequence[Exemplar], *, with_code: bool) -> list[dict[str, Any]]:
    """Return what the template shows of `found`, the code where it is asked for and fits beside all words."""
    shown = [_words(one) for one in found]
    most = MOST_TOKENS_WITH_CODE if with_code else MOST_TOKENS
    left = most * CHARS_PER_TOKEN - sum(len(str(value)) for entry in shown for value in entry.values())
    for one, entry in zip(found, shown, strict=True):
        if with_code and len(one.source) <= left:
            entry["source"] = one.source
            left -= len(one.source)
    return shown


def _words(one: Exemplar) -> dict[str, Any]:
    return {
        "op": one_line(one.op, 80),
        "target": one.target,
        "description": one_line(one.description, MAX_DESCRIPTION_CHARS),
        "shared": list(one.shared),
        "speedup": significant(one.speedup),
        "low": significant(one.low),
        "high": significant(one.high),
        "share": None if one.share is None else f"{one.share:.0%}",
        "technique": one_line(str(one.idea["technique"]), 40),
        "title": one_line(str(one.idea["title"]), 120),
        "mechanism": middle_cut(str(one.idea["mechanism"]), MAX_MECHANISM_CHARS),
        "source": None,
    }
