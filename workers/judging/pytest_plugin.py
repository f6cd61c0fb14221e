"""A plugin of pytest: the fixture `judge_kernel` holds a project's own kernel to its reference.

pytest loads it by the entry point `warpsmith`, so it imports nothing of Warpsmith until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warpsmith.workers.judging.judge import Judge
    from warpsmith.workers.judging.judgement import Judgement

LONGEST_LOG = 4000
"""Characters of a compiler's log that a failure shows: its end."""


@pytest.fixture(scope="session")
def kernel_judge() -> Iterator[Judge]:
    """The judge of `judge_kernel`, one for the session; a project may override it, to name a target or limits."""
    from warpsmith.workers.judging.judge import Judge  # noqa: PLC0415 - see the module

    with Judge() as judge:
        yield judge


@pytest.fixture
def judge_kernel(kernel_judge: Judge) -> Callable[..., Judgement]:
    """A function that judges a kernel, and fails the test unless it is accepted.

    `judge_kernel(op, source, at_least=None, **options)` takes what a `Judge` takes. `at_least`: it fails, too, where
    the whole 95 % interval of the speed-up over the fastest baseline lies below. It skips the test where this machine
    lacks the target's device and nothing was found wrong without. Returns the judgement.
    """

    def judge(op: Any, source: Any, *, at_least: float | None = None, **options: Any) -> Judgement:
        __tracebackhide__ = True
        found = kernel_judge(op, source, **options)
        if found.verdict == "ambiguous" and _lacks_device(found):
            pytest.skip(f"{found.op} on {found.target}: {found.reason}")
        if not found.accepted:
            pytest.fail(_describe(found), pytrace=False)
        interval = found.speedup_ci95
        if at_least is not None and interval is not None and interval[1] < at_least:
            pytest.fail(f"{found.op}: {found.reason}; expected at least {at_least:g} times", pytrace=False)
        return found

    return judge


def _lacks_device(found: Judgement) -> bool:
    from warpsmith.kernels_db.job.documents import judged_elsewhere  # noqa: PLC0415 - see the module

    return found.document is not None and judged_elsewhere(found.document) is not None


def _describe(found: Judgement) -> str:
    lines = [f"{found.op} on {found.target}: {found.unjudged or found.verdict}: {found.reason}"]
    if found.failure is not None and found.failure.get("log"):
        lines.append(found.failure["log"][-LONGEST_LOG:])
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])
