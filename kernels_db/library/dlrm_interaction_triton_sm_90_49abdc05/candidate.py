"""Feature interaction in one pass: a program a sample, the triangle compacted by a gather."""

import triton
import triton.language as tl


@triton.jit
def load_vectors(dense, sparse, b, rows, k, TABLES: tl.constexpr, WIDTH: tl.constexpr, K: tl.constexpr):
    """Rows of the sample's matrix: row 0 is the dense vector, row i the sparse vector i - 1; zeros elsewhere."""
    i = rows[:, None]
    inside = (i > 0) & (i <= TABLES)
    if WIDTH % K == 0:
        d = tl.load(dense + b * WIDTH + k)
        s = tl.load(sparse + (b * TABLES + i - 1) * WIDTH + k[None, :], mask=inside, other=0.0)
    else:
        d = tl.load(dense + b * WIDTH + k, mask=k < WIDTH, other=0.0)
        s = tl.load(sparse + (b * TABLES + i - 1) * WIDTH + k[None, :], mask=inside & (k[None, :] < WIDTH), other=0.0)
    return tl.where(i == 0, d[None, :], s)


@triton.jit
def triangle(q):
    """Row and column of place q in the lower triangle without its diagonal, row by row."""
    q = tl.maximum(q, 0)
    r = ((tl.sqrt((8 * q + 1).to(tl.float32)) + 1.0) * 0.5).to(tl.int32)
    r = tl.where(r * (r - 1) // 2 > q, r - 1, r)
    r = tl.where(r * (r + 1) // 2 <= q, r + 1, r)
    return r, q - r * (r - 1) // 2


@triton.jit
def tiled(dense, sparse, out, TABLES: tl.constexpr, WIDTH: tl.constexpr, T: tl.constexpr, K: tl.constexpr):
    """Any number of tables, any width: one T x T tile of products of one sample a program."""
    b = tl.program_id(0).to(tl.int64)
    ti = tl.program_id(1)
    tj = tl.program_id(2)
    VECTORS: tl.constexpr = TABLES + 1
    FEATURES: tl.constexpr = WIDTH + VECTORS * (VECTORS - 1) // 2
    base = out + b * FEATURES
    k = tl.arange(0, K)
    if (ti == 0) & (tj == 0):
        for k0 in range(0, WIDTH, K):
            x = tl.load(dense + b * WIDTH + k0 + k, mask=k0 + k < WIDTH, other=0.0)
            tl.store(base + k0 + k, x, mask=k0 + k < WIDTH)
    if tj <= ti:
        i = ti * T + tl.arange(0, T)
        j = tj * T + tl.arange(0, T)
        acc = tl.zeros([T, T], dtype=tl.float32)
        for k0 in range(0, WIDTH, K):
            u = load_vectors(dense, sparse, b, i, k0 + k, TABLES, WIDTH, K)
            w = load_vectors(dense, sparse, b, j, k0 + k, TABLES, WIDTH, K)
            acc = tl.dot(u, tl.trans(w), acc)
        place = WIDTH + i[:, None] * (i[:, None] - 1) // 2 + j[None, :]
        tl.store(base + place, acc.to(out.dtype.element_ty), mask=(j[None, :] < i[:, None]) & (i[:, None] < VECTORS))


@triton.jit
def fused(dense, sparse, out, TABLES: tl.constexpr, WIDTH: tl.constexpr, V: tl.constexpr, K: tl.constexpr,
          OUT: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    VECTORS: tl.constexpr = TABLES + 1
    FEATURES: tl.constexpr = WIDTH + VECTORS * (VECTORS - 1) // 2
    v = load_vectors(dense, sparse, b, tl.arange(0, V), tl.arange(0, K), TABLES, WIDTH, K)
    o = tl.arange(0, OUT)
    head = tl.load(dense + b * WIDTH + o, mask=o < WIDTH, other=0.0)
    p = tl.dot(v, tl.trans(v)).to(out.dtype.element_ty)
    r, c = triangle(o - WIDTH)
    index = tl.where((o >= WIDTH) & (o < FEATURES), r * V + c, 0)
    pairs = tl.gather(tl.reshape(p, [V * V]), index, 0)
    tl.store(out + b * FEATURES + o, tl.where(o < WIDTH, head, pairs), mask=o < FEATURES)


def run(dense, sparse, interactions):
    batch, tables, width = sparse.shape[0], sparse.shape[1], sparse.shape[2]
    features = interactions.shape[1]
    if batch == 0:
        return
    if tables < 32 and width <= 256:
        # two warps: a gather within one warp would become 32 shuffles an element, with two it goes through shared memory
        fused[(batch,)](dense, sparse, interactions, TABLES=tables, WIDTH=width,
                        V=32, K=max(16, triton.next_power_of_2(width)),
                        OUT=triton.next_power_of_2(features), num_warps=2 if batch >= 2048 else 4)
    else:
        t = triton.cdiv(tables + 1, 32)
        tiled[(batch, t, t)](dense, sparse, interactions, TABLES=tables, WIDTH=width, T=32,
                             K=min(128, max(16, triton.next_power_of_2(width))), num_warps=2)
