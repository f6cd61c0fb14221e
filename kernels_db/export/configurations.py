"""The configurations of one stored kernel, each as a kernel for an export: what it is, and what serves a size better.

A candidate with tunables is stored in the configuration that was best over all. Others, which its sweep found faster on
some workload, were verified as candidates of their own, on every workload and hold-out, and their verdicts lie in its
evidence. Of those an export ships the ones that were accepted, for the shapes on which they surely lead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel, verified_workloads
from warpsmith.kernels_db.job.documents import VerifiedConfiguration
from warpsmith.kernels_db.job.sweep_documents import SURE_LEAD
from warpsmith.kernels_db.spec.tensors import VarAxis


def spread(kernel: ExportedKernel) -> list[ExportedKernel]:
    """Return the kernel as it was stored, then its configurations that serve some of its shapes better.

    Evidence is each one's own.
    """
    if "configurations" not in kernel.evidence:
        return [kernel]  # itself: what it has read of its spec is read once
    evidence = {name: value for name, value in kernel.evidence.items() if name != "configurations"}
    own = replace(kernel, evidence=evidence)
    others = (_configured(own, one) for one in kernel.evidence["configurations"])
    return [own, *(other for other in others if other is not None)]


def _configured(kernel: ExportedKernel, one: VerifiedConfiguration) -> ExportedKernel | None:
    """Return a configuration as a kernel; None where it was not accepted on all that the kernel was, or leads nowhere.

    A shape is led where every timed workload of it is.
    """
    verdict = one.get("verdict")
    if verdict is None or verdict["verdict"] != "accepted" or verdict["level"] != "verify":
        return None
    mine, others = ({row["id"]: row for row in found["workloads"]} for found in (verdict, kernel.evidence))
    if not {shape["id"] for shape in kernel.envelope["shapes"]} <= mine.keys():
        return None
    op = kernel.op
    led: dict[tuple[tuple[str, int], ...], bool] = {}
    for workload in verified_workloads(kernel):
        name = workload["id"]
        if "candidate" in others[name]["time_us"]:
            axes = tuple((axis, size) for axis, size in workload["axes"].items() if isinstance(op.axes[axis], VarAxis))
            led[axes] = led.get(axes, True) and _leads(mine[name], others[name])
    leads = tuple(dict(axes) for axes, surely in led.items() if surely)
    if not leads:
        return None
    return replace(
        kernel, source=one["source"], source_digest=one["source_digest"], evidence=dict(verdict), leads=leads
    )


def _leads(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Check whether one is surely faster than the other on a workload.

    By the speed-ups over the baselines that were timed beside each, for the machine may have been slower for one of the
    two; and by the times, for these are what a package compares.
    """
    baselines = one["speedup"].keys() & other["speedup"].keys()
    if not baselines or one["time_us"].get("candidate", math.inf) >= other["time_us"]["candidate"]:
        return False
    if (one.get("limit_fraction") or 0.0) < (other.get("limit_fraction") or 0.0):
        return False
    return all(
        one["speedup"][name] >= SURE_LEAD * other["speedup"][name] and one["ci95"][name][0] > other["ci95"][name][1]
        for name in baselines
    )
