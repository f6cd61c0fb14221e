"""examples/layer_norm.yaml in Triton: a row is shared by many programs, because a few rows of millions of elements
would leave most of the GPU idle.

Each program writes the sum of its tile and the squares of the distances from the tile's own mean, so that nothing
cancels when the mean is large; one program a row puts these together in float64; then every tile is normalised, the
ones that were read last first, with weight and bias read once for several rows.
"""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements whose sums one program takes
BLOCK = 2048  # elements that one program normalises in each of its rows


@triton.jit
def tile_sums(x, sums, squares, rows, n, tiles, TILE: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    row, tile = program % rows, program // rows
    at = tile * TILE + tl.arange(0, TILE)
    inside = at < n
    value = tl.load(x + row * n + at, mask=inside, other=0.0)
    count = tl.minimum(n - tile * TILE, TILE).to(tl.float32)
    pivot = tl.sum(value, axis=0) / count
    distance = tl.where(inside, value - pivot, 0.0)
    rest = tl.sum(distance, axis=0).to(tl.float64)
    wide = pivot.to(tl.float64)
    total = count * wide + rest
    tl.store(sums + row * tiles + tile, total)
    tl.store(squares + row * tiles + tile, tl.sum(distance * distance, axis=0) + wide * (total + rest))


@triton.jit
def row_statistics(sums, squares, mean, scale, n, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float64)
    square = tl.zeros([BLOCK], tl.float64)
    for offset in range(0, tiles, BLOCK):
        at = offset + tl.arange(0, BLOCK)
        total += tl.load(sums + row * tiles + at, mask=at < tiles, other=0.0)
        square += tl.load(squares + row * tiles + at, mask=at < tiles, other=0.0)
    middle = tl.sum(total, axis=0) / n
    variance = tl.maximum(tl.sum(square, axis=0) / n - middle * middle, 0.0)
    tl.store(mean + row, middle.to(tl.float32))
    tl.store(scale + row, (1.0 / tl.sqrt(variance + 1e-5)).to(tl.float32))


@triton.jit
def normalise(x, weight, bias, y, mean, scale, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    factor = tl.load(weight + at, mask=inside)
    shift = tl.load(bias + at, mask=inside)
    for step in range(ROWS):
        row = tl.program_id(1) * ROWS + step
        here = inside & (row < rows)
        place = row.to(tl.int64) * n + at
        value = tl.load(x + place, mask=here, eviction_policy="evict_first")
        middle = tl.load(mean + row, mask=row < rows, other=0.0)
        width = tl.load(scale + row, mask=row < rows, other=0.0)
        tl.store(y + place, (value - middle) * width * factor + shift, mask=here, eviction_policy="evict_first")


def run(x, weight, bias, y):
    n = weight.numel()
    rows = x.numel() // n
    tiles, blocks = triton.cdiv(n, TILE), triton.cdiv(n, BLOCK)
    sums = torch.empty((2, rows, tiles), device=x.device, dtype=torch.float64)
    found = torch.empty((2, rows), device=x.device, dtype=torch.float32)
    tile_sums[(rows * tiles,)](x, sums[0], sums[1], rows, n, tiles, TILE=TILE, num_warps=4)
    row_statistics[(rows,)](sums[0], sums[1], found[0], found[1], n, tiles, BLOCK=1024, num_warps=4)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    groups = max(1, triton.cdiv(8 * processors, blocks), triton.cdiv(rows, 16))
    together = triton.cdiv(rows, groups)
    grid = (blocks, triton.cdiv(rows, together))
    normalise[grid](x, weight, bias, y, found[0], found[1], rows, n, ROWS=together, BLOCK=BLOCK, num_warps=4)
