"""Linear and the residual, for a few rows: one pass over the weights, the residual added before the only rounding.

It starts while the kernel before it ends (a dependent launch): until that one's results are there, it asks the L2 cache
for its weights.
"""

import triton
import triton.language as tl

# (BLOCK_N, BLOCK_K, warps, stages, lines, swap, early): columns and depth of a tile of the weights; lines: of 128 bytes
# that each program asks for ahead; swap: the weights are the left operand of the product (several rows only); early: the
# kernel behind this one is launched before the one before it has ended. By rows, and by whether features exceed DEEP
DEEP = 4096
ONE_ROW = (1, 2048, 2, 1, 32, 0, 1)
ONE_DEEP_ROW = (4, 2048, 4, 2, 256, 0, 0)
ROWS = (32, 256, 2, 5, 64, 0, 1)
DEEP_ROWS = (16, 1024, 4, 4, 64, 1, 0)


@triton.jit
def ahead(weight, first, rows, N, K: tl.constexpr, LINES: tl.constexpr):
    # a hint that changes nothing: what writes these rows may still be running
    last = tl.minimum(first + rows, N).to(tl.int64) * K - 1
    at = weight + tl.minimum(first.to(tl.int64) * K + tl.arange(0, LINES) * 64, last)
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32,
                              is_pure=False, pack=1)


@triton.jit
def let_next_begin():
    tl.inline_asm_elementwise("griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=tl.int32,
                              is_pure=False, pack=1)


@triton.jit
def begin(EARLY: tl.constexpr):
    # what the kernel before this one wrote is there; the one behind it may be launched before that or after it
    if EARLY:
        let_next_begin()
    tl.inline_asm_elementwise("griddepcontrol.wait; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    if not EARLY:
        let_next_begin()


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
def one_row(x, w, residual, y, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
            LINES: tl.constexpr, EARLY: tl.constexpr):
    first = tl.program_id(0) * BN
    cols = first + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    ahead(w, first, BN, N, K, LINES)
    begin(EARLY)
    r = tl.load(residual + cols, mask=cols < N, other=0.0).to(tl.float32)
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks < K
        w_tile = weights(w_at + k, inside[None, :], K % BK == 0)
        xk = tile(x + k + ks, inside, K % BK == 0)
        acc += w_tile.to(tl.float32) * xk.to(tl.float32)[None, :]
    tl.store(y + cols, (tl.sum(acc, 1) + r).to(tl.bfloat16), mask=cols < N)


@triton.jit
def some_rows(x, w, residual, y, M, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
              LINES: tl.constexpr, EARLY: tl.constexpr, SWAP: tl.constexpr):
    num_m = tl.cdiv(M, 16)
    pid = tl.program_id(0)
    rows = (pid % num_m) * 16 + tl.arange(0, 16)
    first = (pid // num_m) * BN
    cols = first + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    ahead(w, first, BN, N, K, LINES)
    begin(EARLY)
    # rows and columns beyond the end repeat the last one and are not stored
    w_at = w + tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    x_at = x + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
    L: tl.constexpr = BN if SWAP else 16
    R: tl.constexpr = 16 if SWAP else BN
    acc = tl.zeros((L, R), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks[None, :] < K
        w_tile = weights(w_at + k, inside, K % BK == 0)
        xk = tile(x_at + k, inside, K % BK == 0)
        acc = product(acc, w_tile, xk, SWAP)
    at = rows.to(tl.int64)[:, None] * N + cols[None, :]
    kept = (rows[:, None] < M) & (cols[None, :] < N)
    r = tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
    tl.store(y + at, (lines(acc, SWAP) + r).to(tl.bfloat16), mask=kept)


def run_with(config, x, weight, residual, y):
    bn, bk, warps, stages, ahead_lines, swap, early = config
    m = x.shape[0]
    k = x.shape[1]
    n = weight.shape[0]
    bk = min(bk, triton.next_power_of_2(max(k, 16)))
    programs = triton.cdiv(n, bn)
    if m == 1:
        one_row[(programs,)](x, weight, residual, y, n, k, BN=bn, BK=bk, STAGES=stages, LINES=ahead_lines, EARLY=early,
                             num_warps=warps, launch_pdl=True)
    else:
        some_rows[(programs * triton.cdiv(m, 16),)](x, weight, residual, y, m, n, k, BN=bn, BK=bk, STAGES=stages,
                                                    LINES=ahead_lines, EARLY=early, SWAP=swap, num_warps=warps, launch_pdl=True)


def run(x, weight, residual, y):
    if x.shape[1] > DEEP:
        config = ONE_DEEP_ROW if x.shape[0] == 1 else DEEP_ROWS
    else:
        config = ONE_ROW if x.shape[0] == 1 else ROWS
    run_with(config, x, weight, residual, y)
