"""The result of an admission's checks: wrong answers that passed, and spec changes to make.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.kernels_db.job.documents import AdmissionCheck, Failure


def refusal(checks: Sequence[AdmissionCheck]) -> Failure | None:
    """Why the op is not admitted; None where every wrong answer that must be found out was."""
    missed = grouped([check for check in checks if not check["caught"] and check["needed"]])
    if not missed:
        return None
    told = "; ".join(f"{', '.join(answers)} ({field}: expected {remedy})" for field, remedy, answers in missed)
    field, remedy, answers = missed[0]
    return {
        "kind": "admission",
        "message": f"the spec cannot tell these wrong answers from a right one: {told}",
        "field": field,
        "found": f"a spec that takes these wrong answers for right ones: {', '.join(answers)}",
        "expected": remedy,
    }


def grouped(checks: Sequence[AdmissionCheck]) -> list[tuple[str, str, list[str]]]:
    """Field, remedy, and the answers that they are for."""
    groups: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        groups.setdefault((check["field"], check["remedy"]), []).append(check["answer"])
    return [(field, remedy, answers) for (field, remedy), answers in groups.items()]
