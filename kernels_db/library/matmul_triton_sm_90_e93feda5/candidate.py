"""Six products of bfloat16 triples, nothing scaled, on 128x128 tiles; thin: three TF32 products of rounded pairs, b^T in registers"""
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def high_part(x):
    # the float32 with at most 11 significant bits nearest to x
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def thin_product(a, b, part, M, N, K, PER, EVEN: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # transposed: columns of b are the rows of the tensor product, so that b's pieces stay in registers
    pid_n = tl.program_id(0)
    pid_m = tl.program_id(1)
    pid_k = tl.program_id(2)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    first = pid_k * PER
    last = tl.minimum(first + PER, K)
    mm = (rm < M)[None, :]
    nn = (rn < N)[:, None]
    pa = a + rm.to(tl.int64)[None, :] * K + (first + rk)[:, None]
    pb = b + (first + rk).to(tl.int64)[None, :] * N + rn[:, None]
    acc = tl.zeros((BN, BM), tl.float32)
    for k0 in range(first, last, BK):
        if EVEN:
            ta = tl.load(pa, mask=mm, other=0.0)
            tb = tl.load(pb)
        else:
            ta = tl.load(pa, mask=mm & ((k0 + rk) < last)[:, None], other=0.0)
            tb = tl.load(pb, mask=nn & ((k0 + rk) < last)[None, :], other=0.0)
        ah = high_part(ta)
        al = ta - ah
        bh = high_part(tb)
        bl = tb - bh
        p = tl.dot(bl, ah, input_precision="tf32")
        p = tl.dot(bh, al, p, input_precision="tf32")
        p = tl.dot(bh, ah, p, input_precision="tf32")
        acc += p
        pa += BK
        pb += BK * N.to(tl.int64)
    out = part + pid_k.to(tl.int64) * M * N + rm.to(tl.int64)[:, None] * N + rn[None, :]
    tl.store(out, tl.trans(acc), mask=(rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def add_parts(part, c, total, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(PARTS):
        acc += tl.load(part + s * total + i, mask=inside, other=0.0)
    tl.store(c + i, acc, mask=inside)


@triton.jit
def in_three(x):
    # x as a sum of three bfloat16 numbers: 24 bits of each element's own, whatever stands beside it
    hi = x.to(tl.bfloat16)
    rest = x - hi.to(tl.float32)
    mid = rest.to(tl.bfloat16)
    return hi, mid, (rest - mid.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def split_both(a, b, ah, am, al, bh, bm, bl, M, N, K, KP, NPAD, A_TILES, CM: tl.constexpr, CN: tl.constexpr):
    # both operands are read once; behind k they are filled with zeros
    pid = tl.program_id(0)
    rk = tl.arange(0, 64)
    if pid < A_TILES:
        blocks = KP // 64
        k = (pid % blocks) * 64 + rk
        rm = (pid // blocks) * CM + tl.arange(0, CM)
        x = tl.load(a + rm.to(tl.int64)[:, None] * K + k[None, :], mask=(rm < M)[:, None] & (k < K)[None, :], other=0.0)
        hi, mid, low = in_three(x)
        at = rm.to(tl.int64)[:, None] * KP + k[None, :]
        tl.store(ah + at, hi, mask=(rm < M)[:, None])
        tl.store(am + at, mid, mask=(rm < M)[:, None])
        tl.store(al + at, low, mask=(rm < M)[:, None])
    else:
        q = pid - A_TILES
        across = NPAD // CN
        rn = (q % across) * CN + tl.arange(0, CN)
        kk = ((q // across) * 64 + rk).to(tl.int64)[:, None]
        y = tl.load(b + kk * N + rn[None, :], mask=(kk < K) & (rn < N)[None, :], other=0.0)
        top, middle, rest = in_three(y)
        to = kk * NPAD + rn[None, :]
        tl.store(bh + to, top)
        tl.store(bm + to, middle)
        tl.store(bl + to, rest)


@triton.jit
def product(ah, am, al, bh, bm, bl, c, M, N, KP,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows = tl.cdiv(M, BM)
    cols = tl.cdiv(N, BN)
    wide = GROUP * cols
    group = pid // wide
    height = tl.minimum(rows - group * GROUP, GROUP)
    pm = group * GROUP + (pid % wide) % height
    pn = (pid % wide) // height
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, KP, BK):
        xh = ah.load([pm * BM, k0])
        xm = am.load([pm * BM, k0])
        xl = al.load([pm * BM, k0])
        yh = bh.load([k0, pn * BN])
        ym = bm.load([k0, pn * BN])
        yl = bl.load([k0, pn * BN])
        # all terms down to 2^-16 of a product, the smallest first; what is left out is 2^-24 of it
        p = tl.dot(xl, yh)
        p = tl.dot(xh, yl, p)
        p = tl.dot(xm, ym, p)
        p = tl.dot(xm, yh, p)
        p = tl.dot(xh, ym, p)
        p = tl.dot(xh, yh, p)
        acc += p
    tl.store(c + rm.to(tl.int64)[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


def large_product(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    bm = 128
    bn = 128
    bk = 64
    blocks = triton.cdiv(k, 64)
    kp = blocks * 64
    np_ = triton.cdiv(n, bn) * bn
    dev = a.device
    ah = torch.empty((m, kp), device=dev, dtype=torch.bfloat16)
    am = torch.empty((m, kp), device=dev, dtype=torch.bfloat16)
    al = torch.empty((m, kp), device=dev, dtype=torch.bfloat16)
    bh = torch.empty((kp, np_), device=dev, dtype=torch.bfloat16)
    bmid = torch.empty((kp, np_), device=dev, dtype=torch.bfloat16)
    bl = torch.empty((kp, np_), device=dev, dtype=torch.bfloat16)
    a_tiles = triton.cdiv(m, 64) * blocks
    b_tiles = (np_ // bn) * blocks
    split_both[(a_tiles + b_tiles,)](a, b, ah, am, al, bh, bmid, bl, m, n, k, kp, np_, a_tiles, CM=64, CN=bn, num_warps=8)
    product[(triton.cdiv(m, bm) * triton.cdiv(n, bn),)](
        TensorDescriptor(ah, [m, kp], [kp, 1], [bm, bk]), TensorDescriptor(am, [m, kp], [kp, 1], [bm, bk]),
        TensorDescriptor(al, [m, kp], [kp, 1], [bm, bk]), TensorDescriptor(bh, [kp, np_], [np_, 1], [bk, bn]),
        TensorDescriptor(bmid, [kp, np_], [np_, 1], [bk, bn]), TensorDescriptor(bl, [kp, np_], [np_, 1], [bk, bn]),
        c, m, n, kp, BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=8, num_stages=2)


def run(a, b, c):
    if a.shape[0] <= 64:
        small_product(a, b, c)
    else:
        large_product(a, b, c)


def small_product(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    bm = 64
    bn = 128
    bk = 32
    tiles = triton.cdiv(m, bm) * triton.cdiv(n, bn)
    slices = 1
    while slices < 8 and slices * tiles < 200 and k >= slices * 2 * 256:
        slices = slices * 2
    per = triton.cdiv(triton.cdiv(k, slices), bk) * bk
    even = k % per == 0 and n % bn == 0
    grid = (triton.cdiv(n, bn), triton.cdiv(m, bm), slices)
    if slices == 1:
        thin_product[grid](a, b, c, m, n, k, per, EVEN=even, BM=bm, BN=bn, BK=bk, num_warps=4, num_stages=4)
    else:
        part = torch.empty((slices, m, n), device=a.device, dtype=torch.float32)
        thin_product[grid](a, b, part, m, n, k, per, EVEN=even, BM=bm, BN=bn, BK=bk, num_warps=4, num_stages=4)
        add_parts[(triton.cdiv(m * n, 1024),)](part, c, m * n, PARTS=slices, BLOCK=1024, num_warps=4)
