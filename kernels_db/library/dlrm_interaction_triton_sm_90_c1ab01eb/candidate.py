"""Feature interaction, a warp a sample: mma fragments straight from global memory (k permuted), rows stored coalesced."""

import triton
import triton.language as tl


@triton.jit
def chunk(dense, sparse, b, c, TABLES: tl.constexpr):
    """Columns 32 c ... 32 c + 31 of the sample's 27 vectors, zeros below; a lane holds 8 columns of every eighth row."""
    i = tl.arange(0, 32)[:, None]
    k = 32 * c + tl.arange(0, 32)[None, :]
    p = tl.where(i == 0, dense + b * 128 + k, sparse + (b * TABLES + (i - 1)) * 128 + k)
    return tl.load(p, mask=(i <= TABLES) & (k < 128), other=0.0)


@triton.jit
def products(dense, sparse, b, TABLES: tl.constexpr):
    """All products of the sample's vectors, width 128, one warp; the columns are permuted within a row."""
    v0 = chunk(dense, sparse, b, 0, TABLES)
    v1 = chunk(dense, sparse, b, 1, TABLES)
    v2 = chunk(dense, sparse, b, 2, TABLES)
    v3 = chunk(dense, sparse, b, 3, TABLES)
    # Outputs $0 ... $31: register 8 r + 2 n + e of lane (g, t) is element (g + 8 r, 8 n + 2 t + e). Inputs $32 ... $95: register
    # 16 c + 4 r + q is the q-th pair of k of row g + 8 r in chunk c. Pairs 2 s and 2 s + 1 make up one k16 step, and A and B
    # take k in the same order. cmni: accumulator i of the 16 x 8 tile (m, n).
    return tl.inline_asm_elementwise(
        """
        {
        .reg .f32 z;
        mov.f32 z, 0f00000000;
        .reg .f32 c000, c001, c002, c003;
        .reg .f32 c010, c011, c012, c013;
        .reg .f32 c100, c101, c102, c103;
        .reg .f32 c110, c111, c112, c113;
        .reg .f32 c120, c121, c122, c123;
        .reg .f32 c130, c131, c132, c133;
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$32, $36, $33, $37}, {$32, $33}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$32, $36, $33, $37}, {$36, $37}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$40, $44, $41, $45}, {$32, $33}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$40, $44, $41, $45}, {$36, $37}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$40, $44, $41, $45}, {$40, $41}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$40, $44, $41, $45}, {$44, $45}, {z, z, z, z};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$34, $38, $35, $39}, {$34, $35}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$34, $38, $35, $39}, {$38, $39}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$42, $46, $43, $47}, {$34, $35}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$42, $46, $43, $47}, {$38, $39}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$42, $46, $43, $47}, {$42, $43}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$42, $46, $43, $47}, {$46, $47}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$48, $52, $49, $53}, {$48, $49}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$48, $52, $49, $53}, {$52, $53}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$56, $60, $57, $61}, {$48, $49}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$56, $60, $57, $61}, {$52, $53}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$56, $60, $57, $61}, {$56, $57}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$56, $60, $57, $61}, {$60, $61}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$50, $54, $51, $55}, {$50, $51}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$50, $54, $51, $55}, {$54, $55}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$58, $62, $59, $63}, {$50, $51}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$58, $62, $59, $63}, {$54, $55}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$58, $62, $59, $63}, {$58, $59}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$58, $62, $59, $63}, {$62, $63}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$64, $68, $65, $69}, {$64, $65}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$64, $68, $65, $69}, {$68, $69}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$72, $76, $73, $77}, {$64, $65}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$72, $76, $73, $77}, {$68, $69}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$72, $76, $73, $77}, {$72, $73}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$72, $76, $73, $77}, {$76, $77}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$66, $70, $67, $71}, {$66, $67}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$66, $70, $67, $71}, {$70, $71}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$74, $78, $75, $79}, {$66, $67}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$74, $78, $75, $79}, {$70, $71}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$74, $78, $75, $79}, {$74, $75}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$74, $78, $75, $79}, {$78, $79}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$80, $84, $81, $85}, {$80, $81}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$80, $84, $81, $85}, {$84, $85}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$88, $92, $89, $93}, {$80, $81}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$88, $92, $89, $93}, {$84, $85}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$88, $92, $89, $93}, {$88, $89}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$88, $92, $89, $93}, {$92, $93}, {c130, c131, c132, c133};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c000, c001, c002, c003}, {$82, $86, $83, $87}, {$82, $83}, {c000, c001, c002, c003};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c010, c011, c012, c013}, {$82, $86, $83, $87}, {$86, $87}, {c010, c011, c012, c013};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c100, c101, c102, c103}, {$90, $94, $91, $95}, {$82, $83}, {c100, c101, c102, c103};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c110, c111, c112, c113}, {$90, $94, $91, $95}, {$86, $87}, {c110, c111, c112, c113};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c120, c121, c122, c123}, {$90, $94, $91, $95}, {$90, $91}, {c120, c121, c122, c123};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c130, c131, c132, c133}, {$90, $94, $91, $95}, {$94, $95}, {c130, c131, c132, c133};
        mov.f32 $0, c000;
        mov.f32 $1, c001;
        mov.f32 $2, c010;
        mov.f32 $3, c011;
        mov.f32 $4, z;
        mov.f32 $5, z;
        mov.f32 $6, z;
        mov.f32 $7, z;
        mov.f32 $8, c002;
        mov.f32 $9, c003;
        mov.f32 $10, c012;
        mov.f32 $11, c013;
        mov.f32 $12, z;
        mov.f32 $13, z;
        mov.f32 $14, z;
        mov.f32 $15, z;
        mov.f32 $16, c100;
        mov.f32 $17, c101;
        mov.f32 $18, c110;
        mov.f32 $19, c111;
        mov.f32 $20, c120;
        mov.f32 $21, c121;
        mov.f32 $22, c130;
        mov.f32 $23, c131;
        mov.f32 $24, c102;
        mov.f32 $25, c103;
        mov.f32 $26, c112;
        mov.f32 $27, c113;
        mov.f32 $28, c122;
        mov.f32 $29, c123;
        mov.f32 $30, c132;
        mov.f32 $31, c133;
        }
        """,
        "=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,=f,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r",
        [v0, v1, v2, v3], dtype=tl.float32, is_pure=True, pack=32)


@triton.jit
def fragments(dense, sparse, out, TABLES: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    VECTORS: tl.constexpr = TABLES + 1
    FEATURES: tl.constexpr = 128 + VECTORS * (VECTORS - 1) // 2
    base = out + b * FEATURES
    h = tl.arange(0, 128)
    x = tl.load(dense + b * 128 + h)
    p = products(dense, sparse, b, TABLES).to(out.dtype.element_ty)
    tl.store(base + h, x)
    i = tl.arange(0, 32)[:, None]
    # lane t's register 2 n + e stands for column 8 n + 2 t + e: back to natural order, then coalesced rows
    p = tl.reshape(tl.permute(tl.reshape(p, [32, 4, 4, 2]), (0, 2, 1, 3)), [32, 32])
    j = tl.arange(0, 32)[None, :]
    tl.store(base + 128 + i * (i - 1) // 2 + j, p, mask=(j < i) & (i < VECTORS))


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


def run(dense, sparse, interactions):
    batch, tables, width = sparse.shape[0], sparse.shape[1], sparse.shape[2]
    if batch == 0:
        return
    if tables < 32 and width == 128:
        fragments[(batch,)](dense, sparse, interactions, TABLES=tables, num_warps=1)
    else:
        t = triton.cdiv(tables + 1, 32)
        tiled[(batch, t, t)](dense, sparse, interactions, TABLES=tables, WIDTH=width, T=32,
                             K=min(128, max(16, triton.next_power_of_2(width))), num_warps=2)
