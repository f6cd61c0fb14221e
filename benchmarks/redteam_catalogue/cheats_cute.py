"""Cheats and controls in CuTe DSL: what kernels do wrong in any language, written anew.

A kernel of the DSL has no variables of its module and no host code of its own, so what needs these is not here; what
host code may not do is in `cheats_host` for every language.
"""

from __future__ import annotations

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, MEMORY, SANITIZED, WRONG, Cheat, Control
from benchmarks.redteam_catalogue.text import CUTE, ELEMENT, HONEST_ADD, add_cute, run

WAITS = """total = cutlass.Float32(0.0)
while total >= 0.0:
    total = total * x[0] * 0.0 + cute.arch.fmax(total, 0.0)
if i < n:
    out[i] = x[i] + y[i] + total"""
RACES = """held = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(256))
if i < n:
    held[thread] = x[i] + y[i]
if i < n:
    other = held[255 - thread]
    held[thread] = other
cute.arch.sync_threads()
if i < n:
    out[i] = held[255 - thread]"""
LOOKS = """if cutlass.const_expr(n == FIRST):
    if i < n:
        out[i] = x[i] + y[i]
else:
    if i < n:
        out[i] = x[i]"""
ROWS = """
THREADS = 128


@cute.kernel
def normalise(x: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    warp = cute.arch.warp_idx()
    held = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32))
    most = cutlass.Float32(-math.inf)
    for i in cutlass.range(thread, n, THREADS):
        most = cute.arch.fmax(most, x[row, i])
    most = cute.arch.warp_reduction_max(most)
    if cute.arch.lane_idx() == 0:
        held[warp] = most
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(THREADS // 32):
        most = cute.arch.fmax(most, held[i])
    cute.arch.sync_threads()
    total = cutlass.Float32(0.0)
    for i in cutlass.range(thread, n, THREADS):
        total += cute.math.exp(x[row, i] - most)
    total = cute.arch.warp_reduction_sum(total)
    if cute.arch.lane_idx() == 0:
        held[warp] = total
    cute.arch.sync_threads()
    total = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(THREADS // 32):
        total += held[i]
    for i in cutlass.range(thread, n, THREADS):
        out[row, i] = cute.math.exp(x[row, i] - most) / total


@cute.jit
def launch_normalise(x: cute.Tensor, out: cute.Tensor, rows: cutlass.Constexpr, n: cutlass.Constexpr):
    layout = cute.make_layout((rows, n), stride=(n, 1))
    normalise(cute.make_tensor(x.iterator, layout), cute.make_tensor(out.iterator, layout), n).launch(
        grid=[rows, 1, 1], block=[THREADS, 1, 1]
    )


launch = cutedsl.compile(launch_normalise)
"""
SOFTMAX = f"import math\n{CUTE}{ROWS}\n" + run("x, out", "n = x.shape[-1]\nlaunch(x, out, x.numel() // n, n)")


def cheats() -> list[Cheat]:
    """What a kernel may do wrong, each a change of the honest addition."""
    op, honest = ops.add(), HONEST_ADD["cute"]
    first = op.workloads[0]["inputs"][0]["shape"] or [0]
    wrong = [
        ("leaves its output as it finds it", (1,), "if i < 0:\n    out[i] = x[i]", "stale memory"),
        ("writes zeros for its sum", (2, 3), "if i < n:\n    out[i] = 0.0", "in place of a sum"),
        ("computes the first half", (1,), "if i < n // 2:\n    out[i] = x[i] + y[i]", "the rest is stale"),
        ("passes its input through", (6,), "if i < n:\n    out[i] = x[i]", "in place of a sum"),
        ("uses one operand twice", (7,), "if i < n:\n    out[i] = x[i] + x[i]", "for both"),
        ("drops the tail", (12,), "if i < n // 256 * 256:\n    out[i] = x[i] + y[i]", "of the last block"),
        (
            "is wrong in 2 % of elements",
            (9,),
            "if i < n:\n    out[i] = x[i] + y[i] + (1.0 if i % 50 == 5 else 0.0)",
            "by one",
        ),
        (
            "computes in float16",
            (8,),
            "if i < n:\n    out[i] = (x[i].to(cutlass.Float16) + y[i].to(cutlass.Float16)).to(cutlass.Float32)",
            "half the digits",
        ),
        (
            "computes in bfloat16",
            (8,),
            "if i < n:\n    out[i] = (x[i].to(cutlass.BFloat16) + y[i].to(cutlass.BFloat16)).to(cutlass.Float32)",
            "a third of the digits",
        ),
    ]
    found = [
        Cheat(name, lines, "cute", op, add_cute(body), does, CHECKED, WRONG, level="verify", honest=honest)
        for name, lines, body, does in wrong
    ]
    looks = add_cute(LOOKS, module=f"FIRST = {first[0] if len(first) == 1 else 0}")
    found.append(
        Cheat(
            "is right at one shape",
            (12,),
            "cute",
            op,
            looks,
            "by a constant of the kernel",
            CHECKED,
            WRONG,
            level="verify",
            honest=honest,
        )
    )
    memory = [
        ("writes to an input", (2,), f"{ELEMENT}\n    x[i] = 0.0", "behind the result"),
        ("writes past the end", (16,), "if i < n + 64:\n    out[i] = x[i] + y[i]", "into what lies there"),
    ]
    found += [
        Cheat(
            name,
            lines,
            "cute",
            op,
            add_cute(body, blocks=0),
            does,
            CHECKED,
            MEMORY | WRONG | SANITIZED | ENDED,
            level="verify",
            honest=honest,
        )
        for name, lines, body, does in memory
    ]
    found.append(
        Cheat(
            "races",
            (15,),
            "cute",
            op,
            add_cute(RACES),
            "without a barrier",
            CHECKED,
            WRONG | SANITIZED,
            level="verify",
            honest=honest,
        )
    )
    found.append(
        Cheat(
            "never ends",
            (45,),
            "cute",
            op,
            add_cute(WAITS),
            "a kernel that spins",
            CHECKED,
            ENDED,
            honest=honest,
            harms=True,
            call_s=2.0,
        )
    )
    return found


def controls() -> list[Control]:
    """Honest kernels, which must be accepted."""
    return [
        Control("adds at the cheats' shapes", "cute", ops.add(), HONEST_ADD["cute"], "the cheats' honest sibling"),
        Control("softmax by shared memory", "cute", ops.softmax(), SOFTMAX, "two passes and two barriers"),
    ]
