"""Every form in which a kernel can be taken away: the one list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernels_db.export import flashinfer_bench, gpu_mode, hf_kernels, kernelbench, module_file, package
from kernels_db.export.kernel import ExportedKernel


@dataclass(frozen=True)
class Format:
    """`build` writes a new directory below the one that it is given and returns it.

    It raises FileExistsError where that directory exists, and SpecErrors where the format cannot say the op.
    """

    name: str
    title: str
    build: Callable[[ExportedKernel, Path], Path]


FORMATS = (
    Format("package", "An importable package with a PyTorch op", package.build),
    Format("module", "The package as one Python file, to paste into a project", module_file.build),
    Format("hf-kernels", "A repository that Hugging Face kernels loads, with a layer", hf_kernels.build),
    Format("kernelbench", "A KernelBench problem with its ModelNew", kernelbench.build),
    Format("flashinfer-bench", "A FlashInfer-Bench Solution with its Definition and Traces", flashinfer_bench.build),
    Format("gpu-mode", "A GPU MODE submission, with a task where the op came from none", gpu_mode.build),
)
"""The first is the default."""


def named(name: str) -> Format:
    """The format of that name; raises KeyError."""
    return {each.name: each for each in FORMATS}[name]
