"""The counterexample search's part of the job and the verdict. Standard library only."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Accuracy = Literal["componentwise", "normwise"]
"""How errors of a counterexample search are measured.

componentwise: every element against its own size, as sums and products in any order achieve. normwise: against the
largest of its tensor, as fast matrix products (Strassen, Winograd, FFT) achieve.
"""


class InputValues(TypedDict):
    """What a floating input may hold. Absent names leave the dtype's own limits.

    finite: true: neither NaN nor infinities. range: [low, high], inclusive, of finite values; NaN and infinities are
    outside of every range.
    """

    finite: NotRequired[bool]
    range: NotRequired[list[float]]


class Recipe(TypedDict):
    """How to make the values of one question of a counterexample search, on any machine.

    The declared distributions of `workload` are drawn with `seed`; then each change is made, in order. A change is
    {"input": name, "move": name} and the move's parameters, numbers and text (`workers.judge.attack.recipe`).
    """

    workload: str
    seed: int
    changes: list[dict[str, Any]]


class AttackedWorkload(TypedDict):
    """The search for a counterexample on one workload.

    `ratio`: the candidate's worst error as a multiple of what is allowed, over every fair question; above 1 it is a
    counterexample. None: no question was fair. `recipe`: the values on which it was worst.
    """

    workload: str
    tries: int
    ratio: float | None
    recipe: Recipe | None


class Attack(TypedDict):
    """The search for a counterexample: questions asked, seconds, and the shrunk recipe that fails, if one was found."""

    tries: int
    seconds: float
    workloads: list[AttackedWorkload]
    counterexample: Recipe | None
    skipped: NotRequired[str]  # why nothing was searched
