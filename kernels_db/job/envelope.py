"""The envelope: the inputs on which a kernel was verified, and so an export may use it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from warpsmith.kernels_db.job.axis_relations import find_relations
from warpsmith.kernels_db.job.documents import ResolvedWorkload


def build_envelope(
    op_digest: str, target: str, workloads: Sequence[ResolvedWorkload], versions: dict[str, str]
) -> dict[str, Any]:
    """Return the envelope of a kernel that was verified on `workloads`.

    `axes` holds, for each axis, every value that was verified, their smallest and largest, and what divides all of
    them; `relations` what holds between two axes: hold-outs are derived within these alone. `inputs` holds dtype, rank
    and whether every verified call was contiguous (strided inputs are outside unless they were verified), and what the
    op says that they may hold (`values`), beyond which nothing was asked. A tensor of several dtypes has all of them.
    """
    axes: dict[str, set[int]] = {}
    for workload in workloads:
        for name, value in workload["axes"].items():
            axes.setdefault(name, set()).add(value)
    varying = [name for name, values in axes.items() if len(values) > 1]
    inputs = []
    for position, first in enumerate(workloads[0]["inputs"]):
        inputs.append(
            {
                "name": first["name"],
                "dtype": " or ".join(dict.fromkeys(w["inputs"][position]["dtype"] for w in workloads)),
                "rank": None if first["shape"] is None else len(first["shape"]),
                "contiguous": all(w["inputs"][position]["strides"] is None for w in workloads),
                "mutated": first["mutated"],
                **({"values": first["values"]} if "values" in first else {}),
            }
        )
    return {
        "version": 1,
        "op_digest": op_digest,
        "target": target,
        "axes": {
            name: {"verified": sorted(values), "min": min(values), "max": max(values), "step": math.gcd(*values)}
            for name, values in axes.items()
        },
        "relations": [list(one) for one in find_relations([w["axes"] for w in workloads], varying)],
        "inputs": inputs,
        "outputs": [
            {"name": o["name"], "dtype": " or ".join(dict.fromkeys(w["outputs"][position]["dtype"] for w in workloads))}
            for position, o in enumerate(workloads[0]["outputs"])
        ],
        "shapes": [{"id": w["id"], "role": w["role"], "axes": w["axes"]} for w in workloads],
        "versions": versions,
    }
