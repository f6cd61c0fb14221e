"""What users call: `warpsmith.optimize`, and the backend `warpsmith` of torch.compile.

Needs no torch to be imported, as `warpsmith` itself needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from warpsmith.workers.optimize.compiled.handle import Optimized
    from warpsmith.workers.optimize.compiled.rewriting import Keep

KEPT = ("faster", "right")


def optimize(
    model: Any,
    *,
    mode: str | None = None,
    dynamic: bool | None = None,
    kernels: Sequence[str | PathLike[str]] | None = None,
    keep: Keep = "faster",
) -> Optimized:
    """Compile a model, or a function of tensors, with kernels where they pay, Warpsmith's rewrites, and Inductor.

    mode: Inductor's ("reduce-overhead", "max-autotune", ...); None: its default. dynamic: as torch.compile takes it.
    kernels: directories of exported packages; None: the kernels that ship, and none for an empty sequence. keep: which
    of them stay where they are right: those that are surely "faster" than Inductor's code for the same part, or all
    ("right"). Nothing is compiled before the first call. Raises ValueError for `mode` and `keep`, TypeError for what
    cannot be called or is no sequence, NotAnExport, BadPackage and NotUsable for `kernels`.
    """
    if keep not in KEPT:
        raise ValueError(f"keep: found {keep!r}, expected one of {', '.join(map(repr, KEPT))}")
    if not callable(model):
        raise TypeError(f"model: found a {type(model).__name__}, expected a torch.nn.Module or a function of tensors")
    if kernels is not None and (isinstance(kernels, str) or not hasattr(kernels, "__iter__")):
        raise TypeError(f"kernels: found {kernels!r}, expected a sequence of directories of exported packages")
    from warpsmith.workers.optimize import shipped  # noqa: PLC0415 - needs torch, which takes seconds
    from warpsmith.workers.optimize.compiled.handle import Optimized  # noqa: PLC0415 - as above

    if kernels is None:
        return Optimized(model, mode, dynamic, shipped.shipped_for, keep)
    served = shipped.given(kernels)
    return Optimized(model, mode, dynamic, lambda _: served, keep)


def warpsmith(
    graph: Any, inputs: Sequence[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's with the kernels that ship: `torch.compile(model, backend="warpsmith")`.

    Modes and options are Inductor's. Raises what Inductor raises, RuntimeError for a mode that it does not know.
    """
    from warpsmith.workers.optimize import shipped  # noqa: PLC0415 - as above
    from warpsmith.workers.optimize.compiled.backend import compile_rewritten  # noqa: PLC0415 - as above

    return compile_rewritten(graph, inputs, serve=shipped.shipped_for, mode=mode, options=options)
