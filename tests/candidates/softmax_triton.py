"""examples/softmax.yaml in Triton: short rows stay in registers; of a long one a part does, and the rest is read again,
last part first, while it is still in the L2 cache.
"""

import triton
import triton.language as tl

SHORT = 2048
LOWEST = tl.constexpr(-3.0e38)  # below any maximum, and no infinity, whose difference with itself is none


@triton.jit
def softmax_short(x, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf"))
    largest = tl.maximum(tl.max(value, axis=1), LOWEST)
    power = tl.exp(value - largest[:, None])
    tl.store(y + row * columns + column, power / tl.sum(power, axis=1)[:, None], mask=inside)


@triton.autotune(
    configs=[
        triton.Config({"KEPT": 32768, "BLOCK": 4096}, num_warps=32),
        triton.Config({"KEPT": 16384, "BLOCK": 4096}, num_warps=16),
        triton.Config({"KEPT": 16384, "BLOCK": 8192}, num_warps=32),
    ],
    key=["columns"],
)
@triton.jit
def softmax_long(x, y, columns, KEPT: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    first = tl.arange(0, KEPT)
    kept = tl.load(x + start + first, mask=first < columns, other=float("-inf"), eviction_policy="evict_first")
    lane = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], LOWEST, tl.float32)  # of each lane, like its sum: they meet once, at the end
    total = tl.zeros([BLOCK], tl.float32)
    for offset in range(KEPT, columns, BLOCK):
        at = offset + lane
        value = tl.load(x + start + at, mask=at < columns, other=float("-inf"), eviction_policy="evict_last")
        larger = tl.maximum(largest, value)
        total = total * tl.exp(largest - larger) + tl.exp(value - larger)
        largest = larger
    most = tl.maximum(tl.max(largest, axis=0), tl.max(kept, axis=0))
    power = tl.exp(kept - most)
    factor = 1.0 / (tl.sum(power, axis=0) + tl.sum(total * tl.exp(largest - most), axis=0))
    tl.store(y + start + first, power * factor, mask=first < columns, eviction_policy="evict_first")
    chunks = tl.maximum(tl.cdiv(columns - KEPT, BLOCK), 0)
    for chunk in range(chunks):
        at = KEPT + (chunks - 1 - chunk) * BLOCK + lane
        value = tl.load(x + start + at, mask=at < columns, other=float("-inf"), eviction_policy="evict_first")
        tl.store(y + start + at, tl.exp(value - most) * factor, mask=at < columns, eviction_policy="evict_first")


def run(x, y):
    rows, columns = x.shape
    if columns <= SHORT:
        block = triton.next_power_of_2(columns)
        together = max(1, 4096 // block)
        softmax_short[(triton.cdiv(rows, together),)](x, y, rows, columns, ROWS=together, BLOCK=block, num_warps=4)
    else:
        softmax_long[(rows,)](x, y, columns)
