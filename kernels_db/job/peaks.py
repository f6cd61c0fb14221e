"""The measured peaks of a device that bound a workload.

They are the bandwidth at its footprint, and the rate of its arithmetic. The judge measures them; a roofline
reads them from a verdict's `device`.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpsmith.kernels_db.job.documents import ResolvedWorkload

Peaks = Mapping[str, Mapping[str, float]]
"""A verdict's `device.peaks`.

GB/s by footprint in bytes (`bandwidth_gbs`), GFLOP/s by arithmetic (`gflops`).
"""

SMALLEST = 1 << 16
LARGEST = {"cpu": 1 << 28, "cuda": 1 << 31}
"""Footprints above run at the same rate: they are many times any cache."""


def footprints(size: int, device: str) -> list[str]:
    """Return the powers of two around a size in bytes, or the size itself where it is one.

    A cache that holds the smaller need not hold the larger.
    """
    bounded = min(LARGEST[device], max(SMALLEST, size))
    return sorted({str(1 << (bounded.bit_length() - 1)), str(1 << (bounded - 1).bit_length())})


def arithmetic_of(workload: ResolvedWorkload, math: str) -> str:
    """Return the arithmetic whose rate bounds a workload.

    It is its floating-point dtype where there is one alone, or `tf32`.
    """
    dtypes = {item["dtype"] for item in workload["inputs"] if item["shape"] is not None and "float" in item["dtype"]}
    found = next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= {"float64", "bfloat16", "float16"} else "float32"
    return "tf32" if found == "float32" and math == "tf32" else found


def bandwidth_gbs(workload: ResolvedWorkload, device: str, peaks: Peaks) -> float | None:
    """Return the bandwidth that bounds a workload, GB/s; None where it was not measured."""
    known = peaks.get("bandwidth_gbs", {})
    return max((known[size] for size in footprints(workload["min_bytes"], device) if size in known), default=None)
