"""out = max(x + y, 0), element by element. Memory-bound: a thread moves 16 bytes an array; the last tile is masked."""

import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl

THREADS = 256


@cute.kernel
def add_relu(gx: cute.Tensor, gy: cute.Tensor, gout: cute.Tensor, places: cute.Tensor, n: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    tile, _, _ = cute.arch.block_idx()
    mine = (None, tile * THREADS + thread)
    x, y, out, place = gx[mine], gy[mine], gout[mine], places[mine]
    if place[cute.size(place) - 1] < n:
        total = x.load() + y.load()
        out.store(cute.where(total < 0.0, cute.zeros_like(total), total))  # NaN stays NaN
    else:
        for i in cutlass.range_constexpr(cute.size(place)):
            if place[i] < n:
                one = x[i] + y[i]
                out[i] = cutlass.select_(one < 0.0, out.element_type(0.0), one)


@cute.jit
def launch_add_relu(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr):
    each = (128 // x.element_type.width,)
    flat = cute.make_layout(n)
    gx = cute.zipped_divide(cute.make_tensor(x.iterator, flat), each)
    gy = cute.zipped_divide(cute.make_tensor(y.iterator, flat), each)
    gout = cute.zipped_divide(cute.make_tensor(out.iterator, flat), each)
    places = cute.zipped_divide(cute.make_identity_tensor(n), each)
    tiles = cute.ceil_div(cute.size(gx, mode=[1]), THREADS)
    add_relu(gx, gy, gout, places, n).launch(grid=[tiles, 1, 1], block=[THREADS, 1, 1])


launch = cutedsl.compile(launch_add_relu)


def run(x, y, out):
    launch(x, y, out, out.numel())
