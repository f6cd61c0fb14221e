"""Latent attention of one position: spans of the cache side by side in one wave of blocks, each tile read once, then joined.

64 heads a block: tiles of 64 positions, and no branch in the loop, which would make every wgmma wait for the one before.
16 heads a block: two blocks a multiprocessor. The join takes all parts of a few columns at once,
and may be launched while the first kernel ends: it waits for it on the device.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def wait_for_former():
    # the kernel behind this one may be launched, and what the one before it wrote is there
    tl.inline_asm_elementwise("griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;", "=r", [],
                              dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def wide(query, query_rope, keys, keys_rope, sums, most, weight, heads, length, span, parts, scale,
         H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    wait_for_former()
    first = tl.program_id(0) * H  # of the heads of one sequence
    piece = tl.program_id(1)
    batch = tl.program_id(2)
    d = tl.arange(0, D)
    r = tl.arange(0, R)
    row = batch.to(tl.int64) * heads + first + tl.arange(0, H)
    q = tl.load(query + row[:, None] * D + d[None, :])
    qr = tl.load(query_rope + row[:, None] * R + r[None, :])
    m = tl.full((H,), -float("inf"), tl.float32)
    total = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, D), tl.float32)
    for start in range(piece * span, tl.minimum(piece * span + span, length), T):
        inside = start + tl.arange(0, T) < length
        kv = keys.load([batch, start, 0]).reshape(T, D)  # zeros beyond the sequence
        kr = keys_rope.load([batch, start, 0]).reshape(T, R)
        s = tl.dot(qr, kr.T)
        s = tl.dot(q, kv.T, s)
        s = tl.where(inside[None, :], s * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(new == -float("inf"), 0.0, new)
        p = tl.exp2(s - base[:, None])
        old = tl.exp2(m - base)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), kv, acc * old[:, None])
        m = new
    at_row = row * parts + piece
    tl.store(most + at_row, m)
    tl.store(weight + at_row, total)
    tl.store(sums + at_row[:, None] * D + d[None, :], acc)


@triton.jit
def part(query, query_rope, cache, cache_rope, sums, most, weight, heads, length, span, parts, scale,
         H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    wait_for_former()
    first = tl.program_id(0) * H  # of the heads of one sequence
    piece = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    h = first + tl.arange(0, H)
    d = tl.arange(0, D)
    r = tl.arange(0, R)
    here = h < heads
    row = batch * heads + h
    q = tl.load(query + row[:, None] * D + d[None, :], mask=here[:, None], other=0.0)
    qr = tl.load(query_rope + row[:, None] * R + r[None, :], mask=here[:, None], other=0.0)
    m = tl.full((H,), -float("inf"), tl.float32)
    total = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, D), tl.float32)
    for start in range(piece * span, tl.minimum(piece * span + span, length), T):
        t = start + tl.arange(0, T)
        inside = t < length
        at = batch * length + t
        kv = tl.load(cache + at[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        kr = tl.load(cache_rope + at[:, None] * R + r[None, :], mask=inside[:, None], other=0.0)
        s = tl.dot(qr, kr.T)
        s = tl.dot(q, kv.T, s)
        s = tl.where(inside[None, :], s * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(new == -float("inf"), 0.0, new)
        p = tl.exp2(s - base[:, None])
        old = tl.exp2(m - base)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), kv, acc * old[:, None])
        m = new
    at_row = row * parts + piece
    tl.store(most + at_row, m, mask=here)
    tl.store(weight + at_row, total, mask=here)
    tl.store(sums + at_row[:, None] * D + d[None, :], acc, mask=here[:, None])


@triton.jit
def join(sums, most, weight, out, parts, P: tl.constexpr, A: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    wait_for_former()
    row = tl.program_id(0).to(tl.int64)  # of batch and head
    d = tl.program_id(1) * C + tl.arange(0, C)
    everything = tl.arange(0, P)
    m = tl.load(most + row * parts + everything, mask=everything < parts, other=-float("inf"))
    top = tl.max(m, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    w = tl.load(weight + row * parts + everything, mask=everything < parts, other=0.0)
    total = tl.sum(tl.exp2(m - top) * w, 0)
    y = tl.zeros((C,), tl.float32)
    for begin in range(0, parts, A):
        p = begin + tl.arange(0, A)
        share = tl.exp2(tl.load(most + row * parts + p, mask=p < parts, other=-float("inf")) - top)
        a = tl.load(sums + (row * parts + p)[:, None] * D + d[None, :], mask=(p < parts)[:, None], other=0.0)
        y += tl.sum(a * share[:, None], 0)
    tl.store(out + row * D + d, (y / total).to(tl.bfloat16))


def run(query, query_rope, cache, cache_rope, out):
    batch, heads, latent = query.shape
    rope = query_rope.shape[2]
    length = cache.shape[1]
    many = heads % 64 == 0
    across = heads // 64 if many else heads // 16
    resident = torch.cuda.get_device_properties(out.device).multi_processor_count * (1 if many else 2)
    blocks = triton.cdiv(length, 64)
    span = triton.cdiv(blocks, min(max(1, resident // (batch * across)), blocks)) * 64
    parts = triton.cdiv(length, span)
    sums = torch.empty((batch * heads * parts, latent), dtype=torch.float32, device=out.device)
    most = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    weight = torch.empty((batch * heads * parts,), dtype=torch.float32, device=out.device)
    scale = 1.4426950408889634 * 192**-0.5
    if many:
        keys = TensorDescriptor.from_tensor(cache, [1, 64, latent])
        keys_rope = TensorDescriptor.from_tensor(cache_rope, [1, 64, rope])
        wide[(across, parts, batch)](query, query_rope, keys, keys_rope, sums, most, weight, heads, length, span, parts, scale,
                                     H=64, T=64, D=latent, R=rope, num_warps=8, num_stages=2, launch_pdl=True)
    else:
        part[(across, parts, batch)](query, query_rope, cache, cache_rope, sums, most, weight, heads, length, span, parts, scale,
                                     H=16, T=32, D=latent, R=rope, num_warps=4, num_stages=3, launch_pdl=True)
    most_at_once = triton.next_power_of_2(parts)
    if parts <= 4:
        join[(batch * heads, 1)](sums, most, weight, out, parts, P=most_at_once, A=most_at_once, D=latent, C=512, num_warps=4,
                                 launch_pdl=True)
    elif parts <= 32:
        join[(batch * heads, 4)](sums, most, weight, out, parts, P=most_at_once, A=most_at_once, D=latent, C=128, num_warps=4,
                                 launch_pdl=True)
    else:
        join[(batch * heads, 16)](sums, most, weight, out, parts, P=most_at_once, A=min(most_at_once, 256), D=latent, C=32,
                                  num_warps=4, launch_pdl=True)
