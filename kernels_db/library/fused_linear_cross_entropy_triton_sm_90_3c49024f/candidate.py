"""Mean cross entropy of x @ weight.T: a persistent product whose epilogue keeps a maximum and a sum for each row and tile.

The join is one program a token, a dependent launch that asks for all it needs at once; the program that finishes last,
told by a counter that the product has set to zero, adds up the losses in their order.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def product(x_desc, w_desc, most, weight, done, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr):
    tl.inline_asm_elementwise("griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=tl.int32,
                              is_pure=False, pack=1)
    if tl.program_id(0) == 0:
        tl.store(done, 0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    nk = tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), num_m * num_n, NUM_SMS, flatten=True):
        per_group = GROUP_M * num_n
        first = (tile // per_group) * GROUP_M
        size = tl.minimum(num_m - first, GROUP_M)
        inside = tile % per_group
        pm = first + inside % size
        pn = inside // size
        om = pm * BM
        on = pn * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(nk):
            a = x_desc.load([om, k * BK])
            b = w_desc.load([on, k * BK])
            acc = tl.dot(a, b.T, acc)
        acc = acc * LOG2E
        if on + BN > N:
            acc = tl.where((on + tl.arange(0, BN) < N)[None, :], acc, -float("inf"))
        m = tl.max(acc, 1)
        base = tl.where(m == -float("inf"), 0.0, m)
        total = tl.sum(tl.exp2(acc - base[:, None]), 1)
        rows = om + tl.arange(0, BM)
        at = rows.to(tl.int64) * num_n + pn
        tl.store(most + at, m, mask=rows < M)
        tl.store(weight + at, total, mask=rows < M)


@triton.jit
def join(x, w, labels, most, weight, losses, done, out, M, K, tiles, BT: tl.constexpr, BK: tl.constexpr,
         BM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    c = tl.arange(0, BK)
    picked = tl.zeros((BK,), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(x + row * K + k + c, mask=k + c < K, other=0.0).to(tl.float32)
        b = tl.load(w + label * K + k + c, mask=k + c < K, other=0.0).to(tl.float32)
        picked += a * b
    tl.inline_asm_elementwise("griddepcontrol.wait; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    t = tl.arange(0, BT)
    m = -float("inf")
    total = 0.0
    for first in range(0, tiles, BT):
        here = first + t < tiles
        one = tl.load(most + row * tiles + first + t, mask=here, other=-float("inf"))
        part = tl.load(weight + row * tiles + first + t, mask=here, other=0.0)
        new = tl.maximum(m, tl.max(one, 0))
        base = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp2(m - base) + tl.sum(part * tl.exp2(one - base), 0)
        m = new
    m = tl.where(m == -float("inf"), 0.0, m)
    loss = (m + tl.log2(total)) / LOG2E - tl.sum(picked, 0)
    tl.store(losses + row, loss)
    tl.debug_barrier()
    if tl.atomic_add(done, 1, sem="acq_rel") == M - 1:
        every = tl.zeros((BM,), tl.float32)
        for first in range(0, M, BM):
            at = first + tl.arange(0, BM)
            every += tl.load(losses + at, mask=at < M, other=0.0, cache_modifier=".cg")
        tl.store(out, tl.sum(every, 0) / M)


def run(x, weight, labels, loss):
    m, k = x.shape
    n = weight.shape[0]
    x_desc = TensorDescriptor(x, [m, k], [k, 1], [128, 64])
    w_desc = TensorDescriptor(weight, [n, k], [k, 1], [256, 64])
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    num_n = triton.cdiv(n, 256)
    tiles = triton.cdiv(m, 128) * num_n
    most = torch.empty((m, num_n), dtype=torch.float32, device=x.device)
    sums = torch.empty((m, num_n), dtype=torch.float32, device=x.device)
    losses = torch.empty((m,), dtype=torch.float32, device=x.device)
    done = torch.empty((1,), dtype=torch.int32, device=x.device)
    product[(min(sms, tiles),)](x_desc, w_desc, most, sums, done, m, n, k, BM=128, BN=256, BK=64, GROUP_M=32,
                                NUM_SMS=sms, num_warps=8, num_stages=4)
    join[(m,)](x, weight, labels, most, sums, losses, done, loss, m, k, num_n, BT=1024, BK=2048, BM=1024, num_warps=4,
               launch_pdl=True)
