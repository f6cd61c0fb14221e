"""Facts of shapes and times for prompts, as lines and numbers for people.

Pure functions of resolved documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.export.spec_module import ALIGNMENT
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedOutput, ResolvedWorkload, Verdict, WorkloadVerdict
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.tensors import ConstAxis, ExprAxis
from warpsmith.workers.text import middle_cut

MAX_GENERATED_CHARS = 8_000

BASELINE_NAMES = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "max_autotune": "torch.compile (max-autotune)",
}


AT_THE_LIMIT = 1.05
"""Times the measured limit up to which a baseline counts as having reached it."""


def baseline_name(name: str) -> str:
    """Return what prompts call a baseline; one that is not PyTorch's is a library's code, an expert of the op."""
    return BASELINE_NAMES.get(name, f"the library call `{name}`")


def significant(value: float, digits: int = 3) -> str:
    """Write `value` with `digits` significant digits, without an exponent where it stays short."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def microseconds(value: float) -> str:
    """Write a time in the unit that reads best."""
    if value >= 1e3:
        return f"{significant(value / 1e3)} ms"
    return f"{significant(value)} us"


def size(count: float) -> str:
    """Write bytes in the unit that reads best (powers of 1024)."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{significant(count)} {unit}"
        count /= 1024
    return f"{significant(count)} GiB"


def operations(count: float) -> str:
    """Write floating-point operations in the unit that reads best."""
    for unit in ("", "kFLOP", "MFLOP", "GFLOP"):
        if count < 1000:
            return f"{significant(count)} {unit or 'FLOP'}"
        count /= 1000
    return f"{significant(count)} TFLOP"


def visible(workloads: Sequence[ResolvedWorkload]) -> list[ResolvedWorkload]:
    """Return the workloads that a search may see: hold-out shapes are never shown."""
    return [workload for workload in workloads if workload["role"] != "holdout"]


def entry_point(workload: ResolvedWorkload) -> str:
    """Write the head of `run`: inputs, then outputs."""
    names = [tensor["name"] for tensor in [*workload["inputs"], *workload["outputs"]]]
    return f"def run({', '.join(names)}):"


def axes_line(op: Op) -> str:
    """Write the op's axes by the knowledge of their sizes, those that never change first.

    Empty where it names none.
    """
    constant = [f"{name}={axis.value}" for name, axis in op.axes.items() if isinstance(axis, ConstAxis)]
    derived = [
        f"{name} = `{' '.join(axis.expr.split())}`" for name, axis in op.axes.items() if isinstance(axis, ExprAxis)
    ]
    variable = [name for name, axis in op.axes.items() if not isinstance(axis, ConstAxis | ExprAxis)]
    kinds = (("constant", constant), ("variable", variable), ("derived", derived))
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names)


def parameter_lines(op: Op, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    """Write one line for each parameter of `run`.

    Name, type, symbolic shape, and all that a kernel may or must assume of it.
    """
    parts: list[Any] = [*op.inputs, *op.state, *op.outputs]
    spec = {part.name: part for part in parts}
    first = workloads[0]
    lines = [_input_line(spec.get(item["name"]), item, workloads) for item in first["inputs"]]
    lines += [_output_line(spec.get(item["name"]), item, workloads) for item in first["outputs"]]
    return lines


def _input_line(spec: Any, item: ResolvedInput, workloads: Sequence[ResolvedWorkload]) -> str:
    name = item["name"]
    same = [entry for workload in workloads for entry in workload["inputs"] if entry["name"] == name]
    if all(entry["shape"] is None for entry in same) and getattr(spec, "shape", None) is None:
        values = sorted({repr(entry["value"]) for entry in same})
        allowed = "".join(f"; {note}" for note in _allowed(same))
        return f"`{name}`: Python number ({item['dtype']}); value {' or '.join(values)}{allowed}"
    notes = [_contiguity(same)]
    if item["mutated"]:
        notes.append("UPDATED IN PLACE: it is checked as an output, and restored before every call")
    else:
        notes.append("read-only")
    if spec is not None and getattr(spec, "role", "input") == "weight":
        notes.append("a weight")
    if spec is not None and getattr(spec, "optional", False):
        notes.append("may be None")
    alignment = getattr(spec, "alignment", None)
    if alignment is not None:
        least = " and no more" if alignment < ALIGNMENT else ""
        notes.append(f"data pointer aligned to {alignment} bytes{least}")
    kinds = {_distribution(entry["dist"]) for entry in same if entry["dist"]}
    notes += _allowed(same)
    if kinds:
        notes.append(f"values {' or '.join(sorted(kinds))}")
    return f"`{name}`: {_dtypes(same)} tensor {_symbolic(spec, item['shape'])}; {'; '.join(notes)}"


def _dtypes(same: Sequence[ResolvedInput] | Sequence[ResolvedOutput]) -> str:
    """Write the dtypes that a parameter has on the workloads, each once."""
    return " or ".join(dict.fromkeys(entry["dtype"] for entry in same))


def _allowed(same: Sequence[ResolvedInput]) -> list[str]:
    """Say what an input may hold in use, where the op says it."""
    held = same[0].get("values", {})
    if "range" in held:
        low, high = held["range"]
        return [f"only ever holds values from {low:g} to {high:g}, neither NaN nor infinities"]
    return ["never holds NaN or infinities"] if held.get("finite") else []


def _output_line(spec: Any, item: ResolvedOutput, workloads: Sequence[ResolvedWorkload]) -> str:
    shape = _symbolic(spec, item["shape"])
    same = [entry for workload in workloads for entry in workload["outputs"] if entry["name"] == item["name"]]
    return (
        f"`{item['name']}`: {_dtypes(same)} tensor {shape}; contiguous; OUTPUT: every element must be written, "
        "its former content is garbage"
    )


def _contiguity(same: Sequence[ResolvedInput]) -> str:
    strided = sorted({str(entry["strides"]) for entry in same if entry["strides"] is not None})
    return (
        "contiguous" if not strided else f"strides in elements {' or '.join(strided)} (see its stride(), never assume)"
    )


def _symbolic(spec: Any, shape: Sequence[int] | None) -> str:
    symbolic = getattr(spec, "shape", None)
    return "[" + ", ".join(str(dimension) for dimension in (symbolic if symbolic is not None else shape or [])) + "]"


def _distribution(dist: Mapping[str, Any]) -> str:
    fields = ", ".join(
        f"{key} {value}"
        for key, value in dist.items()
        if key not in {"kind", "source"} and isinstance(value, int | float)
    )
    return f"{dist.get('kind', 'given')}({fields})" if fields else str(dist.get("kind", "given"))


def are_weighted(workloads: Sequence[ResolvedWorkload]) -> bool:
    """Check whether some bench workload counts more than another in the score."""
    return len({weight_of(workload) for workload in workloads if workload["role"] == "bench"}) > 1


def workload_lines(op: Op, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    """Write one line for each visible workload.

    Role, sizes, shapes that follow from no axis, weight where the op's differ, least traffic and operations, intensity.
    """
    parts: list[Any] = [*op.inputs, *op.state, *op.outputs]
    by_axes = {part.name for part in parts if part.shape is not None}
    lines = []
    total = sum(weight_of(workload) for workload in workloads if workload["role"] == "bench")
    for workload in visible(workloads):
        tensors = [
            f"{item['name']} {item['shape']}"
            for item in (*workload["inputs"], *workload["outputs"])
            if item["shape"] is not None and item["name"] not in by_axes
        ]
        bound = {**workload["axes"], **workload.get("dtypes", {})}
        axes = ", ".join(f"{name}={value}" for name, value in bound.items())
        line = f"`{workload['id']}` ({workload['role']}): {axes or 'no axes'}"
        line += f"; {', '.join(tensors)}" if tensors else ""
        if workload["role"] == "bench":
            if are_weighted(workloads):
                weight = weight_of(workload)
                line += f"; counts {significant(weight)} times, {significant(100 * weight / total, 2)} % of the score"
            line += f"; at least {size(workload['min_bytes'])} moved"
            if workload["flops"]:
                intensity = workload["flops"] / max(workload["min_bytes"], 1)
                line += f", {operations(workload['flops'])} ({significant(intensity)} operations per byte)"
        lines.append(line)
    return lines


def baseline_lines(verdict: Verdict | None, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    """Write one line for each timed workload.

    Each baseline's time, the physical limit and how far the fastest is from it.
    """
    if verdict is None:
        return []
    resolved = {workload["id"]: workload for workload in visible(workloads)}
    return [
        _baseline_line(entry, resolved[entry["id"]], float(verdict["device"].get("exchange_us") or 0.0))
        for entry in verdict["workloads"]
        if entry["id"] in resolved and entry["time_us"]
    ]


def _baseline_line(entry: WorkloadVerdict, workload: ResolvedWorkload, nothing_us: float) -> str:
    times = {name: time for name, time in entry["time_us"].items() if name != "candidate"}
    if not times:
        return f"`{entry['id']}`: not timed"
    fastest = min(times, key=lambda name: times[name])
    shown = ", ".join(f"{baseline_name(name)} {microseconds(time)}" for name, time in times.items())
    line = f"`{entry['id']}`: {shown}. To beat: {microseconds(times[fastest])} ({rates(workload, times[fastest])})"
    limit = entry["limit_us"]
    if limit:
        by = f" by {entry['limit_by']}" if entry["limit_by"] else ""
        line += f"; physical limit{by} {microseconds(limit)}"
        if nothing_us > limit:
            line += f", below the {microseconds(nothing_us)} that the clock reads of nothing"
        line += f": {_to_gain(times[fastest] / max(limit, nothing_us))}"
    return line


def _to_gain(most: float) -> str:
    """Say what a kernel can gain where the fastest baseline takes `most` times the limit.

    The limit is measured, so a baseline may pass it by a little.
    """
    if most < AT_THE_LIMIT:
        return "that baseline reaches it, so little is to be gained here"
    return f"{significant(most)}x is the most to be gained"


def rates(workload: ResolvedWorkload, time_us: float) -> str:
    """Write achieved GB/s (of the least traffic) and GFLOP/s."""
    if time_us <= 0:
        return "no rate"
    parts = [f"{significant(workload['min_bytes'] / time_us / 1e3)} GB/s of the least traffic"]
    if workload["flops"]:
        parts.append(f"{significant(workload['flops'] / time_us / 1e3)} GFLOP/s")
    return ", ".join(parts)


def tolerance_lines(
    op: Op, workloads: Sequence[ResolvedWorkload], verdict: Verdict | None, *, brief: bool = False
) -> list[str]:
    """Say what counts as right, with the measured numbers where the baselines were measured.

    `brief`: those in one line, from the smallest to the largest; else a line for each workload, or one where their
    limits are the same, which names those that were measured: another size may have another limit.
    """
    exact = [part.name for part in op.outputs if part.check.kind == "exact"]
    lines = [f"`{name}`: every element equal to the reference's" for name in exact]
    lines += [
        f"`{item['name']}`: |found - expected| <= {significant(item['tolerance']['atol'])} + "
        f"{significant(item['tolerance']['rtol'])} |expected| for every element (this op's own tolerance)"
        for item in workloads[0]["outputs"]
        if item["tolerance"] is not None and item["name"] not in exact
    ]
    if verdict is None:
        return lines
    resolved = {workload["id"]: workload for workload in visible(workloads)}
    errors = {
        entry["id"]: (limit, entry["error"].get("eager"))
        for entry in verdict["workloads"]
        if entry["id"] in resolved and (limit := entry["error"].get("limit")) is not None
    }
    if errors and (brief or len({significant(limit) for limit, _ in errors.values()}) == 1):
        limits, eager = ([one for one in found if one is not None] for found in zip(*errors.values(), strict=True))
        timed = {workload["id"] for workload in resolved.values() if workload["role"] == "bench"}
        every = "workload" if errors.keys() == resolved.keys() else "bench workload"
        named = f"each {every}" if errors.keys() >= timed else ", ".join(f"`{name}`" for name in errors)
        lines.append(f"{'by workload' if brief else named}: {_error_line(limits, eager)}")
    elif errors:
        lines += [
            f"`{name}`: {_error_line([limit], [] if eager is None else [eager])}"
            for name, (limit, eager) in errors.items()
        ]
    return lines


def _error_line(limits: Sequence[float], eager: Sequence[float]) -> str:
    def span(values: Sequence[float]) -> str:
        return " to ".join(dict.fromkeys((significant(min(values)), significant(max(values)))))

    of_eager = f" (PyTorch eager's own: {span(eager)})" if eager else ""
    return f"relative L2 error at most {span(limits)}{of_eager}"


def generated_code(baselines: Verdict | None) -> dict[str, str] | None:
    """Return what torch.compile generated for the reference: language and source.

    A long source has its middle cut out.
    """
    found = None if baselines is None else baselines.get("generated")
    if found is None:
        return None
    return {"language": found["language"], "source": middle_cut(found["source"], MAX_GENERATED_CHARS)}


def derives_tolerance(workloads: Sequence[ResolvedWorkload]) -> bool:
    """Check whether any floating result is held to the tolerance derived from float64.

    The others are held to the op's own, or to equality.
    """
    outputs = [item for item in workloads[0]["outputs"] if item["tolerance"] is None]
    mutated = [item for item in workloads[0]["inputs"] if item["mutated"]]
    return any("float" in item["dtype"] for item in (*outputs, *mutated))
