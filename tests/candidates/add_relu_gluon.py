"""examples/add_relu.yaml in Gluon: right at every shape."""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def bias_relu(x, bias, y, n, columns, BLOCK: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0).to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout)
    inside = i < n
    total = gl.load(x + i, mask=inside) + gl.load(bias + i % columns, mask=inside)
    gl.store(y + i, gl.where(total < 0, 0.0, total), mask=inside)


def run(x, bias, y):
    n = y.numel()
    layout = gl.BlockedLayout([4], [32], [4], [0])
    bias_relu[(triton.cdiv(n, 1024),)](x, bias, y, n, bias.shape[0], BLOCK=1024, layout=layout, num_warps=4)
