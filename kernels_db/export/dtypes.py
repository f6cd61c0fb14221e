"""A kernel of an op with named dtypes, as one kernel for each of them: a package tells calls apart by their dtypes.

The op of each has dtypes in place of the names, its envelope and evidence are those of the workloads with these dtypes.
Hold-outs that were derived for the verification stay with the whole verdict: their rows say nothing of dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.resolve import resolve_workload


def of_each_dtype(kernel: ExportedKernel) -> list[ExportedKernel]:
    """Return the kernel for each choice of dtypes that it was verified on; itself where its op names none.

    A choice that the target has no bench workload of is left out, since no op can have tests alone: a package leaves
    calls of these dtypes to the reference.
    """
    op, target = kernel.op, Target.parse(kernel.target)
    if not op.dtypes:
        return [kernel]
    verified = {shape["id"] for shape in kernel.envelope["shapes"]}
    found: list[ExportedKernel] = []
    timed = [workload.dtypes for workload in op.workloads_for(target) if workload.role == "bench"]
    for chosen in op.dtypes_for(target):
        if chosen not in timed:
            continue
        alone = op.with_dtypes(chosen)
        workloads = [resolve_workload(alone, one) for one in alone.workloads_for(target) if one.id in verified]
        if not workloads:
            continue
        envelope = build_envelope(alone.digest, kernel.target, workloads, kernel.envelope["versions"])
        evidence = _evidence_on(kernel.evidence, {one["id"] for one in workloads})
        found.append(replace(kernel, spec=alone.document(), envelope=envelope, evidence=evidence))
    return found


def _evidence_on(evidence: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    """Return a verdict's part on these workloads; what is told of all workloads together is left out."""
    of_all = ("score", "score_ci95", "attack")
    kept = {name: value for name, value in evidence.items() if name not in of_all}
    kept["workloads"] = [row for row in evidence["workloads"] if row["id"] in ids]
    if kept.get("host_us", {}).get("workload") not in ids:
        kept.pop("host_us", None)
    if "configurations" in evidence:
        kept["configurations"] = [
            {**one, "verdict": _evidence_on(one["verdict"], ids)} if "verdict" in one else one
            for one in evidence["configurations"]
        ]
    return kept
