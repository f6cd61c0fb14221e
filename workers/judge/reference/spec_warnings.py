"""What an op's author should know of a spec that is admitted: workloads that say little of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.values.families import elements

MUCH_NAN = 0.01
"""Share of a result's elements that are NaN from which on it is warned of: a mask may leave a row or two."""

FEW_ELEMENTS = 1 << 12
"""Elements of inputs below which a bench times its call: they take less than a microsecond to move."""


def warnings_of(workloads: Sequence[ResolvedWorkload], runners: OpRunners) -> Iterator[str]:
    """Yield the warnings. `runners` has learnt the workloads."""
    for workload in workloads:
        for name, share in runners.facts(workload).nan.items():
            if share >= MUCH_NAN:
                yield (
                    f"workload {workload['id']}: found {share:.0%} of {name} NaN in the reference, expected numbers: "
                    "NaN is right wherever the reference has it; give the inputs another dist"
                )
    for workload in workloads:
        if workload["role"] == "bench" and (size := elements(workload)) < FEW_ELEMENTS:
            yield (
                f"workload {workload['id']}: found inputs of {size:,} elements in a bench, expected at least "
                f"{FEW_ELEMENTS:,}: its time is that of a call, whatever the kernel does"
            )
