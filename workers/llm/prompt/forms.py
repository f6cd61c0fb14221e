"""Which forms of a language a request shows beside its minimal file: those that its idea calls for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from warpsmith.kernels_db.spec.target import Target

_COPIES = re.compile(r"\bbulk\b|mbarrier|\bTMA\b|\bclusters?\b|distributed shared|DSMEM", re.IGNORECASE)
_DEPENDENT = re.compile(r"launch_pdl|griddepcontrol|\bPDL\b|dependent launch", re.IGNORECASE)
_IN_A_ROW = frozenset({"asynchrony", "fusion"})
"""Techniques that leave several kernels in a row, which may overlap."""

_FIRST = 90
"""The first architecture of NVIDIA's that has bulk copies, clusters and dependent launches."""

_WRITTEN = "cp.async.bulk"
"""What a source that has the form of a bulk copy already holds."""


def shows_copies(target: Target, language: str, idea: Mapping[str, Any] | None, *sources: str) -> bool:
    """Check whether the idea needs CUDA's bulk copies or clusters, whose form no shown source has."""
    written = any(_WRITTEN in source for source in sources)
    return language == "cuda" and _has_them(target) and _names(idea, _COPIES) and not written


def shows_dependent_launches(target: Target, idea: Mapping[str, Any] | None) -> bool:
    """Check whether the idea names dependent launches or is of a technique that calls for them."""
    called_for = _names(idea, _DEPENDENT) or (idea is not None and idea.get("technique") in _IN_A_ROW)
    return _has_them(target) and called_for


def _has_them(target: Target) -> bool:
    number = re.fullmatch(r"sm_(\d+)[af]?", target.arch)
    return number is not None and int(number[1]) >= _FIRST


def _names(idea: Mapping[str, Any] | None, words: re.Pattern[str]) -> bool:
    return any(isinstance(value, str) and words.search(value) is not None for value in (idea or {}).values())
