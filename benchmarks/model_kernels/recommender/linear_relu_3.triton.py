import triton
import triton.language as tl


@triton.jit
def linear_relu(x, w, b, y, rows, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, N)
    total = tl.zeros((ROWS, N), tl.float32)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        left = tl.load(x + row[:, None] * K + k[None, :], mask=(row < rows)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(w + col[None, :] * K + k[:, None], mask=(k < K)[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    total = tl.maximum(total + tl.load(b + col)[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + row[:, None] * N + col[None, :], total, mask=(row < rows)[:, None])


def run(x, weight, bias, y):
    rows, columns = x.shape
    linear_relu[(triton.cdiv(rows, 16),)](x, weight, bias, y, rows, K=columns, N=64, ROWS=16, STEP=32, num_warps=4)
