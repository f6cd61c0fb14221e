"""Attacks by the Python of a candidate: the gate refuses each of them, in every language, before anything runs.

Everything here stands in a candidate for `ops.add` whose kernel is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import REFUSED, Cheat
from benchmarks.redteam_catalogue.text import (
    ALL,
    EACH,
    ELEMENT,
    STORE,
    TILELANG_ELEMENT,
    add_cpp,
    add_cuda,
    add_cute,
    add_gluon,
    add_tilelang,
    add_triton,
)

LANGUAGES: tuple[Language, ...] = ("cpp", "triton", "cuda", "gluon", "cute", "tilelang")
GPU: tuple[Language, ...] = ("triton", "cuda", "gluon", "cute", "tilelang")
JITTED: tuple[Language, ...] = ("triton", "gluon")


@dataclass(frozen=True)
class Attack:
    """Python at module level and at the start of `run`; `head` stands before everything."""

    name: str
    lines: tuple[int, ...]
    does: str
    module: str = ""
    run: str = ""
    head: str = ""
    languages: tuple[Language, ...] = LANGUAGES


REPLAY = """
if GRAPHS and GRAPHS[0] is not None:
    return GRAPHS[0].replay()
if not GRAPHS:
    GRAPHS.append(None)
    run(x, y, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, y, out)
    GRAPHS[0] = graph
"""

# fmt: off
ATTACKS = [
    Attack("replays torch's generator", (14,), "rebuilds inputs from a guessed seed", run="torch.manual_seed(0)\nt = torch.randn(x.shape)", module="import torch"),
    Attack("overwrites a function of torch", (18,), "the checker would call it", run="torch.allclose = right", module="import torch\n\n\ndef right(found, expected):\n    return True\n"),
    Attack("overwrites a builtin", (18,), "the harness would call it", run="builtins.abs = lambda value: value * 0", module="import builtins"),
    Attack("launches on another stream", (20,), "events on the current one see nothing", run="with torch.cuda.stream(torch.cuda.Stream()):\n    t = 1", module="import torch", languages=GPU),
    Attack("starts a thread", (21,), "launches after the timer", module="import threading", run="threading.Thread(target=run).start()"),
    Attack("returns a lazy tensor", (22,), "a subclass that computes when it is compared", module="import torch\n\n\nclass Lazy(torch.Tensor):\n    pass\n"),
    Attack("changes a tensor's class", (22, 23), "the output computes later", module="import torch\n\n\nclass Lazy(torch.Tensor):\n    pass\n", run="out.__class__ = Lazy"),
    Attack("overrides a method of its output", (23,), "comparison would call it", run="out.allclose = None"),
    Attack("keeps results in a table", (24,), "by data_ptr", module="SEEN = {}", run="SEEN[x.data_ptr()] = out"),
    Attack("keeps results on its function", (24,), "by attribute", run="run.seen = out"),
    Attack("keeps results in a default", (24,), "a list that lives from call to call", module="def keep(a, seen=[]):\n    return seen\n"),
    Attack("keeps results in a global", (24,), "by global", run="global kept\nkept = out"),
    Attack("reads a fingerprint", (25,), "values on the host", run="key = x[0].item()"),
    Attack("keeps prepared weights", (26,), "in a list", module="PREPARED = []", run="PREPARED.append(y)"),
    Attack("replays a graph", (28,), "of its first call in all others", module="import torch\n\nGRAPHS = []", run=REPLAY, languages=GPU),
    Attack("raises the persisting L2 limit", (29,), "by the driver", module="from cuda.bindings import driver", run="assert int(driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 25)[0]) == 0", languages=GPU),
    Attack("sleeps at first", (30,), "while repetitions are estimated", module="import time", run="time.sleep(0.1)"),
    Attack("patches the events", (33,), "elapsed_time", module="import torch\n\n\ndef quick(before, after):\n    return 0.001\n", run="torch.cuda.Event.elapsed_time = quick", languages=GPU),
    Attack("patches the clock", (33,), "perf_counter", module="import time", run="time.perf_counter = lambda: 0.0"),
    Attack("patches the statistics", (33,), "median", module="import statistics", run="statistics.median = min"),
    Attack("swaps a function's code", (34,), "of the checker", run="run.__code__ = run.__code__.replace()"),
    Attack("walks the garbage collector", (35,), "to the expected values", module="import gc", run="t = gc.get_objects()"),
    Attack("walks the frames", (35,), "to the caller's locals", module="import sys", run="t = sys._getframe(1)"),
    Attack("walks the subclasses", (35,), "from a literal", run="t = ().__class__.__base__.__subclasses__()"),
    Attack("writes a result to a descriptor", (37,), "the harness's own", module="import os", run="os.write(1, b'passed')"),
    Attack("ends the process", (38,), "with status 0", module="import os", run="os._exit(0)"),
    Attack("raises SystemExit", (38,), "with status 0", run="raise SystemExit(0)"),
    Attack("writes a result file", (39,), "where the harness reads one", run="t = open('result.json', 'w')"),
    Attack("loads native code", (40,), "by ctypes", module="import ctypes", run="t = ctypes.CDLL(None)"),
    Attack("maps memory", (40,), "of another process", module="import mmap", run="t = mmap.mmap(-1, 4096)"),
    Attack("installs a package", (41,), "by pip", module="import subprocess", run="subprocess.run(['sh', '-c', 'pip --version'])"),
    Attack("branches on argv", (41,), "to know the harness", module="import sys", run="t = sys.argv"),
    Attack("falls back in an except", (43,), "to the library", module="import torch", run="try:\n    t = 1\nexcept Exception:\n    torch.add(x, y, out=out)"),
    Attack("falls back by an operator", (43,), "x + y", run="t = x + y"),
    Attack("falls back by @", (43,), "x @ y", run="t = x @ y"),
    Attack("falls back by a method", (43,), "copy_", run="out.copy_(x)"),
    Attack("falls back by getattr", (43,), "a name in a string", module="import torch", run="getattr(torch, 'ad' + 'd')(x, y, out=out)"),
    Attack("falls back by setattr", (43,), "a name in a string", run="setattr(out, 'kept', x)"),
    Attack("falls back by eval", (43,), "code in a string", run="eval('x + y')"),
    Attack("falls back by an import in a string", (43,), "__import__", run="t = __import__('torch')"),
    Attack("falls back by torch.ops", (43,), "the dispatcher", module="import torch", run="t = torch.ops.aten.add(x, y)"),
    Attack("falls back by an inner module", (43,), "torch._C", module="import torch", run="t = torch._C._VariableFunctions.add(x, y)"),
    Attack("falls back by the compiler", (43,), "torch.compile", module="import torch", run="t = torch.compile(run)"),
    Attack("falls back by the functional module", (43,), "under another name", module="import torch.nn.functional as F", run="t = F.relu(x)"),
    Attack("falls back in a helper that is a grid", (43,), "its argument has the tensors", module="def blocks(meta):\n    return ((meta['x'] + meta['y']).numel(),)\n", run="add[blocks](x, y, out, n, BLOCK=1024)", languages=JITTED),
    Attack("computes a grid from values", (43,), "a grid that is a tensor", run="add[lambda meta: (meta['x'].view(-1)[0],)](x, y, out, n, BLOCK=1024)", languages=JITTED),
    Attack("hooks a launch", (43,), "host code at a configuration's launch", module="C = triton.Config({}, pre_hook=print)", languages=JITTED),
    Attack("calls the allocator", (43,), "host code inside a launch", run="triton.set_allocator(run)", languages=JITTED),
    Attack("reads a clock in the kernel's module", (), "to know how often it is timed", module="CLOCK = tl.extra.cuda.globaltimer", languages=JITTED),
    Attack("reads the environment", (44,), "os.environ", module="import os", run="t = os.environ"),
    Attack("reads a file of /proc", (44,), "of the host's first process", run="t = open('/proc/1/stat').read()"),
    Attack("forks", (45,), "without end", module="import os", run="os.fork()"),
    Attack("compiles what it computes", (), "a source that the gate cannot read", module="EXTRA = LANGUAGE.compile('extern ' + chr(34) + 'C' + chr(34) + ' QUALIFIER void more(float* x) {}')", languages=("cpp", "cuda")),
    Attack("includes a file", (41, 44), "the compiler's message would show it", module="EXTRA = LANGUAGE.compile('''#include \"/etc/passwd\"\nextern \"C\" QUALIFIER void more(float* x) {}''')", languages=("cpp", "cuda")),
    Attack("includes by a macro", (41, 44), "a computed #include", module="EXTRA = LANGUAGE.compile('''#define F </etc/passwd>\n#include F\nextern \"C\" QUALIFIER void more(float* x) {}''')", languages=("cpp", "cuda")),
    Attack("assembles a file", (41, 44), ".incbin", module="EXTRA = cpp.compile('asm(\".incbin \\\\\"/etc/passwd\\\\\"\"); extern \"C\" void more(float* x) {}')", languages=("cpp",)),
    Attack("names another encoding", (), "in which a comment is code", head="# coding: raw_unicode_escape\n# \\u000aimport os; os._exit(0)\n"),
    Attack("ends a comment by a separator", (), "where lines are split anew", module="# note\u2028import os"),
    Attack("loads a compiler plugin", (40, 41), "by a flag", module="EXTRA = cpp.compile('extern \"C\" void f() {}', flags=('-fplugin=/tmp/x.so',))", languages=("cpp",)),
]
# fmt: on


def _source(attack: Attack, language: Language) -> str:
    return attack.head + _body(attack, language)


def _body(attack: Attack, language: Language) -> str:
    qualifier = "__global__" if language == "cuda" else ""
    module, host = attack.module.replace("LANGUAGE", language).replace("QUALIFIER", qualifier), attack.run
    if language == "cpp":
        return add_cpp(ALL, module=module, host=host)
    if language == "cuda":
        return add_cuda(EACH, module=module, host=host)
    if language == "gluon":
        return add_gluon("gl.store(out + i, a + b, mask=m)", module=module, host=host)
    if language == "cute":
        return add_cute(ELEMENT, module=module, host=host)
    if language == "tilelang":
        return add_tilelang(TILELANG_ELEMENT, module=module, host=host)
    return add_triton(STORE, module=module, host=host)


def cheats() -> list[Cheat]:
    """Every attack in each of its languages."""
    op = ops.add()
    return [
        Cheat(
            f"Python {attack.name}",
            attack.lines,
            language,
            op,
            _source(attack, language),
            attack.does,
            gates=frozenset({"gate"}),
            kinds=REFUSED,
        )
        for attack in ATTACKS
        for language in attack.languages
    ]
