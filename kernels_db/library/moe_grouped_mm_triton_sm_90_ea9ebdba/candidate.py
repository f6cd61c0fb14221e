"""Grouped product: few tokens an expert by one-shot strips of 32 columns, many by resident programs that walk tiles by TMA.

Few tokens: a program takes an expert's strip and its first 16 rows, and more of them in a loop where there are; rows that
do not exist are not read. Many: the row tiles of a strip come one after another, so that its weights are read from memory
once; the loop over k and the loop over tiles are one, so that a tile's first loads lie beside the former's products.
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
    b_at = weight + (expert.to(tl.int64) * outer + columns[None, :]) * inner + ks[:, None]
    for row in range(start, end, BM):
        rows = row + tl.arange(0, BM)
        row_in = (rows < end)[:, None]
        a_at = x + rows.to(tl.int64)[:, None] * inner + ks[None, :]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, inner, BK):
            k_in = k + ks < inner
            a = tl.load(a_at + k, mask=row_in & k_in[None, :], other=0.0)
            b = tl.load(b_at + k, mask=column_in & k_in[:, None], other=0.0, eviction_policy="evict_first")
            acc = tl.dot(a, b, acc)
        at = rows.to(tl.int64)[:, None] * outer + columns[None, :]
        tl.store(y + at, acc.to(tl.bfloat16), mask=row_in & column_in)


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
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, inner, BK):
            a = x_box.load([row, k])
            b = w_box.load([expert * outer + column, k])
            acc = tl.dot(a, b.T, acc)
        rows = row + tl.arange(0, BM)
        columns = column + tl.arange(0, BN)
        inside = (rows < last)[:, None] & (columns < outer)[None, :]
        at = rows.to(tl.int64)[:, None] * outer + columns[None, :]
        tl.store(y + at, acc.to(tl.bfloat16), mask=inside)


def launch(x, weight, ends, y, BM, BN, BK, warps, stages, resident):
    tokens, inner = x.shape
    experts, outer, _ = weight.shape
    x_box = TensorDescriptor(x, [tokens, inner], [inner, 1], [BM, BK])
    w_box = TensorDescriptor(weight, [experts * outer, inner], [inner, 1], [BN, BK])
    programs = resident * torch.cuda.get_device_properties(x.device).multi_processor_count
    grouped[(programs,)](x_box, w_box, y, ends, experts, inner, outer, E=triton.next_power_of_2(experts), BM=BM, BN=BN,
                         BK=BK, num_warps=warps, num_stages=stages)


def run(x, weight, ends, y):
    tokens, inner = x.shape
    experts, outer, _ = weight.shape
    mean = tokens // experts
    if mean >= 192:
        launch(x, weight, ends, y, 128, 256, 64, 8, 4, 1)
    elif mean >= 32:
        launch(x, weight, ends, y, 64, 128, 64, 4, 4, 2)
    else:
        stream[(triton.cdiv(outer, 32), experts)](x, weight, y, ends, inner, outer, BM=16, BN=32, BK=256, num_warps=2,
                                                  num_stages=4)
