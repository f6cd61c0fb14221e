"""Loading a source file in a runner, and wrapping its `run` as the mode calls it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from warpsmith.kernels_db.candidate_import import provide_short_names, specify_file
from warpsmith.kernels_db.runtime.cutedsl_build import CARRIED_VARIABLE
from warpsmith.workers.judge.runner import stand_in


def wrap(run: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Return `run` as this mode calls it.

    Candidates are called bare; references and experts without gradients.
    """
    if mode in ("candidate", "generate"):
        return run
    import torch  # noqa: PLC0415

    if mode == "float64":
        from warpsmith.kernels_db.job.float64 import in_float64  # noqa: PLC0415 - only this runner pays for it

        return torch.no_grad()(in_float64(run))
    if mode in ("eager", "expert"):
        return torch.no_grad()(run)
    import torch._dynamo  # noqa: PLC0415 - takes seconds; only these runners pay

    torch._dynamo.config.recompile_limit = (
        4096  # every workload has its own shapes; past the limit torch falls back to eager silently
    )
    torch._dynamo.config.accumulated_recompile_limit = 4096
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    tuning = "max-autotune-no-cudagraphs" if mode == "max_autotune" else None
    compiled: Callable[..., Any] = torch.no_grad()(torch.compile(run, dynamic=False, mode=tuning))
    return compiled


def set_precision(mode: str, math: str, device: str) -> None:
    """Set how torch multiplies float32, and its default dtype, for what `mode` runs on the device ("cpu", "cuda")."""
    import torch  # noqa: PLC0415 - already loaded by the fork server

    tf32 = math == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = tf32  # unlike matrix products, convolutions use it unless told not to
    if mode == "float64":
        torch.set_default_dtype(torch.float64)


def compile_templates_at_once() -> None:
    """Let Inductor compile the templates of max-autotune in as many threads as there are cores.

    One after another they take tens of seconds. Its pool of processes stays off, which is decided as it is imported.
    """
    importlib.import_module("torch._inductor.config")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = os.environ["OMP_NUM_THREADS"]


def import_file(path: str) -> ModuleType:
    """Import a source file as a module of its own name.

    Triton and Inductor read sources back through it.
    """
    provide_short_names()
    if CARRIED_VARIABLE in os.environ:
        stand_in.provide()
    name = os.path.splitext(os.path.basename(path))[0]
    spec = specify_file(name, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
