"""Triton kernels for `benchmarks.attack`: honest ones for six example ops, and their wrong siblings."""

from __future__ import annotations

from functools import partial

from benchmarks.attack_kernels import Kernel, pair_in

_ELEMENTWISE = """
@triton.jit
def each(x, y, bias, out, m, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    v = tl.load(x + i, mask=inside, other=0.0) + tl.load(bias + i % n, mask=inside, other=0.0)
    v = v + m * tl.load(y + i, mask=inside, other=0.0)
    tl.store(out + i, tl.where(v < 0, 0.0, v), mask=inside)
"""
_ADD = """
@triton.jit
def each(x, bias, y, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    v = tl.load(x + i, mask=inside, other=0.0) + tl.load(bias + i % n, mask=inside, other=0.0)
    tl.store(y + i, tl.where(v < 0, 0.0, v), mask=inside)
"""
_SOFTMAX = """
@triton.jit
def each(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    c = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for k in range(0, n, BLOCK):
        v = tl.load(x + row + k + c, mask=k + c < n, other=-float("inf"))
        most = tl.maximum(most, v)
    top = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        v = tl.load(x + row + k + c, mask=k + c < n, other=-float("inf"))
        total += tl.where(k + c < n, tl.exp(v - top), 0.0)
    sum = tl.sum(total, 0)
    for k in range(0, n, BLOCK):
        v = tl.load(x + row + k + c, mask=k + c < n, other=-float("inf"))
        tl.store(y + row + k + c, tl.exp(v - top) / sum, mask=k + c < n)
"""
_NORM = """
@triton.jit
def each(x, w, b, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    c = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        sums += tl.load(x + row + k + c, mask=k + c < n, other=0.0)
    mean = tl.sum(sums, 0) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        v = tl.load(x + row + k + c, mask=k + c < n, other=0.0)
        d = tl.where(k + c < n, v - mean, 0.0)
        squares += d * d
    scale = 1.0 / tl.sqrt_rn(tl.sum(squares, 0) / n + 1e-5)
    for k in range(0, n, BLOCK):
        m = k + c < n
        v = tl.load(x + row + k + c, mask=m, other=0.0)
        found = (v - mean) * scale * tl.load(w + k + c, mask=m, other=0.0) + tl.load(b + k + c, mask=m, other=0.0)
        tl.store(y + row + k + c, found, mask=m)
"""
_ENTROPY = """
@triton.jit
def each(logits, labels, loss, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    c = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for k in range(0, n, BLOCK):
        v = tl.load(logits + row + k + c, mask=k + c < n, other=-float("inf")).to(tl.float32)
        most = tl.maximum(most, v)
    top = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        v = tl.load(logits + row + k + c, mask=k + c < n, other=-float("inf")).to(tl.float32)
        total += tl.where(k + c < n, tl.exp(v - top), 0.0)
    label = tl.load(labels + tl.program_id(0))
    right = tl.load(logits + row + label).to(tl.float32)
    tl.store(loss + tl.program_id(0), tl.log(tl.sum(total, 0)) - (right - top))
"""
_PRODUCT = """
@triton.jit
def power(most):
    e = (most.to(tl.int32, bitcast=True) >> 23) & 255
    e = tl.minimum(tl.maximum(e, 15), 253)
    return ((268 - e) << 23).to(tl.float32, bitcast=True), ((e - 14) << 23).to(tl.float32, bitcast=True)

@triton.jit
def each(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm.to(tl.int64)[:, None] * K + (k + rk)[None, :],
                    mask=(rm < M)[:, None] & (k + rk < K)[None, :], other=0.0)
        y = tl.load(b + (k + rk).to(tl.int64)[:, None] * N + rn[None, :],
                    mask=(k + rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        PART
    tl.store(c + rm.to(tl.int64)[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])
"""
_EXACT = 'acc += tl.dot(x, y, input_precision="ieee")'
_SHARED = """sx, ix = power(tl.max(tl.max(tl.abs(x), 1), 0))
        sy, iy = power(tl.max(tl.max(tl.abs(y), 1), 0))
        x = x * sx
        y = y * sy
        xh = x.to(tl.float16)
        xl = (x - xh.to(tl.float32)).to(tl.float16)
        yh = y.to(tl.float16)
        yl = (y - yh.to(tl.float32)).to(tl.float16)
        acc += (tl.dot(xh, yh) + tl.dot(xh, yl) + tl.dot(xl, yh)) * ix * iy"""
_BELOW = ('most = tl.full((BLOCK,), -float("inf"), tl.float32)', "most = tl.zeros((BLOCK,), tl.float32)")


_pair = partial(pair_in, "triton")


def on_gpu() -> list[Kernel]:
    """Return the Triton kernels."""
    grid = "triton.cdiv(x.numel(), 1024),"
    rows = "n = x.shape[-1]\neach[(x.numel() // n,)](x, y, n, BLOCK=1024)"
    return [
        *_pair(
            "add_relu",
            _ADD,
            f"x, bias, y: each[({grid})](x, bias, y, x.numel(), bias.numel(), BLOCK=1024)",
            "drops NaN: maximum(v, 0)",
            ("tl.where(v < 0, 0.0, v)", "tl.maximum(v, 0.0)"),
        ),
        *_pair(
            "fused_add_mul_relu",
            _ELEMENTWISE,
            f"x, y, bias, m: each[({grid})](x, y, bias, x, m, x.numel(), bias.numel(), BLOCK=1024)",
            "has the scalar m hard-coded",
            ("v + m * tl", "v + 0.75 * tl"),
        ),
        *_pair("softmax", _SOFTMAX, f"x, y: {rows}", "begins the maximum at zero: rows far below it vanish", _BELOW),
        *_pair(
            "layer_norm",
            _NORM,
            "x, weight, bias, y: n = weight.numel()\neach[(x.numel() // n,)](x, weight, bias, y, n, BLOCK=1024)",
            "takes the variance in one pass, E[x^2] - E[x]^2",
            ("d = tl.where(k + c < n, v - mean, 0.0)", "d = v"),
            ("tl.sum(squares, 0) / n + 1e-5", "tl.maximum(tl.sum(squares, 0) / n - mean * mean, 0.0) + 1e-5"),
        ),
        *_pair(
            "cross_entropy",
            _ENTROPY,
            "logits, labels, loss: n = logits.shape[1]\neach[(logits.shape[0],)](logits, labels, loss, n, BLOCK=1024)",
            "begins the maximum at zero: rows far below it vanish",
            _BELOW,
        ),
        *_pair(
            "matmul",
            _PRODUCT.replace("PART", _EXACT),
            "a, b, c: m, k = a.shape\nn = b.shape[1]\n"
            "each[(triton.cdiv(m, 32), triton.cdiv(n, 128))](a, b, c, m, n, k, BM=32, BN=128, BK=32)",
            "splits in half precision, one scale for 128 columns",
            (_EXACT, _SHARED),
        ),
    ]
