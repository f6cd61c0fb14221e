"""RMS norm, two linear layers and silu(gate) * up, for a few rows: one pass over both weights side by side.

Beside it the row's squares are added up. It starts while the kernel before it ends (a dependent launch): until that
one's results are there, it asks the L2 cache for its first weights.
"""

import triton
import triton.language as tl

# (BLOCK_N, BLOCK_K, warps, stages, lines, swap): columns and depth of a tile of the weights; lines: of 128 bytes that each
# program asks for ahead; swap: the weights are the left operand of the product (several rows only)
ONE_ROW = (8, 512, 4, 3, 64, 0)
ROWS = (64, 128, 8, 5, 64, 0)


@triton.jit
def ahead(weight, first, rows, N, K: tl.constexpr, LINES: tl.constexpr):
    # a hint that changes nothing: what writes these rows may still be running
    last = tl.minimum(first + rows, N).to(tl.int64) * K - 1
    at = weight + tl.minimum(first.to(tl.int64) * K + tl.arange(0, LINES) * 64, last)
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32,
                              is_pure=False, pack=1)


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
def gated(g, u):
    return g / (1.0 + tl.exp(-g)) * u


@triton.jit
def one_row(x, weight, gate, up, y, eps, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
            LINES: tl.constexpr):
    first = tl.program_id(0) * BN
    cols = first + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    ahead(gate, first, BN, N, K, LINES)
    ahead(up, first, BN, N, K, LINES)
    begin()
    at = tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    gate_at = gate + at
    up_at = up + at
    squares = tl.zeros((BK,), dtype=tl.float32)
    acc_gate = tl.zeros((BN, BK), dtype=tl.float32)
    acc_up = tl.zeros((BN, BK), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks < K
        gate_tile = weights(gate_at + k, inside[None, :], K % BK == 0)
        up_tile = weights(up_at + k, inside[None, :], K % BK == 0)
        xk = tile(x + k + ks, inside, K % BK == 0).to(tl.float32)
        gk = tile(weight + k + ks, inside, K % BK == 0).to(tl.float32)
        squares += xk * xk
        n = (xk * gk)[None, :]
        acc_gate += gate_tile.to(tl.float32) * n
        acc_up += up_tile.to(tl.float32) * n
    scale = scale_of(squares, eps, K, 0)
    v = gated(tl.sum(acc_gate, 1) * scale, tl.sum(acc_up, 1) * scale)
    tl.store(y + cols, v.to(tl.bfloat16), mask=cols < N)


@triton.jit
def some_rows(x, weight, gate, up, y, eps, M, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
              STAGES: tl.constexpr, LINES: tl.constexpr, SWAP: tl.constexpr):
    num_m = tl.cdiv(M, 16)
    pid = tl.program_id(0)
    rows = (pid % num_m) * 16 + tl.arange(0, 16)
    first = (pid // num_m) * BN
    cols = first + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    ahead(gate, first, BN, N, K, LINES)
    ahead(up, first, BN, N, K, LINES)
    begin()
    # rows and columns beyond the end repeat the last one and are not stored
    at = tl.minimum(cols, N - 1).to(tl.int64)[:, None] * K + ks[None, :]
    gate_at = gate + at
    up_at = up + at
    x_at = x + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
    L: tl.constexpr = BN if SWAP else 16
    R: tl.constexpr = 16 if SWAP else BN
    squares = tl.zeros((16, BK), dtype=tl.float32)
    acc_gate = tl.zeros((L, R), dtype=tl.float32)
    acc_up = tl.zeros((L, R), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        inside = k + ks[None, :] < K
        gate_tile = weights(gate_at + k, inside, K % BK == 0)
        up_tile = weights(up_at + k, inside, K % BK == 0)
        xk = tile(x_at + k, inside, K % BK == 0).to(tl.float32)
        gk = tile(weight + k + ks[None, :], inside, K % BK == 0).to(tl.float32)
        squares += xk * xk
        n = (xk * gk).to(tl.bfloat16)
        acc_gate = product(acc_gate, gate_tile, n, SWAP)
        acc_up = product(acc_up, up_tile, n, SWAP)
    scale = columns_of(scale_of(squares, eps, K, 1), SWAP)
    out = y + rows.to(tl.int64)[:, None] * N + cols[None, :]
    v = lines(gated(acc_gate * scale, acc_up * scale), SWAP)
    tl.store(out, v.to(tl.bfloat16), mask=(rows[:, None] < M) & (cols[None, :] < N))


def run_with(config, x, weight, w_gate, w_up, eps, y):
    bn, bk, warps, stages, ahead_lines, swap = config
    m = x.shape[0]
    k = x.shape[1]
    n = w_gate.shape[0]
    bk = min(bk, triton.next_power_of_2(max(k, 16)))
    programs = triton.cdiv(n, bn)
    if m == 1:
        one_row[(programs,)](x, weight, w_gate, w_up, y, eps, n, k, BN=bn, BK=bk, STAGES=stages, LINES=ahead_lines,
                             num_warps=warps, launch_pdl=True)
    else:
        some_rows[(programs * triton.cdiv(m, 16),)](x, weight, w_gate, w_up, y, eps, m, n, k, BN=bn, BK=bk,
                                                    STAGES=stages, LINES=ahead_lines, SWAP=swap, num_warps=warps,
                                                    launch_pdl=True)


def run(x, weight, w_gate, w_up, eps, y):
    run_with(ONE_ROW if x.shape[0] == 1 else ROWS, x, weight, w_gate, w_up, eps, y)
