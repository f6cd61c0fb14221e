"""Where a kernel must run."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels_db.spec.errors import SpecError

CPU_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Architectures by the names that systems give them."""


@dataclass(frozen=True)
class Target:
    """Device type and architecture; `str(target)` reads `cpu:x86_64` or `cuda:sm_90`."""

    device: Literal["cpu", "cuda"]
    arch: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `cpu` (this machine's architecture), `cpu:x86_64` or `cuda:sm_90`.

        Raises SpecError for `target`.
        """
        device, _, arch = text.partition(":")
        if device == "cpu":
            name = arch if ":" in text else platform.machine()
            if name.lower() in CPU_ARCHITECTURES:
                return cls("cpu", CPU_ARCHITECTURES[name.lower()])
            raise SpecError("target", f"cpu:{name}", "cpu:x86_64 or cpu:aarch64")
        if device == "cuda" and re.fullmatch(r"sm_[1-9][0-9]{1,2}[af]?", arch):
            return cls("cuda", arch)
        raise SpecError(
            "target", text, "cpu, cpu:x86_64, cpu:aarch64 or a GPU with its architecture, such as cuda:sm_90"
        )

    def __str__(self) -> str:
        return f"{self.device}:{self.arch}"
