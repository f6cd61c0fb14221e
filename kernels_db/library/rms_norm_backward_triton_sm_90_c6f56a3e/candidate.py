"""Both sums of a row side by side, so a row waits for one reduction; warps and stages tuned; wide tiles for grad_weight."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.autotune(
    configs=[
        triton.Config({"STAGES": 2}, num_warps=8),
        triton.Config({"STAGES": 1}, num_warps=8),
        triton.Config({"STAGES": 1}, num_warps=16),
        triton.Config({"STAGES": 2}, num_warps=16),
        triton.Config({"STAGES": 3}, num_warps=16),
        triton.Config({"STAGES": 2}, num_warps=16, maxnreg=64),
    ],
    key=["tokens", "hidden"],
)
@triton.jit
def by_rows(grad_out, x, weight, grad_x, parts, rstds, tokens, hidden, BLOCK: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), tokens, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * hidden + column
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_out + at, mask=inside, other=0.0).to(tl.float32)
        scaled = grad * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        squares, products = tl.reduce((value * value, scaled * value), 0, add_pairs)
        rstd = tl.rsqrt(squares / hidden + 1e-6)
        normed = value * rstd
        mean = products * rstd / hidden
        if not (tl.abs(mean) < float("inf")):  # the sum overflowed before it was scaled, or is one of NaN
            mean = tl.sum(scaled * normed, 0) / hidden
        tl.store(grad_x + at, (rstd * (scaled - normed * mean)).to(tl.bfloat16), mask=inside)
        if PARTS:
            total += grad * normed
        else:
            tl.store(rstds + row, rstd)
    if PARTS:
        tl.store(parts + tl.program_id(0) * hidden + column, total, mask=inside)


@triton.jit
def add_parts(parts, grad_weight, count, hidden, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, count, ROWS):
        inside = ((first + row) < count)[:, None] & (column < hidden)[None, :]
        total += tl.load(parts + (first + row)[:, None] * hidden + column[None, :], mask=inside, other=0.0)
    tl.store(grad_weight + column, tl.sum(total, 0).to(tl.bfloat16), mask=column < hidden)


@triton.jit
def by_columns(grad_out, x, rstds, grad_weight, tokens, hidden, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, tokens, ROWS):
        inside = ((first + row) < tokens)[:, None] & (column < hidden)[None, :]
        at = (first + row)[:, None] * hidden + column[None, :]
        rstd = tl.load(rstds + first + row, mask=(first + row) < tokens, other=0.0)
        grad = tl.load(grad_out + at, mask=inside, other=0.0).to(tl.float32)
        total += grad * (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * rstd[:, None])
    tl.store(grad_weight + column, tl.sum(total, 0).to(tl.bfloat16), mask=column < hidden)


def run(grad_out, x, weight, grad_x, grad_weight):
    tokens, hidden = x.shape
    count = torch.cuda.get_device_properties(x.device).multi_processor_count
    block = triton.next_power_of_2(hidden)
    if tokens <= count:
        rstds = torch.empty((tokens,), device=x.device, dtype=torch.float32)
        by_rows[(tokens,)](grad_out, x, weight, grad_x, rstds, rstds, tokens, hidden, BLOCK=block, PARTS=False)
        by_columns[(triton.cdiv(hidden, 32),)](grad_out, x, rstds, grad_weight, tokens, hidden, ROWS=64, COLUMNS=32, num_warps=8)
    else:
        programs = min(tokens, 2 * count)
        parts = torch.empty((programs, hidden), device=x.device, dtype=torch.float32)
        by_rows[(programs,)](grad_out, x, weight, grad_x, parts, parts, tokens, hidden, BLOCK=block, PARTS=True)
        add_parts[(triton.cdiv(hidden, 16),)](parts, grad_weight, programs, hidden, ROWS=256, COLUMNS=16, num_warps=8)
