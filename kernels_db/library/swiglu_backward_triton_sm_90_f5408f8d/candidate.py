"""Both halves of the gradient from one read of grad_out, gate and up: a program takes a stretch of one row."""

import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 512}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
    ],
    key=["tokens", "inner"],
)
@triton.jit
def swiglu_backward(grad_out, x, grad_x, tokens, inner, BLOCK: tl.constexpr):
    blocks = tl.cdiv(inner, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    grad = tl.load(grad_out + row * inner + column, mask=inside).to(tl.float32)
    gate = tl.load(x + row * 2 * inner + column, mask=inside).to(tl.float32)
    up = tl.load(x + row * 2 * inner + inner + column, mask=inside).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-gate))
    grad_gate = grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    grad_up = grad * (gate * sigmoid)
    tl.store(grad_x + row * 2 * inner + column, grad_gate.to(tl.bfloat16), mask=inside)
    tl.store(grad_x + row * 2 * inner + inner + column, grad_up.to(tl.bfloat16), mask=inside)


def run(grad_out, x, grad_x):
    tokens, inner = grad_out.shape
    swiglu_backward[lambda meta: (tokens * triton.cdiv(inner, meta["BLOCK"]),)](grad_out, x, grad_x, tokens, inner)
