"""out = x @ w.T for sm_90, bfloat16 with float32 sums: TMA fills a ring in shared memory, wgmma multiplies."""

import tilelang.language as T
from kernels_db.runtime import tilelang

ROWS, COLUMNS, DEPTH = T.dynamic("rows"), T.dynamic("columns"), T.dynamic("depth")
M, N, K, STAGES = 128, 128, 64, 3


@T.prim_func
def product(
    x: T.Tensor((ROWS, DEPTH), "bfloat16"),
    w: T.Tensor((COLUMNS, DEPTH), "bfloat16"),
    out: T.Tensor((ROWS, COLUMNS), "bfloat16"),
):
    with T.Kernel(T.ceildiv(COLUMNS, N), T.ceildiv(ROWS, M), threads=256) as (column, row):
        left = T.alloc_shared((M, K), "bfloat16")
        right = T.alloc_shared((N, K), "bfloat16")
        total = T.alloc_fragment((M, N), "float32")
        T.clear(total)
        for step in T.Pipelined(T.ceildiv(DEPTH, K), num_stages=STAGES):
            T.copy(x[row * M, step * K], left)
            T.copy(w[column * N, step * K], right)
            T.gemm(left, right, total, transpose_B=True)
        T.copy(total, out[row * M, column * N])


launch = tilelang.compile(product)


def run(x, w, out):
    launch(x, w, out)
