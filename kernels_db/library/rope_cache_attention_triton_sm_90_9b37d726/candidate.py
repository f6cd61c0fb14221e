"""One position's rotary embedding, cache update and attention: the cache in parts side by side, then the parts joined.

Every part rotates the query heads of its group for itself. The new key and value take part from registers, in the part
that holds their position and writes them: no part reads what another one writes. Scores come of the rotated numbers as
they are before they are rounded to bfloat16: rounded, two positions of nearly equal scores may change places.

Both kernels start while the one before them ends (a dependent launch): until that one's results are there, a part asks
the L2 cache for its keys and values.
"""

import torch
import triton
import triton.language as tl

BLOCK = 64  # positions of the cache in one part, at least
PROGRAMS = 264  # parts of all heads that fill a GPU: two for each of 132 multiprocessors


@triton.jit
def ahead(at):
    # a hint that changes nothing: what writes these numbers may still be running
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32,
                              is_pure=False, pack=1)


@triton.jit
def begin():
    # the kernel behind this one may be launched, and what the one before it wrote is there
    tl.inline_asm_elementwise("griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;", "=r", [],
                              dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def split(x):
    # the nearest bfloat16 and what is left, nothing of what is not finite
    near = x.to(tl.bfloat16)
    left = tl.where(tl.abs(near.to(tl.float32)) < float("inf"), x - near.to(tl.float32), 0.0)
    return near, left


@triton.jit
def part(query, key, value, cos, sin, keys, values, length, mask, sums, most, weight, group, kv_heads, cache, parts,
         G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # of batch and head of keys
    piece = tl.program_id(1)
    batch = row // kv_heads
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    half: tl.constexpr = D // 2
    turned = (d + half) % D
    c = piece * BLOCK + tl.arange(0, BLOCK)
    inside = c < cache
    at = (row * cache + c[:, None]) * D + d[None, :]
    lines = (row * cache + tl.minimum(c, cache - 1)) * D  # of 128 bytes, a position's key or value in each
    ahead(keys + lines)
    ahead(values + lines)
    begin()
    # The cache does not wait for the position: it is read as it was, and the new row's place is hidden.
    k = tl.load(keys + at, mask=inside[:, None], other=0.0)
    v = tl.load(values + at, mask=inside[:, None], other=0.0)
    seen = tl.load(mask + batch * cache + c, mask=inside, other=0).to(tl.int1)
    position = tl.load(length)
    turn = tl.load(cos + d).to(tl.float32)
    cross = tl.load(sin + d).to(tl.float32)
    cross = tl.where(d < half, -cross, cross)
    q_at = query + (row * group + g[:, None]) * D
    here = (g < group)[:, None]
    q = tl.load(q_at + d[None, :], mask=here, other=0.0).to(tl.float32)
    q_turned = tl.load(q_at + turned[None, :], mask=here, other=0.0).to(tl.float32)
    new_k = tl.load(key + row * D + d).to(tl.float32)
    k_turned = tl.load(key + row * D + turned).to(tl.float32)
    new_v = tl.load(value + row * D + d)
    q = q * turn[None, :] + q_turned * cross[None, :]
    new_k = new_k * turn + k_turned * cross  # rounded once: where the two cancel, rounding each leaves nothing right

    mine = (position >= piece * BLOCK) & (position < piece * BLOCK + BLOCK) & (position < cache)
    old = c != position
    v = tl.where(old[:, None], v, 0.0)  # a NaN there is overwritten, and is not to be met
    # a query in three numbers of bfloat16, the larger of which alone meets what is not finite
    high, left = split(q)
    middle, left = split(left)
    small = tl.where(tl.abs(k.to(tl.float32)) < float("inf"), k, 0.0)
    s = tl.dot(left.to(tl.bfloat16), small.T)
    s = tl.dot(middle, small.T, s)
    s = tl.dot(high, k.T, s)
    # the mask is added, as PyTorch adds it: a NaN behind it stays one
    s = s * 0.125 + tl.where(seen, 0.0, -float("inf"))[None, :]
    s = tl.where(old[None, :], s, -float("inf"))
    sees = tl.load(mask + batch * cache + position, mask=mine, other=0).to(tl.int1)
    s_new = tl.sum(q * new_k[None, :], 1) * 0.125 + tl.where(sees, 0.0, -float("inf"))
    s_new = tl.where(mine, s_new, -float("inf"))
    m = tl.maximum(tl.max(s, 1), s_new)
    base = tl.where(m == -float("inf"), 0.0, m)  # a part that is masked whole
    p = tl.exp(s - base[:, None])
    p_new = tl.exp(s_new - base)
    total = tl.sum(p, 1) + p_new
    own = tl.where(mine, new_v, 0.0).to(tl.float32)
    acc = tl.dot(p.to(tl.bfloat16), v, p_new[:, None] * own[None, :])

    row_at = (row * cache + position) * D + d
    tl.store(keys + row_at, new_k.to(tl.bfloat16), mask=mine & (d < D))
    tl.store(values + row_at, new_v, mask=mine & (d < D))
    at = (row * parts + piece) * group + g
    tl.store(most + at, m, mask=g < group)
    tl.store(weight + at, total, mask=g < group)
    tl.store(sums + at[:, None] * D + d[None, :], acc, mask=here)


@triton.jit
def join(sums, most, weight, out, length, group, parts, P: tl.constexpr, D: tl.constexpr):
    begin()
    head = tl.program_id(0).to(tl.int64)  # of batch and head of queries
    row = head // group
    g = head - row * group
    p = tl.arange(0, P)
    d = tl.arange(0, D)
    at = (row * parts + p) * group + g
    m = tl.load(most + at, mask=p < parts, other=-float("inf"))
    w = tl.load(weight + at, mask=p < parts, other=0.0)
    a = tl.load(sums + at[:, None] * D + d[None, :], mask=(p < parts)[:, None], other=0.0)
    top = tl.max(m, 0)
    share = tl.exp(m - tl.where(top == -float("inf"), 0.0, top))
    total = tl.sum(share * w, 0)
    y = tl.sum(a * share[:, None], 0)
    # a row that is masked whole is zeros, as PyTorch's safe softmax has it; a NaN in it stays one
    y = tl.where(total == 0.0, y, y / total)
    tl.store(out + head * D + d, y.to(tl.bfloat16))
    if head == 0:  # every part has read it
        tl.store(length, tl.load(length) + 1)


def run(query, key, value, cos, sin, keys, values, length, mask, out):
    batch, heads, _, head = query.shape
    kv_heads, cache = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    block = BLOCK
    if batch * kv_heads * triton.cdiv(cache, block) > 2 * PROGRAMS or cache > 64 * block:
        block = 2 * BLOCK
    parts = triton.cdiv(cache, block)
    sums = torch.empty((batch * heads * parts, head), dtype=torch.float32, device=out.device)
    most = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    weight = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    part[(batch * kv_heads, parts)](query, key, value, cos, sin, keys, values, length, mask, sums, most, weight, group,
                                    kv_heads, cache, parts, G=max(16, triton.next_power_of_2(group)), D=head,
                                    BLOCK=block, num_warps=4, launch_pdl=True)
    join[(batch * heads,)](sums, most, weight, out, length, group, parts, P=triton.next_power_of_2(parts), D=head,
                           num_warps=2, launch_pdl=True)
