"""The device and the versions on it as lines of a prompt. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.workers.llm.prompt.facts import microseconds, significant, size, visible
from warpsmith.workers.text import one_line

LONGEST_VERSION = 80

SPLIT = " (by split tensor-core products, where these beat the float32 units)"
"""Remark on a GPU's float32 rate.

That rate is then a third of a narrower one's and looks odd without the remark.
"""


def device_lines(device: Mapping[str, Any] | None, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    """Describe the device as it was measured.

    Name, cores, caches, memory bandwidth at each bench workload's footprint, peak operations.
    """
    if not device:
        return []
    peaks: Mapping[str, Any] = {**device, **(device.get("peaks") or {})}
    lines = []
    if isinstance(device.get("name"), str):
        count = next((f", {device[key]} {key}" for key in ("cores", "multiprocessors") if device.get(key)), "")
        lines.append(device["name"] + count)
    caches = "data caches of a core, the last one shared" if device.get("type") != "cuda" else "cache of the device"
    for key, label in (
        ("isa", "vector extensions"),
        ("caches", caches),
        ("memory_bytes", "memory"),
        ("registers_per_multiprocessor", "32-bit registers per multiprocessor"),
        ("shared_bytes_per_block", "shared memory for one block, at most"),
    ):
        if (value := device.get(key)) is not None:
            lines.append(f"{label}: {_value(key, value)}")
    lines += _bandwidth_lines(peaks.get("bandwidth_gbs"), workloads)
    gflops = peaks.get("gflops")
    if isinstance(gflops, int | float):
        lines.append(f"measured peak: {significant(gflops)} GFLOP/s")
    elif isinstance(gflops, Mapping):
        shown = ", ".join(
            f"{kind} {significant(value)}{SPLIT if (device.get('type'), kind) == ('cuda', 'float32') else ''}"
            for kind, value in sorted(gflops.items())
            if isinstance(value, int | float)
        )
        lines += [f"measured peak GFLOP/s: {shown}"] if shown else []
    nothing = device.get("exchange_us")
    if isinstance(nothing, int | float):
        lines.append(f"the clock reads {microseconds(nothing)} of a call that runs nothing: part of every time below")
    return lines


def version_lines(versions: Mapping[str, str], language: str) -> list[str]:
    """Name, in a line, the versions that build and run candidates in `language` where they are judged."""
    names = ("torch", *LANGUAGES[language].requirements, "compiler", "cuda", "driver")
    titles = {"compiler": "", "cuda": "CUDA "}
    found = {name: one_line(versions[name], LONGEST_VERSION) for name in names if name in versions}
    told = ", ".join(f"{titles.get(name, f'{name} ')}{version}" for name, version in found.items())
    return [f"versions: {told}"] if told else []


def _bandwidth_lines(bandwidth: Any, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    if isinstance(bandwidth, int | float):
        return [f"measured memory bandwidth: {significant(bandwidth)} GB/s"]
    if not isinstance(bandwidth, Mapping) or not bandwidth:
        return []
    measured = sorted((float(footprint), float(rate)) for footprint, rate in bandwidth.items())
    found = []
    for workload in visible(workloads):
        if workload["role"] == "bench":
            footprint = max(workload["min_bytes"], 1)
            # The limit takes the faster of the footprints on either side; one between them is as likely to be slower.
            below = [rate for at, rate in measured if at <= footprint][-1:]
            above = [rate for at, rate in measured if at >= footprint][:1]
            rates = sorted({significant(rate) for rate in below + above}, key=float)
            found.append(f"{' to '.join(rates)} GB/s at the footprint of `{workload['id']}` ({size(footprint)})")
    told = "measured memory bandwidth (the best of copying, updating in place and reading): "
    return [told + ", ".join(found)] if found else []


def _value(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(key, item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value(key, item) for item in value)
    if isinstance(value, int) and key in {"caches", "memory_bytes", "shared_bytes_per_block"}:
        return size(value)
    return str(value)
