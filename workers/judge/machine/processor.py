"""This host's processor as the system describes it.

A kernel's author must know its features and cannot measure them.
"""

from __future__ import annotations

import platform
from pathlib import Path

_EXTENSIONS = [
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512cd",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "neon",
    "asimd",
    "asimddp",
    "asimdhp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
]
"""Of the many flags of a processor, those that a kernel is written for."""

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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


def vector_extensions(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """List the processor's vector extensions by Linux's names; empty where it lists none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return [name for name in _EXTENSIONS if name in flags]


def caches(directory: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Return the data caches' bytes by level ("L1", "L2", "L3"), as the first core reaches them.

    Empty where the system does not say.
    """
    found: dict[str, int] = {}
    for index in sorted(directory.glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        number, unit = size[:-1], size[-1:]
        if kind in ("Data", "Unified") and number.isdigit() and unit in _UNITS:
            found[f"L{level}"] = int(number) * _UNITS[unit]
    return found
