"""The kernels of a candidate in words: what a call launches, and what each uses. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.documents import ResolvedWorkload, Verdict, WorkloadVerdict
from warpsmith.workers.llm.prompt.facts import significant, visible
from warpsmith.workers.llm.prompt.occupancy import Occupancy, occupancies
from warpsmith.workers.text import one_line

MAX_KERNELS = 8
MAX_KERNEL_LINES = 8
MAX_LEDGER_KERNELS = 1


def kernel_lines(verdict: Verdict) -> list[str]:
    """List the kernels of a call on each workload, where the driver's tracing saw them; those alike in one line."""
    alike: dict[str, list[str]] = {}
    for entry in verdict["workloads"]:
        names = entry.get("kernels")
        if not names or entry["role"] == "holdout":
            continue
        calls = entry.get("kernel_calls") or [1] * len(names)
        shown = [
            f"`{one_line(name, 80)}`" + (f" x{count}" if count > 1 else "")
            for name, count in list(zip(names, calls, strict=True))[:MAX_KERNELS]
        ]
        more = f" and {len(names) - MAX_KERNELS} others" if len(names) > MAX_KERNELS else ""
        launched = f"a call launches {sum(calls)} kernel{'s' if sum(calls) != 1 else ''}: {', '.join(shown)}{more}"
        alike.setdefault(launched, []).append(f"`{entry['id']}`")
    return [f"{', '.join(named)}: {launched}" for launched, named in alike.items()]


def resource_lines(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    """List the resources that each kernel uses."""
    compiled = shown_compile(verdict, workloads)
    kernels = compiled["kernels"]
    lines = dict[str, None]()  # what is the same for several compilations is told once
    for kernel in kernels:
        name = kernel.get("name", "?")
        facts = [
            f"{label} {kernel[key]}"
            for key, label in (("registers", "registers"), ("spills", "spills"), ("shared", "shared bytes"))
            if kernel.get(key) is not None
        ]
        facts += [_occupancy_words(one) for one in occupancies(compiled, kernel, verdict["target"])]
        facts += [f"ptxas warns: {one_line(loss, 200)}" for loss in kernel.get("losses") or ()]
        if facts:
            own = _differences(kernel, [other for other in kernels if other.get("name") == kernel.get("name")])
            lines[f"kernel `{name}`{f' ({_configuration(own)})' if own else ''}: {', '.join(facts)}"] = None
    left_out = len(lines) - MAX_KERNEL_LINES
    told = list(lines)
    return told if left_out <= 0 else [*told[:MAX_KERNEL_LINES], f"and {left_out} more kernels"]


def shown_compile(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> dict[str, Any]:
    """Return the compile report as far as it is told: of kernels that the bench workloads run, where that is known.

    Launches, and compilations of a Triton kernel, that only a hold-out shape asks for are left out: they tell its size.
    """
    compiled = dict(verdict["compile"] or {})
    shown = {workload["id"] for workload in visible(workloads)}

    def is_shown(entry: dict[str, Any]) -> bool:
        return not workloads or verdict["level"] == "screen" or entry.get("workload") in shown

    compiled["launches"] = [launch for launch in compiled.get("launches") or () if is_shown(launch)]
    kernels = [kernel for kernel in compiled.get("kernels") or [] if "config" not in kernel or is_shown(kernel)]
    compiled["kernels"] = _timed(kernels, compiled["launches"], verdict["workloads"])
    return compiled


def list_resources(built: Mapping[str, Any]) -> list[str]:
    """List the resources of the kernel with the most registers, of those that are launched, by a compile report.

    In a few words: grid and block of its first launch where launches are known, the configuration of its first
    compilation in Triton, registers, spills, shared memory. Empty where no kernel has registers.
    """
    launches = {launch["kernel"]: launch for launch in reversed(built.get("launches") or [])}
    kernels = {kernel["name"]: kernel for kernel in reversed(built.get("kernels") or []) if kernel.get("registers")}
    used = [kernel for name, kernel in kernels.items() if name in launches or not launches]
    words = []
    for kernel in sorted(used, key=lambda kernel: -kernel["registers"])[:MAX_LEDGER_KERNELS]:
        launch = launches.get(kernel["name"])
        facts = [f"{kernel['registers']} registers"]
        facts += [f"{kernel['spills']} bytes spilled"] if kernel.get("spills") else []
        shared = (kernel.get("shared") or 0) + (0 if launch is None else launch["shared_bytes"])
        facts += [f"{shared} bytes shared"] if shared else []
        if launch is not None:
            facts.insert(0, f"{math.prod(launch['grid'])} blocks of {math.prod(launch['block'])} threads")
        elif config := kernel.get("config"):
            facts.insert(0, one_line(_configuration(config), 80))
        words.append(f"`{one_line(kernel['name'], 40)}` {', '.join(facts)}")
    return words


def _timed(
    kernels: list[dict[str, Any]], launches: Sequence[dict[str, Any]], workloads: Sequence[WorkloadVerdict]
) -> list[dict[str, Any]]:
    """Return the kernels that the bench workloads run: launched there, or compiled for them as the tuner chose.

    All of them where that is not known.
    """
    bench = {entry["id"]: entry for entry in workloads if entry["role"] == "bench"}
    launched = {launch["kernel"] for launch in launches if launch.get("workload") in bench}

    def is_timed(kernel: dict[str, Any]) -> bool:
        if "config" not in kernel:
            return not launched or kernel.get("name") in launched
        if "workload" not in kernel:
            return True
        if kernel["workload"] not in bench:
            return False
        taken = [
            one["configuration"]
            for one in bench[kernel["workload"]].get("configurations") or ()
            if one["kernel"] == kernel.get("name")
        ]
        config = {name: str(value) for name, value in kernel["config"].items()}
        return not taken or any(
            all(config.get(name, str(value)) == str(value) for name, value in one.items()) for one in taken
        )

    return [kernel for kernel in kernels if is_timed(kernel)] or kernels


def _differences(kernel: dict[str, Any], alike: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a compilation in which `alike`, all of its kernel, differ."""
    config: dict[str, Any] = kernel.get("config", {})
    return {
        name: value
        for name, value in config.items()
        if any(other.get("config", {}).get(name) != value for other in alike)
    }


def _configuration(config: dict[str, Any]) -> str:
    """Name the parameters in which compilations of a Triton kernel differ."""
    return one_line(", ".join(f"{name}={value}" for name, value in config.items()), 160)


def _occupancy_words(found: Occupancy) -> str:
    share = f"{significant(100 * found.share, 2)} %" if found.share < 1 else "100 %"
    bound = "" if found.share >= 1 else f", bound by {found.by}"
    return f"occupancy {share} ({found.blocks} blocks of {found.threads} threads at once{bound})"
