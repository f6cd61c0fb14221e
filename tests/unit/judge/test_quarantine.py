"""The physics gate: what beats the machine is not believed, what beats only the baseline is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.clock.quarantine import LARGE_RATIO, MARGIN, decide

TIMES = st.floats(1e-3, 1e6)
DEVICES = st.sampled_from(["cpu", "cuda"])


def doubt(time_us: float, limit_us: float, baseline_us: float, device: str = "cuda") -> str | None:
    return decide(time_us=time_us, limit_us=limit_us, limit_by="bytes", baseline_us=baseline_us, device=device)


@given(TIMES, TIMES, TIMES, DEVICES)
def test_a_time_at_or_above_the_limit_is_always_believed(
    time: float, limit: float, baseline: float, device: str
) -> None:
    if time >= limit:
        assert doubt(time, limit, baseline, device) is None


@given(TIMES, TIMES, TIMES, DEVICES)
def test_a_slower_time_is_never_less_believed(time: float, limit: float, baseline: float, device: str) -> None:
    if doubt(time, limit, baseline, device) is None:
        assert doubt(2 * time, limit, baseline, device) is None


@given(limit=TIMES, room=st.floats(1.0, 100.0), beyond=st.floats(1.01, 100.0), device=DEVICES)
def test_what_beats_the_limit_beyond_the_margin_is_quarantined(
    limit: float, room: float, beyond: float, device: str
) -> None:
    reason = doubt(limit / MARGIN[device] / beyond, limit, limit * room, device)
    assert reason is not None
    assert "bandwidth" in reason
    assert f"{limit:.3g} us" in reason


@given(limit=TIMES, within=st.floats(0.0, 0.99), device=DEVICES)
def test_the_margin_covers_what_a_measured_peak_leaves_open(limit: float, within: float, device: str) -> None:
    time = limit / (1 + within * (MARGIN[device] - 1))
    assert doubt(time, limit, 2 * limit, device) is None


@given(time=TIMES, ratio=st.floats(LARGE_RATIO + 0.1, 1e4), share=st.floats(0.01, 0.99))
def test_a_large_ratio_is_believed_where_the_baseline_is_as_far_from_the_limit(
    time: float, ratio: float, share: float
) -> None:
    assert doubt(time, time * share, time * ratio) is None
    unexplained = doubt(time, time / (1 - share * 0.09), time * ratio)
    assert unexplained is not None
    assert "times as fast" in unexplained


def test_eager_sixty_times_slower_than_the_memory_limit_explains_sixty() -> None:
    """Layer norm over 4 million elements: eager takes 8.09 ms where memory allows 0.126 ms."""
    assert doubt(135.0, 126.0, 8090.0) is None
    assert doubt(80.0, 126.0, 8090.0) is not None


def test_a_baseline_below_the_limit_shows_that_the_peak_was_measured_too_low() -> None:
    assert doubt(9.0, 20.0, 10.0, "cpu") is None
    assert doubt(7.0, 20.0, 10.0, "cpu") is not None


@pytest.mark.parametrize("limit_by", ["bytes", "operations"])
def test_the_reason_says_which_peak(limit_by: str) -> None:
    reason = decide(time_us=1.0, limit_us=50.0, limit_by=limit_by, baseline_us=60.0, device="cuda")  # type: ignore[arg-type]
    assert reason is not None
    assert {"bytes": "bandwidth", "operations": "rate of operations"}[limit_by] in reason


def test_no_time_at_all_is_no_division_by_zero() -> None:
    assert doubt(0.0, 5.0, 100.0) is not None
