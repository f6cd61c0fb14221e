"""examples/conv2d.yaml in Triton: an implicit matrix product in TF32. Each program takes a block of output positions and
all 96 filters, as 64 and 32, and gathers the inputs under the kernel block by block of the 363 products.

Operands are rounded to TF32 here, because the tensor cores would cut them off.
"""

import triton
import triton.language as tl

CHANNELS, KERNEL, STRIDE, PADDING, FILTERS = tl.constexpr(3), tl.constexpr(11), tl.constexpr(4), tl.constexpr(2), tl.constexpr(96)
PRODUCTS = tl.constexpr(363)


@triton.jit
def rounded(value):
    bits = value.to(tl.int32, bitcast=True)
    near = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(value) < float("inf"), near, value)


@triton.autotune(
    configs=[
        triton.Config({"POSITIONS": 128, "K": 32}, num_warps=8, num_stages=2),
        triton.Config({"POSITIONS": 64, "K": 32}, num_warps=4, num_stages=2),
        triton.Config({"POSITIONS": 64, "K": 32}, num_warps=4, num_stages=3),
    ],
    key=["positions"],
)
@triton.jit(do_not_specialize=["positions", "height", "width", "out_height", "out_width"])
def conv2d(
    x, weight, bias, y, positions, height, width, out_height, out_width, POSITIONS: tl.constexpr, K: tl.constexpr
):
    # Offsets are 64-bit up to the program's first image, and 32-bit from there.
    first = tl.program_id(0).to(tl.int64) * POSITIONS
    plane = out_height * out_width
    first_image = first // plane
    position = (first % plane).to(tl.int32) + tl.arange(0, POSITIONS)
    inside = position < positions - first_image * plane
    image, at = position // plane, position % plane
    row = at // out_width * STRIDE - PADDING
    column = at % out_width * STRIDE - PADDING
    x += first_image * CHANNELS * height * width
    y += first_image * FILTERS * plane
    origin = image * (CHANNELS * height * width) + row * width + column

    low = tl.arange(0, 64)
    high = 64 + tl.arange(0, 32)
    low_sum = tl.zeros([POSITIONS, 64], tl.float32)
    high_sum = tl.zeros([POSITIONS, 32], tl.float32)
    for k0 in range(0, PRODUCTS, K):
        k = k0 + tl.arange(0, K)
        channel, down, right = k // (KERNEL * KERNEL), k // KERNEL % KERNEL, k % KERNEL
        in_row, in_column = row[:, None] + down[None, :], column[:, None] + right[None, :]
        valid = (in_row.to(tl.uint32) < height.to(tl.uint32)) & (in_column.to(tl.uint32) < width.to(tl.uint32))
        valid = valid & (inside[:, None] & (k < PRODUCTS)[None, :])
        offset = (channel * height + down) * width + right
        values = rounded(tl.load(x + (origin[:, None] + offset[None, :]), mask=valid, other=0.0))
        real = (k < PRODUCTS)[:, None]
        low_weights = rounded(tl.load(weight + low[None, :] * PRODUCTS + k[:, None], mask=real, other=0.0))
        high_weights = rounded(tl.load(weight + high[None, :] * PRODUCTS + k[:, None], mask=real, other=0.0))
        low_sum = tl.dot(values, low_weights, low_sum, input_precision="tf32")
        high_sum = tl.dot(values, high_weights, high_sum, input_precision="tf32")
    target = image * (FILTERS * plane) + at
    low_sum += tl.load(bias + low)[None, :]
    high_sum += tl.load(bias + high)[None, :]
    tl.store(y + (target[:, None] + low[None, :] * plane), low_sum, mask=inside[:, None])
    tl.store(y + (target[:, None] + high[None, :] * plane), high_sum, mask=inside[:, None])


def run(x, weight, bias, y):
    images, _, height, width = x.shape
    _, _, out_height, out_width = y.shape
    positions = images * out_height * out_width
    grid = lambda meta: (triton.cdiv(positions, meta["POSITIONS"]),)
    conv2d[grid](x, weight, bias, y, positions, height, width, out_height, out_width)
