"""A runner's tensors over a slot's bytes, and checks of what `run` returned."""

from __future__ import annotations

from typing import Any


class ContractError(Exception):
    """`run` returned something else than the op declares.

    `kind` and `details` fill the verdict's failure.
    """

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


def bound(arena: Any, item: dict[str, Any]) -> Any:
    """Return a tensor over the slot's bytes, or the scalar itself."""
    import torch  # noqa: PLC0415

    if "value" in item:
        return item["value"]
    dtype = getattr(torch, item["dtype"])
    if item["elements"] == 0:
        return torch.empty(item["shape"], dtype=dtype, device=arena.device)
    flat = arena[item["offset"] : item["offset"] + item["elements"] * dtype.itemsize].view(dtype)
    return flat.as_strided(item["shape"], item["strides"])


def returned_tensors(result: Any) -> list[Any]:
    """Return the result of `run` as a list; None is the empty list.

    Then every result is a mutated input.
    """
    if result is None:
        return []
    return list(result) if isinstance(result, (tuple, list)) else [result]


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
