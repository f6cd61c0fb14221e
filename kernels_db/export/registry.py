"""Every form in which a kernel can be taken away: the one list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels_db.export import (
    bare,
    flashinfer_bench,
    gpu_mode,
    hf_kernels,
    kernelbench,
    library,
    module_file,
    package,
    robust_kbench,
    sol_execbench,
    vllm,
)
from warpsmith.kernels_db.export.configurations import spread
from warpsmith.kernels_db.export.dtypes import of_each_dtype
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.spec.op import SpecError, SpecErrors


@dataclass(frozen=True)
class Format:
    """An export format and its `build`.

    `build(kernel, directory)` writes a new directory below the one that it is given and returns it. Where `several`,
    more kernels of the same op may follow; where `whole`, the kernel is written as it is stored, with all its dtypes
    and configurations; where `importable`, `name` may give the import name in place of `module_name`. It raises
    FileExistsError where that directory exists, and SpecErrors where the format cannot say the op.

    `says(kernel)` is the part of `build` that raises these SpecErrors: fast, it writes nothing. None: every op.
    """

    name: str
    title: str
    build: Callable[..., Path]
    says: Callable[[ExportedKernel], object] | None = None
    several: bool = False
    importable: bool = True
    whole: bool = False

    def write(self, kernels: Sequence[ExportedKernel], directory: Path, name: str | None = None) -> Path:
        """Call `build` with one kernel or several; `name` is the import name, where it is not `module_name`.

        A format that holds several has each kernel's dtypes and configurations too (`dtypes.of_each_dtype`,
        `configurations.spread`); one that is `whole` has the kernel as it is stored.

        Raises SpecErrors as well where the format has room for one alone. A name only for a format that is importable.
        """
        given = {} if name is None else {"name": name}
        held = self._held(kernels)
        return self.build(held[0], directory, *held[1:], **given)

    def refusal(self, kernel: ExportedKernel) -> SpecErrors | None:
        """Return why `write` would refuse the kernel, in some milliseconds; None where it would write it."""
        try:
            held = self._held([kernel])
            if self.says is not None:
                self.says(joined(held)[0])
        except SpecErrors as error:
            return error
        return None

    def _held(self, kernels: Sequence[ExportedKernel]) -> list[ExportedKernel]:
        """Return the kernels that `build` is given. Raises SpecErrors where the format has no room for them."""
        if len(kernels) > 1 and not self.several:
            able = ", ".join(each.name for each in FORMATS if each.several)
            expected = f"one: a submission to a benchmark is one kernel; of the formats {able} hold several"
            raise SpecErrors([SpecError("kernels", f"{len(kernels)} kernels", expected)])
        typed = kernels if self.whole else [one for kernel in kernels for one in of_each_dtype(kernel)]
        if len(typed) > 1 and not self.several:
            able = ", ".join(each.name for each in FORMATS if each.several or each.whole)
            expected = f"one choice of dtypes: a submission to a benchmark has one; of the formats {able} hold several"
            raise SpecErrors([SpecError("dtypes", f"{len(typed)} choices of dtypes", expected)])
        spreads = [spread(kernel) for kernel in typed]
        return [one for found in spreads for one in (found if self.several else found[:1])]


FORMATS = (
    Format("package", "An importable package with a PyTorch op", package.build, several=True),
    Format("module", "The package as one Python file, to paste into a project", module_file.build, several=True),
    Format("hf-kernels", "A repository that Hugging Face kernels loads, with a layer", hf_kernels.build, several=True),
    Format(
        vllm.NAME,
        "The package as a plugin of vLLM, in place of vLLM's own layer",
        vllm.build,
        vllm.layer_source,
        several=True,
    ),
    Format("kernelbench", "A KernelBench problem with its ModelNew", kernelbench.build, kernelbench.problem_of),
    Format(
        bare.KERNELBENCH,
        "A KernelBench problem, and a ModelNew of the kernel alone",
        bare.build_kernelbench,
        bare.kernelbench_files,
    ),
    Format(
        "flashinfer-bench",
        "A FlashInfer-Bench Solution with its Definition and Traces",
        flashinfer_bench.build,
        flashinfer_bench.definition_of,
    ),
    Format(
        sol_execbench.NAME,
        "A SOL-ExecBench problem with our Solution and its Traces",
        sol_execbench.build,
        flashinfer_bench.definition_of,
    ),
    Format(
        robust_kbench.NAME,
        "A robust-kbench task with the results of kernel and PyTorch",
        robust_kbench.build,
        robust_kbench.said,
    ),
    Format("gpu-mode", "A GPU MODE submission, with a task where the op came from none", gpu_mode.build, gpu_mode.said),
    Format(
        bare.GPU_MODE,
        "A GPU MODE submission of the kernel alone, without guards",
        bare.build_gpu_mode,
        bare.gpu_mode_files,
    ),
    Format(
        library.NAME,
        "The kernel with its op, whole verdict and lineage, for another Warpsmith",
        library.build,
        importable=False,
        whole=True,
    ),
)
"""The first is the default."""


def named(name: str) -> Format:
    """Return the format of that name; raises KeyError."""
    return {each.name: each for each in FORMATS}[name]
