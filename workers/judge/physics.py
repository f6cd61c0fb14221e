"""Physical limits: what this device can at best do, measured, and the time below which a workload cannot go.

Peaks are measured once per device and footprint and kept in the cache directory. The bandwidth is the memory probe's
for the same footprint; the rate is that of a square matrix product.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any, Literal

import torch

from kernels_db.job import ResolvedWorkload
from workers.judge.probe import StartProbe, memory_rate
from workers.judge.processor import caches, vector_extensions

_SMALLEST, _LARGEST = 1 << 16, 1 << 28
_MEASURE_S = 0.15
_MATRIX = 1024


def cpu_name() -> str:
    """Model name of the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("model name", "Model", "CPU part")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """What besides the device a time depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.release()}",
    }


class Peaks:
    """Measured peaks of this host's CPU, cached on disk."""

    def __init__(self, cache: Path, cores: int) -> None:
        self.name = cpu_name()
        self.cores = cores
        identity = json.dumps([self.name, cores, torch.__version__, platform.machine()])
        self._file = cache / f"peaks-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        self._known: dict[str, dict[str, float]] = {"bandwidth_gbs": {}, "gflops": {}}
        try:
            stored = json.loads(self._file.read_text())
            self._known = {key: {str(k): float(v) for k, v in stored[key].items()} for key in self._known}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            pass  # absent or damaged: measured again

    def measure_for(self, workload: ResolvedWorkload, start_probe: StartProbe) -> None:
        """Measure what `limit` needs for this workload and is not known yet. Hold the timing lock. Raises
        ContenderFault.
        """
        changed = False
        if (footprint := _footprint(workload["min_bytes"])) not in self._known["bandwidth_gbs"]:
            self._known["bandwidth_gbs"][footprint] = memory_rate(int(footprint), start_probe)
            changed = True
        if workload["flops"] and (dtype := _arithmetic(workload)) not in self._known["gflops"]:
            self._known["gflops"][dtype] = _matrix_rate(dtype)
            changed = True
        if changed:
            temporary = self._file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(self._known))
            temporary.replace(self._file)

    def limit(self, workload: ResolvedWorkload) -> tuple[float, Literal["bytes", "operations"]]:
        """Microseconds that the workload needs at least, and which peak binds. `measure_for` comes first."""
        by_bytes = workload["min_bytes"] / (self._known["bandwidth_gbs"][_footprint(workload["min_bytes"])] * 1e3)
        if not workload["flops"]:
            return by_bytes, "bytes"
        by_operations = workload["flops"] / (self._known["gflops"][_arithmetic(workload)] * 1e3)
        return (by_operations, "operations") if by_operations > by_bytes else (by_bytes, "bytes")

    def document(self) -> dict[str, Any]:
        """The verdict's `device`."""
        return {
            "name": self.name,
            "type": "cpu",
            "arch": platform.machine(),
            "cores": self.cores,
            "isa": vector_extensions(),
            "caches": caches(),
            "peaks": self._known,
        }


def _footprint(size: int) -> str:
    return str(min(_LARGEST, max(_SMALLEST, 1 << max(0, size - 1).bit_length())))


def _arithmetic(workload: ResolvedWorkload) -> str:
    dtypes = {item["dtype"] for item in workload["inputs"] if item["shape"] is not None and "float" in item["dtype"]}
    return next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= {"float64", "bfloat16", "float16"} else "float32"


def _best_seconds(work: Any) -> float:
    best, end = float("inf"), time.perf_counter() + _MEASURE_S
    for attempt in range(10_000):
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if attempt >= 5 and now > end:
            break
    return best


def _matrix_rate(dtype: str) -> float:
    left = torch.randn(_MATRIX, _MATRIX).to(getattr(torch, dtype))
    out = torch.empty_like(left)
    return 2 * _MATRIX**3 / _best_seconds(lambda: torch.mm(left, left, out=out)) / 1e9
