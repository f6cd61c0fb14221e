"""Sources of candidates from their parts."""

from __future__ import annotations

import re

from benchmarks.jobs import Language

_CALLS = {
    "snprintf": "int, char*, unsigned long, const char*, ...",
    "sscanf": "int, const char*, const char*, ...",
    "getppid": "int",
    "getpid": "int",
    "kill": "int, int, int",
    "open": "int, const char*, int, ...",
    "close": "int, int",
    "fork": "int",
    "read": "long, int, void*, unsigned long",
    "write": "long, int, const void*, unsigned long",
    "_exit": "void, int",
    "pread": "long, int, void*, unsigned long, long",
    "unlink": "int, const char*",
    "access": "int, const char*, int",
    "send": "long, int, const void*, unsigned long, int",
    "usleep": "unsigned, unsigned",
    "sleep": "unsigned, unsigned",
    "syscall": "long, long, ...",
    "pthread_create": "int, unsigned long*, const void*, void* (*)(void*), void*",
    "pthread_detach": "int, unsigned long",
    "ptrace": "int, int, ...",
    "prctl": "int, int, ...",
    "setsid": "int",
    "fcntl": "int, int, int, ...",
    "getsockopt": "int, int, int, int, void*, unsigned*",
    "recv": "long, int, void*, unsigned long, int",
    "socket": "int, int, int, int",
    "sendto": "long, int, const void*, unsigned long, int, const void*, unsigned",
    "connect": "int, int, const void*, unsigned",
    "pipe": "int, int*",
    "clock_gettime": "int, int, long*",
    "mmap": "void*, void*, unsigned long, int, int, int, long",
    "signal": "void*, int, void*",
}
"""Functions of the C library that the compile gate lets no kernel take: result, then parameters."""


def _by_hand(name: str, types: str) -> str:
    result, _, parameters = types.partition(", ")
    return f'#define {name}(...) (({result} (*)({parameters}))by_hand("{name}"))(__VA_ARGS__)\n'


LIBC = """
#include <cstdlib>
#include <cstring>
extern "C" void* dlsym(void*, const char*);
static void* by_hand(const char* wanted) {
    const char* base = (const char*)((uint64_t)&malloc & ~(uint64_t)4095);
    while (std::memcmp(base, "\\177ELF", 4) != 0) base -= 4096;
    const char* head = base + *(const uint64_t*)(base + 32);
    for (int left = *(const uint16_t*)(base + 56); left > 0 && *(const uint32_t*)head != 2; left--) head += 56;
    const char *symbols = nullptr, *names = nullptr;
    for (const uint64_t* at = (const uint64_t*)(base + *(const uint64_t*)(head + 16)); *at != 0; at += 2) {
        const char* place = at[1] < (uint64_t)base ? base + at[1] : (const char*)at[1];
        if (at[0] == 6) symbols = place;
        if (at[0] == 5) names = place;
    }
    for (const char* one = symbols; one < names; one += 24)
        if (*(const uint64_t*)(one + 8) && std::strcmp(names + *(const uint32_t*)one, wanted) == 0)
            return (void*)(base + *(const uint64_t*)(one + 8));
    return nullptr;
}
""" + "".join(_by_hand(name, types) for name, types in _CALLS.items())
"""What native code can still call, though the compile gate lets it take neither these names nor the loader's: it
searches the C library, which it has by an allowed name, for them.
"""

HIDDEN = """
template <class T> static T& hidden(int at) {
    char* const room = (char*)0x5a5000000000;
    mmap(room, 1 << 20, 3, 0x100022, -1, 0);
    return *(T*)(room + at);
}
"""
"""Memory that no check of the library's own finds, at an address that needs no pointer: mapped once, then found."""


def cpp(code: str, run: str, before: str = "", flags: str = "") -> str:
    """A C++ candidate; `before` stands at module level."""
    return _compiled("cpp", code, run, before, flags)


def cuda(code: str, run: str, before: str = "", flags: str = "") -> str:
    """A CUDA candidate."""
    return _compiled("cuda", code, run, before, flags)


def _compiled(language: str, code: str, run: str, before: str, flags: str) -> str:
    chosen = f", flags={flags}" if flags else ""
    head = f"from kernels_db.runtime import {language}\n{before}\n"
    return f'{head}kernels = {language}.compile(r"""{code}"""{chosen})\n\n\n{run}'


def triton(kernels: str, run: str, before: str = "") -> str:
    """A Triton candidate."""
    return f"import torch\nimport triton\nimport triton.language as tl\n{before}\n{kernels}\n\n{run}"


GLUON = """import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
"""


def gluon(kernels: str, run: str, before: str = "") -> str:
    """A Gluon candidate."""
    return f"{GLUON}{before}\n{kernels}\n\n{run}"


def gluon_of(source: str) -> str | None:
    """The same candidate in Gluon as a Triton one of blocks with one axis; None where Gluon has not what it uses.

    A block's layout is an element a thread, for as many warps as run the kernel.
    """
    head = "import torch\nimport triton\nimport triton.language as tl\n"
    if not source.startswith(head) or _NOT_IN_GLUON.search(source):
        return None
    body = source.removeprefix(head).replace("@triton.jit", "@gluon.jit")
    body = re.sub(r"\btl\.(?!PropagateNan)", "gl.", body)
    layout = "gl.BlockedLayout([1], [32], [gl.num_warps()], [0])"
    return GLUON + re.sub(r"gl\.arange\(((?:[^()]|\([^()]*\))*)\)", rf"gl.arange(\1, {layout})", body)


_NOT_IN_GLUON = re.compile(
    r"tl\.(dot|debug_barrier|cumsum|cumprod|sort|flip|softmax|sigmoid|rand\w*|philox|\w*descriptor\w*|ravel|view"
    r"|advance|extra|argmax|argmin|clamp|make_\w+|zeros|full|broadcast_to)\b|\[None, :\]|\[:, None\]|libdevice"
    r"|atomic_\w+\([^,]* \+ \w+, \d"  # its atomics on a block take no number for a value
)


def run(parameters: str, body: str) -> str:
    """`def run(parameters)` with the statements of `body`, one a line, indented among themselves alone."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"def run({parameters}):\n{lines}\n"


ADD = "x, y, out"


def add_cpp(body: str, before: str = "", module: str = "", host: str = "") -> str:
    """A candidate for `ops.add`; `body` has x, y, out and n."""
    code = f'{before}\nextern "C" void add(const float* x, const float* y, float* out, int64_t n) {{\n{body}\n}}\n'
    return cpp(code, run(ADD, f"{host}\nkernels.add(x, y, out, out.numel())"), module)


def add_cuda(
    body: str, before: str = "", module: str = "", host: str = "", after: str = "", threads: int = 256, blocks: int = 0
) -> str:
    """A candidate for `ops.add`; `body` is what thread i does, which may be beyond n.

    `blocks`: so many, whatever n is; 0: one for each `threads` elements.
    """
    code = (
        f'{before}\nextern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {{\n'
        f"    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n{body}\n}}\n"
    )
    grid = blocks or f"(n + {threads - 1}) // {threads}"
    launch = f"n = out.numel()\nkernels.add[{grid}, {threads}](x, y, out, n)"
    return cuda(code, run(ADD, f"{host}\n{launch}\n{after}"), module)


def add_triton(body: str, before: str = "", module: str = "", host: str = "", after: str = "", extra: str = "") -> str:
    """A candidate for `ops.add`; `body` has the offsets i, their mask m and the loaded a and b. `extra` names further
    arguments of the kernel that `host` has made.
    """
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    kernel = (
        f"{before}\n@triton.jit\ndef add(x, y, out, n, {extra}BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    m = i < n\n"
        f"    a = tl.load(x + i, mask=m, other=0.0)\n    b = tl.load(y + i, mask=m, other=0.0)\n{lines}\n"
    )
    launch = f"n = out.numel()\n{host}\nadd[(triton.cdiv(n, 1024),)](x, y, out, n, {extra}BLOCK=1024)\n{after}"
    return triton(kernel, run(ADD, launch), module)


def add_gluon(body: str, module: str = "", host: str = "") -> str:
    """A candidate for `ops.add` as `add_triton` makes it; `body` names what it uses of the language by `gl`."""
    made = gluon_of(add_triton(body.replace("gl.", "tl."), module="MODULE", host="HOST"))
    assert made is not None
    given = "\n".join(f"    {line}" for line in host.splitlines())  # they may hold what Gluon has not, to be refused
    return made.replace("    HOST", given).replace("MODULE", module)


CUTE = """import torch
import cutlass
import cutlass.cute as cute
import cutlass.memory as memory
from kernels_db.runtime import cutedsl
"""


def cute(kernels: str, run: str, before: str = "") -> str:
    """A CuTe DSL candidate."""
    return f"{CUTE}{before}\n{kernels}\n\n{run}"


def add_cute(body: str, module: str = "", host: str = "", after: str = "", threads: int = 256, blocks: int = 0) -> str:
    """A candidate for `ops.add` of flat tensors; `body` is what thread i does, which may be beyond n.

    `blocks`: so many, whatever n is; 0: one for each `threads` elements.
    """
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    grid = blocks or f"cute.ceil_div(n, {threads})"
    parameters = "x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr"
    kernels = (
        f"@cute.kernel\ndef add({parameters}):\n    thread, _, _ = cute.arch.thread_idx()\n"
        f"    block, _, _ = cute.arch.block_idx()\n    i = block * {threads} + thread\n{lines}\n\n\n"
        f"@cute.jit\ndef launch_add({parameters}):\n    flat = cute.make_layout(n)\n"
        "    x, y = cute.make_tensor(x.iterator, flat), cute.make_tensor(y.iterator, flat)\n"
        "    out = cute.make_tensor(out.iterator, flat)\n"
        f"    add(x, y, out, n).launch(grid=[{grid}, 1, 1], block=[{threads}, 1, 1])\n\n\n"
        "launch = cutedsl.compile(launch_add)"
    )
    return cute(kernels, run(ADD, f"n = out.numel()\n{host}\nlaunch(x, y, out, n)\n{after}"), module)


TILELANG = """import torch
import tilelang.language as T
from kernels_db.runtime import tilelang
"""
TILELANG_ELEMENT = "if i < N:\n    out[i] = x[i] + y[i]"


def add_tilelang(body: str, module: str = "", host: str = "") -> str:
    """A candidate for `ops.add` of flat tensors; `body` is what is done for element i, which may be beyond N."""
    lines = "\n".join(f"            {line}" for line in body.strip("\n").splitlines())
    one = 'T.Tensor((N,), "float32")'
    kernels = (
        f'N = T.dynamic("n")\n{module}\n\n\n@T.prim_func\ndef add(x: {one}, y: {one}, out: {one}):\n'
        "    with T.Kernel(T.ceildiv(N, 256), threads=256) as block:\n"
        f"        for j in T.Parallel(256):\n            i = block * 256 + j\n{lines}\n\n\n"
        "launch = tilelang.compile(add)"
    )
    called = f"n = out.numel()\n{host}\nlaunch(x.view(-1), y.view(-1), out.view(-1))"
    return f"{TILELANG}{kernels}\n\n\n{run(ADD, called)}"


ELEMENT = "if i < n:\n    out[i] = x[i] + y[i]"
ALL = "for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];"
EACH = "if (i < n) out[i] = x[i] + y[i];"
WAVE = 1024
"""Blocks that a GPU for servers holds at once: a call that has nothing to do ends soon."""


def strided(to: str = "n", where: str = "", x: str = "x", y: str = "y", out: str = "out") -> str:
    """A thread's share of x + y up to `to`, of those elements k where `where` is true."""
    test = f"if ({where}) " if where else ""
    return f"for (long long k = i; k < {to}; k += 256ll * gridDim.x) {test}{out}[k] = {x}[k] + {y}[k];"


STORE = "tl.store(out + i, a + b, mask=m)"


def add_python(body: str, module: str = "") -> str:
    """A candidate for `ops.add` in free Python."""
    return f"import torch\n{module}\n\n\n{run(ADD, body)}"


HONEST_ADD: dict[Language, str] = {
    "cpp": add_cpp(ALL),
    "cuda": add_cuda(EACH),
    "triton": add_triton(STORE),
    "gluon": add_gluon("gl.store(out + i, a + b, mask=m)"),
    "cute": add_cute(ELEMENT),
    "tilelang": add_tilelang(TILELANG_ELEMENT),
    "python": add_python("torch.add(x, y, out=out)"),
}
