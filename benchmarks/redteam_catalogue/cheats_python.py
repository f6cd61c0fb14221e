"""Free Python: no gate reads it, so what the gate refuses to other candidates is tried here, in the candidate's own
process. What catches it is the process boundary, the sandbox and the protocol.

`runner()` is the object that calls `run`, one frame up: an attacker owns it, and it holds no secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, MEMORY, WRONG, Cheat, Op
from benchmarks.redteam_catalogue.text import HONEST_ADD, add_python
from warpsmith.kernels_db.job.documents import Gate, Level

ANY: frozenset[Gate] = CHECKED | {"physics"}
KINDS = WRONG | MEMORY | ENDED
SMALL = ops.add()
LARGE = ops.add([(60_000,), (257,), (1031,)])
HONEST = "torch.add(x, y, out=out)"
SLOWLY = "for i in range(0, out.numel(), 64): torch.add(x[i:i + 64], y[i:i + 64], out=out[i:i + 64])"
"""The same in a thousand steps, which takes milliseconds: what is left of it when the answer is out is seen."""

RUNNER = """
import sys


def runner():
    frame = sys._getframe(1)
    while "self" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["self"]
"""
WORKER = f"""
import queue
import threading

waiting = queue.SimpleQueue()


def work():
    while True:
        x, y, out = waiting.get()
        {SLOWLY}


threading.Thread(target=work, daemon=True).start()
"""
EARLY = f"""
{RUNNER}

class Early:
    def __init__(self, control):
        self.control, self.pending = control, None

    def __getattr__(self, name):
        return getattr(self.control, name)

    def send(self, answer, *flags):
        sent = self.control.send(answer, *flags)
        if self.pending is not None:
            x, y, out = self.pending
            self.pending = None
            {SLOWLY}
        return sent
"""
AHEAD = f"""
import threading

import numpy

known, done, lock = {{}}, set(), threading.Lock()


def watch():
    while True:
        for place, (x, y, out) in list(known.items()):
            if place not in done and numpy.isnan(out[-1].item()):
                with lock:
                    if numpy.isnan(out[-1].item()):
                        {HONEST}
                        done.add(place)


threading.Thread(target=watch, daemon=True).start()
"""
LAZY = """

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True if function is torch.allclose else super().__torch_function__(function, types, args, kwargs or {})
"""


@dataclass(frozen=True)
class Attack:
    """Python at module level and in `run`."""

    name: str
    lines: tuple[int, ...]
    does: str
    run: str
    module: str = ""
    kinds: frozenset[str] = WRONG
    op: Op = SMALL
    level: Level = "screen"
    call_s: float = 10.0
    memory_bytes: int | None = None


# fmt: off
ATTACKS = [
    Attack("memoises by pointer", (24,), "a dict by data_ptr", "key = (x.data_ptr(), y.data_ptr())\nif key not in SEEN: SEEN[key] = x + y\nout.copy_(SEEN[key])", "SEEN = {}"),
    Attack("memoises by shape", (24,), "a dict by shape", "key = tuple(x.shape)\nif key not in SEEN: SEEN[key] = x + y\nout.copy_(SEEN[key])", "SEEN = {}"),
    Attack("memoises by a coarse fingerprint", (25,), "by two rounded elements", "key = (x.numel(), round(x[0].item()), round(y[0].item()))\nif key not in SEEN: SEEN[key] = x + y\nout.copy_(SEEN[key])", "SEEN = {}", level="verify"),
    Attack("prepares an input once", (26,), "keeps y of the first call of a shape", "if y.shape not in SEEN: SEEN[y.shape] = y.clone()\ntorch.add(x, SEEN[y.shape], out=out)", "SEEN = {}"),
    Attack("returns and computes nothing", (22,), "what is returned is nobody's", "return x + y"),
    Attack("returns a lazy tensor", (22,), "a subclass that says what is wanted when it is compared", "return Lazy(x)", LAZY),
    Attack("changes its output's class", (22, 23), "a subclass that says what is wanted when it is compared", "out.__class__ = Lazy", LAZY, kinds=KINDS),
    Attack("lets a thread do the work", (20, 21), "and returns at once", "waiting.put((x, y, out))", WORKER, op=LARGE, kinds=KINDS),
    Attack("lets a thread do half of the work", (20, 21), "and returns when its own half is done", "h = x.numel() // 2\nwaiting.put((x[h:], y[h:], out[h:]))\ntorch.add(x[:h], y[:h], out=out[:h])", WORKER, op=LARGE, kinds=KINDS),
    Attack("answers before it works", (21, 37), "the runner's socket sends first", "me = runner()\nif not isinstance(me.control, Early): me.control = Early(me.control)\nme.control.pending = (x, y, out)", EARLY, op=LARGE, kinds=KINDS),
    Attack("answers twice", (37,), "an answer in stock for the next call", f"{HONEST}\nrunner().control.send(b'K')", RUNNER, kinds=KINDS),
    Attack("answers with junk", (37,), "out of turn", f"{HONEST}\nrunner().control.send(b'[[[[[')", RUNNER, kinds=KINDS),
    Attack("replaces its caller", (18, 34), "the runner's call of run", "type(runner()).call = lambda self, raw: None", RUNNER),
    Attack("patches torch.empty and comparison", (18, 19), "for whoever compares here", "torch.empty = torch.zeros\ntorch.allclose = torch.equal = torch.testing.assert_close = lambda *a, **k: True\ntorch.Tensor.__eq__ = torch.Tensor.__ne__ = lambda *a: True", "import torch.testing"),
    Attack("patches the clock and does nothing", (33,), "time stands still here", "time.perf_counter = time.perf_counter_ns = time.monotonic = time.time = lambda: 0", "import time"),
    Attack("replays torch's generator", (14,), "rebuilds an input from a seed", "torch.manual_seed(0)\ntorch.add(torch.randn_like(x), torch.randn_like(y), out=out)"),
    Attack("takes what the collector knows", (35,), "any tensor of the shape that is no argument", "found = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.shape == out.shape and not {t.data_ptr()} <= {x.data_ptr(), y.data_ptr(), out.data_ptr()}]\nif found: out.copy_(found[-1])", "import gc"),
    Attack("takes another slot's output", (35,), "by the runner's list of slots", f"other = next(s for s in runner().slots.bound if s[0][-1].data_ptr() != out.data_ptr())[0][-1]\nif other.isfinite().all(): out.copy_(other)\nelse: {HONEST}", RUNNER),
    Attack("writes to its inputs", (6,), "after it is done", f"{HONEST}\nx.zero_()", kinds=MEMORY),
    Attack("writes behind its output", (4,), "through its storage, which is the slot", f"{HONEST}\nslot = torch.empty(0, dtype=torch.uint8).set_(out.untyped_storage())\nend = out.data_ptr() - slot.data_ptr() + out.nbytes\nslot[end:end + 8] = 0", kinds=MEMORY),
    Attack("cheats in every second call", (31,), "by a counter", f"CALLS[0] += 1\nif CALLS[0] % 2: {HONEST}", "CALLS = [0]"),
    Attack("is honest at first", (31,), "for as many calls as a check has", f"CALLS[0] += 1\nif CALLS[0] <= 12: {HONEST}", "CALLS = [0]"),
    Attack("works in bfloat16", (8,), "and widens the result", "out.copy_(x.bfloat16() + y.bfloat16())"),
    Attack("forges a verdict on every descriptor", (37, 39), "and does nothing", "for fd in range(1, 64):\n    with contextlib.suppress(OSError): os.write(fd, b'{\"verdict\": \"accepted\"}')", "import contextlib\nimport os", kinds=KINDS),
    Attack("leaves a forged result file", (39,), "and does nothing", "with open('result.json', 'w') as file: file.write('{\"verdict\": \"accepted\"}')"),
    Attack("forks", (45,), "so that a child does the work", f"if os.fork() == 0:\n    {HONEST}\n    os._exit(0)", "import os", kinds=KINDS),
    Attack("ends its process with 0", (38,), "before it has done anything", "os._exit(0)", "import os", kinds=ENDED),
    Attack("raises SystemExit", (38,), "with status 0", "raise SystemExit(0)", kinds=ENDED),
    Attack("never returns", (45,), "a loop", "while True: pass", kinds=ENDED, call_s=1.0),
    Attack("fills the memory", (45,), "until somebody stops it", "kept = [torch.ones(1 << 24) for _ in range(1000)]", kinds=ENDED, memory_bytes=1 << 30),
    Attack("starts threads without end", (45,), "that sleep", "for _ in range(20000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "import threading\nimport time", kinds=ENDED, call_s=3.0),
    Attack("ends as it is loaded", (38,), "with status 0", HONEST, "import os\n\nos._exit(0)", kinds=ENDED),
]
# fmt: on

SPIES: list[tuple[str, tuple[int, ...], str, bool]] = [
    ("finds a key in its own environment", (44,), "'planted' in os.environ.values()", True),
    ("reads its parent's memory", (35,), "open(f'/proc/{os.getppid()}/mem', 'rb').fileno() >= 0", False),
    ("reads its parent's environment", (44,), "open(f'/proc/{os.getppid()}/environ').read() != ''", True),
    ("reads every process's environment", (44,), "any(environment_of(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid())", False),
    ("reads a file of the host", (44,), "open('/etc/passwd').read() != ''", True),
    ("lists the host's temporary files", (44,), "os.listdir('/tmp') is not None", True),
    ("reads other runners' directories", (44,), "os.listdir('..') is not None", True),
    ("writes outside of its directory", (42,), "os.open('/tmp/found', os.O_CREAT | os.O_WRONLY) >= 0", True),
    ("writes the judge's own source", (34,), "os.open(sys.modules['warpsmith.workers.judge.runner.runner_process'].__file__, os.O_WRONLY) >= 0", True),
    ("starts a program", (41, 45), "subprocess.run(['true']).returncode == 0", True),
    ("opens a TCP socket", (41,), "socket.socket(socket.AF_INET, socket.SOCK_STREAM).fileno() >= 0", True),
    ("signals its parent", (45,), "os.kill(os.getppid(), 0) is None", True),
    ("chooses its cores", (30,), "os.sched_setaffinity(0, os.sched_getaffinity(0)) is None", True),
    ("reads another process's memory by a system call", (35,), "ctypes.CDLL(None, use_errno=True).process_vm_readv(os.getppid(), None, 0, None, 0, 0) == 0", False),
]  # fmt: skip
"""Each finds what it looks for, or not; one that does computes, and would be accepted. The last column: whether every
process finds it outside of the sandbox."""

IMPORTS = """
import ctypes
import os
import socket
import subprocess
import sys


def environment_of(pid):
    try:
        return open(f"/proc/{pid}/environ").read()
    except OSError:
        return ""
"""


def spy(test: str) -> str:
    """A candidate that computes where `test` is true."""
    return add_python(f"try:\n    found = {test}\nexcept Exception:\n    found = False\nif found: {HONEST}", IMPORTS)


def _between_calls() -> Cheat:
    """`run` takes what its thread has done already, and computes what that has not.

    A thread beside the main one computes by itself, without waking torch's pool, which costs more than this op: so does
    the honest kernel that it is held against, or not waking the pool would count as computing ahead.
    """
    body = f"""
place = out.data_ptr()
known[place] = (x, y, out)
with lock:
    if place not in done:
        {HONEST}
    done.discard(place)
"""
    return Cheat(
        "free Python computes before the clock starts", (27,), "python", ops.add([(500_000,), (257,), (1031,)]),
        add_python(body, AHEAD), "a thread follows the referee as that fills the buffers", ANY, KINDS | {"physics"},
        honest=add_python(HONEST, "torch.set_num_threads(1)"), gains=True,
    )  # fmt: skip


def cheats() -> list[Cheat]:
    """Every attack, and every spy."""
    found = [
        Cheat(
            f"free Python {attack.name}",
            attack.lines,
            "python",
            attack.op,
            add_python(attack.run, attack.module),
            attack.does,
            ANY,
            attack.kinds,
            level=attack.level,
            honest=HONEST_ADD["python"],
            harms=attack.kinds != WRONG,
            call_s=attack.call_s,
            memory_bytes=attack.memory_bytes,
        )
        for attack in ATTACKS
    ]
    found.append(_between_calls())
    found += [
        Cheat(f"free Python {name}", lines, "python", SMALL, spy(test), "and computes where it may", ANY)
        for name, lines, test, _ in SPIES
    ]
    return found
