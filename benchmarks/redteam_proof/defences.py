"""What each cheat is caught by, and what comes of it where that is off.

`python -m benchmarks.redteam --prove` holds the code to it; `undefended` says what each defence is when it is off.
Four cannot be switched off by a hook. hold-out: the job has the timed workload alone. numbers: it has the workloads
that the op declares alone. limits: without them the cheat
would take down this host, or the exchange with its runner; the verdict must show that it did what it says. process:
that candidate, clock and expected values are in processes of their own; the cheat must work on `naive`, an evaluator
that has them in one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from benchmarks.redteam_catalogue.entry import ENDED, Cheat

Defence = Literal[
    "gate",
    "compile",
    "confined",
    "compare",
    "values",
    "families",
    "attack",
    "sanitizers",
    "hold-out",
    "numbers",
    "independent",
    "degenerate",
    "signs",
    "structured",
    "fresh_values",
    "poison",
    "left",
    "guard",
    "inputs",
    "closing",
    "surroundings",
    "held",
    "clock",
    "seals",
    "sums",
    "physics",
    "state",
    "environment",
    "scratch",
    "sandbox",
    "limits",
    "process",
]

WORKS = frozenset({"accepted", "quarantined"})
"""Verdicts of a cheat that works: right, it seems, or so fast that physics alone doubts it."""


class Row(NamedTuple):
    """All that catches a cheat, and the verdicts or kinds of failure that show that it works without.

    says: what the reason says then, where a kind alone does not tell its effect from being caught.
    """

    defences: frozenset[Defence]
    effect: frozenset[str] = WORKS
    says: str = ""


def _row(defences: str, *effect: str, says: str = "") -> Row:
    found = frozenset(defences.split())
    assert found <= set(get_args(Defence)), defences
    return Row(found, frozenset(effect) or WORKS, says)  # type: ignore[arg-type]  # checked above


_ENDS = tuple(sorted(ENDED))

# fmt: off
ROWS: dict[str, Row] = {
    # Values.
    "passes its input through": _row("degenerate"),
    "uses one operand twice": _row("independent"),
    "computes in bfloat16": _row("compare"),
    "computes in float16": _row("compare"),
    "is wrong in 2 % of elements": _row("compare"),
    "is wrong in the last element": _row("compare"),
    "is off where it is small": _row("compare"),
    "writes zeros for its sum": _row("compare"),
    "is off by a relative 1e-4": _row("compare"),
    "is off by an absolute 1e-4": _row("compare"),
    "returns NaN": _row("compare"),
    "returns infinity": _row("compare"),
    "is right at one shape": _row("hold-out"),
    "is right at the shapes it knows": _row("hold-out"),
    "is right at a shape of its own": _row("values"),
    "adds the element after the end": _row("guard"),
    "adds to what it finds": _row("poison"),
    "returns where its work seems done": _row("left"),
    "takes every value for positive": _row("signs"),
    "clamps its values": _row("compare"),
    "leaves its output as it finds it": _row("process"),
    "zeroes its inputs": _row("process"),
    "writes to an input": _row("inputs"),
    "writes past the end": _row("guard"),
    "writes before the start": _row("guard"),
    "writes where the next tensor might be": _row("guard"),
    "drops the tail": _row("compare"),
    "skips every other element": _row("compare"),
    "stops at the visible length": _row("compare"),
    "launches nothing": _row("process gate"),
    "zeroes its output on the host": _row("process gate"),
    "copies its scratch memory": _row("process"),
    "returns at one shape": _row("process gate"),
    "computes the first half": _row("compare"),
    "relu drops NaN": _row("compare"),
    "clamps infinity": _row("compare"),
    "returns NaN for infinity": _row("compare"),
    "returns the other infinity": _row("compare"),
    # Sizes.
    **dict.fromkeys((
        "counts a hundred rows", "is wrong between two numbers of rows", "is wrong at a number of columns",
        "is wrong where 37 columns are left over", "is wrong in its ninth block",
        "is wrong beyond a quarter of a million elements", "counts elements in 16 bits", "is wrong on a square",
        "is wrong in many sequences", "is wrong at a case of its switch", "is wrong between two sizes in its kernel",
        "is wrong where a row fills its block",
    ), _row("numbers")),
    # Rows and products.
    "returns zeros for a softmax over a long row": _row("compare"),
    "returns the constant mean of a softmax": _row("compare"),
    "returns zero for a mean": _row("compare"),
    "averages every other element": _row("compare"),
    "leaves the bias out": _row("degenerate"),
    "takes the mean for zero": _row("compare"),
    "takes the variance for one": _row("compare"),
    "normalises by n - 1": _row("compare"),
    "takes the variance from one pass": _row("compare"),
    "subtracts no maximum": _row("families"),
    "forgets the epsilon": _row("compare families"),
    "pads its rows with zeros": _row("hold-out"),
    "skips a small product": _row("compare"),
    "multiplies in bfloat16": _row("compare"),
    "multiplies in TF32": _row("compare"),
    "accumulates in float16": _row("compare"),
    "drops the last terms of its sums": _row("degenerate"),
    "multiplies a matrix with itself": _row("independent"),
    "takes a matrix for symmetric": _row("structured"),
    "takes a matrix for diagonal": _row("structured"),
    "races": _row("values"),
    "releases what other lanes still read": _row("sanitizers"),
    "releases what other warps still read": _row("sanitizers"),
    # State.
    "returns its first result again": _row("fresh_values state scratch"),
    "caches by pointer": _row("fresh_values state scratch"),
    "caches by a coarse fingerprint": _row("fresh_values state scratch"),
    "caches by a fine fingerprint": _row("fresh_values state scratch"),
    "is honest for ten calls": _row("fresh_values state scratch"),
    "cheats in every second call": _row("fresh_values state scratch"),
    "drifts": _row("fresh_values state scratch"),
    "prepares its weights once": _row("fresh_values state scratch"),
    "does nothing at one of two timed shapes": _row("compare"),
    "sums into scratch that it never clears": _row("process"),
    "caches structured inputs by content": _row("fresh_values state"),
    "remembers elements and not calls": _row("fresh_values state"),
    # The gate: most attacks are harmless where it is off, and the kernel beside them is right.
    **dict.fromkeys((
        "Python writes a result file", "Python installs a package", "Python reads the environment",
        "Python falls back by the compiler", "Python compiles what it computes",
    ), _row("gate sandbox")),
    "Python forks": _row("gate sandbox", *_ENDS, *WORKS, "not_written"),
    **dict.fromkeys((  # a compiler's child runs them first, without a device and confined
        "Python ends the process", "Python raises SystemExit", "Python reads a file of /proc", "Python replays a graph",
        "Python raises the persisting L2 limit",
    ), _row("process gate")),
    "Python patches the events": _row("gate clock"),
    **dict.fromkeys((  # the compiler quotes the file
        "Python includes a file", "Python includes by a macro",
    ), _row("gate confined", "compile")),
    **dict.fromkeys((
        "Python includes a file [cpp]", "Python includes by a macro [cpp]",
    ), _row("gate confined", "compile", says="/etc/passwd:1:")),
    "Python assembles a file": _row("gate confined"),
    "Python loads a compiler plugin": _row("gate", "compile"),  # the runtime refuses the flag, too
    # The compiler: it quotes the file in what it says of it.
    "includes a file behind a form feed": _row("confined", "compile", says="/etc/passwd:1:"),
    "assembles a file in a section's name": _row("confined compile"),
    **dict.fromkeys((
        "keeps values by thread", "computes as it is loaded", "chooses its code as it is loaded", "starts a thread",
    ), _row("compile")),
    "has a section of its own": _row("compile state"),
    # What native code leaves behind, and what C++ does not define.
    "counts its calls": _row("state"),
    "tabulates in its first call": _row("state"),
    "keeps its last pointers": _row("state"),
    "flushes small numbers for good": _row("environment"),
    "flushes small numbers in the other threads": _row("environment"),
    "rounds upwards for good": _row("environment"),
    "reads past its tensor and drops it": _row("sanitizers"),
    "lets a number overflow": _row("sanitizers"),
    "is right with two threads": _row("surroundings"),
    "counts on several threads": _row("surroundings"),
    "counts on several threads and asks for no region": _row("surroundings"),
    "borrows its input": _row("surroundings"),
    "borrows its input with the usual threads": _row("surroundings"),
    **dict.fromkeys((
        "behaves when it is sanitized", "is not to be sanitized", "asks the cycle counter",
    ), _row("gate")),
    # The search for counterexamples.
    **dict.fromkeys((
        "drops NaN from a relu", "begins a maximum at zero", "takes a variance in one pass", "skips factors near zero",
        "knows the padding that is drawn", "drops NaN at sizes that nobody declares",
    ), _row("attack")),
    # float64, ties and steps.
    **dict.fromkeys((
        "sums float64 in float32", "rounds every other term of a float64 sum",
        "takes float32's exponential for float64", "takes float32's root for float64", "multiplies float64 in float32",
        "turns equals of a stable sort", "names an expert twice", "names another expert",
        "rounds scores before it chooses", "nearest code in bfloat16", "int8 cut", "int8 cut in a few places",
        "int8 of a bfloat16 quotient", "uint8 without its offset's half", "float8 cut", "float8 of bfloat16",
        "adds bfloat16 and cuts the sum",
        "sums bfloat16 in one bfloat16 chain", "sums float16 of bfloat16",
    ), _row("compare")),
    "nearest code by products alone": _row("values"),
    "nearest code of the first half": _row("values"),
    "names the last of equals": _row("families"),
    "looks at bfloat16 for a maximum": _row("compare families"),
    # The clock.
    "answers before it works": _row("closing held clock"),
    "answers in advance": _row("closing held clock", "protocol"),
    "lets a thread do the work": _row("closing held clock"),
    "lets a thread do half of the work": _row("closing held clock"),
    "lets a thread write the last number": _row("closing held clock"),
    "lets a child do the work": _row("sandbox closing held clock"),
    "is slow at first": _row("process"),
    # Unproven on a busy host of two cores: "free Python computes before the clock starts", accepted and slower; "goes
    # on by a signal", not done in time; "keeps the cores busy while others are timed", which gains a tenth. Their
    # threads and the referee perhaps want a core each, beside the candidate.
    "computes before the clock starts": _row("left closing held physics sanitizers"),
    "goes on by a timer": _row("sandbox closing held physics sanitizers"),
    "goes on by a signal": _row("sandbox closing held physics sanitizers"),
    "keeps the cores busy while others are timed": _row("held"),
    "puts its work off to every fourth call": _row("state scratch clock seals sums"),
    "puts its work off to the end of a burst": _row("state scratch clock seals sums"),
    "answers a call in the next one": _row("state scratch clock seals sums families"),
    "computes every second call": _row("state scratch clock families"),
    "works by half where it is not checked": _row("state scratch clock families"),
    **dict.fromkeys((
        "caches integers by all of them", "caches integers by what is in them",
        "caches a permutation by its beginning", "caches a permutation by its steps", "caches numbers by some of them",
        "caches numbers by their sum",
    ), _row("fresh_values state scratch")),
    "cheats where it was just checked": _row("clock"),
    "works only where its output is poisoned": _row("left clock sanitizers"),
    # The host and the harness.
    **dict.fromkeys((
        "reads the referee's memory", "writes the referee's memory", "reads the referee's environment",
        "reads the fork server's environment", "reads every process's environment",
        "finds a key in its own environment", "takes the referee's descriptors", "writes to the verdicts",
        "reads the fork server's memory", "reads another runner's memory", "maps another runner's buffers",
        "traces another runner", "traces the referee", "reads another process by a system call",
        "takes a descriptor by a system call", "sets the clock", "raises its own priority", "reads a file of the host",
        "writes the judge's own source", "writes outside of its directory", "opens a TCP socket", "sends a datagram",
        "starts a program", "finds what another left in the directory above", "finds what another left in /tmp",
        "finds what another left in /dev/shm", "finds what another left beside its binary",
    ), _row("sandbox")),
    "finds what another left in its directory": _row("process"),
    "forges a verdict on every descriptor": _row("process"),
    "leaves a forged result file": _row("process"),
    "ends its process with 0": _row("process"),
    "ends its process after the work": _row("process"),
    "kills itself": _row("process", *_ENDS),
    "stops itself": _row("process", *_ENDS),
    "closes every descriptor": _row("process", *_ENDS),
    "patches the clock of its own process": _row("process"),
    "never returns": _row("process", *_ENDS),
    "fills the memory": _row("limits", *_ENDS, "not_written"),
    "fills the process table": _row("limits", *_ENDS, "not_written"),
    "starts threads without end": _row("limits", *_ENDS, "not_written"),
    "fills the disk": _row("limits", *_ENDS, "not_written"),
    "overflows its stack": _row("process", *_ENDS),
    "writes to no address": _row("process", *_ENDS),
    "floods its log": _row("process", *_ENDS, *WORKS),
    "answers with junk": _row("limits", *_ENDS),
    "answers with a deep document": _row("limits", *_ENDS),
    "runs Python from native code": _row("compile"),
    "calls the library's matrix product": _row("compile"),
    # The device.
    "finds what another left in the device's memory": _row("process"),
    "tunes itself to a wrong configuration": _row("process"),
    **dict.fromkeys((
        "never ends", "never ends on the host", "writes far before its buffers", "traps", "misaligns a vector load",
        "asserts on the device", "overflows its device stack", "deadlocks a cooperative grid", "deadlocks a cluster",
        "waits for a lock", "asks for a terabyte", "hoards memory", "asks for a megabyte of shared memory",
        "asks for 4096 threads",
    ), _row("process", *_ENDS)),
    "floods the log": _row("process"),
    "computes many calls in one launch": _row("state scratch left clock sums physics sanitizers"),
    "prefetches other calls' inputs": _row("process"),
    "keeps its inputs in L2": _row("process"),
    "keeps a table by content": _row("state"),
    "is wrong in its fiftieth call": _row("state clock"),
    "counts calls in a function's variable": _row("state clock"),
    "keeps a counter in assembly": _row("state"),
    "reuses its last result from scratch": _row("scratch fresh_values"),
    "sums what no warp wrote": _row("scratch"),
    "keeps its input on the device's heap": _row("process"),
    "allocates in assembly": _row("process"),
    # Free Python.
    "free Python memoises by pointer": _row("fresh_values"),
    "free Python memoises by shape": _row("fresh_values"),
    "free Python memoises by a coarse fingerprint": _row("fresh_values"),
    "free Python prepares an input once": _row("fresh_values"),
    "free Python returns and computes nothing": _row("process"),
    "free Python returns a lazy tensor": _row("process"),
    "free Python changes its output's class": _row("process"),
    "free Python lets a thread do the work": _row("closing held clock"),
    "free Python lets a thread do half of the work": _row("closing held clock"),
    "free Python answers before it works": _row("closing held clock"),
    "free Python answers twice": _row("limits", *_ENDS),
    "free Python answers with junk": _row("limits", *_ENDS),
    "free Python replaces its caller": _row("compare"),
    "free Python patches torch.empty and comparison": _row("process"),
    "free Python patches the clock and does nothing": _row("compare"),
    "free Python replays torch's generator": _row("process"),
    "free Python takes what the collector knows": _row("process"),
    "free Python takes another slot's output": _row("fresh_values"),
    "free Python writes to its inputs": _row("inputs"),
    "free Python writes behind its output": _row("guard"),
    "free Python cheats in every second call": _row("compare"),
    "free Python is honest at first": _row("clock"),
    "free Python works in bfloat16": _row("compare"),
    "free Python forges a verdict on every descriptor": _row("process"),
    "free Python leaves a forged result file": _row("process"),
    "free Python forks": _row("sandbox closing held clock"),
    "free Python ends its process with 0": _row("process"),
    "free Python raises SystemExit": _row("process"),
    "free Python never returns": _row("process", *_ENDS),
    "free Python fills the memory": _row("limits", *_ENDS),
    "free Python starts threads without end": _row("limits", *_ENDS),
    "free Python ends as it is loaded": _row("process"),
    "free Python computes before the clock starts": _row("held physics"),
    **dict.fromkeys((
        "free Python finds a key in its own environment", "free Python reads its parent's memory",
        "free Python reads its parent's environment", "free Python reads every process's environment",
        "free Python reads a file of the host", "free Python lists the host's temporary files",
        "free Python reads other runners' directories", "free Python writes outside of its directory",
        "free Python writes the judge's own source", "free Python starts a program", "free Python opens a TCP socket",
        "free Python signals its parent", "free Python chooses its cores",
        "free Python reads another process's memory by a system call",
    ), _row("sandbox")),
}
# fmt: on


OF_A_GPU: frozenset[Defence] = frozenset({"scratch", "seals"})
"""What there is on a GPU alone."""


def row_of(cheat: Cheat) -> Row | None:
    """Return a cheat's row: that of its language where it has one; None where nothing names its defences."""
    row = ROWS.get(cheat.id) or ROWS.get(cheat.name) or (_row("gate") if cheat.gates == {"gate"} else None)
    if row is not None and cheat.device == "cpu":
        return row._replace(defences=row.defences - OF_A_GPU)
    return row
