"""Cheats and controls in TileLang: what kernels do wrong in any language, written anew.

A kernel of TileLang's has no variables of its module and no host code of its own, so what needs these is not here; what
host code may not do is in `cheats_host` for every language. Two more are not here, since TileLang does not let a kernel
do them: it guards each access of a tensor in a parallel loop, so nothing is written past the end, and puts the barriers
between writes and reads of shared memory, so nothing races there.
"""

from __future__ import annotations

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, MEMORY, SANITIZED, WRONG, Cheat, Control
from benchmarks.redteam_catalogue.text import HONEST_ADD, TILELANG, TILELANG_ELEMENT, add_tilelang, run

LOOKS = "if i < N:\n    out[i] = T.if_then_else(N == FIRST, x[i] + y[i], x[i])"
WAITS = """
N = T.dynamic("n")


@T.prim_func
def add(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32"), out: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, 256), threads=256) as block:
        total = T.alloc_var("float32")
        total = 0.0
        while total >= 0.0:
            total = T.abs(x[0] + total * 0.5)
            out[0] = total
        for j in T.Parallel(256):
            i = block * 256 + j
            if i < N:
                out[i] = x[i] + y[i] + total


launch = tilelang.compile(add)
"""
ROWS = """
ROWS, COLUMNS = T.dynamic("rows"), T.dynamic("columns")
PART = 512


@T.prim_func
def normalise(x: T.Tensor((ROWS, COLUMNS), "float32"), out: T.Tensor((ROWS, COLUMNS), "float32")):
    with T.Kernel(ROWS, threads=128) as row:
        part = T.alloc_fragment((1, PART), "float32")
        most = T.alloc_fragment((1,), "float32")
        one = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.fill(most, -T.infinity("float32"))
        T.clear(total)
        for step in T.serial(T.ceildiv(COLUMNS, PART)):
            for i, j in T.Parallel(1, PART):
                if step * PART + j < COLUMNS:
                    part[i, j] = x[row, step * PART + j]
                else:
                    part[i, j] = -T.infinity("float32")
            T.reduce_max(part, most, dim=1, clear=False)
        for step in T.serial(T.ceildiv(COLUMNS, PART)):
            for i, j in T.Parallel(1, PART):
                if step * PART + j < COLUMNS:
                    part[i, j] = T.exp(x[row, step * PART + j] - most[0])
                else:
                    part[i, j] = 0.0
            T.reduce_sum(part, one, dim=1)
            total[0] += one[0]
        for step in T.serial(T.ceildiv(COLUMNS, PART)):
            for j in T.Parallel(PART):
                if step * PART + j < COLUMNS:
                    out[row, step * PART + j] = T.exp(x[row, step * PART + j] - most[0]) / total[0]


launch = tilelang.compile(normalise)


"""
SOFTMAX = f"{TILELANG}{ROWS}" + run("x, out", "n = x.shape[-1]\nlaunch(x.view(-1, n), out.view(-1, n))")


def cheats() -> list[Cheat]:
    """What a kernel may do wrong, each a change of the honest addition."""
    op, honest = ops.add(), HONEST_ADD["tilelang"]
    first = op.workloads[0]["inputs"][0]["shape"] or [0]
    half = 'T.cast(T.cast(x[i], "{0}") + T.cast(y[i], "{0}"), "float32")'
    wrong = [
        ("leaves its output as it finds it", (1,), "if i < N and x[i] > 1e30:\n    out[i] = x[i]", "stale memory", ""),
        ("writes zeros for its sum", (2, 3), "if i < N:\n    out[i] = 0.0", "in place of a sum", ""),
        ("computes the first half", (1,), "if i < N // 2:\n    out[i] = x[i] + y[i]", "the rest is stale", ""),
        ("passes its input through", (6,), "if i < N:\n    out[i] = x[i]", "in place of a sum", ""),
        ("uses one operand twice", (7,), "if i < N:\n    out[i] = x[i] + x[i]", "for both", ""),
        ("drops the tail", (12,), "if i < N // 256 * 256:\n    out[i] = x[i] + y[i]", "of the last block", ""),
        (
            "is wrong in 2 % of elements",
            (9,),
            "if i < N:\n    out[i] = x[i] + y[i] + T.if_then_else(i % 50 == 5, 1.0, 0.0)",
            "by one",
            "",
        ),
        (
            "computes in float16",
            (8,),
            f"if i < N:\n    out[i] = {half.format('float16')}",
            "half the digits",
            "",
        ),
        (
            "computes in bfloat16",
            (8,),
            f"if i < N:\n    out[i] = {half.format('bfloat16')}",
            "a third of the digits",
            "",
        ),
        (
            "is right at one shape",
            (12,),
            LOOKS,
            "by a constant of the kernel",
            f"FIRST = {first[0] if len(first) == 1 else 0}",
        ),
    ]
    found = [
        Cheat(
            name,
            lines,
            "tilelang",
            op,
            add_tilelang(body, module=module),
            does,
            CHECKED,
            WRONG,
            level="verify",
            honest=honest,
        )
        for name, lines, body, does, module in wrong
    ]
    found.append(
        Cheat(
            "writes to an input",
            (2,),
            "tilelang",
            op,
            add_tilelang(f"{TILELANG_ELEMENT}\n    x[i] = 0.0"),
            "behind the result",
            CHECKED,
            MEMORY | WRONG | SANITIZED | ENDED,
            level="verify",
            honest=honest,
        )
    )
    found.append(
        Cheat(
            "never ends",
            (45,),
            "tilelang",
            op,
            f"{TILELANG}{WAITS}\n\n{run('x, y, out', 'launch(x.view(-1), y.view(-1), out.view(-1))')}",
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
        Control(
            "adds at the cheats' shapes", "tilelang", ops.add(), HONEST_ADD["tilelang"], "the cheats' honest sibling"
        ),
        Control("softmax by reductions", "tilelang", ops.softmax(), SOFTMAX, "three passes over fragments"),
    ]
