"""What a candidate's call that was not right raises, and the failures of faults and of memory that was touched."""

from __future__ import annotations

from warpsmith.kernels_db.job.documents import Failure
from warpsmith.workers.judge.runner.faults import RunnerFault


class Wrong(Exception):  # noqa: N818 - named for what happened
    """A candidate's call was not right; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def failure_of(fault: RunnerFault, workload: str | None) -> Failure:
    """Return a runner's fault as a verdict's failure."""
    failure: Failure = {"kind": fault.kind, "message": str(fault)}
    if workload is not None:
        failure |= {"message": f"workload {workload}: {fault}", "workload": workload}
    for key in ("found", "expected", "log"):
        if fault.details.get(key):
            failure[key] = fault.details[key]
    return failure


def refuse_touched(outside: str | None, changed: tuple[str, list[int]] | None, place: str, where: Failure) -> None:
    """Raise Wrong where a call wrote beside a tensor or to an input."""
    if outside is not None:
        message = f"workload {place}: wrote outside of {outside}"
        raise Wrong({**where, "kind": "out_of_bounds", "message": message, "tensor": outside})
    if changed is not None:
        name, index = changed
        message = f"workload {place}: wrote to its input {name}, first at {name}{index}"
        raise Wrong({**where, "kind": "input_modified", "message": message, "tensor": name, "index": index})
