"""What Triton's autotuner took, in words."""

from __future__ import annotations

from typing import Any

from tests.support.prompt_scenarios import LEDGER
from warpsmith.kernels_db.job.sweep_documents import describe_tuned
from warpsmith.workers.llm.prompt.requests import ledger_entry, ledger_lines


def took(name: str, block: int, *, role: str = "bench", kernel: str = "scale") -> dict[str, Any]:
    """A workload of a verdict, whose kernel was tuned."""
    configuration = {"BLOCK": block, "num_warps": 4, "num_ctas": 1}
    return {
        "id": name,
        "role": role,
        "configurations": [{"kernel": kernel, "key": [8], "configuration": configuration}],
    }


def test_a_choice_that_is_the_same_everywhere_is_told_once() -> None:
    assert describe_tuned([took("wide", 256), took("narrow", 256)]) == "autotuned scale: BLOCK=256, num_warps=4"


def test_choices_that_differ_are_told_by_workload() -> None:
    told = describe_tuned([took("wide", 256), took("narrow", 64)])
    assert told == "autotuned scale: wide BLOCK=256, num_warps=4; narrow BLOCK=64, num_warps=4"


def test_hold_outs_and_tests_are_not_told() -> None:
    assert describe_tuned([took("secret", 256, role="holdout"), took("ragged", 64, role="test")]) is None
    assert describe_tuned([{"id": "wide", "role": "bench"}]) is None
    assert describe_tuned([]) is None


def test_each_kernel_has_its_own_choice() -> None:
    told = describe_tuned([took("wide", 256), took("wide", 32, kernel="reduce")])
    assert told == "autotuned scale: BLOCK=256, num_warps=4; autotuned reduce: BLOCK=32, num_warps=4"


def test_the_ledger_tells_it_of_an_accepted_candidate() -> None:
    values: dict[str, Any] = {
        "seq": 99,
        "idea": None,
        "gate": "time",
        "reason": None,
        "tuned": "autotuned scale: BLOCK=256",
    }
    entry = ledger_entry(verdict="accepted", score=1.5, **values)
    assert any("autotuned scale: BLOCK=256" in line for line in ledger_lines((*LEDGER, entry)))
    assert "autotuned" not in ledger_entry(verdict="rejected", score=None, **values).cause
