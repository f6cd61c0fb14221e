"""Hold-out shapes stand in no prompt, whatever the judge said of the candidate and however it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.support.prompt_scenarios import FAILING, IDEA, PARENT, context, op, timed, verdict, workloads
from warpsmith.kernels_db.job.documents import VerdictWord
from warpsmith.workers.llm.prompt.feedback import cause, feedback
from warpsmith.workers.llm.prompt.requests import build

SECRETS = ("secret_shape", "holdout-1", "7776", "7775", "23328", "5432", "4.25e+07", "42500000")
"""The declared hold-out and a derived one: ids, sizes, elements, places; bytes that it needs."""

SAID = "workload {name}: y[2, 7775] of [3, 7776] is 0; 9 of 23328 elements are wrong; it needs 42500000 bytes"
NAMES = ("secret_shape", "holdout-1")
DESCRIBED = "x: repeated along axis 1 every 7776\neps: is 5432\nx: 4.25e+07 added to every element; y[2, 7775]"
KINDS = (
    "wrong_value",
    "counterexample",
    "not_written",
    "non_finite",
    "crash",
    "timeout",
    "memory",
    "host",
    "sandbox",
    "physics",
)


def failures() -> list[Any]:
    """None, and failures of every kind: on either hold-out, and of no workload that is named."""
    found: list[Any] = [None]
    for kind in KINDS:
        for name in (*NAMES, None):
            numbers = {"found": 42500000, "expected": 5432.0, "limit": 1e-6}
            values = {"found": 0.5, "expected": 1.25, "limit": 1e-6, "tensor": "y", "index": [2, 7775]}
            failure = {
                "kind": kind,
                "message": SAID.format(name=name or "secret_shape"),
                "log": "RuntimeError: shape '[3, 7776]' is invalid",
                **(values if kind in ("wrong_value", "counterexample", "not_written", "non_finite") else numbers),
                **({"description": DESCRIBED, "eager": 1.25} if kind in ("counterexample", "crash") else {}),
                "wrong_elements": 9,
                "elements": 23328,
                "pattern": "axis 1 (size 7776): only at 7775",
            }
            found.append(failure | ({"workload": name} if name else {}))
    return found


def judged(word: str, failure: Any) -> Any:
    """A full verification that ended so, with its hold-outs' times."""
    hidden = [timed(name, 5432.0, 6000.0, 6000.0, 1.0) | {"role": "holdout", "kernels": ["k"]} for name in NAMES]
    reason = f"too good to be true, or to be told: {SAID.format(name='secret_shape')}"
    good = {} if word == "accepted" else {"score": None, "score_ci95": None}
    return verdict(
        level="verify",
        verdict=word,
        gate="verify",
        reason=reason,
        failure=failure,
        workloads=[*verdict()["workloads"], *hidden],
        **good,
    )


def prompts_about(document: Any) -> list[str]:
    """Every prompt that can speak of a candidate with this verdict."""
    node, failing = replace(PARENT, verdict=document), replace(FAILING, verdict=document)
    best = replace(node, seq=12)
    asked = [context(kind, parent=node, best=best) for kind in ("ideate", "reflect", "code")]
    asked.append(context("repair", idea=IDEA, failing=failing))
    asked.append(context("code", parent=node, ordinal=1, unreadable="Sure", problem="There is no code block."))
    return ["\n".join(str(message["content"]) for message in build(one).messages) for one in asked]


@pytest.mark.parametrize("word", get_args(VerdictWord))
def test_no_prompt_tells_of_a_hold_out(word: str) -> None:
    for failure in failures():
        document = judged(word, failure)
        for text in (*prompts_about(document), cause(document, workloads(op()))):
            told = [secret for secret in SECRETS if secret in text]
            assert not told, f"{word}, {failure}: {told} in\n{text}"


def test_not_timed_is_told_without_the_judges_words() -> None:
    document = judged("accepted", None) | {"score": None, "score_ci95": None}
    assert not [secret for secret in SECRETS if secret in feedback(document, workloads(op()))]


def test_a_screening_is_told_in_the_judges_words() -> None:
    document = verdict(verdict="ambiguous", gate="sandbox", reason="less confinement than is demanded")
    assert "less confinement than is demanded" in feedback(document, workloads(op()))
    failed = judged("quarantined", {"kind": "physics", "message": "too fast", "workload": "prefill"})
    assert "too good to be true" in feedback(failed | {"reason": "too good to be true: prefill"}, workloads(op()))
