"""Shapes and dtypes of results for ops that torch cannot run on tensors without values.

Without them a task at its own sizes needs seconds and gigabytes to be understood.
"""

from __future__ import annotations

from functools import cache

import torch


@cache
def register() -> torch.library.Library:
    """Register the ops for the device `meta`, once in a process; what is returned keeps them registered."""
    library = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]  # torch's own
    library.impl("geqrf", _geqrf)  # type: ignore[no-untyped-call]  # as above
    return library


def _geqrf(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Householder vectors like the (..., m, n) matrix, columns in order; their (..., min(m, n)) factors."""
    *batch, rows, columns = matrix.shape
    vectors = matrix.new_empty([*batch, columns, rows]).transpose(-2, -1)
    return vectors, matrix.new_empty([*batch, min(rows, columns)])
