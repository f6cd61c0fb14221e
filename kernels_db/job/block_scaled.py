"""`torch._scaled_mm` of block-scaled matrices on a CPU, where PyTorch multiplies these on some GPUs alone.

Operands are packed `float4_e2m1fn_x2` or eight-bit floats, with a scale for each block of 16 elements (`float8_e4m3fn`,
NVFP4) or 32 (`float8_e8m0fnu`, MX) along the summed axis. The scales lie in tiles of 128 rows by 4 columns, as cuBLAS
has them: https://docs.nvidia.com/cuda/cublas/index.html#d-block-scaling-factors-layout. A reference that runs in
float64 has floats of float64 in place of eight bits. Needs only PyTorch.
"""

from __future__ import annotations

import torch

_FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The number of each code of float4_e2m1fn."""

_TILE = (128, 4)


def is_block_scaled(scale: torch.Tensor) -> bool:
    """Check whether these are scales of blocks: those of a whole matrix are one, those of rows a row or a column."""
    return scale.numel() > 1 and (scale.dim() != 2 or 1 not in scale.shape)


def scaled_mm(
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Multiply (m, k) by (k, n), summed in float32, as `torch._scaled_mm` does; float4 has two elements a byte along k.

    Raises ValueError where scales do not fit, and where `scale_result` is given.
    """
    if scale_result is not None:
        raise ValueError("scale_result: found a tensor, expected None for scales of blocks")
    product = _scaled("scale_a", mat_a, scale_a) @ _scaled("scale_b", mat_b.t(), scale_b).t()
    if bias is not None:
        product = product + bias
    return product if out_dtype is None else product.to(out_dtype)


def _scaled(name: str, matrix: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a matrix (rows, k) times their scales."""
    numbers = _numbers(matrix)
    rows, length = numbers.shape
    block = 32 if scale.dtype == torch.float8_e8m0fnu else 16
    columns = -(-length // block)
    tiles = -(-rows // _TILE[0]), -(-columns // _TILE[1])
    expected = tiles[0] * tiles[1] * _TILE[0] * _TILE[1]
    if scale.numel() != expected:
        raise ValueError(f"{name}: found {scale.numel()} scales, expected {expected} for {rows} x {length} numbers")
    # A tile is 32 x 4 x 4: row 32 j + i has its four scales at [i, j].
    by_row = scale.to(torch.float32).reshape(*tiles, 32, 4, 4).permute(0, 3, 2, 1, 4)
    by_row = by_row.reshape(tiles[0] * _TILE[0], tiles[1] * _TILE[1])[:rows, :columns]
    return numbers * by_row.repeat_interleave(block, dim=1)[:, :length]


def _numbers(matrix: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a matrix; packed float4 has two a byte, that of the low half first."""
    if matrix.dtype != torch.float4_e2m1fn_x2:
        return matrix.to(torch.float32)
    codes = matrix.view(torch.uint8)
    halves = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    return torch.tensor(_FLOAT4)[halves.long()]
