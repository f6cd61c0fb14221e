"""A graph with kernels and the same graph without, in turns: each call is made once, and one of the two stays."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from warpsmith.workers.optimize.compiled import trial
from warpsmith.workers.optimize.compiled.patterns import keep
from warpsmith.workers.optimize.compiled.trial import MOST_CALLS, ROUNDS, WARM_ROUNDS, Trial

CPU = torch.device("cpu")
LONG_S = 0.004
"""Far above what a shared machine delays most calls of a short one by."""


def timed(kernels_s: float, plain_s: float, file: Path) -> tuple[Trial, list[str]]:
    """A trial of two variants that take so long, and the calls that were made, in order."""
    made: list[str] = []

    def variant(name: str, seconds: float) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            made.append(name)
            time.sleep(seconds)
            return x + 1

        return call

    both = Trial(variant("kernels", kernels_s), variant("plain", plain_s), CPU, lambda found: keep(file, found))
    return both, made


@pytest.mark.parametrize(("kernels_s", "stays"), [(0.0, "kernels"), (2 * LONG_S, "plain")])
def test_the_faster_one_stays(tmp_path: Path, kernels_s: float, stays: str) -> None:
    both, made = timed(kernels_s, LONG_S, tmp_path / "found")
    x, calls = torch.zeros(2), 0
    while not both.tried:
        assert torch.equal(both.call(x), x + 1)
        calls += 1
        assert len(made) == calls  # none for the clock's sake
    assert calls == 2 * (WARM_ROUNDS + ROUNDS)
    assert made[:4] == ["kernels", "plain", "plain", "kernels"]
    assert made.count("plain") == made.count("kernels")
    for _ in range(3):
        both.call(x)
    assert made[calls:] == [stays] * 3
    assert both.outcome is not None
    assert both.outcome.gains == (stays == "kernels")
    assert trial.read(tmp_path / "found") == both.outcome


def test_what_is_not_surely_faster_is_dropped() -> None:
    assert not trial.Outcome(1.01, (0.99, 1.03)).gains
    assert trial.Outcome(1.01, (1.001, 1.02)).gains


def test_sizes_that_differ_are_not_compared(tmp_path: Path) -> None:
    both, made = timed(0.0, 0.0, tmp_path / "found")
    for call in range(MOST_CALLS):
        assert not both.tried
        both.call(torch.zeros(call + 1))
    assert both.tried
    assert both.outcome is None
    both.call(torch.zeros(1))
    assert made[-1] == "kernels"
    assert not (tmp_path / "found").exists()


def test_other_threads_are_served_meanwhile_and_a_call_that_raises_leaves_the_trial_as_it_was(tmp_path: Path) -> None:
    inside, go = threading.Event(), threading.Event()
    names: list[str] = []

    def kernels(how: str) -> str:
        names.append(how)
        if how == "waits":
            inside.set()
            assert go.wait(10)
        if how == "raises":
            raise ValueError(how)
        return "kernels"

    both = Trial(kernels, lambda how: "plain", CPU, lambda found: None)
    with pytest.raises(ValueError, match="raises"):
        both.call("raises")
    thread = threading.Thread(target=both.call, args=("waits",))
    thread.start()
    assert inside.wait(10)
    assert [both.call("other") for _ in range(3)] == ["kernels"] * 3
    go.set()
    thread.join()
    assert both.call("next") == "plain"  # the first round's other half


@pytest.mark.parametrize("text", ["", "[]", '{"ratio": 1.2}', json.dumps({"ratio": "x", "ci95": [1, 2]})])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "found").write_text(text)
    assert trial.read(tmp_path / "found") is None
    assert trial.read(tmp_path / "absent") is None


def test_calls_without_a_pause_are_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the last call has never ended when it is noted, where the caller does not wait for it."""
    spans: list[Any] = []
    made_of = trial._Span.__init__

    def begin(self: Any, device: torch.device) -> None:
        spans.append(self)
        made_of(self, device)

    monkeypatch.setattr(trial._Span, "__init__", begin)
    monkeypatch.setattr(trial._Span, "done", lambda self: spans.index(self) < len(spans) - 3)
    both, made = timed(0.0, LONG_S, tmp_path / "found")
    for _ in range(2 * (WARM_ROUNDS + ROUNDS) + 4):
        both.call(torch.zeros(2))
    assert both.tried
    assert both.outcome is not None
    assert both.outcome.gains
    assert made[-1] == "kernels"
