"""Which tensors a call overwrites before it reads them, whatever other tensors it makes on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from warpsmith.workers.judge.analysis.first_use import FirstUse


def _sparse(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(torch.relu(x).to_sparse(), weight)


def _mkldnn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).to_mkldnn().to_dense() @ weight


@pytest.mark.parametrize("call", [_sparse, _mkldnn])
def test_tensors_without_memory_of_their_own_are_passed_over(
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    state = {"weight": torch.randn(4, 3), "hidden": torch.zeros(4, 3)}
    with FirstUse(state) as first:
        state["hidden"].copy_(call(torch.randn(4, 4), state["weight"]))
    assert first.overwritten == {"hidden"}
