"""Experts of few tokens: each chosen expert's weights are read once, by strips, for all tokens that chose it.

No row is sorted. A program stands for a strip of columns and a pair of token and expert; the first pair of an expert
works for all of that expert's, sixteen at a time, and the other programs end at once. Gate, up and their product come
first, then the products back, each weighted, and last their sums over a token's experts; all sums are in float32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gated(x, chosen, gate_up, h, pairs, top, hidden, inner, P: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pair = tl.program_id(1)
    p = tl.arange(0, P)
    expert = tl.load(chosen + pair)
    mine = (tl.load(chosen + p, mask=p < pairs, other=-1) == expert).to(tl.int32)
    place = tl.cumsum(mine, 0) * mine - 1
    many = tl.sum(mine, 0)
    if tl.sum(tl.where(p < pair, mine, 0), 0) == 0:
        columns = tl.program_id(0) * BN + tl.arange(0, BN)
        ks = tl.arange(0, BK)
        column_in = (columns < inner)[None, :]
        gate_at = gate_up + (expert * 2 * inner + columns[None, :]) * hidden + ks[:, None]
        up_at = gate_at + inner.to(tl.int64) * hidden
        for base in range(0, many, 16):
            slot = base + tl.arange(0, 16)
            rows = tl.sum(tl.where(place[None, :] == slot[:, None], p[None, :], 0), 1)
            row_in = (slot < many)[:, None]
            a_at = x + (rows // top).to(tl.int64)[:, None] * hidden + ks[None, :]
            gate = tl.zeros((16, BN), dtype=tl.float32)
            up = tl.zeros((16, BN), dtype=tl.float32)
            for k in range(0, hidden, BK):
                k_in = k + ks < hidden
                inside = column_in & k_in[:, None]
                a = tl.load(a_at + k, mask=row_in & k_in[None, :], other=0.0)
                gate = tl.dot(a, tl.load(gate_at + k, mask=inside, other=0.0, eviction_policy="evict_first"), gate)
                up = tl.dot(a, tl.load(up_at + k, mask=inside, other=0.0, eviction_policy="evict_first"), up)
            at = rows.to(tl.int64)[:, None] * inner + columns[None, :]
            tl.store(h + at, (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=row_in & column_in)


@triton.jit
def back(h, chosen, weights, down, parts, pairs, hidden, inner, P: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pair = tl.program_id(1)
    p = tl.arange(0, P)
    expert = tl.load(chosen + pair)
    mine = (tl.load(chosen + p, mask=p < pairs, other=-1) == expert).to(tl.int32)
    place = tl.cumsum(mine, 0) * mine - 1
    many = tl.sum(mine, 0)
    if tl.sum(tl.where(p < pair, mine, 0), 0) == 0:
        columns = tl.program_id(0) * BN + tl.arange(0, BN)
        ks = tl.arange(0, BK)
        column_in = (columns < hidden)[None, :]
        b_at = down + (expert * hidden + columns[None, :]) * inner + ks[:, None]
        for base in range(0, many, 16):
            slot = base + tl.arange(0, 16)
            rows = tl.sum(tl.where(place[None, :] == slot[:, None], p[None, :], 0), 1)
            row_in = (slot < many)[:, None]
            a_at = h + rows.to(tl.int64)[:, None] * inner + ks[None, :]
            acc = tl.zeros((16, BN), dtype=tl.float32)
            for k in range(0, inner, BK):
                k_in = k + ks < inner
                a = tl.load(a_at + k, mask=row_in & k_in[None, :], other=0.0)
                b = tl.load(b_at + k, mask=column_in & k_in[:, None], other=0.0, eviction_policy="evict_first")
                acc = tl.dot(a, b, acc)
            scale = tl.load(weights + rows, mask=slot < many, other=0.0).to(tl.float32)
            at = rows.to(tl.int64)[:, None] * hidden + columns[None, :]
            tl.store(parts + at, acc * scale[:, None], mask=row_in & column_in)


@triton.jit
def added(parts, y, top, hidden, BN: tl.constexpr):
    token = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = columns < hidden
    acc = tl.zeros((BN,), dtype=tl.float32)
    for one in range(0, top):
        acc += tl.load(parts + (token * top + one) * hidden + columns, mask=inside, other=0.0)
    tl.store(y + token * hidden + columns, acc.to(tl.bfloat16), mask=inside)


def run(x, chosen, weights, gate_up, down, y):
    tokens, hidden = x.shape
    top, inner = chosen.shape[1], down.shape[2]
    pairs = tokens * top
    P = triton.next_power_of_2(pairs)
    h = torch.empty((pairs, inner), dtype=torch.bfloat16, device=x.device)
    parts = torch.empty((pairs, hidden), dtype=torch.float32, device=x.device)
    gated[(triton.cdiv(inner, 16), pairs)](x, chosen, gate_up, h, pairs, top, hidden, inner, P=P, BN=16, BK=256,
                                           num_warps=2, num_stages=4)
    back[(triton.cdiv(hidden, 32), pairs)](h, chosen, weights, down, parts, pairs, hidden, inner, P=P, BN=32, BK=256,
                                           num_warps=2, num_stages=4)
    added[(triton.cdiv(hidden, 256), tokens)](parts, y, top, hidden, BN=256, num_warps=2)
