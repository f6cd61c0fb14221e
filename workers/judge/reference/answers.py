"""Compare a candidate's results with a question's; who is wrong as PyTorch eager is wrong is right.

A tolerance that was learnt on other values holds eager's error there. Where a result jumps (`floor` of a product, a
threshold), eager's own error on the values at hand may be a whole step at one element in a million. So where a result
is found wrong, eager is run on the question's own values, and elements that are eager's own, or its neighbours, count
as right. Eager is not run before that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.input_checks import Question
from warpsmith.workers.judge.values.compare import Comparison, Tolerance, ulp
from warpsmith.workers.judge.values.steps import Limit


def check_answer(
    runners: OpRunners, workload: ResolvedWorkload, question: Question, found: Sequence[torch.Tensor]
) -> list[Comparison]:
    """Compare the results of a call with the right ones, in the order of `result_positions`. Raises RunnerFault."""
    compared = runners.check(found, question.expected, question.limits)
    limits = zip(compared, question.limits, strict=True)
    doubtful = [
        not one.passed and not one.cut and _is_derived(limit) for one, limit in limits
    ]  # a cut is beside eager's
    if not any(doubtful):
        return compared
    eager = runners.run("eager", workload, question.values)
    expected = [
        _as_eager(one, own, wanted) if asks else wanted
        for one, own, wanted, asks in zip(found, eager, question.expected, doubtful, strict=True)
    ]
    again = runners.check(found, expected, question.limits)
    return [first if first.cut else second for first, second in zip(compared, again, strict=True)]


def _is_derived(limit: Limit) -> bool:
    return isinstance(limit, Tolerance) and limit.own is None


def _as_eager(found: torch.Tensor, eager: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the expected results, with what was found where that is eager's or next to it."""
    own, wide = eager.to(torch.float64), found.to(torch.float64)
    near = torch.isfinite(own) & ((wide - own).abs() <= ulp(torch.where(torch.isfinite(own), own, 0.0), eager.dtype))
    return torch.where(near, wide, expected)
