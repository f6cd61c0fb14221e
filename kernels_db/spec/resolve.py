"""From an op and a workload to the resolved job that the judge reads."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from functools import partial

from warpsmith.kernels_db.job.documents import (
    Job,
    JobCandidate,
    JobLimits,
    JobOp,
    Level,
    ResolvedInput,
    ResolvedOutput,
    ResolvedWorkload,
    SandboxLevel,
)
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.job.size_numbers import size_numbers
from warpsmith.kernels_db.spec.binding import amount, bind_axes, bind_input, bind_shape, extent, with_dtype
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.experts import expert_source
from warpsmith.kernels_db.spec.holdouts import derived_holdouts
from warpsmith.kernels_db.spec.schema import InputOverride, Op, Workload
from warpsmith.kernels_db.spec.target import Target
from warpsmith.kernels_db.spec.tensors import CodeCheck, ExactCheck, IndicesCheck, Input, Output

LIBRARY_CALLS = (
    "torch.mm",
    "torch.addmm",
    "torch.bmm",
    "torch.baddbmm",
    "torch.matmul",
    "torch.nn.functional.linear",
    "torch.nn.functional.conv1d",
    "torch.nn.functional.conv2d",
    "torch.nn.functional.conv3d",
    "torch.nn.functional.scaled_dot_product_attention",
)
"""The calls allowed to candidates of an op with `library_calls: true`, besides own kernels."""

DEFAULT_LIMITS: JobLimits = {"compile_s": 60.0, "call_s": 10.0, "time_s": 3.0, "memory_bytes": None}

ATTACK_S = {"cpu": 5.0, "cuda": 2.0}
"""Seconds of counterexample search a workload in a verification, by type of device, where the limits say nothing.

A question costs a CPU as much more time as its calls take longer.
"""

_NO_OVERRIDE = InputOverride()


def limits_with(sandbox: SandboxLevel | None, attack_s: float | None = None) -> JobLimits:
    """Return the default limits, under at least this much confinement; None demands none.

    `attack_s`: seconds of counterexample search a workload in a verification; None: as ATTACK_S has them.
    """
    limits = DEFAULT_LIMITS.copy()
    if sandbox is not None:
        limits["sandbox"] = sandbox
    if attack_s is not None:
        limits["attack_s"] = attack_s
    return limits


def arguments(op: Op) -> list[Input]:
    """Return the arguments of `run` in order: the inputs, then the state as weights."""
    return [*op.inputs, *(state.as_input() for state in op.state)]


def resolve_workload(op: Op, workload: Workload) -> ResolvedWorkload:
    """Return `workload` of `op` with every axis bound.

    Raises SpecErrors; for an op and a workload that `load_op` returned this does not happen.
    """
    try:
        bound = bind_axes(op.axes, workload.axes)
        inputs = [
            bind_input(
                f"inputs.{item.name}",
                with_dtype(item, workload.dtypes),
                f"workloads.{workload.id}.inputs.{item.name}",
                workload.inputs.get(item.name, _NO_OVERRIDE),
                bound,
            )
            for item in arguments(op)
        ]
        outputs = [
            _resolve_output(f"outputs.{output.name}", with_dtype(output, workload.dtypes), bound)
            for output in op.outputs
        ]
        flops, least_bytes = op.limits.flops, op.limits.bytes
        min_bytes = traffic(inputs, outputs) if least_bytes is None else amount("limits.bytes", least_bytes, bound)
        resolved: ResolvedWorkload = {
            "id": workload.id,
            "role": workload.role,
            "axes": bound,
            "inputs": inputs,
            "outputs": outputs,
            "min_bytes": min_bytes,
            "flops": None if flops is None else amount("limits.flops", flops, bound),
        }
        if workload.weight != 1.0:
            resolved["weight"] = workload.weight
        if workload.dtypes:
            resolved["dtypes"] = dict(workload.dtypes)
        return resolved
    except SpecError as error:
        raise SpecErrors([error]) from None


def traffic(inputs: Sequence[ResolvedInput], outputs: Sequence[ResolvedOutput]) -> int:
    """Return the bytes that one call must move at least.

    Each input is read once, each output and mutated input written once.
    """
    total = sum(extent(item["shape"], None) * DTYPE_BYTES[item["dtype"]] for item in outputs)
    for item in inputs:
        if item["shape"] is None:
            continue
        # A broadcast axis (stride 0) holds the same elements again.
        strides = item["strides"] or [1] * len(item["shape"])
        distinct = [size for size, stride in zip(item["shape"], strides, strict=True) if stride != 0]
        total += extent(distinct, None) * DTYPE_BYTES[item["dtype"]] * (2 if item["mutated"] else 1)
    return total


def workload_bytes(resolved: ResolvedWorkload) -> int:
    """Return the bytes of all input and output buffers of one workload, one set of them."""
    inputs = sum(
        extent(item["shape"], item["strides"]) * DTYPE_BYTES[item["dtype"]]
        for item in resolved["inputs"]
        if item["shape"] is not None
    )
    return inputs + sum(extent(item["shape"], None) * DTYPE_BYTES[item["dtype"]] for item in resolved["outputs"])


def build_job(
    op: Op,
    target: Target,
    *,
    level: Level,
    candidate: JobCandidate | None = None,
    workloads: Sequence[Workload] | None = None,
    limits: JobLimits | None = None,
    seed: int | None = None,
) -> Job:
    """Build the job that judges `candidate` (None at level `baseline`).

    `workloads` defaults to those of the target: the bench ones for `screen` and `compile`; otherwise all of them and
    hold-outs derived from them and from the candidate's own numbers, drawn from the system's randomness unless `seed`
    is given. Raises SpecErrors where the op asks for something that the judge cannot do, ValueError where level and
    candidate do not belong together.
    """
    if (candidate is None) != (level == "baseline"):
        raise ValueError(f"level {level!r} {'needs a' if candidate is None else 'takes no'} candidate")
    coded = [index for index, output in enumerate(op.outputs) if isinstance(output.check, CodeCheck)]
    if coded:
        expected = "derived, exact or indices: this version of the judge runs no coded checks"
        raise SpecErrors([SpecError(f"outputs[{index}].check.kind", "code", expected) for index in coded])
    derived: list[Workload] = []
    if workloads is None:
        benches = level in ("screen", "compile")
        workloads = [item for item in op.workloads_for(target) if not benches or item.role == "bench"]
        if not benches:
            rng = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - a seed is for tests
            numbers = None if candidate is None else size_numbers(candidate["source"])
            for chosen in op.dtypes_for(target):  # each dtype may be a way of its own through a candidate
                alike = [item for item in workloads if item.dtypes == chosen]
                taken = [item.id for item in (*workloads, *derived)]
                bind = partial(resolve_workload, op)
                derived += derived_holdouts(op, alike, bind, workload_bytes, rng, numbers, taken)
    limits = DEFAULT_LIMITS if limits is None else limits
    if level == "verify":
        limits = {**limits, "attack_s": limits.get("attack_s", ATTACK_S[target.device])}
    resolved = [resolve_workload(op, workload) for workload in workloads]
    resolved += [{**resolve_workload(op, workload), "derived": True} for workload in derived]
    return {
        "id": f"job_{uuid.uuid4().hex}",
        "level": level,
        "op": resolve_op(op),
        "target": str(target),
        "workloads": resolved,
        "candidate": candidate,
        "limits": limits.copy(),
    }


def resolve_op(op: Op) -> JobOp:
    """Return the op's part of a job."""
    resolved: JobOp = {
        "name": op.name,
        "digest": op.digest,
        "reference": reference_source(op),
        "math": op.math,
        "library_calls": list(LIBRARY_CALLS) if op.library_calls else [],
        "baselines": list(op.objective.baselines),
        "accuracy": op.accuracy,
    }
    if op.objective.experts:
        names = [item.name for item in arguments(op)]
        resolved["experts"] = {name: expert_source(text, names) for name, text in op.objective.experts.items()}
    return resolved


def reference_source(op: Op) -> str:
    """Return a module with `run(*arguments)`.

    A `Model` is built once, without storage unless its constructor reads values, and called with the state given.
    """
    if op.init is None and not op.state:
        return op.reference
    inputs = ", ".join(item.name for item in op.inputs)
    state = ", ".join(f"{item.attribute!r}: {item.name}" for item in op.state)
    parameters = ", ".join(item.name for item in arguments(op))
    construction = json.dumps(list(op.init or ()))
    return f"""{op.reference.rstrip()}


import json as _json
import torch as _torch



def _constructed():
    arguments = _json.loads({construction!r})
    try:
        with _torch.device("meta"):
            return Model(*arguments)
    except Exception:  # a constructor that computes with values needs storage; then it is dropped
        return Model(*arguments).to("meta")


_model = _constructed()
_model.requires_grad_(False)


def run({parameters}):
    return _torch.func.functional_call(_model, {{{state}}}, ({inputs},), strict=True)
"""


def _resolve_output(field: str, output: Output, bound: dict[str, int]) -> ResolvedOutput:
    tolerance = None
    if isinstance(output.check, ExactCheck):
        tolerance = {"rtol": 0.0, "atol": 0.0}
    elif output.tolerance is not None:
        tolerance = output.tolerance.model_dump()
    resolved: ResolvedOutput = {
        "name": output.name,
        "shape": bind_shape(f"{field}.shape", output.shape, bound),
        "dtype": output.dtype,
        "tolerance": tolerance,
    }
    if isinstance(output.check, IndicesCheck):
        resolved["indices"] = {"ties": output.check.ties, "of": output.check.of, "axis": output.check.axis}
    return resolved
