"""Products of block-scaled matrices on a CPU, beside what each element is worth by itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the products are torch's")

import torch

from warpsmith.kernels_db.job.block_scaled import is_block_scaled, scaled_mm

FLOAT4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def decoded(code: int) -> float:
    return -FLOAT4[code & 7] if code & 8 else FLOAT4[code & 7]


def in_tiles(scales: torch.Tensor) -> torch.Tensor:
    """Scales of rows and blocks where cuBLAS's page puts each: the offset of (row, column) in tiles of 128 by 4."""
    rows, columns = scales.shape
    across = -(-columns // 4)
    found = torch.zeros(-(-rows // 128) * across * 512)
    for row in range(rows):
        for column in range(columns):
            tile = (row // 128) * across + column // 4
            found[tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4] = scales[row, column]
    return found


@pytest.mark.parametrize("block", [16, 32])
def test_a_product_is_that_of_the_numbers_times_their_scales(block: int) -> None:
    torch.manual_seed(0)
    rows, others, length = 130, 5, 160
    kind = torch.float8_e4m3fn if block == 16 else torch.float8_e8m0fnu
    given, wide = [], []
    for count in (rows, others):
        codes = torch.randint(0, 256, (count, length // 2), dtype=torch.uint8)
        scales = 2.0 ** torch.randint(-2, 3, (count, length // block))
        numbers = [[decoded(half) for byte in line for half in (byte & 15, byte >> 4)] for line in codes.tolist()]
        given.append((codes.view(torch.float4_e2m1fn_x2), in_tiles(scales).to(kind)))
        wide.append(torch.tensor(numbers, dtype=torch.float64) * scales.double().repeat_interleave(block, 1))
    (a, scale_a), (b, scale_b) = given
    bias = torch.arange(others, dtype=torch.float32)
    found = scaled_mm(a, b.t(), scale_a, scale_b, bias=bias, out_dtype=torch.float32)
    torch.testing.assert_close(found.double(), wide[0] @ wide[1].t() + bias)


def test_scales_of_rows_and_of_whole_matrices_are_none_of_blocks() -> None:
    assert not any(is_block_scaled(torch.ones(shape)) for shape in ((), (1,), (8, 1), (1, 8)))
    assert is_block_scaled(torch.ones(512))


def test_scales_that_do_not_fit_are_refused() -> None:
    a = torch.zeros(8, 32, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    scale = torch.ones(512).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="scale_b: found 1024 scales, expected 512 for 8 x 64 numbers"):
        scaled_mm(a, a.t(), scale, torch.cat([scale, scale]))
    with pytest.raises(ValueError, match="scale_result: found a tensor, expected None"):
        scaled_mm(a, a.t(), scale, scale, scale_result=torch.ones(()))
