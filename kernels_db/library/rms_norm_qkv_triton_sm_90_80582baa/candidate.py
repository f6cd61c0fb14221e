"""RMS norm and the projections to query, key and value, for a few rows: the columns of all three weights in one launch.

One pass over the weights, beside which the row's squares are added up. It is launched while the kernel before it ends
(a dependent launch), and the next one while it reads.
"""

import triton
import triton.language as tl

# (BLOCK_N, BLOCK_K, warps, stages, swap): columns and depth of a tile of the weights; swap: the weights are the left
# operand of the product (several rows only)
ONE_ROW = (2, 2048, 4, 1, 0)
ROWS = (32, 512, 4, 3, 0)


@triton.jit
def begin():
    # what the kernel before this one wrote is there; the one behind it may be launched
    tl.inline_asm_elementwise("griddepcontrol.wait; griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [],
                              dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def tile(at, inside, WHOLE: tl.constexpr):
    if WHOLE:
        v = tl.load(at)
    else:
        v = tl.load(at, mask=inside, other=0.0)
    return v


@triton.jit
def weights(at, inside, WHOLE: tl.constexpr):
    # read once: first to leave the cache
    if WHOLE:
        v = tl.load(at, eviction_policy="evict_first")
    else:
        v = tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first")
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
def scale_of(squares, eps, K: tl.constexpr, AXIS: tl.constexpr):
    # a row's scale is known when its products are: they are scaled in its place
    return tl.rsqrt(tl.sum(squares, AXIS) / K + eps)


@triton.jit
def columns_of(scale, SWAP: tl.constexpr):
    # as the accumulator of `product` has its rows
    if SWAP:
        scale = scale[None, :]
    else:
        scale = scale[:, None]
    return scale


@triton.jit
def one_row(x, weight, wq, wk, wv, query, key, value, eps, Q, KV, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            STAGES: tl.constexpr):
    pid_n = tl.program_id(0)
    # a program's columns lie in one of the three weights
    nq = tl.cdiv(Q, BN)
    nkv = tl.cdiv(KV, BN)
    block = pid_n
    w = wq
    y = query
    N = Q
    if pid_n >= nq:
        N = KV
        if pid_n >= nq + nkv:
            block = pid_n - nq - nkv
            w = wv
            y = value
        else:
            block = pid_n - nq
            w = wk
            y = key
    cols = block * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    begin()
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    squares = tl.zeros((BK,), dtype=tl.float32)
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks < K
        w_tile = weights(w_at + k, inside[None, :], K % BK == 0)
        xk = tile(x + k + ks, inside, K % BK == 0).to(tl.float32)
        gk = tile(weight + k + ks, inside, K % BK == 0).to(tl.float32)
        squares += xk * xk
        acc += w_tile.to(tl.float32) * (xk * gk)[None, :]
    tl.store(y + cols, (tl.sum(acc, 1) * scale_of(squares, eps, K, 0)).to(tl.bfloat16), mask=cols < N)


@triton.jit
def some_rows(x, weight, wq, wk, wv, query, key, value, eps, M, Q, KV, K: tl.constexpr, BN: tl.constexpr,
              BK: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr):
    num_m = tl.cdiv(M, 16)
    pid = tl.program_id(0)
    rows = (pid % num_m) * 16 + tl.arange(0, 16)
    pid_n = pid // num_m
    # a program's columns lie in one of the three weights
    nq = tl.cdiv(Q, BN)
    nkv = tl.cdiv(KV, BN)
    block = pid_n
    w = wq
    y = query
    N = Q
    if pid_n >= nq:
        N = KV
        if pid_n >= nq + nkv:
            block = pid_n - nq - nkv
            w = wv
            y = value
        else:
            block = pid_n - nq
            w = wk
            y = key
    cols = block * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    begin()
    # rows and columns beyond the end repeat the last one and are not stored
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    x_at = x + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
    L: tl.constexpr = BN if SWAP else 16
    R: tl.constexpr = 16 if SWAP else BN
    squares = tl.zeros((16, BK), dtype=tl.float32)
    acc = tl.zeros((L, R), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks[None, :] < K
        w_tile = weights(w_at + k, inside, K % BK == 0)
        xk = tile(x_at + k, inside, K % BK == 0).to(tl.float32)
        gk = tile(weight + k + ks[None, :], inside, K % BK == 0).to(tl.float32)
        squares += xk * xk
        acc = product(acc, w_tile, (xk * gk).to(tl.bfloat16), SWAP)
    scale = columns_of(scale_of(squares, eps, K, 1), SWAP)
    out = y + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out, lines(acc * scale, SWAP).to(tl.bfloat16), mask=(rows[:, None] < M) & (cols[None, :] < N))


def run_with(config, x, weight, wq, wk, wv, eps, query, key, value):
    bn, bk, warps, stages, swap = config
    m = x.shape[0]
    k = x.shape[1]
    q = wq.shape[0]
    kv = wk.shape[0]
    bk = min(bk, triton.next_power_of_2(max(k, 16)))
    programs = triton.cdiv(q, bn) + 2 * triton.cdiv(kv, bn)
    if m == 1:
        one_row[(programs,)](x, weight, wq, wk, wv, query, key, value, eps, q, kv, k, BN=bn, BK=bk, STAGES=stages,
                             num_warps=warps, launch_pdl=True)
    else:
        some_rows[(programs * triton.cdiv(m, 16),)](x, weight, wq, wk, wv, query, key, value, eps, m, q, kv, k, BN=bn,
                                                    BK=bk, STAGES=stages, SWAP=swap,
                                                    num_warps=warps, launch_pdl=True)


def run(x, weight, wq, wk, wv, eps, query, key, value):
    run_with(ONE_ROW if x.shape[0] == 1 else ROWS, x, weight, wq, wk, wv, eps, query, key, value)
