"""examples/add_relu.yaml in CuTe DSL: right at every shape."""

import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl


@cute.kernel
def bias_relu(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, n: cutlass.Constexpr, columns: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < n:
        total = x[i] + bias[i % columns]
        y[i] = cutlass.select_(total < 0.0, cutlass.Float32(0.0), total)  # NaN stays NaN


@cute.jit
def launch_bias_relu(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    n = cute.size(x)
    flat = cute.make_layout(n)
    x, y = cute.make_tensor(x.iterator, flat), cute.make_tensor(y.iterator, flat)
    bias_relu(x, bias, y, n, cute.size(bias)).launch(grid=[cute.ceil_div(n, 256), 1, 1], block=[256, 1, 1])


launch = cutedsl.compile(launch_bias_relu)


def run(x, bias, y):
    launch(x, bias, y)
