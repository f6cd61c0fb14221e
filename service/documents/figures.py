"""Formatting of figures for people: ratios, times, shares and money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

BASELINE_NAMES = {"eager": "eager", "compile": "torch.compile", "max_autotune": "max-autotune"}
MOST_KERNELS = 12


def format_attack(attack: Mapping[str, Any]) -> str:
    """Describe a counterexample search, by its summary, in one line."""
    if attack.get("skipped"):
        return f"counterexample search: not made, {attack['skipped']}"
    tries = f"{attack['tries']:,} {'try' if attack['tries'] == 1 else 'tries'}"
    if attack.get("found"):
        return f"counterexample search: wrong values found, {tries}"
    ratio = attack.get("ratio")
    worst = "no question was fair" if ratio is None else f"worst error {float(ratio):.2g} of what is allowed"
    return f"counterexample search: {tries}, {worst}"


def format_host(host: Mapping[str, Any]) -> str:
    """Describe what a call costs the calling thread, in one line."""
    launches = host.get("launches")
    by_plan = f"{host['plan']:.1f} us by its launch plan, " if host.get("plan") is not None else ""
    counted = f" ({launches} {'launch' if launches == 1 else 'launches'})" if by_plan and launches else ""
    why = f"; no launch plan: {host['unplanned']}" if host.get("unplanned") else ""
    at = f"at {host['workload']}"
    return f"host: {by_plan}{host['run']:.1f} us by its run, {host['eager']:.1f} us in eager mode{counted}, {at}{why}"


def list_kernel_uses(report: Mapping[str, Any]) -> list[str]:
    """List the GPU resources of each kernel in a compile report, one line each; nothing for a CPU's."""
    lines = []
    for kernel in report.get("kernels") or []:
        if kernel.get("registers") is None:
            continue
        config = ", ".join(f"{name}={value}" for name, value in kernel.get("config", {}).items())
        uses = f"{kernel['registers']} registers, {kernel['spills']} bytes spilled, {kernel['shared']} bytes shared"
        lines.append(f"{kernel['name']}: {uses}" + (f" ({config})" if config else ""))
    lines = list(dict.fromkeys(lines))
    rest = len(lines) - MOST_KERNELS
    return lines[:MOST_KERNELS] + ([f"and {rest} more"] if rest > 0 else [])


def format_dollars(cost: float | None) -> str:
    """Format US dollars, or say that the cost is unknown."""
    return "cost unknown" if cost is None else f"${cost:,.2f}"


def format_limits(budget: Mapping[str, Any]) -> str:
    """Describe a budget in words."""
    words = {"candidates": "candidate", "model_calls": "model call", "tokens": "token"}
    parts = [
        f"{budget[name]:,} {noun}{'' if budget[name] == 1 else 's'}"
        for name, noun in words.items()
        if budget.get(name) is not None
    ]
    if budget.get("cost_usd") is not None:
        parts.append(f"${budget['cost_usd']:.2f}")
    if budget.get("wall_clock_s") is not None:
        parts.append(f"{format_duration(budget['wall_clock_s'])} of running time")
    if budget.get("gpu_seconds") is not None:
        parts.append(f"{format_duration(budget['gpu_seconds'])} on the device")
    if budget.get("try_seconds") is not None:
        parts.append(f"{format_duration(budget['try_seconds'])} on the device for tries")
    if budget.get("sweep_seconds") is not None:
        parts.append(f"{format_duration(budget['sweep_seconds'])} on the device for sweeps")
    return ", ".join(parts) or "the limits of its policy alone"


def format_repairs(repairs: int) -> str:
    """Format a number of repairs as ` after 2 repairs`, or nothing."""
    return f" after {repairs} repair{'s' if repairs > 1 else ''}" if repairs else ""


def format_ratio(value: float | None, interval: Sequence[float] | None) -> str:
    """Format a ratio with its interval: `3.42x [3.38, 3.46]`."""
    if value is None or not math.isfinite(value):
        return "without timing"
    return f"{value:.2f}x" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def format_share(fraction: float | None) -> str:
    """Format a share of the physical limit in percent."""
    return "-" if fraction is None else f"{fraction * 100:.0f} %"


def format_microseconds(value: float | None) -> str:
    """Format a time in microseconds with three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_duration(seconds: float) -> str:
    """Format seconds as `1:02:03`, `2:03` or `0:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
