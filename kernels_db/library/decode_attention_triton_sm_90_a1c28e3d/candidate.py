"""Decode attention: the cache in parts side by side, every query head of a group beside its keys once, then the parts joined."""

import torch
import triton
import triton.language as tl

BLOCK = 64  # positions of the cache that are looked at in one go
MOST_PARTS = 64


@triton.jit
def part(query, key, value, mask, sums, most, weight, group, kv_heads, cache, span, parts,
         G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # of batch and head of keys
    piece = tl.program_id(1)
    batch = row // kv_heads
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    here = g < group
    q = tl.load(query + (row * group + g[:, None]) * D + d[None, :], mask=here[:, None], other=0.0)
    m = tl.full((G,), -float("inf"), tl.float32)
    total = tl.zeros((G,), tl.float32)
    acc = tl.zeros((G, D), tl.float32)
    for start in range(piece * span, tl.minimum(piece * span + span, cache), BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < cache
        at = (row * cache + c[:, None]) * D + d[None, :]
        k = tl.load(key + at, mask=inside[:, None], other=0.0)
        v = tl.load(value + at, mask=inside[:, None], other=0.0)
        seen = tl.load(mask + batch * cache + c, mask=inside, other=0).to(tl.int1)
        # the mask is added, as PyTorch adds it: a NaN behind it stays one
        s = tl.dot(q, k.T) * 0.125 + tl.where(seen, 0.0, -float("inf"))[None, :]
        new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(new == -float("inf"), 0.0, new)  # a part that is masked whole
        p = tl.exp(s - base[:, None])
        old = tl.exp(m - base)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v, acc * old[:, None])
        m = new
    at = (row * parts + piece) * group + g
    tl.store(most + at, m, mask=here)
    tl.store(weight + at, total, mask=here)
    tl.store(sums + at[:, None] * D + d[None, :], acc, mask=here[:, None])


@triton.jit
def join(sums, most, weight, out, group, parts, P: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)  # of batch and head of queries
    row = head // group
    g = head - row * group
    p = tl.arange(0, P)
    d = tl.arange(0, D)
    at = (row * parts + p) * group + g
    m = tl.load(most + at, mask=p < parts, other=-float("inf"))
    top = tl.max(m, 0)
    share = tl.exp(m - tl.where(top == -float("inf"), 0.0, top))
    total = tl.sum(share * tl.load(weight + at, mask=p < parts, other=0.0), 0)
    a = tl.load(sums + at[:, None] * D + d[None, :], mask=(p < parts)[:, None], other=0.0)
    y = tl.sum(a * share[:, None], 0)
    # a row that is masked whole is zeros, as PyTorch's safe softmax has it; a NaN in it stays one
    y = tl.where(total == 0.0, y, y / total)
    tl.store(out + head * D + d, y.to(tl.bfloat16))


def run(query, key, value, mask, out):
    batch, heads, _, head = query.shape
    kv_heads, cache = key.shape[1], key.shape[2]
    group = heads // kv_heads
    span = triton.cdiv(triton.cdiv(cache, MOST_PARTS), BLOCK) * BLOCK
    parts = triton.cdiv(cache, span)
    sums = torch.empty((batch * heads * parts, head), dtype=torch.float32, device=out.device)
    most = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    weight = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    part[(batch * kv_heads, parts)](query, key, value, mask, sums, most, weight, group, kv_heads, cache, span, parts,
                                    G=max(16, triton.next_power_of_2(group)), D=head, BLOCK=BLOCK, num_warps=4)
    join[(batch * heads,)](sums, most, weight, out, group, parts, P=triton.next_power_of_2(parts), D=head, num_warps=2)
