"""Which candidate was the best when, from the verdicts alone."""

from __future__ import annotations

from typing import Any, Literal

from warpsmith.service.views.watch import JudgedPoint, list_best_points


def verdict(node: str, score: float | None, level: Literal["screen", "verify"] = "screen") -> tuple[JudgedPoint, Any]:
    """A verdict on a candidate; its place in the tree is its name."""
    point = JudgedPoint(
        at=0.0,
        elapsed_s=0.0,
        candidates=1,
        cost_usd=None,
        node_id=node,
        seq=int(node),
        level=level,
        verdict="rejected" if score is None else "accepted",
        gate="time",
        score=score,
        technique=None,
    )
    return point, {"ci95": None if score is None else [score, score], "limit_fraction": None}


def bests(*judged: tuple[JudgedPoint, Any], standing: str = "123") -> list[tuple[str, float, str]]:
    """Node, score and level of each best."""
    return [(point.node_id, point.score, point.level) for point in list_best_points(list(judged), set(standing))]


def test_a_verification_takes_the_place_of_the_screening() -> None:
    judged = [verdict("1", 1.5), verdict("2", 1.3), verdict("1", 1.4, "verify")]
    assert bests(*judged) == [("1", 1.5, "screen"), ("1", 1.4, "verify")]


def test_a_candidate_that_verified_below_another_hands_over() -> None:
    judged = [verdict("1", 1.5), verdict("2", 1.45), verdict("3", 1.45), verdict("1", 1.4, "verify")]
    assert bests(*judged) == [("1", 1.5, "screen"), ("2", 1.45, "screen")]
    [*_, last] = list_best_points(judged, {"1", "2"})
    assert last.ci95 == [1.45, 1.45]


def test_what_was_refused_or_does_not_stand_never_led() -> None:
    judged = [verdict("1", 2.0), verdict("2", None), verdict("3", 1.2)]
    assert bests(*judged, standing="23") == [("3", 1.2, "screen")]
