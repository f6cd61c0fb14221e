"""examples/matmul.yaml in Triton: three TF32 products a block of k give the accuracy of float32.

Triton's `tf32x3` splits the operands; each block of k starts from zero and is added in float32, since tensor cores cut
off what they add up. Where few tiles would leave multiprocessors idle, several programs share k and their parts are
summed afterwards. Small matrices and those of odd sizes take plain float32 products, summed in float64 every 16 of k.
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"M": 128, "N": 128, "K": 32}, num_warps=8, num_stages=3),
        triton.Config({"M": 128, "N": 64, "K": 32}, num_warps=4, num_stages=3),
        triton.Config({"M": 64, "N": 128, "K": 32}, num_warps=4, num_stages=3),
        triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=4),
    ],
    key=["m", "n", "k", "depth"],
)
@triton.jit
def split_product(a, b, parts, m, n, k, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    across, down = tl.cdiv(n, N), tl.cdiv(m, M)
    tile = tl.program_id(0)
    share = tl.program_id(1)
    # Tiles in bands of 8 rows: the programs that run at once share what they read.
    band = tile // (8 * across)
    height = tl.minimum(down - band * 8, 8)
    row0 = (band * 8 + tile % (8 * across) % height) * M
    column0 = tile % (8 * across) // height * N
    row = (row0 + tl.arange(0, M))[:, None]
    column = (column0 + tl.arange(0, N))[None, :]
    here = tl.arange(0, K)
    last = tl.minimum((share + 1) * depth, k)
    total = tl.zeros([M, N], tl.float32)
    for k0 in range(share * depth, last, K):
        left = tl.load(a + row.to(tl.int64) * k + (k0 + here)[None, :], mask=(row < m) & ((k0 + here)[None, :] < last), other=0.0)
        right = tl.load(
            b + (k0 + here)[:, None].to(tl.int64) * n + column, mask=((k0 + here)[:, None] < last) & (column < n), other=0.0
        )
        total += tl.dot(left, right, input_precision="tf32x3")
    place = share.to(tl.int64) * m * n + row.to(tl.int64) * n + column
    tl.store(parts + place, total, mask=(row < m) & (column < n))


@triton.jit
def plain_product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = (tl.program_id(0) * M + tl.arange(0, M))[:, None]
    column = (tl.program_id(1) * N + tl.arange(0, N))[None, :]
    here = tl.arange(0, K)
    total = tl.zeros([M, N], tl.float64)
    for k0 in range(0, k, K):
        left = tl.load(a + row.to(tl.int64) * k + (k0 + here)[None, :], mask=(row < m) & ((k0 + here)[None, :] < k), other=0.0)
        right = tl.load(
            b + (k0 + here)[:, None].to(tl.int64) * n + column, mask=((k0 + here)[:, None] < k) & (column < n), other=0.0
        )
        total += tl.dot(left, right, input_precision="ieee").to(tl.float64)
    tl.store(c + row.to(tl.int64) * n + column, total.to(tl.float32), mask=(row < m) & (column < n))


@triton.jit
def add_parts(parts, c, elements, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for part in range(count):
        total += tl.load(parts + part * elements.to(tl.int64) + at, mask=at < elements, other=0.0)
    tl.store(c + at, total.to(tl.float32), mask=at < elements)


def run(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    if n % 16 or k % 16 or m < 64 or n < 64 or k < 64:
        plain_product[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, M=32, N=32, K=16, num_warps=4)
        return
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    tiles = triton.cdiv(m, 128) * triton.cdiv(n, 128)
    depth = triton.cdiv(k, max(1, min(8, 2 * processors // tiles, k // 256)))
    depth = triton.cdiv(depth, 32) * 32
    count = triton.cdiv(k, depth)
    out = c if count == 1 else torch.empty((count, m, n), device=c.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"]), count)
    split_product[grid](a, b, out, m, n, k, depth)
    if count > 1:
        add_parts[(triton.cdiv(m * n, 1024),)](out, c, m * n, count, BLOCK=1024)
