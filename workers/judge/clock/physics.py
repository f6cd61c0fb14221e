"""Physical limits: the measured peaks of this device, and the least time of a workload.

Peaks are measured once per device and footprint and kept in the cache directory. The bandwidth is the memory probe's
for the same footprint; the rate is that of a square matrix product.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.peaks import arithmetic_of, bandwidth_gbs, footprints
from warpsmith.workers.judge.clock.probe import StartProbe, memory_rate
from warpsmith.workers.judge.machine.device import Device

_MEASURE_S = 0.15
_MATRIX = {"cpu": 1024, "cuda": 8192}
_SPLIT_PRODUCTS = 3
"""Narrow products that give a float32 product its own accuracy, of operands split in two.

Source: Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
peak performance, 2022. So a third of the rate of `_NARROW` is possible in float32, whatever the float32 units can do.
Splits in int8 take twice as many products at twice float16's rate.
"""
_NARROW = ("tf32", "float16")
"""Narrow arithmetics from whose products a float32 product can be made.

float16, scaled so that nothing leaves its range, keeps as many bits in two parts as TF32 does, at twice the rate.
"""
_METHOD = 2
"""The number of the method that finds rates; peaks kept under another number are redone.

2: float16 counts in float32.
"""


class Peaks:
    """Measured peaks of one device, cached on disk."""

    def __init__(self, cache: Path, device: Device) -> None:
        self.device = device
        identity = json.dumps([_METHOD, device.identity, device.versions()], sort_keys=True)
        self._file = cache / f"peaks-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        self._known: dict[str, dict[str, float]] = {"bandwidth_gbs": {}, "gflops": {}}
        try:
            stored = json.loads(self._file.read_text())
            self._known = {key: {str(k): float(v) for k, v in stored[key].items()} for key in self._known}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            pass  # absent or damaged: measured again

    def measure_for(
        self, workload: ResolvedWorkload, math: str, start_probe: StartProbe, *, again: bool = False
    ) -> None:
        """Measure what `limit` needs for this workload and is not known yet.

        `again`: measure known peaks too, and keep the larger ones. Hold the timing lock. Raises RunnerFault.
        """
        bandwidths, rates = self._known["bandwidth_gbs"], self._known["gflops"]
        changed = False
        for footprint in footprints(workload["min_bytes"], self.device.kind):
            if footprint not in bandwidths or again:
                found = memory_rate(int(footprint), start_probe, self.device.torch)
                bandwidths[footprint] = max(found, bandwidths.get(footprint, 0.0))
                changed = True
        if workload["flops"] and ((dtype := arithmetic_of(workload, math)) not in rates or again):
            rates[dtype] = max(_matrix_rate(dtype, self.device.torch), rates.get(dtype, 0.0))
            changed = True
        if changed:
            temporary = self._file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(self._known))
            temporary.replace(self._file)

    def limit(self, workload: ResolvedWorkload, math: str) -> tuple[float, Literal["bytes", "operations"]]:
        """Return the least microseconds that the workload needs, and which peak limits it.

        Call `measure_for` first.
        """
        rate = bandwidth_gbs(workload, self.device.kind, self._known)
        assert rate is not None
        by_bytes = workload["min_bytes"] / (rate * 1e3)
        if not workload["flops"]:
            return by_bytes, "bytes"
        by_operations = workload["flops"] / (self._known["gflops"][arithmetic_of(workload, math)] * 1e3)
        return (by_operations, "operations") if by_operations > by_bytes else (by_bytes, "bytes")

    def document(self) -> dict[str, Any]:
        """Return the verdict's `device`."""
        return {**self.device.identity, "peaks": self._known}


def _matrix_rate(arithmetic: str, device: torch.device) -> float:
    """Measure the GFLOP/s of torch's own square matrix product.

    A GPU's float32 units share it with its tensor cores.
    """
    if device.type == "cpu":
        rate = _product_rate("float32" if arithmetic == "tf32" else arithmetic, device)
        # Where torch is slow in 16 bits, a kernel may widen and compute in float32.
        return max(rate, _product_rate("float32", device)) if arithmetic in ("bfloat16", "float16") else rate
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if arithmetic == "tf32" else "highest")
        rate = _product_rate("float32" if arithmetic == "tf32" else arithmetic, device)
    finally:
        torch.set_float32_matmul_precision(before)
    if arithmetic == "float32":
        return max(rate, *(_matrix_rate(narrow, device) / _SPLIT_PRODUCTS for narrow in _NARROW))
    return rate


def _product_rate(dtype: str, device: torch.device) -> float:
    size = _MATRIX[device.type] // (4 if dtype == "float64" else 1)
    left = torch.randn(size, size, device=device).to(getattr(torch, dtype))
    out = torch.empty_like(left)

    def product() -> None:
        torch.mm(left, left, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return 2 * size**3 / _best_seconds(product) / 1e9


def _best_seconds(work: Callable[[], None]) -> float:
    best, end = float("inf"), time.perf_counter() + _MEASURE_S
    for attempt in range(10_000):
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if attempt >= 5 and now > end:
            break
    return best
