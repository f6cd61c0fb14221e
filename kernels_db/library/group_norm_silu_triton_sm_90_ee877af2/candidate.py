"""Small groups: a few programs a group, each holds all of it in registers for the statistics and writes whole planes.
Larger groups: partial statistics, then tiles within one plane, walked backwards to meet what L2 still holds.

A group is contiguous: channels / 32 planes of height * width elements. Statistics are a mean and the sum of squares
about it; those of chunks are combined as Chan, Golub and LeVeque do. PyTorch computes x * a + (b - mean * a) with
a = rstd * weight: where a is not finite its form decides between infinity and NaN, so that form is taken there.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def spread(about, shift):
    """Variance from the mean square about a pivot and the mean's distance from it; infinite where squares overflow."""
    rest = tl.maximum(about - shift * shift, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(about == float("inf"), about, rest)


@triton.jit
def affine(weight, bias, mean, scale):
    """Centre, factor and offset of a channel: (x - centre) * factor + offset."""
    factor = scale * weight
    finite = (tl.abs(factor) < float("inf")) & (factor != 0.0)
    return tl.where(finite, mean, 0.0), factor, tl.where(finite, bias, bias - mean * factor)


@triton.jit
def silu(v, centre, factor, offset):
    n = (v - centre) * factor + offset
    return (n / (1.0 + tl.exp(-n))).to(tl.bfloat16)


@triton.jit
def both(a, b, c, d):
    return a + c, b + d


@triton.jit
def small(x, weight, bias, y, per, plane, size, share, units,
          HEAD: tl.constexpr, TAIL: tl.constexpr, MANY: tl.constexpr, FEW: tl.constexpr, COLS: tl.constexpr):
    """All that is read is asked for at once: the group for its statistics, and the program's own units of COLS elements
    of one channel with their weights. One reduction of sums and squares about the group's first element."""
    group = tl.program_id(0).to(tl.int64)
    base = x + group * size
    spot = tl.arange(0, TAIL)
    head = tl.load(base + tl.arange(0, HEAD // TAIL)[:, None] * TAIL + spot[None, :])
    inside = HEAD + spot < size
    tail = tl.load(base + HEAD + spot, mask=inside, other=0.0)
    pivot = tl.load(base).to(tl.float32)
    last = tl.minimum(tl.program_id(1) * share + share, per * units)
    channels = (group % 32).to(tl.int32) * per
    one = tl.program_id(1) * share + tl.arange(0, MANY)[:, None]
    at1 = (one // units) * plane + (one % units) * COLS + tl.arange(0, COLS)[None, :]
    mine1 = (one < last) & ((one % units) * COLS + tl.arange(0, COLS)[None, :] < plane)
    w1 = tl.load(weight + channels + one // units, mask=one < last, other=0.0)
    b1 = tl.load(bias + channels + one // units, mask=one < last, other=0.0)
    v1 = tl.load(base + at1, mask=mine1, other=0.0)
    two = tl.program_id(1) * share + MANY + tl.arange(0, FEW)[:, None]
    at2 = (two // units) * plane + (two % units) * COLS + tl.arange(0, COLS)[None, :]
    mine2 = (two < last) & ((two % units) * COLS + tl.arange(0, COLS)[None, :] < plane)
    w2 = tl.load(weight + channels + two // units, mask=two < last, other=0.0)
    b2 = tl.load(bias + channels + two // units, mask=two < last, other=0.0)
    v2 = tl.load(base + at2, mask=mine2, other=0.0)
    share_of_one = 1.0 / size
    off = head.to(tl.float32) - pivot
    rest = tl.where(inside, tail.to(tl.float32) - pivot, 0.0)
    part = off * share_of_one
    part2 = rest * share_of_one
    shift, about = tl.reduce((tl.sum(part, 0) + part2, tl.sum(part * off, 0) + part2 * rest), 0, both)
    mean = pivot + shift
    scale = 1.0 / tl.sqrt(spread(about, shift) + 1e-5)
    centre, factor, offset = affine(w1.to(tl.float32), b1.to(tl.float32), mean, scale)
    tl.store(y + group * size + at1, silu(v1.to(tl.float32), centre, factor, offset), mask=mine1)
    centre, factor, offset = affine(w2.to(tl.float32), b2.to(tl.float32), mean, scale)
    tl.store(y + group * size + at2, silu(v2.to(tl.float32), centre, factor, offset), mask=mine2)


@triton.jit
def partial(x, means, variances, size, chunks, BLOCK: tl.constexpr):
    chunk = tl.program_id(0)
    group = tl.program_id(1)
    i = chunk * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    v = tl.load(x + group.to(tl.int64) * size + i, mask=inside, other=0.0)
    share = 1.0 / tl.minimum(size - chunk * BLOCK, BLOCK)
    mean = tl.sum(v.to(tl.float32) * share, 0)
    off = tl.where(inside, v.to(tl.float32) - mean, 0.0)
    tl.store(means + group * chunks + chunk, mean)
    tl.store(variances + group * chunks + chunk, tl.sum(off * share * off, 0))


@triton.jit
def apply(x, weight, bias, means, variances, y, per, plane, size, chunks, tiles, groups,
          CHUNKS: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    group = (groups - 1 - tl.program_id(1)).to(tl.int64)
    within = per * tiles - 1 - tl.program_id(0)
    i = (within % tiles) * BLOCK + tl.arange(0, BLOCK)
    inside = i < plane
    start = group * size + (within // tiles).to(tl.int64) * plane
    v = tl.load(x + start + i, mask=inside, other=0.0).to(tl.float32)
    mean = 0.0
    for first in range(0, chunks, CHUNKS):
        c = first + tl.arange(0, CHUNKS)
        known = c < chunks
        n = tl.where(known, tl.minimum(size - c * SPAN, SPAN), 0).to(tl.float32) / size
        mean += tl.sum(tl.load(means + group * chunks + c, mask=known, other=0.0) * n, 0)
    about = 0.0
    for first in range(0, chunks, CHUNKS):
        c = first + tl.arange(0, CHUNKS)
        known = c < chunks
        n = tl.where(known, tl.minimum(size - c * SPAN, SPAN), 0).to(tl.float32) / size
        gap = tl.load(means + group * chunks + c, mask=known, other=0.0) - mean
        about += tl.sum(tl.load(variances + group * chunks + c, mask=known, other=0.0) * n + n * gap * gap, 0)
    scale = 1.0 / tl.sqrt(about + 1e-5)
    channel = (group % 32).to(tl.int32) * per + within // tiles
    centre, factor, offset = affine(tl.load(weight + channel).to(tl.float32), tl.load(bias + channel).to(tl.float32), mean, scale)
    tl.store(y + start + i, silu(v, centre, factor, offset), mask=inside, cache_modifier=".cs")


def run(x, weight, bias, y):
    batch, channels, height, width = x.shape
    plane = height * width
    per = channels // 32
    size = per * plane
    groups = batch * 32
    if size <= 65536:
        head = triton.next_power_of_2(size + 1) // 2
        tail = max(1, head // 8, triton.next_power_of_2(size - head))
        parts = max(1, min(per, 132 // groups))
        columns = min(2048, triton.next_power_of_2(plane))
        units = triton.cdiv(plane, columns)
        share = triton.cdiv(per * units, parts)
        many = triton.next_power_of_2(share + 1) // 2
        few = max(1, triton.next_power_of_2(share - many))
        small[(groups, triton.cdiv(per * units, share))](
            x, weight, bias, y, per, plane, size, share, units, HEAD=head, TAIL=tail, MANY=many, FEW=few, COLS=columns,
            num_warps=16 if size > 8192 else 4)
    else:
        block = 16384
        chunks = triton.cdiv(size, block)
        means = torch.empty((groups, chunks), device=x.device, dtype=torch.float32)
        variances = torch.empty((groups, chunks), device=x.device, dtype=torch.float32)
        partial[(chunks, groups)](x, means, variances, size, chunks, BLOCK=block, num_warps=8)
        tiles = triton.cdiv(plane, 4096)
        apply[(per * tiles, groups)](
            x, weight, bias, means, variances, y, per, plane, size, chunks, tiles, groups,
            CHUNKS=min(1024, triton.next_power_of_2(chunks)), SPAN=block, BLOCK=4096, num_warps=8)
