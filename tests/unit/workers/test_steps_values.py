"""The pure parts of the steps: what counts as faster for sure, and documents that both databases take."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.steps.rows import plain
from warpsmith.workers.steps.winners import surely_faster


def workload(role: str, **ends: float) -> Any:
    """A workload's verdict with the lower ends of its speed-ups."""
    return {"role": role, "ci95": {name: [low, low * 1.1] for name, low in ends.items()}}


def test_the_mean_over_bench_workloads_decides() -> None:
    found = surely_faster(
        [workload("bench", eager=0.9, compile=0.9), workload("bench", eager=1.3, compile=1.05)], ["eager", "compile"]
    )
    assert found == {"eager": pytest.approx(math.sqrt(0.9 * 1.3))}


def test_test_workloads_and_other_baselines_do_not_count() -> None:
    workloads = [workload("bench", eager=0.9, compile=2.0), workload("test", eager=9.0)]
    assert surely_faster(workloads, ["eager"]) == {}


def test_a_baseline_that_a_bench_workload_lacks_does_not_count() -> None:
    assert surely_faster([workload("bench", eager=2.0), workload("bench", compile=2.0)], ["eager", "compile"]) == {}
    assert surely_faster([], ["eager"]) == {}


@pytest.mark.parametrize(("low", "kept"), [(1.0, False), (math.nextafter(1.0, 2.0), True), (0.0, False)])
def test_exactly_as_fast_is_not_faster(low: float, kept: bool) -> None:
    assert bool(surely_faster([workload("bench", eager=low)], ["eager"])) == kept


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=None)), inner),
)


@given(JSON)
def test_any_document_becomes_one_that_can_be_stored(document: object) -> None:
    text = json.dumps(plain(document), allow_nan=False, ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in text
    assert plain(plain(document)) == plain(document)


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers() | st.text("abc")))
def test_what_can_be_stored_stays_as_it_is(document: dict[str, object]) -> None:
    assert plain(document) == document
