"""Ops of the catalogue as specs: their jobs have the hold-outs that are derived for a candidate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jobs import CPU, Language
from benchmarks.redteam_catalogue.entry import Op
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.spec.resolve import build_job, reference_source, resolve_workload
from warpsmith.kernels_db.spec.target import Target


def spec_op(
    name: str,
    axes: Sequence[str],
    inputs: Mapping[str, Sequence[str]],
    output: Sequence[str],
    body: str,
    sizes: Sequence[Sequence[int]],
) -> Op:
    """Return an op of float32 tensors by their axes, with `body` for its reference and a workload for each of `sizes`."""
    roles = ["bench", *("test" for _ in sizes[2:]), "holdout"]
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": name,
        "axes": {axis: {"kind": "var"} for axis in axes},
        "inputs": [{"name": key, "shape": list(shape), "dtype": "float32"} for key, shape in inputs.items()],
        "outputs": [{"name": "out", "shape": list(output), "dtype": "float32"}],
        "reference": f"import torch\n\n\ndef run({', '.join(inputs)}):\n{lines}\n",
        "workloads": [
            {"id": "x".join(map(str, one)), "role": role, "axes": dict(zip(axes, one, strict=True))}
            for one, role in zip(sizes, roles, strict=True)
        ],
    }
    op = parse_op(document)
    workloads = tuple(resolve_workload(op, workload) for workload in op.workloads)
    return Op(name, reference_source(op), workloads, json.dumps(document))


def judged_workloads(op: Op, source: str, language: Language) -> list[ResolvedWorkload]:
    """Return the workloads of a candidate's verification: the op's, and where it is a spec the hold-outs derived for it."""
    if not op.spec:
        return list(op.workloads)
    candidate = {"language": language, "source": source}
    job = build_job(parse_op(json.loads(op.spec)), Target.parse(CPU), level="verify", candidate=candidate)  # type: ignore[arg-type]
    return job["workloads"]
