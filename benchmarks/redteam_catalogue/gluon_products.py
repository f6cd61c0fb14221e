"""Matrix products in Gluon, a tile a block: on the CUDA cores in float32, or on the tensor cores as `mma_v2` has them."""

from __future__ import annotations

from benchmarks.redteam_catalogue.text import gluon, run

EXACT = "s = gl.dot_fma(gl.convert_layout(p, LEFT), gl.convert_layout(q, RIGHT), s)"
"""A step in float32."""
MMA = "s = mma_v2(gl.convert_layout({p}, LEFT), gl.convert_layout({q}, RIGHT), s{more})"
"""A step on the tensor cores."""

_FMA = "gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])"
_TENSOR_CORES = "gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])"


def product_gluon(step: str = EXACT, kept: str = "float32", terms: str = "k", *, width: int = 0) -> str:
    """`out = a @ b` with tiles of 32; `step` updates s from the tiles p and q, which it may change first.

    kept: the dtype of s. terms: how many there are in a sum. width: elements of an operand that a thread of the tensor
    cores has side by side (1 of 32 bits, 2 of 16), 0 where the step is `EXACT`.
    In `step`, t are the terms by q's rows, i and j the rows and columns of the result.
    """
    parent = _TENSOR_CORES if width else _FMA
    kernel = f"""
@gluon.jit
def product(a, b, out, m, k, n, T: gl.constexpr):
    MOVED: gl.constexpr = {_FMA}
    SUMS: gl.constexpr = {parent}
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, {width})
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, SUMS, {width})
    down: gl.constexpr = gl.SliceLayout(1, MOVED)
    along: gl.constexpr = gl.SliceLayout(0, MOVED)
    i = gl.program_id(0) * T + gl.arange(0, T, down)
    j = gl.program_id(1) * T + gl.arange(0, T, along)
    s = gl.zeros((T, T), gl.{kept}, SUMS)
    for start in range(0, {terms}, T):
        t = start + gl.arange(0, T, down)
        u = start + gl.arange(0, T, along)
        p = gl.load(a + i[:, None] * k + u[None, :], mask=(i[:, None] < m) & (u[None, :] < k), other=0.0)
        q = gl.load(b + t[:, None] * n + j[None, :], mask=(t[:, None] < k) & (j[None, :] < n), other=0.0)
        {step}
    found = gl.convert_layout(s.to(gl.float32), MOVED)
    gl.store(out + i[:, None] * n + j[None, :], found, mask=(i[:, None] < m) & (j[None, :] < n))
"""
    launch = "product[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, out, m, k, n, T=32)"
    sizes = "m, k = a.shape\nn = b.shape[1]\n"
    imported = "from triton.experimental.gluon.language.nvidia.ampere import mma_v2" if width else ""
    return gluon(kernel, run("a, b, out", sizes + launch), imported)
