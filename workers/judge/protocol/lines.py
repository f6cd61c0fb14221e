"""Read one JSON line as a `Job`, or as {"cancel": id}, which takes a job back.

A line that is neither is refused with the field, what was found and what was expected.

`warpsmith.workers.judge.protocol.contract` checks the types; this module checks what types do not say.
"""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass
from typing import Any, cast

import torch

from warpsmith.kernels_db.job.baselines import MAX_EXPERTS, PYTORCH_BASELINES, RESERVED_NAMES, experts_among
from warpsmith.kernels_db.job.documents import Job, JobOp, ResolvedOutput, ResolvedWorkload
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check, short

DEVICES = ("cpu", "cuda")


class BrokenJob(BrokenDocument):
    """A line that is no job. `id` is the job's, where that could be read."""

    id: str | None = None


@dataclass(frozen=True)
class Cancel:
    """A message that the verdict on this job is not needed any more."""

    id: str


def parse_line(line: str) -> Job | Cancel:
    """Read one line. Raises BrokenJob."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenJob("(line)", short(line), f"a job as one line of JSON ({error})") from error
    if isinstance(document, dict) and document.keys() == {"cancel"} and isinstance(document["cancel"], str):
        return Cancel(document["cancel"])
    try:
        check(Job, document, "")
        job = cast("Job", document)
        _check_meaning(job)
    except BrokenDocument as wrong:
        broken = BrokenJob(wrong.field, wrong.found, wrong.expected)
        if isinstance(document, dict) and isinstance(document.get("id"), str):
            broken.id = document["id"]
        raise broken from wrong
    return job


def _check_meaning(job: Job) -> None:
    """Check what types do not say."""
    for position, workload in enumerate(job["workloads"]):
        weight = workload.get("weight", 1.0)
        if not 0 < weight < math.inf:
            raise BrokenDocument(f"workloads[{position}].weight", repr(weight), "a finite number above 0")
    device, _, arch = job["target"].partition(":")
    if device not in DEVICES:
        raise BrokenJob("target", job["target"], "cpu:<architecture> or cuda:<architecture>")
    if device == "cpu" and arch not in ("", platform.machine()):
        raise BrokenJob("target", job["target"], f"cpu:{platform.machine()}, which this machine is")
    if (job["candidate"] is None) != (job["level"] == "baseline"):
        found = "no candidate" if job["candidate"] is None else "a candidate"
        raise BrokenJob(
            "candidate", found, f"{'none' if job['level'] == 'baseline' else 'one'} at level {job['level']}"
        )
    if not job["workloads"]:
        raise BrokenJob("workloads", [], "at least one")
    _check_baselines(job["op"])
    _check_limits(cast("dict[str, Any]", job["limits"]))
    _check_workloads(job["workloads"])


def _check_baselines(op: JobOp) -> None:
    baselines, experts = op["baselines"], op.get("experts", {})
    for position, name in enumerate(baselines):
        if name not in PYTORCH_BASELINES and name not in experts:
            known = ", ".join([*PYTORCH_BASELINES, *experts])
            raise BrokenJob(f"op.baselines[{position}]", name, f"one of {known}")
    if len(experts_among(baselines)) == len(baselines):
        raise BrokenJob("op.baselines", baselines, f"at least one of {', '.join(PYTORCH_BASELINES)}")
    if len(experts) > MAX_EXPERTS:
        raise BrokenJob("op.experts", f"{len(experts)} experts", f"at most {MAX_EXPERTS}")
    for name in experts:
        if not name.isidentifier() or name in RESERVED_NAMES:
            raise BrokenJob(f"op.experts.{short(name)}", short(name), "a Python identifier that is not taken")


def _check_limits(limits: dict[str, Any]) -> None:
    for name in ("compile_s", "call_s", "time_s"):
        if not 0 < limits[name] < 86_400:
            raise BrokenJob(f"limits.{name}", limits[name], "seconds, more than 0 and less than a day")
    if limits["memory_bytes"] is not None and limits["memory_bytes"] <= 0:
        raise BrokenJob("limits.memory_bytes", limits["memory_bytes"], "bytes, more than 0, or null")
    if not 0 <= limits.get("sweep_s", 0.0) < math.inf:
        raise BrokenJob("limits.sweep_s", limits["sweep_s"], "seconds, 0 or more")


def _check_workloads(workloads: list[ResolvedWorkload]) -> None:
    seen: set[str] = set()
    for position, workload in enumerate(workloads):
        path = f"workloads[{position}]"
        if workload["id"] in seen:
            raise BrokenJob(f"{path}.id", workload["id"], "an id that no other workload has")
        seen.add(workload["id"])
        for kind in ("inputs", "outputs"):
            for number, tensor in enumerate(cast("dict[str, list[dict[str, Any]]]", workload)[kind]):
                _check_tensor(tensor, f"{path}.{kind}[{number}]")
        for number, item in enumerate(workload["outputs"]):
            _check_indices(workload, item, f"{path}.outputs[{number}]")
        if not workload["outputs"] and not any(item["mutated"] for item in workload["inputs"]):
            raise BrokenJob(f"{path}.outputs", [], "an output, or a mutated input")


def _check_indices(workload: ResolvedWorkload, output: ResolvedOutput, path: str) -> None:
    said = output.get("indices")
    if said is None:
        return
    dtype = getattr(torch, output["dtype"])
    if dtype.is_floating_point or dtype == torch.bool:
        raise BrokenJob(f"{path}.dtype", output["dtype"], "an integer dtype, for the output holds indices")
    ranks = {item["name"]: len(item["shape"]) for item in workload["inputs"] if item["shape"]}
    if said["of"] is not None and not -ranks.get(said["of"], 0) <= said["axis"] < ranks.get(said["of"], 0):
        raise BrokenJob(f"{path}.indices", said, "a tensor among the inputs and one of its axes, or null")


def _check_tensor(tensor: dict[str, Any], path: str) -> None:
    if not isinstance(getattr(torch, tensor["dtype"], None), torch.dtype):
        raise BrokenJob(f"{path}.dtype", tensor["dtype"], "a torch dtype")
    shape, strides = tensor["shape"], tensor.get("strides")
    if shape is None:
        return
    if any(size < 1 for size in shape):
        raise BrokenJob(f"{path}.shape", shape, "sizes of at least 1")
    if strides is not None and (len(strides) != len(shape) or any(stride < 0 for stride in strides)):
        raise BrokenJob(f"{path}.strides", strides, f"{len(shape)} strides of at least 0")
    if "dist" in tensor and not isinstance(tensor["dist"].get("kind"), str):
        raise BrokenJob(f"{path}.dist.kind", tensor["dist"].get("kind"), "the name of a distribution")
