"""Grouped gate and up products with SiLU: few tokens an expert by one-shot strips, many by resident programs over TMA.

Few tokens: a program takes an expert's strip of 16 columns of the gate and of up, and its first 16 rows, and more of them
in a loop where there are; rows that do not exist are not read. Many: the row tiles of a strip come one after another, so
that its weights are read from memory once; the loops over tiles and over k are one, so that a tile's first loads lie
beside the former's products. SiLU and its product with up are taken of the sums in float32.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def stream(x, weight, y, ends, inner, outer, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    expert = tl.program_id(1)
    start = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    end = tl.load(ends + expert)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    column_in = (columns < outer)[None, :]
    gate_at = weight + (expert.to(tl.int64) * 2 * outer + columns[None, :]) * inner + ks[:, None]
    up_at = gate_at + outer.to(tl.int64) * inner
    for row in range(start, end, BM):
        rows = row + tl.arange(0, BM)
        row_in = (rows < end)[:, None]
        a_at = x + rows.to(tl.int64)[:, None] * inner + ks[None, :]
        gate = tl.zeros((BM, BN), dtype=tl.float32)
        up = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, inner, BK):
            k_in = k + ks < inner
            inside = column_in & k_in[:, None]
            a = tl.load(a_at + k, mask=row_in & k_in[None, :], other=0.0)
            gate = tl.dot(a, tl.load(gate_at + k, mask=inside, other=0.0, eviction_policy="evict_first"), gate)
            up = tl.dot(a, tl.load(up_at + k, mask=inside, other=0.0, eviction_policy="evict_first"), up)
        at = rows.to(tl.int64)[:, None] * outer + columns[None, :]
        tl.store(y + at, (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=row_in & column_in)


@triton.jit
def grouped(x_box, w_box, y, ends, experts, inner, outer, E: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr):
    e = tl.arange(0, E)
    start = tl.load(ends + e - 1, mask=(e > 0) & (e < experts), other=0)
    end = tl.load(ends + e, mask=e < experts, other=0)
    tiles = (end - start + BM - 1) // BM
    strips = (outer + BN - 1) // BN
    upto = tl.cumsum(tiles, 0) * strips
    for tile in tl.range(tl.program_id(0), tl.sum(tiles, 0) * strips, tl.num_programs(0), flatten=True):
        expert = tl.sum((upto <= tile).to(tl.int32), 0)
        mine = e == expert
        many = tl.sum(tl.where(mine, tiles, 0), 0)
        place = tile - tl.sum(tl.where(mine, upto - tiles * strips, 0), 0)
        row = tl.sum(tl.where(mine, start, 0), 0) + place % many * BM
        column = place // many * BN
        last = tl.sum(tl.where(mine, end, 0), 0)
        gate = tl.zeros((BM, BN), dtype=tl.float32)
        up = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, inner, BK):
            a = x_box.load([row, k])
            gate = tl.dot(a, w_box.load([expert * 2 * outer + column, k]).T, gate)
            up = tl.dot(a, w_box.load([expert * 2 * outer + outer + column, k]).T, up)
        rows = row + tl.arange(0, BM)
        columns = column + tl.arange(0, BN)
        inside = (rows < last)[:, None] & (columns < outer)[None, :]
        at = rows.to(tl.int64)[:, None] * outer + columns[None, :]
        tl.store(y + at, (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=inside)


def launch(x, weight, ends, y, BM, BN, BK, warps, stages, resident):
    tokens, inner = x.shape
    experts, both, _ = weight.shape
    x_box = TensorDescriptor(x, [tokens, inner], [inner, 1], [BM, BK])
    w_box = TensorDescriptor(weight, [experts * both, inner], [inner, 1], [BN, BK])
    programs = resident * torch.cuda.get_device_properties(x.device).multi_processor_count
    grouped[(programs,)](x_box, w_box, y, ends, experts, inner, both // 2, E=triton.next_power_of_2(experts), BM=BM, BN=BN,
                         BK=BK, num_warps=warps, num_stages=stages)


def run(x, weight, ends, y):
    tokens, inner = x.shape
    experts, outer = weight.shape[0], y.shape[1]
    mean = tokens // experts
    if mean >= 192:
        launch(x, weight, ends, y, 128, 128, 64, 8, 4, 1)
    elif mean >= 32:
        launch(x, weight, ends, y, 64, 64, 64, 4, 4, 2)
    else:
        stream[(triton.cdiv(outer, 16), experts)](x, weight, y, ends, inner, outer, BM=16, BN=16, BK=256, num_warps=2,
                                                  num_stages=4)
