"""examples/add_relu.yaml in TileLang: right at every shape."""

import tilelang.language as T
from kernels_db.runtime import tilelang

ROWS, COLUMNS = T.dynamic("rows"), T.dynamic("columns")
BLOCK = 1024


@T.prim_func
def bias_relu(
    x: T.Tensor((ROWS, COLUMNS), "float32"), bias: T.Tensor((COLUMNS,), "float32"), y: T.Tensor((ROWS, COLUMNS), "float32")
):
    with T.Kernel(ROWS, T.ceildiv(COLUMNS, BLOCK), threads=256) as (row, part):
        for j in T.Parallel(BLOCK):
            column = part * BLOCK + j
            if column < COLUMNS:
                total = x[row, column] + bias[column]
                y[row, column] = T.if_then_else(total < 0.0, 0.0, total)  # NaN stays NaN


launch = tilelang.compile(bias_relu)


def run(x, bias, y):
    launch(x, bias, y)
