"""Paged decode attention: one wave of long spans, two blocks a multiprocessor; pages read in place through the table, then joined.

Positions beyond the length are read as well and weigh nothing: what is no number there reaches the result as in PyTorch,
where zero times infinity is NaN. Each kernel may be launched while the one before it ends, and waits for it on the device."""

import torch
import triton
import triton.language as tl

BLOCK = 64  # positions that are looked at in one go: four pages


@triton.jit
def begin():
    # the kernel behind this one may be launched, and what the one before it wrote is there
    tl.inline_asm_elementwise("griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;", "=r", [],
                              dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def part(query, keys, values, table, lengths, sums, most, weight, pages, span, parts, scale,
         KV: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)  # of batch and head of keys
    piece = tl.program_id(1)
    batch = row // KV
    kv = row % KV
    begin()
    length = tl.load(lengths + batch)
    g = tl.arange(0, ROWS)
    d = tl.arange(0, D)
    here = g < G
    q = tl.load(query + (row.to(tl.int64) * G + g[:, None]) * D + d[None, :], mask=here[:, None], other=0.0)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    mine = table + batch.to(tl.int64) * pages
    cache = pages * PAGE
    c = piece * span + tl.arange(0, BLOCK)
    page = tl.load(mine + c // PAGE, mask=c < cache, other=0).to(tl.int64)
    for start in range(piece * span, tl.minimum(piece * span + span, cache), BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < cache
        ahead = tl.load(mine + (c + BLOCK) // PAGE, mask=c + BLOCK < cache, other=0).to(tl.int64)
        at = ((page * PAGE + c % PAGE) * KV + kv)[:, None] * D + d[None, :]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0)
        v = tl.load(values + at, mask=inside[:, None], other=0.0)
        s = tl.dot(q, k.T) * scale + tl.where(c < length, 0.0, -float("inf"))[None, :]
        s = tl.where(inside[None, :], s, -float("inf"))  # no position: a query that is infinite makes no NaN of it
        new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(new == -float("inf"), 0.0, new)
        p = tl.exp2(s - base[:, None])
        old = tl.exp2(m - base)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v, acc * old[:, None])
        m = new
        page = ahead
    at_row = (row.to(tl.int64) * parts + piece) * G + g
    tl.store(most + at_row, m, mask=here)
    tl.store(weight + at_row, total, mask=here)
    tl.store(sums + at_row[:, None] * D + d[None, :], acc, mask=here[:, None])


@triton.jit
def join(sums, most, weight, out, parts, G: tl.constexpr, P: tl.constexpr, D: tl.constexpr):
    begin()
    head = tl.program_id(0).to(tl.int64)  # of batch and head of queries
    row = head // G
    g = head % G
    d = tl.arange(0, D)
    everything = tl.arange(0, P)
    at = (row * parts + everything) * G + g
    here = everything < parts
    m = tl.load(most + at, mask=here, other=-float("inf"))
    w = tl.load(weight + at, mask=here, other=0.0)
    a = tl.load(sums + at[:, None] * D + d[None, :], mask=here[:, None], other=0.0)
    top = tl.max(m, 0)
    share = tl.exp2(m - tl.where(top == -float("inf"), 0.0, top))
    total = tl.sum(share * w, 0)
    y = tl.sum(a * share[:, None], 0)
    y = tl.where(total == 0.0, y, y / total)  # no weight anywhere: zeros, as PyTorch's safe softmax has it
    tl.store(out + head * D + d, y.to(tl.bfloat16))


def run(query, keys, values, table, lengths, out):
    batch, heads, head = query.shape
    page, kv_heads = keys.shape[1], keys.shape[2]
    pages = table.shape[1]
    group = heads // kv_heads
    rows = batch * kv_heads
    blocks = triton.cdiv(pages * page, BLOCK)
    sms = torch.cuda.get_device_properties(out.device).multi_processor_count
    wanted = min(blocks, max(1, 2 * sms // rows))
    span = triton.cdiv(blocks, wanted) * BLOCK
    parts = triton.cdiv(pages * page, span)
    sums = torch.empty((rows * parts * group, head), dtype=torch.float32, device=out.device)
    most = torch.empty((rows * parts * group,), dtype=torch.float32, device=out.device)
    weight = torch.empty((rows * parts * group,), dtype=torch.float32, device=out.device)
    scale = 1.4426950408889634 / head**0.5
    part[(rows, parts)](query, keys, values, table, lengths, sums, most, weight, pages, span, parts, scale,
                        KV=kv_heads, G=group, ROWS=16, D=head, PAGE=page, BLOCK=BLOCK, num_warps=4, num_stages=4, launch_pdl=True)
    join[(batch * heads,)](sums, most, weight, out, parts, G=group, P=triton.next_power_of_2(parts), D=head, num_warps=4,
                           launch_pdl=True)
