"""Format figures for people: ratios, times, shares and money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

BASELINE_NAMES = {"eager": "eager", "compile": "torch.compile", "max_autotune": "max-autotune"}


def dollars(cost: float | None) -> str:
    """US dollars, or that nobody knows them."""
    return "cost unknown" if cost is None else f"${cost:,.2f}"


def limits(budget: Mapping[str, Any]) -> str:
    """A budget in words."""
    words = {"candidates": "candidate", "model_calls": "model call", "tokens": "token"}
    told = [
        f"{budget[name]:,} {noun}{'' if budget[name] == 1 else 's'}"
        for name, noun in words.items()
        if budget.get(name) is not None
    ]
    if budget.get("cost_usd") is not None:
        told.append(f"${budget['cost_usd']:.2f}")
    if budget.get("wall_clock_s") is not None:
        told.append(f"{duration(budget['wall_clock_s'])} of running time")
    if budget.get("gpu_seconds") is not None:
        told.append(f"{duration(budget['gpu_seconds'])} on the device")
    return ", ".join(told) or "whatever its policy asks for"


def repaired(repairs: int) -> str:
    """` after 2 repairs`, or nothing."""
    return f" after {repairs} repair{'s' if repairs > 1 else ''}" if repairs else ""


def ratio(value: float | None, interval: Sequence[float] | None) -> str:
    """`3.42x [3.38, 3.46]`."""
    if value is None or not math.isfinite(value):
        return "without timing"
    return f"{value:.2f}x" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def share(fraction: float | None) -> str:
    """A share of the physical limit, in percent."""
    return "-" if fraction is None else f"{fraction * 100:.0f} %"


def microseconds(value: float | None) -> str:
    """A time with three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """`1:02:03`, `2:03` or `0:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
