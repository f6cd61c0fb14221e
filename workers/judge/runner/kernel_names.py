"""The names of the device kernels that one call ran, and which are not the candidate's own.

`record` runs in a runner, beside the candidate, so its words can only count against the candidate: a foreign kernel
that is named rejects, a name that is missing proves nothing.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from warpsmith.kernels_db.job.languages import CUTE_KERNEL

Source = Literal["cupti", "launches"]
"""Where kernel names come from.

cupti: what ran on the device, by the driver's own tracing. launches: what went through the launchers of Triton and of
`kernels_db.runtime`, where there is no tracing: a library's kernels are then not seen.
"""


class Ran(NamedTuple):
    """One kernel, copy or fill, in order of its first launch, and how often it ran."""

    name: str
    calls: int
    source: Source


_DRIVER = re.compile(r"Mem(cpy|set)\b|(Context|Stream|Event) (Sync|Wait)")
_SCRATCH = re.compile(r"\bFillFunctor\b|\bdirect_copy_kernel_cuda\b|\bfill_kernel_cuda\b")
"""Kernels that `torch.zeros`, `full` and `fill_` run, and `reshape`'s copy without a view."""
_LIBRARIES = re.compile(
    r"cublas|cutlass|cudnn|cask|nvjet|xmma|gemm|gemv|splitK|dot_kernel|reduce_1Block|flash|fmha|winograd|conv|nchw|nhwc"
    r"|at::native|at_cuda|c10|cub::|thrust|cufft|cusolver|cusparse|cutensor|ampere_|volta_|turing_|hopper_|sm\d\d_",
    re.IGNORECASE,
)
"""Kernels of torch and of the libraries under it.

An op with library calls may run them. The gate holds its calls to those that the op lists; a kernel's name does not
tell which of them ran it.
"""


def foreign(ran: Sequence[str], own: Collection[str], library_calls: Collection[str] = ()) -> list[str]:
    """Return the names in `ran` that are neither the candidate's kernels nor its host code's.

    Each once.

    Args:
        ran: names as the driver gives them: "add", "void at::native::vectorized_elementwise_kernel<...>(...)".
        own: names of the candidate's own kernels.
        library_calls: torch functions that the op allows; with any, kernels of the libraries pass.
    """
    found = [
        name
        for name in ran
        if not _is_own(name, own)
        and not _DRIVER.match(name)
        and not _SCRATCH.search(name)
        and not (library_calls and _LIBRARIES.search(name))
    ]
    return list(dict.fromkeys(found))


def _is_own(name: str, own: Collection[str]) -> bool:
    """Check whether a device's name of a kernel is that of one of these functions.

    CuTe DSL puts a mark before a function's name and its arguments behind it, in no form that is told: a kernel of a
    library in CuTe passes where an own name and `_` begin its name. To run one a candidate has to call that library,
    which its gate refuses.
    """
    plain = base_name(name)
    marked = plain.removeprefix(CUTE_KERNEL)
    return plain in own or (marked != plain and any(marked.startswith(f"{one}_") for one in own))


def base_name(name: str) -> str:
    """Return the function's plain name: "add" of "void add<float>(float*)" and "add(float*)".

    "add" stays as it is.
    """
    plain = re.sub(r"[<(].*", "", name, flags=re.DOTALL).strip()
    return plain.rpartition(" ")[2]


def record(call: Callable[[], object]) -> list[Ran]:
    """Run `call` once, until the device is idle, and return what it ran there.

    Slow: for an untimed call.
    """
    import torch  # noqa: PLC0415  only a runner has a device, and it has torch already

    torch.cuda.synchronize()
    with _noted_launches() as launched, _traced() as traced:
        call()
        torch.cuda.synchronize()
    return _counted(traced, "cupti") if traced else _counted(launched, "launches")


def _counted(names: Sequence[str], source: Source) -> list[Ran]:
    return [Ran(name, names.count(name), source) for name in dict.fromkeys(names)]


@contextmanager
def _traced() -> Iterator[list[str]]:
    """Record what ran on the device inside the block.

    The list is filled when the block ends, and left empty where tracing does not work.
    """
    from torch._C._autograd import DeviceType  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    names: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler = profile(activities=[ProfilerActivity.CUDA])
        try:
            profiler.start()
        except RuntimeError:  # no CUPTI in this process: the launchers' names are all there is
            yield names
            return
        try:
            yield names
        finally:
            with contextlib.suppress(RuntimeError):  # the same
                profiler.stop()
        everything: Any = profiler.events()  # type: ignore[no-untyped-call]
        events = [event for event in everything or () if event.device_type == DeviceType.CUDA]
        names += [event.name for event in sorted(events, key=lambda event: event.time_range.start)]


@contextmanager
def _noted_launches() -> Iterator[list[str]]:
    """Record the kernels that our launchers and Triton's start inside the block."""
    from warpsmith.kernels_db.runtime import cuda, cutedsl  # noqa: PLC0415

    names: list[str] = []
    launch = cuda.Kernel.launch

    def noted(kernel: cuda.Kernel, *arguments: Any, **options: Any) -> None:
        names.append(kernel.name)
        launch(kernel, *arguments, **options)

    def entered(metadata: Any) -> None:
        names.append(str(metadata.get()["name"]))

    start = cutedsl.ReadyLaunch.launch

    def started(ready: cutedsl.ReadyLaunch, stream: int, addresses: Sequence[int]) -> None:
        names.append(ready.kernel)
        start(ready, stream, addresses)

    hooks = _triton_hooks()
    cuda.Kernel.launch = noted  # type: ignore[method-assign, assignment]
    cutedsl.ReadyLaunch.launch = started  # type: ignore[method-assign, assignment]
    if hooks is not None:
        hooks.add(entered)
    try:
        yield names
    finally:
        cuda.Kernel.launch = launch  # type: ignore[method-assign]
        cutedsl.ReadyLaunch.launch = start  # type: ignore[method-assign]
        if hooks is not None:
            hooks.remove(entered)


def _triton_hooks() -> Any:
    """Return Triton's hooks at a launch, where the candidate has imported Triton."""
    knobs = sys.modules.get("triton.knobs")
    return None if knobs is None else knobs.runtime.launch_enter_hook
