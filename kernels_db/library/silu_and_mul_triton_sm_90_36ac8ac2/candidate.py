import torch
import triton
import triton.language as tl


@triton.jit
def gated(g, u):
    # silu(g) = g * w^2 with w = p / sqrt(1 + p^2), p = exp(g / 2). Beyond g = 41.6 w is 1 in float32, so p is bounded
    # there; below, the two factors w keep everything in range until the result itself leaves it
    p = tl.exp2(tl.minimum(g * 0.72134752044448170368, 30.0))
    w = p * tl.rsqrt(1.0 + p * p)
    return (g * w) * (w * u)


@triton.jit
def silu_tile(X, Y, H: tl.constexpr, BLOCK: tl.constexpr):
    NT: tl.constexpr = (H + BLOCK - 1) // BLOCK
    pid = tl.program_id(0)
    row = (pid // NT).to(tl.int64)
    col = (pid % NT) * BLOCK + tl.arange(0, BLOCK)
    src = X + row * (2 * H) + col
    dst = Y + row * H + col
    if H % BLOCK == 0:
        g = tl.load(src)
        u = tl.load(src + H)
        tl.store(dst, gated(g.to(tl.float32), u.to(tl.float32)).to(Y.dtype.element_ty))
    else:
        mask = col < H
        g = tl.load(src, mask=mask, other=0.0)
        u = tl.load(src + H, mask=mask, other=0.0)
        tl.store(dst, gated(g.to(tl.float32), u.to(tl.float32)).to(Y.dtype.element_ty), mask=mask)


def run(x, y):
    tokens, hidden = y.shape
    n = tokens * hidden
    if n == 0:
        return
    if n >= 16777216:
        # a stream: one 16-byte load of each operand a thread
        silu_tile[(tokens * ((hidden + 1023) // 1024),)](x, y, hidden, 1024, num_warps=4)
    elif n >= 1048576 and hidden % 2048 == 0:
        # all programs resident at once: fewer of them, two loads of each operand a thread
        silu_tile[(tokens * (hidden // 2048),)](x, y, hidden, 2048, num_warps=4)
    elif n >= 131072:
        silu_tile[(tokens * ((hidden + 1023) // 1024),)](x, y, hidden, 1024, num_warps=4)
    else:
        silu_tile[(tokens * ((hidden + 255) // 256),)](x, y, hidden, 256, num_warps=1)
