"""Each program rotates a block of heads of one token, as many as a sweep found best; one launch for queries and keys.

A head is read once: its halves are two tiles of the same layout, so the exchange of halves costs no second read. The
token's cosines and sines are read once a program and shared by its heads. The first grid axis counts blocks of query
heads, then those of key heads, so the programs of a token are neighbours.
"""

import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"HEADS": 4}, num_warps=1),
        triton.Config({"HEADS": 8}, num_warps=1),
        triton.Config({"HEADS": 8}, num_warps=2),
        triton.Config({"HEADS": 16}, num_warps=2),
        triton.Config({"HEADS": 16}, num_warps=4),
        triton.Config({"HEADS": 32}, num_warps=4),
        triton.Config({"HEADS": 32}, num_warps=8),
    ],
    key=["tokens", "heads", "kv_heads", "half"],
)
@triton.jit
def rotate(query, key, cos, sin, rotated_query, rotated_key, tokens, heads, kv_heads, half,
           HEADS: tl.constexpr, HALF: tl.constexpr, FULL: tl.constexpr):
    token = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    q_blocks = tl.cdiv(heads, HEADS)
    d = tl.arange(0, HALF)
    inside = d < half
    if FULL:
        c1 = tl.load(cos + token * 2 * half + d).to(tl.float32)
        s1 = tl.load(sin + token * 2 * half + d).to(tl.float32)
        c2 = tl.load(cos + token * 2 * half + half + d).to(tl.float32)
        s2 = tl.load(sin + token * 2 * half + half + d).to(tl.float32)
    else:
        c1 = tl.load(cos + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)
        s1 = tl.load(sin + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)
        c2 = tl.load(cos + token * 2 * half + half + d, mask=inside, other=0.0).to(tl.float32)
        s2 = tl.load(sin + token * 2 * half + half + d, mask=inside, other=0.0).to(tl.float32)
    x = query
    y = rotated_query
    count = heads
    first = block * HEADS
    if block >= q_blocks:
        x = key
        y = rotated_key
        count = kv_heads
        first = (block - q_blocks) * HEADS
    h = first + tl.arange(0, HEADS)
    offset = (token * count + h)[:, None] * (2 * half) + d[None, :]
    valid = (h < count)[:, None] & inside[None, :]
    a = tl.load(x + offset, mask=valid, other=0.0).to(tl.float32)
    b = tl.load(x + offset + half, mask=valid, other=0.0).to(tl.float32)
    tl.store(y + offset, (a * c1[None, :] - b * s1[None, :]).to(tl.bfloat16), mask=valid)
    tl.store(y + offset + half, (b * c2[None, :] + a * s2[None, :]).to(tl.bfloat16), mask=valid)


def run(query, key, cos, sin, rotated_query, rotated_key):
    tokens, heads, head = query.shape
    kv_heads = key.shape[1]
    half = head // 2
    width = triton.next_power_of_2(half)
    rotate[lambda meta: (triton.cdiv(heads, meta["HEADS"]) + triton.cdiv(kv_heads, meta["HEADS"]), tokens)](
        query, key, cos, sin, rotated_query, rotated_key, tokens, heads, kv_heads, half,
        HALF=width, FULL=width == half)
