"""The reference in float64: what is widened, and what is not."""

from __future__ import annotations

import torch

from warpsmith.kernels_db.job.float64 import in_float64


def test_bytes_that_are_read_as_numbers_keep_their_width() -> None:
    """Scales that lie among the bytes of a cache, say: four make a number, and not eight."""
    scales = torch.tensor([[1.5], [0.25], [3.0]])

    def run(packed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x.float() * packed.view(torch.float32) / 3

    result = in_float64(run)(scales.view(torch.uint8), torch.ones(3, 2, dtype=torch.float64))
    assert result.dtype == torch.float64
    assert torch.equal(result, (scales.double() / 3).expand(3, 2))


def test_numbers_that_are_read_as_numbers_are_widened() -> None:
    wide = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    result = in_float64(lambda x: x.view(torch.float32) + torch.ones(2))(wide)
    assert torch.equal(result, wide + 1)
