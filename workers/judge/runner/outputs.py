"""A runner's tensors over a slot's bytes, checks of what `run` returned and left, and how its errors are told."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from warpsmith.workers.judge.machine.native_watch import Finding
from warpsmith.workers.judge.runner.commands import LONGEST_TEXT


class ContractError(Exception):
    """`run` returned something else than the op declares.

    `kind` and `details` fill the verdict's failure.
    """

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


def bound(arena: Any, item: dict[str, Any], *, own_storage: bool = False) -> Any:
    """Return a tensor over the slot's bytes, or the scalar itself.

    own_storage: the tensor shares its storage with no other one of the slot.
    """
    import torch  # noqa: PLC0415

    if "value" in item:
        return item["value"]
    dtype = getattr(torch, item["dtype"])
    if item["elements"] == 0:
        return torch.empty(item["shape"], dtype=dtype, device=arena.device)
    part = arena[item["offset"] : item["offset"] + item["elements"] * dtype.itemsize]
    if not own_storage:
        return part.view(dtype).as_strided(item["shape"], item["strides"])
    tensor = torch.empty(0, dtype=dtype, device=arena.device)
    return tensor.set_(torch.utils.dlpack.from_dlpack(part).untyped_storage(), 0, item["shape"], item["strides"])


def returned_as(result: Any, outputs: list[Any]) -> list[Any]:
    """Return the result of `run` as a list, one value for each output.

    None is the empty list: then every result is a mutated input. Raises ContractError for another number of them.
    """
    returned = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
    if len(returned) != len(outputs):
        raise ContractError(
            "outputs",
            f"run returned {len(returned)} tensors, the op declares {len(outputs)} outputs",
            found=len(returned),
            expected=len(outputs),
        )
    return returned


def check_output(position: int, tensor: Any, output: Any, mode: str) -> None:
    """Raise ContractError unless the tensor has the declared shape and dtype.

    In float64 mode any floating dtype passes.
    """
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise ContractError(
            "dtype",
            f"output {position} is a {type(tensor).__name__}, not a tensor",
            found=type(tensor).__name__,
            expected="Tensor",
        )
    if tuple(tensor.shape) != tuple(output.shape):
        found, expected = list(tensor.shape), list(output.shape)
        raise ContractError(
            "shape", f"output {position} has shape {found}, the op declares {expected}", found=found, expected=expected
        )
    same = tensor.dtype == output.dtype or (
        mode == "float64" and tensor.is_floating_point() and output.is_floating_point()
    )
    if not same:
        found_dtype, expected_dtype = str(tensor.dtype).removeprefix("torch."), str(output.dtype).removeprefix("torch.")
        raise ContractError(
            "dtype",
            f"output {position} has dtype {found_dtype}, the op declares {expected_dtype}",
            found=found_dtype,
            expected=expected_dtype,
        )


def refuse(finding: Finding | None) -> None:
    """Raise ContractError for what a call has left behind."""
    if finding is not None:
        raise ContractError(finding.kind, finding.message, found=finding.found, expected=finding.expected)


def describe(error: BaseException) -> dict[str, Any]:
    """Describe an exception for the referee: type, message, last frames; bounded."""
    if isinstance(error, ContractError):
        return {"type": "ContractError", "kind": error.kind, "message": str(error)[:LONGEST_TEXT], **error.details}
    frames = "".join(list(_frames(error))[-6:])
    return {"type": type(error).__name__, "message": str(error)[:LONGEST_TEXT], "trace": frames[-LONGEST_TEXT:]}


_OWN_FILES = ("workers/judge/runner/runner_process.py", "workers/judge/runner/loading.py")
"""Files of ours that a traceback of what is run begins with."""


def _frames(error: BaseException) -> Iterator[str]:
    for line in traceback.format_exception(error):
        if not any(own in line for own in _OWN_FILES):
            yield line
