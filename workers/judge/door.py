"""The judge's door: one JSON line into a `Job`, with the field, what was found and what was expected where it is none;
or {"cancel": id}, which takes a job back.

The check follows the TypedDicts of `kernels_db.job`, so the contract is written once.
"""

from __future__ import annotations

import json
import platform
import types
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

import torch

from kernels_db.job import Job, ResolvedWorkload

MAX_LINE = 64 << 20
DEVICES = ("cpu", "cuda")
BASELINES = ("eager", "compile", "max_autotune")
_JSON_NAMES: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    dict: "an object",
    list: "a list",
}


class BrokenJob(ValueError):  # noqa: N818 - named for what happened
    """A line that is no job. `id` is the job's, where that could be read."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected
        self.id: str | None = None


@dataclass(frozen=True)
class Cancel:
    """Nobody waits for the verdict on this job."""

    id: str


def parse_line(line: str) -> Job | Cancel:
    """Read one line. Raises BrokenJob."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenJob("(line)", _short(line), f"a job as one line of JSON ({error})") from error
    if isinstance(document, dict) and document.keys() == {"cancel"} and isinstance(document["cancel"], str):
        return Cancel(document["cancel"])
    try:
        _check(Job, document, "")
        job = cast("Job", document)
        _check_meaning(job)
    except BrokenJob as broken:
        if isinstance(document, dict) and isinstance(document.get("id"), str):
            broken.id = document["id"]
        raise
    return job


def _check(kind: Any, value: Any, path: str) -> None:
    """Raise BrokenJob unless `value` is of the annotated `kind`."""
    origin = get_origin(kind)
    if kind is Any:
        return
    if is_typeddict(kind):
        _check_object(kind, value, path)
    elif origin in (Union, types.UnionType):
        _check_union(get_args(kind), value, path)
    elif origin is Literal:
        if value not in get_args(kind):
            raise BrokenJob(path, _short(value), f"one of {', '.join(get_args(kind))}")
    elif origin is list:
        _check_plain(list, value, path)
        for position, item in enumerate(value):
            _check(get_args(kind)[0], item, f"{path}[{position}]")
    elif origin is dict:
        _check_plain(dict, value, path)
        for key, item in value.items():
            _check(get_args(kind)[1], item, f"{path}.{key}")
    else:
        _check_plain(kind, value, path)


def _check_object(kind: Any, value: Any, path: str) -> None:
    _check_plain(dict, value, path or "(line)")
    for name, declared in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(declared) is NotRequired
        inner = get_args(declared)[0] if get_origin(declared) in (NotRequired, Required) else declared
        field = f"{path}.{name}" if path else name
        if name in value:
            _check(inner, value[name], field)
        elif not optional:
            raise BrokenJob(field, None, "this field")


def _check_union(kinds: tuple[Any, ...], value: Any, path: str) -> None:
    if value is None and type(None) in kinds:
        return
    present = [kind for kind in kinds if kind is not type(None)]
    if len(present) == 1:
        _check(present[0], value, path)
    elif not any(_is_plain(kind, value) for kind in present):
        raise BrokenJob(path, _short(value), " or ".join(_JSON_NAMES[kind] for kind in kinds))


def _is_plain(kind: type, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _check_plain(kind: Any, value: Any, path: str) -> None:
    if not _is_plain(kind, value):
        raise BrokenJob(path, _short(value), _JSON_NAMES[kind])


def _check_meaning(job: Job) -> None:
    """What types do not say."""
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
    for position, name in enumerate(job["op"]["baselines"]):
        if name not in BASELINES:
            raise BrokenJob(f"op.baselines[{position}]", name, f"one of {', '.join(BASELINES)}")
    if not job["op"]["baselines"]:
        raise BrokenJob("op.baselines", [], f"at least one of {', '.join(BASELINES)}")
    _check_limits(cast("dict[str, Any]", job["limits"]))
    _check_workloads(job["workloads"])


def _check_limits(limits: dict[str, Any]) -> None:
    for name in ("compile_s", "call_s", "time_s"):
        if not 0 < limits[name] < 86_400:
            raise BrokenJob(f"limits.{name}", limits[name], "seconds, more than 0 and less than a day")
    if limits["memory_bytes"] is not None and limits["memory_bytes"] <= 0:
        raise BrokenJob("limits.memory_bytes", limits["memory_bytes"], "bytes, more than 0, or null")


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
        if not workload["outputs"] and not any(item["mutated"] for item in workload["inputs"]):
            raise BrokenJob(f"{path}.outputs", [], "an output, or a mutated input")


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


def _short(value: object) -> object:
    """What a message may quote."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= 200 else text[:200] + "..."
