"""y = max(x + bias, 0). Flat blocks in address order, one row piece each, without cache hints: L2 collects the writes."""

import triton
import triton.language as tl


@triton.jit
def plain_kernel(x, bias, y, rows, COLS: tl.constexpr, STRIPS: tl.constexpr, R: tl.constexpr, BC: tl.constexpr,
                 WHOLE: tl.constexpr, WIDE: tl.constexpr):
    pid = tl.program_id(0)
    strip = pid % STRIPS
    group = pid // STRIPS
    col = strip * BC + tl.arange(0, BC)
    if R == 1:
        if WIDE:
            base = group.to(tl.int64) * COLS
        else:
            base = group * COLS
        if WHOLE:
            v = tl.load(x + base + col)
            b = tl.load(bias + col)
            t = v + b
            tl.store(y + base + col, tl.where(t <= 0.0, 0.0, t))  # keeps NaN
        else:
            inside = col < COLS
            v = tl.load(x + base + col, mask=inside, other=0.0)
            b = tl.load(bias + col, mask=inside, other=0.0)
            t = v + b
            tl.store(y + base + col, tl.where(t <= 0.0, 0.0, t), mask=inside)
    else:
        # few columns: several rows make up a block
        row = group.to(tl.int64) * R + tl.arange(0, R)
        offs = row[:, None] * COLS + col[None, :]
        inside = (row[:, None] < rows) & (col[None, :] < COLS)
        v = tl.load(x + offs, mask=inside, other=0.0)
        b = tl.load(bias + col, mask=col < COLS, other=0.0)
        t = v + b[None, :]
        tl.store(y + offs, tl.where(t <= 0.0, 0.0, t), mask=inside)


def run(x, bias, y):
    rows, cols = x.shape
    if rows * cols == 0:
        return
    bc = min(1024, triton.next_power_of_2(cols))
    r = 1
    if bc < 1024:
        r = min(1024 // bc, triton.next_power_of_2(rows))
    strips = triton.cdiv(cols, bc)
    groups = triton.cdiv(rows, r)
    plain_kernel[(strips * groups,)](x, bias, y, rows, COLS=cols, STRIPS=strips, R=r, BC=bc, WHOLE=cols % bc == 0,
                                     WIDE=rows * cols + bc >= 2 ** 31, num_warps=4)
