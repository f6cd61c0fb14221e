"""128 x 128 tiles by TMA of the weights, halves of hidden joined by a counter; three TF32 products, nothing scaled."""
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def sigmoid(z):
    # exp(-z) by 2^n exp(r), |r| <= 0.35, so that the fast exponential stays accurate for large |z|
    # a NaN must pass both limits
    t = tl.maximum(-z, -126.0, propagate_nan=tl.PropagateNan.ALL)
    t = tl.minimum(t, 126.0, propagate_nan=tl.PropagateNan.ALL)
    n = tl.floor(t * 1.4426950408889634 + 0.5)
    r = t - n * 0.693359375
    r = r + n * 2.12194440e-4
    return 1.0 / (1.0 + tl.exp(r) * tl.exp2(n))


@triton.jit
def high_part(x):
    # the float32 with at most 11 significant bits nearest to x: exact as TF32, of x's own exponent
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def split_weights(w1, hi, lo, arrived, TILES, F: tl.constexpr, R: tl.constexpr, PROGRAMS: tl.constexpr):
    # weight1 as hi + lo; the counters of the next kernel start at zero
    pid = tl.program_id(0)
    rr = pid * R + tl.arange(0, R)
    at = rr[:, None] * F + tl.arange(0, F)[None, :]
    v = tl.load(w1 + at)
    for c in range(pid * 32, TILES, PROGRAMS * 32):
        rc = c + tl.arange(0, 32)
        tl.store(arrived + rc, tl.zeros((32,), tl.int32), mask=rc < TILES)
    h = high_part(v)
    tl.store(hi + at, h)
    tl.store(lo + at, v - h)


@triton.jit
def product(x, dh, dl, b1, w2, b2, part, arrived, score, B, F: tl.constexpr,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0) // 2
    half = tl.program_id(0) % 2
    rm = tile * BM + tl.arange(0, BM)
    rn = half * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    row = tl.minimum(rm, B - 1)
    px = x + row.to(tl.int64)[:, None] * F + rk[None, :]
    # x is split in registers; three products of 32 of k are chained on the tensor cores, whose sums are cut and not
    # rounded: a chain over all of k drifts, so each is added to the total in float32
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, F, BK):
        v = tl.load(px + k0)
        wh = dh.load([half * BN, k0])
        wl = dl.load([half * BN, k0])
        xh = high_part(v)
        xl = v - xh
        p = tl.dot(xl, wh.T, input_precision="tf32")
        p = tl.dot(xh, wl.T, p, input_precision="tf32")
        p = tl.dot(xh, wh.T, p, input_precision="tf32")
        acc += p
    lost = tl.sum(acc * 0.0, axis=1)
    if tl.max((lost != lost).to(tl.int32), axis=0) > 0:
        # an infinity has no low part (it is NaN), and only the product of the high parts knows its sign
        acc = acc * 0.0
        acc = tl.where(acc == acc, acc, 0.0)
        for k0 in range(0, F, BK):
            v = tl.load(px + k0)
            wh = dh.load([half * BN, k0])
            wl = dl.load([half * BN, k0])
            xh = high_part(v)
            xl = v - xh
            p = tl.dot(xl, wh.T, input_precision="tf32")
            p = tl.dot(xh, wl.T, p, input_precision="tf32")
            p = tl.where(p == p, p, 0.0)
            acc += tl.dot(xh, wh.T, p, input_precision="tf32")
    bias = tl.load(b1 + rn)
    wt = tl.load(w2 + rn)
    y = acc + bias[None, :]
    z = tl.sum(tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL) * wt[None, :], axis=1)
    tl.store(part + half.to(tl.int64) * B + rm, z, mask=rm < B)
    tl.debug_barrier()
    if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == 1:
        other = tl.load(part + (1 - half).to(tl.int64) * B + rm, mask=rm < B, other=0.0, cache_modifier=".cg")
        tl.store(score + rm, sigmoid(z + other + tl.load(b2)), mask=rm < B)


@triton.jit
def slice_of_hidden(x, w1, b1, w2, part, B, F: tl.constexpr, H: tl.constexpr,
                    BM: tl.constexpr, BN: tl.constexpr, KS: tl.constexpr):
    # BM rows by one slice of the hidden units; K is split over the warps as the batch axis of one dot
    KC: tl.constexpr = F // KS
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1)
    rn = j * BN + tl.arange(0, BN)
    rs = tl.arange(0, KS) * KC
    rk = tl.arange(0, KC)
    row = tl.minimum(rm, B - 1).to(tl.int64)
    tx = tl.load(x + row[None, :, None] * F + rs[:, None, None] + rk[None, None, :])
    tw = tl.load(w1 + rn[None, :, None] * F + rs[:, None, None] + rk[None, None, :])
    bias = tl.load(b1 + rn)
    wt = tl.load(w2 + rn)
    acc = tl.dot(tx, tl.trans(tw, (0, 2, 1)), input_precision="tf32x3")
    y = tl.sum(acc, axis=0) + bias[None, :]
    z = tl.sum(tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL) * wt[None, :], axis=1)
    tl.store(part + j.to(tl.int64) * B + rm, z, mask=rm < B)


@triton.jit
def finish(part, b2, score, B, SLICES: tl.constexpr, BLOCK: tl.constexpr):
    rm = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rj = tl.arange(0, SLICES)
    at = part + rj.to(tl.int64)[:, None] * B + rm[None, :]
    z = tl.sum(tl.load(at, mask=(rm < B)[None, :], other=0.0), axis=0)
    tl.store(score + rm, sigmoid(z + tl.load(b2)), mask=rm < B)


def run(x, weight1, bias1, weight2, bias2, score):
    # features 512, hidden 256 and scores 1 are constants of the op; only the batch varies
    batch, features = x.shape
    hidden = weight1.shape[0]
    if batch > 2112:
        hi = torch.empty((hidden, features), device=x.device, dtype=torch.float32)
        lo = torch.empty((hidden, features), device=x.device, dtype=torch.float32)
        tiles = triton.cdiv(batch, 128)
        part = torch.empty((2, batch), device=x.device, dtype=torch.float32)
        arrived = torch.empty((tiles,), device=x.device, dtype=torch.int32)
        split_weights[(hidden // 2,)](weight1, hi, lo, arrived, tiles, features, R=2, PROGRAMS=hidden // 2, num_warps=4)
        dh = TensorDescriptor.from_tensor(hi, [128, 32])
        dl = TensorDescriptor.from_tensor(lo, [128, 32])
        product[(2 * tiles,)](x, dh, dl, bias1, weight2, bias2, part, arrived, score, batch, features,
                              BM=128, BN=128, BK=32, num_warps=8, num_stages=4)
    else:
        part = torch.empty((hidden // 32, batch), device=x.device, dtype=torch.float32)
        slice_of_hidden[(triton.cdiv(batch, 16), hidden // 32)](x, weight1, bias1, weight2, part, batch, features, hidden,
                                                                BM=16, BN=32, KS=8, num_warps=8)
        finish[(triton.cdiv(batch, 32),)](part, bias2, score, batch, SLICES=hidden // 32, BLOCK=32, num_warps=1)
