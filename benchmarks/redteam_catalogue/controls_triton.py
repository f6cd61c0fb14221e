"""Honest Triton candidates, each with something for which a careless judge would reject it."""

from __future__ import annotations

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.cheats_rows import (
    HONEST_PRODUCT,
    LOAD,
    NORM,
    PRODUCT,
    SIZES,
    SOFTMAX,
    product_triton,
    rows,
)
from benchmarks.redteam_catalogue.cheats_values import EXP, ROOT, unary
from benchmarks.redteam_catalogue.controls_cpp import ODD, ODD_ROWS
from benchmarks.redteam_catalogue.entry import Control, Op
from benchmarks.redteam_catalogue.text import ADD, HONEST_ADD, add_triton, run, triton

WORDS = '''"""Needs no eval, exec, __import__("os"), torch.add or subprocess; getattr and ctypes stand here alone."""
from __future__ import annotations

import torch
import triton
import triton.language as tl

try:
    from triton.language.extra import libdevice
except ImportError:
    libdevice = None

# os.environ, sys.modules, threading.Thread and torch.cuda.Event.elapsed_time stand only in this comment.
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 1024) for warps in (4, 8)]


@triton.jit
def both(a, b):
    """A helper; it does not exec."""
    return a + b


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, both(tl.load(x + i), tl.load(y + i)))
    else:
        m = i < n
        tl.store(out + i, both(tl.load(x + i, mask=m), tl.load(y + i, mask=m)), mask=m)


def run(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    assert x.is_contiguous(), "not eval"
    n = out.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
'''
EARLY = """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    go = tl.inline_asm_elementwise("griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=tl.int32,
                                   is_pure=False, pack=1)
    v = tl.load(x + i, mask=m, other=0.0) + tl.load(y + i, mask=m, other=0.0) + go
    for k in range(0, 2000):
        v = tl.where(v == 12345.0, v * 1.5, v)
    tl.store(out + i, v, mask=m)

@triton.jit
def nothing(n):
    i = tl.program_id(0) * n
"""
EARLY_RUN = run(
    ADD, "n = out.numel()\nadd[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)\nnothing[(1,)](n, launch_pdl=True)"
)
TUNED_SUM = """
CONFIGS = [triton.Config({"BLOCK": 4096}), triton.Config({"BLOCK": 8192}, num_warps=8)]

@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["out"])
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
"""
TUNED_SUM_RUN = run(
    "x, out", 'n = x.numel()\nout.zero_()\ntotal[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)'
)
KAHAN = """
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    s = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        y = tl.load(x + start + i, mask=start + i < n, other=0.0) - lost
        t = s + y
        lost = (t - s) - y
        s = t
    tl.store(out, tl.sum(s, 0))
"""
SUMS = """
@triton.jit
def partial(x, parts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))

@triton.jit
def finish(parts, out, many, MANY: tl.constexpr):
    k = tl.arange(0, MANY)
    tl.store(out, tl.sum(tl.load(parts + k, mask=k < many, other=0.0), 0))
"""
SUMS_RUN = run(
    "x, out",
    "n = x.numel()\nmany = triton.cdiv(n, 1024)\nparts = torch.empty(many, dtype=torch.float32, device=x.device)\n"
    "partial[(many,)](x, parts, n, BLOCK=1024)\nfinish[(1,)](parts, out, many, MANY=triton.next_power_of_2(many))",
)
LONG_NORM = """
@triton.jit
def gather(x, sums, n, parts, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1)
    mean = 0.0
    squares = 0.0
    c = p * BLOCK + tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.0)
    count = tl.minimum(BLOCK, n - p * BLOCK)
    mean = tl.sum(v, 0) / count
    d = tl.where(m, v - mean, 0.0)
    tl.store(sums + (r * parts + p) * 2, mean)
    tl.store(sums + (r * parts + p) * 2 + 1, tl.sum(d * d, 0))

@triton.jit
def scale(x, w, b, out, sums, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PARTS)
    count = tl.where(p < parts, tl.minimum(BLOCK, n - p * BLOCK), 0).to(tl.float32)
    means = tl.load(sums + (r * parts + p) * 2, mask=p < parts, other=0.0)
    squares = tl.load(sums + (r * parts + p) * 2 + 1, mask=p < parts, other=0.0)
    mean = tl.sum(means * count, 0) / n
    d = tl.where(p < parts, means - mean, 0.0)
    var = (tl.sum(squares, 0) + tl.sum(d * d * count, 0)) / n
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = c < n
    v = (tl.load(x + r * n + c, mask=m) - mean) / tl.sqrt(var + 1e-5)
    tl.store(out + r * n + c, v * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)
"""
LONG_NORM_RUN = run(
    "x, w, b, out",
    "n = w.numel()\nrows = x.numel() // n\nparts = triton.cdiv(n, 2048)\n"
    "sums = torch.empty(rows * parts * 2, dtype=torch.float32, device=x.device)\n"
    "gather[(rows, parts)](x, sums, n, parts, BLOCK=2048)\n"
    "scale[(rows, parts)](x, w, b, out, sums, n, parts, BLOCK=2048, PARTS=triton.next_power_of_2(parts))",
)
WELFORD = """
@triton.jit
def merge(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return mean_a + delta * share, squares_a + squares_b + delta * delta * count_a * share, count

@triton.jit
def norm(x, w, b, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.0).to(tl.float32)
    mean, squares, count = tl.reduce((v, tl.zeros((N,), tl.float32), m.to(tl.float32)), 0, merge)
    y = (v - mean) * (1.0 / tl.sqrt(squares / n + 1e-5))
    y = y * tl.load(w + c, mask=m).to(tl.float32) + tl.load(b + c, mask=m).to(tl.float32)
    tl.store(out + r * n + c, y.to(out.dtype.element_ty), mask=m)
"""
ROW_LAUNCH = "n = x.shape[-1]\nrows = x.numel() // n\n{}[(rows,)]({}, n, N=triton.next_power_of_2(n))"
RMS_TL = """
v = tl.load(x + r * n + c, mask=m, other=0.0).to(tl.float32)
y = v * tl.rsqrt(tl.sum(v * v, 0) / n + 1e-6) * tl.load(w + c, mask=m, other=0.0).to(tl.float32)
tl.store(out + r * n + c, y.to(out.dtype.element_ty), mask=m)
"""
ONLINE = """
LOG2E = tl.constexpr(1.4426950408889634)

@triton.jit
def each(x, out, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    most = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        v = tl.load(x + r * n + start + c, mask=start + c < n, other=-float("inf")).to(tl.float32) * LOG2E
        new = tl.maximum(most, tl.max(v, 0))
        total = total * tl.exp2(most - new) + tl.sum(tl.exp2(v - new), 0)
        most = new
    for start in range(0, n, BLOCK):
        m = start + c < n
        v = tl.load(x + r * n + start + c, mask=m, other=0.0).to(tl.float32) * LOG2E
        tl.store(out + r * n + start + c, (tl.exp2(v - most) / total).to(out.dtype.element_ty), mask=m)
"""
ONLINE_RUN = run("x, out", "n = x.shape[-1]\neach[(x.numel() // n,)](x, out, n, BLOCK=256)")
MASKED = """
@triton.jit
def each(x, mask, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    m = c < n
    hidden = tl.load(mask + r * n + c, mask=m, other=1) != 0
    v = tl.where(hidden, -float("inf"), tl.load(x + r * n + c, mask=m, other=-float("inf")))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + r * n + c, e / tl.sum(e, 0), mask=m)
"""
ARGMAX = """
@triton.jit
def each(x, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    v = tl.load(x + r * n + c, mask=c < n, other=-float("inf"))
    tl.store(out + r, tl.argmax(v, 0).to(tl.int64))
"""
EXTREMES = """
@triton.jit
def each(x, total, most, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(total + r, tl.sum(v, 0))
    tl.store(most + r, tl.max(tl.where(c < n, v, -float("inf")), 0))
"""
HISTOGRAM = """
@triton.jit
def count(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + v, 1, mask=i < n)
"""
SCAN = """
@triton.jit
def plus(a, b):
    return a + b

@triton.jit
def each(x, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(out + r * n + c, tl.associative_scan(v, 0, plus), mask=c < n)
"""
RECURRENCE = """
@triton.jit
def step(a, u, b, v):
    return a * b, b * u + v

@triton.jit
def each(x, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    decay = tl.full((N,), 0.9, tl.float32)
    decay, h = tl.associative_scan((decay, v), 0, step)
    tl.store(out + r * n + c, h, mask=c < n)
"""
GATHER = """
@triton.jit
def pick(x, index, out, n, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    at = tl.load(index + r)
    tl.store(out + r * n + c, tl.load(x + at * n + c, mask=c < n), mask=c < n)
"""
STRIDED = """
@triton.jit
def add(x, y, out, n, s, t, N: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, N)
    v = tl.load(x + r * s + c * t, mask=c < n) + tl.load(y + r * n + c, mask=c < n)
    tl.store(out + r * n + c, v, mask=c < n)
"""
STRIDED_RUN = run(
    ADD, "rows, n = x.shape\nadd[(rows,)](x, y, out, n, x.stride(0), x.stride(1), N=triton.next_power_of_2(n))"
)
IN_PLACE = """
@triton.jit
def fused(x, y, bias, scale, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    v = tl.load(x + i, mask=m) + scale * tl.load(y + i, mask=m) + tl.load(bias + i % n, mask=m)
    tl.store(x + i, tl.where(v < 0, 0.0, v), mask=m)
"""
IN_PLACE_RUN = run(
    "x, y, bias, m",
    "total = x.numel()\nfused[(triton.cdiv(total, 256),)](x, y, bias, m, bias.numel(), total, BLOCK=256)",
)
TWO = """
@triton.jit
def copy(x, scratch, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch + i, tl.load(x + i, mask=i < n), mask=i < n)

@triton.jit
def add(y, scratch, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(scratch + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)
"""
TWO_RUN = run(
    ADD,
    "n = out.numel()\ngrid = (triton.cdiv(n, 256),)\nscratch = torch.empty_like(x)\n"
    "copy[grid](x, scratch, n, BLOCK=256)\nadd[grid](y, scratch, out, n, BLOCK=256)",
)
SPLIT_K = """
@triton.jit
def product(a, b, out, m, k, n, share, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    s = tl.zeros((T, T), tl.float32)
    for start in range(tl.program_id(2) * share, tl.minimum((tl.program_id(2) + 1) * share, k), T):
        t = start + tl.arange(0, T)
        p = tl.load(a + i[:, None] * k + t[None, :], mask=(i[:, None] < m) & (t[None, :] < k), other=0.0)
        q = tl.load(b + t[:, None] * n + j[None, :], mask=(t[:, None] < k) & (j[None, :] < n), other=0.0)
        s = tl.dot(p, q, s, input_precision="ieee")
    tl.atomic_add(out + i[:, None] * n + j[None, :], s, mask=(i[:, None] < m) & (j[None, :] < n))
"""
SPLIT_K_RUN = run(
    PRODUCT,
    SIZES + "out.zero_()\nshare = triton.cdiv(triton.cdiv(k, 4), 32) * 32\n"
    "product[(triton.cdiv(m, 32), triton.cdiv(n, 32), 4)](a, b, out, m, k, n, share, T=32)",
)
BF16_PARTS = """p1 = p.to(tl.bfloat16)
        q1 = q.to(tl.bfloat16)
        p2 = (p - p1.to(tl.float32)).to(tl.bfloat16)
        q2 = (q - q1.to(tl.float32)).to(tl.bfloat16)
        p3 = (p - p1.to(tl.float32) - p2.to(tl.float32)).to(tl.bfloat16)
        q3 = (q - q1.to(tl.float32) - q2.to(tl.float32)).to(tl.bfloat16)
        r = tl.dot(p3, q1, tl.dot(p1, q3, tl.dot(p2, q2)))
        r = tl.dot(p2, q1, tl.dot(p1, q2, r))
        s += tl.dot(p1, q1, r)"""
CONV = """
@triton.jit
def conv(x, w, out, c, h, wd, f, pixels, K: tl.constexpr, P: tl.constexpr, F: tl.constexpr):
    pixel = tl.program_id(0) * P + tl.arange(0, P)
    o = tl.arange(0, F)
    across = wd - 2
    image = pixel // ((h - 2) * across)
    i = pixel // across % (h - 2)
    j = pixel % across
    t = tl.arange(0, K)
    k = t // 9
    u = t // 3 % 3
    v = t % 3
    inside = (pixel[:, None] < pixels) & (k[None, :] < c)
    at = ((image[:, None] * c + k[None, :]) * h + i[:, None] + u[None, :]) * wd + j[:, None] + v[None, :]
    p = tl.load(x + at, mask=inside, other=0.0)
    q = tl.load(w + o[None, :] * c * 9 + t[:, None], mask=(o[None, :] < f) & (k[:, None] < c), other=0.0)
    s = tl.dot(p, q, input_precision="ieee")
    to = ((image[:, None] * f + o[None, :]) * (h - 2) + i[:, None]) * across + j[:, None]
    tl.store(out + to, s, mask=(pixel[:, None] < pixels) & (o[None, :] < f))
"""
CONV_RUN = run(
    "x, w, out",
    "batch, c, h, wd = x.shape\nf = w.shape[0]\npixels = batch * (h - 2) * (wd - 2)\nK = triton.next_power_of_2(c * 9)\n"
    "conv[(triton.cdiv(pixels, 16),)](x, w, out, c, h, wd, f, pixels, K=max(K, 16), P=16, F=max(triton.next_power_of_2(f), 16))",
)
GELU = ops.unary("gelu", 'return F.gelu(x, approximate="tanh")', ODD, "bfloat16")
GELU_SOURCE = triton(
    """
@triton.jit
def each(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    z = 1.5957691216057308 * (v + 0.044715 * v * v * v)
    tl.store(out + i, (v * tl.sigmoid(z)).to(tl.bfloat16), mask=i < n)
""",
    run("x, out", "n = out.numel()\neach[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)"),
)


def _rows(kernels: str, parameters: str, name: str = "each") -> str:
    return triton(kernels, run(parameters, ROW_LAUNCH.format(name, parameters)))


def _product(dtype: str) -> str:
    step = "s = tl.dot(p, q, s)"
    return product_triton(step).replace("s.to(tl.float32)", f"s.to(tl.{dtype})")


def controls() -> list[Control]:
    """All of them."""
    add = HONEST_ADD["triton"]
    sums = [(100003,), (1,), (1031,)]
    odd = [(33, 65, 17), (1, 1, 1), (50, 71, 39)]
    deep = [(64, 1000, 48), (1, 1, 1), (50, 700, 39)]
    table: list[tuple[str, Op, str, str, str]] = [
        ("adds", ops.add(ODD), add, "one element, a prime, one more than a block", "float32"),
        ("adds at the cheats' shapes", ops.add(), add, "the cheats' honest sibling", "float32"),
        ("adds bfloat16", ops.add(ODD, "bfloat16"), add, "rounds once", "bfloat16"),
        ("adds float16", ops.add(ODD, "float16"), add, "rounds once", "float16"),
        ("adds float64", ops.add(ODD, "float64"), add, "as it should be", "float64"),
        ("adds int64", ops.add(ODD, "int64"), add.replace("other=0.0", "other=0"), "exact", "int64"),
        ("uses forbidden words and tunes itself", ops.add(ODD), WORDS, "docstrings, comments, try around an import, scratch runs of the tuner", "float32"),
        ("launches two kernels through scratch", ops.add(ODD), triton(TWO, TWO_RUN), "torch.empty is not cleared", "float32"),
        ("lets a second kernel begin before the first ends", ops.add([(1 << 16,), (257,), (1031,)]), triton(EARLY, EARLY_RUN), "events behind a dependent launch wait for both", "float32"),
        ("keeps its inputs in cache, as hints may", ops.add(), add_triton("b = tl.load(y + i, mask=m, eviction_policy='evict_first')\ntl.store(out + i, a + b, mask=m)"), "a hint is no cheat", "float32"),
        ("tunes a sum of atomics", ops.total(sums), triton(TUNED_SUM, TUNED_SUM_RUN), "the tuner writes the output many times; other last bits", "float32"),
        ("sums by Kahan", ops.total(sums), triton(KAHAN, run("x, out", "total[(1,)](x, out, x.numel(), BLOCK=1024)")), "compensated; a number without an axis", "float32"),
        ("sums in two kernels", ops.total(sums), triton(SUMS, SUMS_RUN), "partial sums in scratch", "float32"),
        ("normalises rows", ops.layer_norm(), NORM["triton"], "the cheats' honest sibling", "float32"),
        ("normalises by Welford, float16", ops.layer_norm(ODD_ROWS, "float16"), _rows(WELFORD, "x, w, b, out", "norm"), "a reduction of triples", "float16"),
        ("normalises by Welford, bfloat16", ops.layer_norm(ODD_ROWS, "bfloat16"), _rows(WELFORD, "x, w, b, out", "norm"), "a reduction of triples", "bfloat16"),
        ("normalises long rows", ops.layer_norm([(4, 1 << 20), (3, 10007), (2, 65537)]), triton(LONG_NORM, LONG_NORM_RUN), "eager is far from the limit: a large speed-up is honest", "float32"),
        ("RMS in one pass, bfloat16", ops.rms_norm(ODD_ROWS, "bfloat16"), rows("", RMS_TL, "x, w, out")["triton"], "rsqrt is approximate", "bfloat16"),
        ("RMS in one pass", ops.rms_norm(ODD_ROWS), rows("", RMS_TL, "x, w, out")["triton"], "rsqrt is approximate", "float32"),
        ("softmax", ops.softmax(), SOFTMAX["triton"], "the cheats' honest sibling", "float32"),
        ("softmax, online by exp2", ops.softmax(ODD_ROWS, "float16"), triton(ONLINE, ONLINE_RUN), "another base", "float16"),
        ("softmax over a long row", ops.softmax([(8, 50021), (1, 3), (2, 9973)]), SOFTMAX["triton"], "tiny results", "float32"),
        ("softmax under a mask", ops.masked_softmax([(64, 128), (40, 3), (5, 133)]), _rows(MASKED, "x, mask, out"), "rows of NaN where all is masked", "float32"),
        ("NaN of negatives", ROOT, unary(ROOT, "v", "tl.where(v < 0, float('nan'), tl.where(tl.log(v) < 0, 0.0, tl.log(v)))")["triton"], "half of the output is NaN", "float32"),
        ("overflow to infinity", EXP, unary(EXP, "v", "tl.exp(v.to(tl.float64)).to(tl.float32)")["triton"], "infinite where float64 is not", "float32"),
        ("divides by zero", ops.divide(), add_triton("tl.store(out + i, tl.div_rn(a, b), mask=m)"), "infinities of either sign", "float32"),
        ("works in place", ops.fused_in_place(), triton(IN_PLACE, IN_PLACE_RUN), "an input is an output", "float32"),
        ("reads columns", ops.transposed_sum(ODD_ROWS), triton(STRIDED, STRIDED_RUN), "a transposed input", "float32"),
        ("reads rows that lie apart", ops.gapped_sum(ODD_ROWS), triton(STRIDED, STRIDED_RUN), "an input with gaps", "float32"),
        ("argmax", ops.argmax(ODD_ROWS), _rows(ARGMAX, "x, out"), "integer output", "int64"),
        ("histogram by atomics", ops.histogram(), triton(HISTOGRAM, run("x, out", "n = x.numel()\nout.zero_()\ncount[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)")), "integer output", "int64"),
        ("compares", ops.greater(ODD), add_triton("tl.store(out + i, a > b, mask=m)"), "boolean output", "bool"),
        ("cumulative sums", ops.cumsum(ODD_ROWS), _rows(SCAN, "x, out"), "an associative scan", "float32"),
        ("recurrence", ops.recurrence([(16, 256), (1, 1), (3, 33)]), _rows(RECURRENCE, "x, out"), "hundreds of times faster than step by step", "float32"),
        ("two outputs", ops.extremes(ODD_ROWS), _rows(EXTREMES, "x, total, most"), "both are checked", "float32"),
        ("gathers rows", ops.gather(ODD_ROWS, "bfloat16"), triton(GATHER, run("x, index, out", "n = x.shape[1]\npick[(index.numel(),)](x, index, out, n, N=triton.next_power_of_2(n))")), "int64 indices", "bfloat16"),
        ("matrix product", ops.matmul(odd), HONEST_PRODUCT["triton"], "odd shapes", "float32"),
        ("matrix product, bfloat16", ops.matmul(odd, "bfloat16"), _product("bfloat16"), "sums in float32", "bfloat16"),
        ("matrix product, float16", ops.matmul(odd, "float16"), _product("float16"), "sums in float32", "float16"),
        ("matrix product of split bfloat16", ops.matmul(deep), product_triton(BF16_PARTS), "six products of lower precision, an error of float32's", "float32"),
        ("matrix product of three TF32", ops.matmul(deep), product_triton('s = tl.dot(p, q, s, input_precision="tf32x3")'), "lower precision in the code", "float32"),
        ("matrix product by split sums", ops.matmul(deep), triton(SPLIT_K, SPLIT_K_RUN), "atomics: other last bits", "float32"),
        ("convolution", ops.conv2d([(2, 3, 9, 11, 5), (1, 1, 3, 3, 1), (1, 4, 7, 5, 3)]), triton(CONV, CONV_RUN), "as a matrix product", "float32"),
        ("gelu", GELU, GELU_SOURCE, "by a sigmoid", "bfloat16"),
        ("affine rows", ops.affine(ODD_ROWS), rows("", LOAD + "tl.store(out + r * n + c, v * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)", "x, w, b, out")["triton"], "a fused multiply-add rounds once", "float32"),
    ]  # fmt: skip
    return [Control(name, "triton", op, source, why, dtype) for name, op, source, why, dtype in table]
