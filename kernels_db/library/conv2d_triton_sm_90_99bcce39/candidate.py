"""Convolution 11x11, stride 4: space-to-depth cells of 48 floats; a TMA view with overlapping rows of 144 floats is the
left operand, so that the gather costs no instructions."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def to_tf32(v):
    # round to nearest TF32: the tensor core cuts the low 13 bits off
    b = v.to(tl.int32, bitcast=True)
    return tl.where(v == v, ((b + 0x1000) & -8192).to(tl.float32, bitcast=True), v)


@triton.autotune(
    configs=[
        triton.Config({"BM": 32, "BN": 32, "BK": 64}, num_warps=8, num_stages=3),
        triton.Config({"BM": 32, "BN": 32, "BK": 64}, num_warps=4, num_stages=4),
        triton.Config({"BM": 32, "BN": 32, "BK": 128}, num_warps=8, num_stages=3),
        triton.Config({"BM": 16, "BN": 32, "BK": 64}, num_warps=4, num_stages=3),
    ],
    key=["BUCKET"],
)
@triton.jit
def direct_kernel(x, w, bias, y, BUCKET, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr,
                  OW: tl.constexpr, F: tl.constexpr, KS: tl.constexpr, SP: tl.constexpr, BM: tl.constexpr,
                  BN: tl.constexpr, BK: tl.constexpr):
    P: tl.constexpr = OH * OW
    TILES: tl.constexpr = (P + BM - 1) // BM
    KT: tl.constexpr = C * KS * SP
    pid = tl.program_id(0)
    n = (pid // TILES).to(tl.int64)
    p = (pid % TILES) * BM + tl.arange(0, BM)
    f = tl.program_id(1) * BN + tl.arange(0, BN)
    inp = p < P
    inf = f < F
    # rows beyond the image never satisfy the bounds
    h0 = tl.where(inp, (p // OW) * 4 - 2, -100000)
    w0 = (p % OW) * 4 - 2
    xm = (x + n * (C * H * W)) + (h0 * W + w0)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, KT, BK):
        k = k0 + tl.arange(0, BK)
        cr = k // SP
        s = k % SP
        c = cr // KS
        r = tl.where(k < KT, cr % KS, -100000)
        koff = c * (H * W) + r * W + s
        ih = h0[:, None] + r[None, :]
        iw = w0[:, None] + s[None, :]
        # the kernel's padding is no factor: zero times a NaN beside the window would be one
        valid = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (s < KS)[None, :]
        a = tl.load(xm[:, None] + koff[None, :], mask=valid, other=0.0)
        wk = (s < KS) & (k < KT)
        b = tl.load(w + f[None, :] * (C * KS * KS) + (cr * KS + s)[:, None], mask=wk[:, None] & inf[None, :], other=0.0)
        acc = tl.dot(to_tf32(a), to_tf32(b), acc, input_precision="tf32")
    acc = acc + tl.load(bias + f, mask=inf, other=0.0)[None, :]
    ym = y + n * (F * P)
    tl.store(ym + (f[:, None] * P + p[None, :]), tl.trans(acc), mask=inf[:, None] & inp[None, :])


@triton.jit
def prepare(x, w, xs, wt, blocks, H: tl.constexpr, W: tl.constexpr, HC: tl.constexpr, WC: tl.constexpr):
    # xs[n, h4, w4, (dh, c, e)] = x[n, c, 4 h4 + dh - 2, 4 w4 + e - 2], zero padded, rounded to TF32;
    # wt[f, dr * 160 + (dc, dh, c, e)] = w[f, c, 4 dr + dh, 4 dc + e]
    STRIPS: tl.constexpr = (WC + 63) // 64
    pid = tl.program_id(0)
    if pid < blocks:
        strip = pid % STRIPS
        line = pid // STRIPS
        h4 = line % HC
        n = (line // HC).to(tl.int64)
        t = tl.arange(0, 16)
        h = h4 * 4 + t // 3 - 2
        col = strip * 256 - 2 + tl.arange(0, 256)
        rows = (t < 12) & (h >= 0) & (h < H)
        src = x + n * (3 * H * W)
        v = tl.load(src + (((t % 3) * (H * W) + h * W)[:, None] + col[None, :]),
                    mask=rows[:, None] & ((col >= 0) & (col < W))[None, :], other=0.0)
        v = tl.reshape(to_tf32(v), (16, 64, 4))
        j = strip * 64 + tl.arange(0, 64)
        e = tl.arange(0, 4)
        dst = xs + line.to(tl.int64) * (WC * 48)
        tl.store(dst + (j[None, :, None] * 48 + t[:, None, None] * 4 + e[None, None, :]), v,
                 mask=(t < 12)[:, None, None] & (j < WC)[None, :, None] & (e >= 0)[None, None, :])
    else:
        i = (pid - blocks) * 1024 + tl.arange(0, 1024)
        f = i // 480
        k = i % 480
        u = k % 160
        r = (k // 160) * 4 + (u % 48) // 12
        c = (u % 12) // 4
        s = (u // 48) * 4 + u % 4
        good = (f < 96) & (u < 144) & (r < 11) & (s < 11)
        g = tl.load(w + (f * 363 + c * 121 + r * 11 + s), mask=good, other=0.0)
        tl.store(wt + i, to_tf32(g), mask=f < 96)


@triton.autotune(
    configs=[
        triton.Config({"BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BK": 32}, num_warps=4, num_stages=4),
        triton.Config({"BK": 32}, num_warps=8, num_stages=3),
    ],
    key=["BUCKET"],
)
@triton.jit
def window_gemm(cells, wa, wb, x, w, bias, y, Q, BUCKET, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr,
                OW: tl.constexpr, HC: tl.constexpr, WC: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    P: tl.constexpr = OH * OW
    q0 = tl.program_id(0) * BM
    acc0 = tl.zeros((BM, 64), dtype=tl.float32)
    acc1 = tl.zeros((BM, 32), dtype=tl.float32)
    for i in range(0, 15):
        # columns 144 .. 159 of a row are out of bounds: zeros
        a = cells.load([q0 + (i // 5) * WC, (i % 5) * BK])
        b0 = wa.load([0, i * BK])
        b1 = wb.load([64, i * BK])
        acc0 = tl.dot(a, b0.T, acc0, input_precision="tf32")
        acc1 = tl.dot(a, b1.T, acc1, input_precision="tf32")
    q = q0 + tl.arange(0, BM)
    n = q // (HC * WC)
    rest = q % (HC * WC)
    oh = rest // WC
    ow = rest % WC
    good = (q < Q) & (oh < OH) & (ow < OW)
    # contiguous within an output row; no alignment is told, so this only makes the lanes of the store run along pixels
    off = tl.max_contiguous(n.to(tl.int64) * (96 * P) + (oh * OW + ow), BM)
    fa = tl.arange(0, 64)
    fb = 64 + tl.arange(0, 32)
    # the cells pad the kernel from 11 to 12 with zeros, and zero times an infinity or NaN beside the window is NaN
    lost = tl.sum(acc0 * 0.0, axis=1) + tl.sum(acc1 * 0.0, axis=1)
    if tl.max((good & (lost != lost)).to(tl.int32), axis=0) > 0:
        acc0 = acc0 * 0.0
        acc0 = tl.where(acc0 == acc0, acc0, 0.0)
        acc1 = acc1 * 0.0
        acc1 = tl.where(acc1 == acc1, acc1, 0.0)
        for t in range(363):
            ih = 4 * oh + (t % 121) // 11 - 2
            iw = 4 * ow + t % 11 - 2
            inside = good & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            v = to_tf32(tl.load(x + n.to(tl.int64) * (3 * H * W) + ((t // 121) * (H * W) + ih * W + iw), mask=inside, other=0.0))
            acc0 += v[:, None] * to_tf32(tl.load(w + fa * 363 + t))[None, :]
            acc1 += v[:, None] * to_tf32(tl.load(w + fb * 363 + t))[None, :]
    acc0 = acc0 + tl.load(bias + fa)[None, :]
    acc1 = acc1 + tl.load(bias + fb)[None, :]
    tl.store(y + ((fa * P)[:, None] + off[None, :]), tl.trans(acc0), mask=good[None, :])
    tl.store(y + ((fb * P)[:, None] + off[None, :]), tl.trans(acc1), mask=good[None, :])


def run(x, weight, bias, y):
    N, C, H, W = x.shape
    F = weight.shape[0]
    KS = weight.shape[2]
    OH = y.shape[2]
    OW = y.shape[3]
    P = OH * OW
    M = N * P
    if M == 0:
        return
    hc = OH + 2
    wc = OW + 2
    cells = N * hc * wc
    if M >= 32768 and cells < 2000000000 and C == 3 and KS == 11 and F == 96:
        xs = torch.empty((cells, 48), device=x.device, dtype=torch.float32)
        wt = torch.empty((96, 480), device=x.device, dtype=torch.float32)
        blocks = N * hc * triton.cdiv(wc, 64)
        prepare[(blocks + 45,)](x, weight, xs, wt, blocks, H=H, W=W, HC=hc, WC=wc, num_warps=4)
        # row q is the three cells q, q + 1, q + 2: rows overlap, the last one ends with the buffer
        windows = TensorDescriptor(xs, [cells - 2, 144], [48, 1], [128, 32])
        wa = TensorDescriptor(wt, [96, 480], [480, 1], [64, 32])
        wb = TensorDescriptor(wt, [96, 480], [480, 1], [32, 32])
        window_gemm[(triton.cdiv(cells, 128),)](windows, wa, wb, x, weight, bias, y, cells, 0, H=H, W=W, OH=OH, OW=OW, HC=hc, WC=wc, BM=128)
        return
    direct_kernel[lambda meta: (N * triton.cdiv(P, meta["BM"]), triton.cdiv(F, meta["BN"]))](
        x, weight, bias, y, min(M // 2048, 2), C=C, H=H, W=W, OH=OH, OW=OW, F=F, KS=KS, SP=KS + KS % 2)
