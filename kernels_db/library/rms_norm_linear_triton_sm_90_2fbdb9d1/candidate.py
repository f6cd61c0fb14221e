"""RMS norm and linear, for a few rows: one pass over the weights, and the row's scale from a short pass over x before it."""

import triton
import triton.language as tl

# (BLOCK_N, BLOCK_K, warps, stages, prefetch, swap): columns and depth of a tile of the weights; prefetch: the first tile
# is under way before the row's scale is known; swap: the weights are the left operand of the product (several rows only)
ONE_ROW = (4, 1024, 8, 1, 0, 0)
ROWS = (64, 128, 2, 4, 0, 1)


@triton.jit
def tile(at, inside, WHOLE: tl.constexpr):
    if WHOLE:
        v = tl.load(at)
    else:
        v = tl.load(at, mask=inside, other=0.0)
    return v


@triton.jit
def product(acc, w, n, SWAP: tl.constexpr):
    if SWAP:
        acc = tl.dot(w, n.T, acc)
    else:
        acc = tl.dot(n, w.T, acc)
    return acc


@triton.jit
def lines(acc, SWAP: tl.constexpr):
    # the accumulator with a row of the result in each line
    if SWAP:
        acc = acc.T
    return acc


@triton.jit
def scale_of_row(x, eps, K: tl.constexpr, CHUNK: tl.constexpr):
    ks = tl.arange(0, CHUNK)
    squares = tl.zeros((CHUNK,), dtype=tl.float32)
    for k in tl.range(0, K, CHUNK, loop_unroll_factor=4):
        v = tile(x + k + ks, k + ks < K, K % CHUNK == 0).to(tl.float32)
        squares += v * v
    return tl.rsqrt(tl.sum(squares, 0) / K + eps)


@triton.jit
def scale_of_rows(x, rows, eps, K: tl.constexpr, CHUNK: tl.constexpr):
    ks = tl.arange(0, CHUNK)
    at = x + rows.to(tl.int64)[:, None] * K + ks[None, :]
    squares = tl.zeros((16, CHUNK), dtype=tl.float32)
    for k in tl.range(0, K, CHUNK, loop_unroll_factor=4):
        v = tile(at + k, k + ks[None, :] < K, K % CHUNK == 0).to(tl.float32)
        squares += v * v
    return tl.rsqrt(tl.sum(squares, 1) / K + eps)


@triton.jit
def normalised(x, g, scale):
    # rounded to bfloat16 before and after the weight, as the reference rounds
    h = (x.to(tl.float32) * scale).to(tl.bfloat16)
    return (h.to(tl.float32) * g.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def one_row(x, weight, w, y, eps, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHUNK: tl.constexpr,
            STAGES: tl.constexpr, PREFETCH: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    at = tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    w_at = w + at
    if PREFETCH:
        w_first = tile(w_at, ks[None, :] < K, K % BK == 0)
    scale = scale_of_row(x, eps, K, CHUNK)
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    start: tl.constexpr = BK if PREFETCH else 0
    if PREFETCH:
        x_first = tile(x + ks, ks < K, K % BK == 0)
        g_first = tile(weight + ks, ks < K, K % BK == 0)
        n_first = normalised(x_first, g_first, scale).to(tl.float32)[None, :]
        acc += w_first.to(tl.float32) * n_first
    if start < K:
        for k in tl.range(start, K, BK, num_stages=STAGES):
            inside = k + ks < K
            w_tile = tile(w_at + k, inside[None, :], K % BK == 0)
            xk = tile(x + k + ks, inside, K % BK == 0)
            gk = tile(weight + k + ks, inside, K % BK == 0)
            n = normalised(xk, gk, scale).to(tl.float32)[None, :]
            acc += w_tile.to(tl.float32) * n
    tl.store(y + cols, tl.sum(acc, 1).to(tl.bfloat16), mask=cols < N)


@triton.jit
def some_rows(x, weight, w, y, eps, M, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHUNK: tl.constexpr,
              STAGES: tl.constexpr, PREFETCH: tl.constexpr, SWAP: tl.constexpr):
    num_m = tl.cdiv(M, 16)
    pid = tl.program_id(0)
    rows = (pid % num_m) * 16 + tl.arange(0, 16)
    cols = (pid // num_m) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    at = tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    w_at = w + at
    if PREFETCH:
        w_first = tile(w_at, ks[None, :] < K, K % BK == 0)
    last = tl.minimum(rows, M - 1)  # rows and columns beyond the end repeat the last one and are not stored
    scale = scale_of_rows(x, last, eps, K, CHUNK)[:, None]
    x_at = x + last.to(tl.int64)[:, None] * K + ks[None, :]
    L: tl.constexpr = BN if SWAP else 16
    R: tl.constexpr = 16 if SWAP else BN
    acc = tl.zeros((L, R), dtype=tl.float32)
    start: tl.constexpr = BK if PREFETCH else 0
    if PREFETCH:
        x_first = tile(x_at, ks[None, :] < K, K % BK == 0)
        g_first = tile(weight + ks[None, :], ks[None, :] < K, K % BK == 0)
        n_first = normalised(x_first, g_first, scale)
        acc = product(acc, w_first, n_first, SWAP)
    if start < K:
        for k in tl.range(start, K, BK, num_stages=STAGES):
            inside = k + ks[None, :] < K
            w_tile = tile(w_at + k, inside, K % BK == 0)
            xk = tile(x_at + k, inside, K % BK == 0)
            gk = tile(weight + k + ks[None, :], inside, K % BK == 0)
            n = normalised(xk, gk, scale)
            acc = product(acc, w_tile, n, SWAP)
    out = y + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out, lines(acc, SWAP).to(tl.bfloat16), mask=(rows[:, None] < M) & (cols[None, :] < N))


def run_with(config, x, weight, w, eps, y):
    bn, bk, warps, stages, prefetch, swap = config
    m = x.shape[0]
    k = x.shape[1]
    n = w.shape[0]
    depth = triton.next_power_of_2(max(k, 16))
    bk = min(bk, depth)
    programs = triton.cdiv(n, bn)
    if m == 1:
        one_row[(programs,)](x, weight, w, y, eps, n, k, BN=bn, BK=bk, CHUNK=min(depth, 4096), STAGES=stages,
                             PREFETCH=prefetch, num_warps=warps)
    else:
        some_rows[(programs * triton.cdiv(m, 16),)](x, weight, w, y, eps, m, n, k, BN=bn, BK=bk,
                                                    CHUNK=min(depth, 128 * warps), STAGES=stages, PREFETCH=prefetch,
                                                    SWAP=swap, num_warps=warps)


def run(x, weight, w, eps, y):
    run_with(ONE_ROW if x.shape[0] == 1 else ROWS, x, weight, w, eps, y)
