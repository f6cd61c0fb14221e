"""Linear and the residual, for a few rows: one pass over the weights, the residual added before the only rounding."""

import triton
import triton.language as tl

# (BLOCK_N, BLOCK_K, warps, stages, prefetch, swap): columns and depth of a tile of the weights; swap: the weights are the
# left operand of the product (several rows only); prefetch is not used here. By rows, and by whether features exceed DEEP
DEEP = 4096
ONE_ROW = (2, 2048, 4, 1, 0, 0)
ONE_DEEP_ROW = (8, 1024, 2, 3, 0, 0)
ROWS = (32, 256, 2, 5, 0, 0)
DEEP_ROWS = (16, 1024, 4, 4, 0, 1)


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
def one_row(x, w, residual, y, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks < K
        w_tile = tile(w_at + k, inside[None, :], K % BK == 0)
        xk = tile(x + k + ks, inside, K % BK == 0)
        acc += w_tile.to(tl.float32) * xk.to(tl.float32)[None, :]
    r = tl.load(residual + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(y + cols, (tl.sum(acc, 1) + r).to(tl.bfloat16), mask=cols < N)


@triton.jit
def some_rows(x, w, residual, y, M, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
              SWAP: tl.constexpr):
    num_m = tl.cdiv(M, 16)
    pid = tl.program_id(0)
    rows = (pid % num_m) * 16 + tl.arange(0, 16)
    cols = (pid // num_m) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    # rows and columns beyond the end repeat the last one and are not stored
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    x_at = x + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
    L: tl.constexpr = BN if SWAP else 16
    R: tl.constexpr = 16 if SWAP else BN
    acc = tl.zeros((L, R), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks[None, :] < K
        w_tile = tile(w_at + k, inside, K % BK == 0)
        xk = tile(x_at + k, inside, K % BK == 0)
        acc = product(acc, w_tile, xk, SWAP)
    at = rows.to(tl.int64)[:, None] * N + cols[None, :]
    kept = (rows[:, None] < M) & (cols[None, :] < N)
    r = tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
    tl.store(y + at, (lines(acc, SWAP) + r).to(tl.bfloat16), mask=kept)


def run_with(config, x, weight, residual, y):
    bn, bk, warps, stages, prefetch, swap = config
    m = x.shape[0]
    k = x.shape[1]
    n = weight.shape[0]
    bk = min(bk, triton.next_power_of_2(max(k, 16)))
    programs = triton.cdiv(n, bn)
    if m == 1:
        one_row[(programs,)](x, weight, residual, y, n, k, BN=bn, BK=bk, STAGES=stages, num_warps=warps)
    else:
        some_rows[(programs * triton.cdiv(m, 16),)](x, weight, residual, y, m, n, k, BN=bn, BK=bk, STAGES=stages,
                                                    SWAP=swap, num_warps=warps)


def run(x, weight, residual, y):
    if x.shape[1] > DEEP:
        config = ONE_DEEP_ROW if x.shape[0] == 1 else DEEP_ROWS
    else:
        config = ONE_ROW if x.shape[0] == 1 else ROWS
    run_with(config, x, weight, residual, y)
