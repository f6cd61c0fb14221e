"""What a new verdict on a stored kernel means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.steps_support import verdict
from warpsmith.kernels_db.job.means import limit_fraction, mean_ends
from warpsmith.workers.reverification import finding

BASELINES = ("eager", "compile", "max_autotune")
Intervals = dict[str, tuple[float, float]]


def verified(ends: Intervals, word: str = "accepted", gate: str = "time") -> dict[str, Any]:
    """A verify verdict whose one bench workload has these intervals."""
    found: Any = verdict("verify", "accepted", 1.0)
    for workload in found["workloads"]:
        workload["ci95"] = {name: list(interval) for name, interval in ends.items()}
    return {**found, "verdict": word, "gate": gate, "reason": "said by the judge"}


def all_at(low: float, high: float) -> Intervals:
    return dict.fromkeys(BASELINES, (low, high))


def outcome(then: Intervals, now: Intervals) -> str:
    return finding(verified(then), verified(now)).outcome  # type: ignore[arg-type] # as JSON brings it


KEPT = all_at(1.4, 1.5)
GPU = {"type": "cuda", "arch": "sm_90"}
CPU = {"type": "cpu", "arch": "x86_64"}


@pytest.mark.parametrize(
    ("word", "gate", "expected"),
    [
        ("rejected", "gate", "uncompilable"),
        ("rejected", "compile", "uncompilable"),
        ("rejected", "screen", "wrong"),
        ("rejected", "verify", "wrong"),
        ("rejected", "time", "wrong"),
        ("rejected", "reference", "unknown"),
        ("rejected", "memory", "unknown"),
        ("ambiguous", "sandbox", "unknown"),
        ("ambiguous", "compile", "unknown"),
        ("ambiguous", "time", "unknown"),
        ("ambiguous", "physics", "unknown"),
        ("quarantined", "physics", "unknown"),
    ],
)
def test_what_was_not_accepted(word: str, gate: str, expected: str) -> None:
    found = finding(verified(KEPT), verified(KEPT, word, gate))  # type: ignore[arg-type] # as JSON brings it
    assert found.outcome == expected
    assert "said by the judge" in found.reason


@pytest.mark.parametrize(
    ("target", "device", "expected"),
    [
        ("cuda:sm_90", GPU, "wrong"),
        ("cuda:sm_90", CPU, "unknown"),  # interpreted, for want of a GPU
        ("cuda:sm_100", GPU, "unknown"),
        ("cpu:x86_64", CPU, "wrong"),
        ("cpu:aarch64", CPU, "unknown"),
        ("cpu:x86_64", {}, "wrong"),  # it does not say
    ],
)
def test_a_verdict_of_another_device_says_nothing(target: str, device: dict[str, str], expected: str) -> None:
    told: Any = {**verified(KEPT, "rejected", "verify"), "target": target, "device": device}
    found = finding(verified(KEPT), told)
    assert found.outcome == expected
    held: Any = {**verified(KEPT), "target": target, "device": device}
    assert finding(verified(KEPT), held).outcome == ("holds" if expected == "wrong" else "unknown")


@pytest.mark.parametrize(
    ("gate", "failure", "expected"),
    [
        ("compile", {"kind": "compile"}, "uncompilable"),
        ("compile", {"kind": "compile", "cause": "timeout"}, "unknown"),
        ("compile", {"kind": "compile", "cause": "memory"}, "unknown"),
        ("compile", {"kind": "compile", "cause": "died"}, "unknown"),
        ("screen", {"kind": "crash"}, "wrong"),
        ("screen", {"kind": "crash", "cause": "died"}, "unknown"),
        ("verify", {"kind": "crash", "cause": "device"}, "unknown"),
        ("verify", {"kind": "memory"}, "unknown"),
        ("verify", {"kind": "timeout"}, "wrong"),  # a call that does not end
    ],
)
def test_what_the_host_may_have_brought_about_is_no_drift(gate: str, failure: dict[str, str], expected: str) -> None:
    told: Any = {**verified(KEPT, "rejected", gate), "failure": {"message": "said", **failure}}
    found = finding(verified(KEPT), told)
    assert found.outcome == expected
    assert "said by the judge" in found.reason


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (all_at(1.4, 1.5), "holds"),
        (all_at(1.01, 1.02), "holds"),
        (all_at(0.9, 1.1), "holds"),  # within the noise
        (all_at(0.9, 1.0), "holds"),
        (all_at(0.9, 0.99), "slower"),
        ({**KEPT, "max_autotune": (0.8, 0.9)}, "slower"),  # the fastest counts, whichever it is now
        ({**KEPT, "max_autotune": (0.8, 1.1)}, "holds"),
        ({"eager": (1.4, 1.5)}, "holds"),  # the others could not be timed
        ({}, "unknown"),
    ],
)
def test_what_was_accepted_is_held_against_its_fastest_baseline(now: Intervals, expected: str) -> None:
    assert outcome(KEPT, now) == expected


def test_a_baseline_that_was_faster_all_along_is_no_drift() -> None:
    kept_over_eager = {**KEPT, "max_autotune": (0.6, 0.7)}
    assert outcome(kept_over_eager, kept_over_eager) == "holds"
    assert outcome(kept_over_eager, {**kept_over_eager, "compile": (0.9, 0.95)}) == "slower"
    # It tied with one then, and loses to it now.
    assert outcome({**KEPT, "max_autotune": (0.9, 1.1)}, kept_over_eager) == "slower"


def test_a_baseline_that_was_not_timed_then_counts() -> None:
    assert outcome({"eager": (1.4, 1.5)}, {"eager": (1.4, 1.5), "compile": (0.5, 0.6)}) == "slower"


def test_evidence_without_workloads_is_held_against_everything() -> None:
    found = finding({}, verified({**KEPT, "compile": (0.5, 0.6)}))  # type: ignore[arg-type] # as JSON brings it
    assert found.outcome == "slower"
    assert "compile" in found.reason


interval = st.tuples(st.floats(0.1, 10), st.floats(1.0, 2.0)).map(lambda pair: (pair[0], pair[0] * pair[1]))
intervals = st.dictionaries(st.sampled_from(BASELINES), interval, min_size=1)


@given(then=intervals, now=intervals)
def test_slower_means_a_whole_interval_below_one(then: Intervals, now: Intervals) -> None:
    found = outcome(then, now)
    counted = [ends for name, ends in now.items() if name not in then or then[name][1] >= 1]
    if not counted:
        assert found == "unknown"
    else:
        assert found == ("slower" if min(high for _, high in counted) < 1 else "holds")


@given(then=intervals, now=intervals, factor=st.floats(1.0, 5.0))
def test_what_got_faster_never_drifts(then: Intervals, now: Intervals, factor: float) -> None:
    faster = {name: (low * factor, high * factor) for name, (low, high) in now.items()}
    if outcome(then, now) == "holds":
        assert outcome(then, faster) == "holds"


@given(st.lists(interval, min_size=1, max_size=4))
def test_mean_ends_are_those_of_the_bench_workloads(found: list[tuple[float, float]]) -> None:
    workloads: Any = [{"role": "bench", "ci95": {"eager": list(ends)}} for ends in found]
    workloads.append({"role": "test", "ci95": {"eager": [0.001, 1000.0]}})
    ends = mean_ends(workloads, "eager")
    assert ends is not None
    low, high = ends
    assert min(low for low, _ in found) * 0.999 <= low <= high * 1.001
    assert high <= max(high for _, high in found) * 1.001
    assert mean_ends(workloads, "compile") is None
    workloads.append({"role": "bench", "ci95": {}})
    assert mean_ends(workloads, "eager") is None


def test_a_mean_of_a_verdict_counts_each_workload_by_its_weight() -> None:
    workloads: Any = [
        {"role": "bench", "ci95": {"eager": [1.0, 2.0]}, "limit_fraction": 0.5, "weight": 3.0},
        {"role": "bench", "ci95": {"eager": [16.0, 32.0]}, "limit_fraction": 0.25},
    ]
    assert mean_ends(workloads, "eager") == pytest.approx((2.0, 4.0))
    assert limit_fraction(workloads) == pytest.approx((0.5**3 * 0.25) ** 0.25)
