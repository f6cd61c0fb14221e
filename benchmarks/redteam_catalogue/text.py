"""Sources of candidates from their parts."""

from __future__ import annotations

from benchmarks.jobs import Language

LIBC = """
#include <cstdlib>
#include <cstring>
extern "C" {
    int snprintf(char*, unsigned long, const char*, ...); int sscanf(const char*, const char*, ...);
    int getppid(); int getpid(); int kill(int, int); int open(const char*, int, ...); int close(int); int fork();
    long read(int, void*, unsigned long); long write(int, const void*, unsigned long); void _exit(int);
    long pread(int, void*, unsigned long, long); int unlink(const char*); int access(const char*, int);
    long send(int, const void*, unsigned long, int); unsigned usleep(unsigned); long syscall(long, ...);
    int pthread_create(unsigned long*, const void*, void* (*)(void*), void*); int pthread_detach(unsigned long);
    int ptrace(int, ...); int fcntl(int, int, ...); int getsockopt(int, int, int, void*, unsigned*);
    long recv(int, void*, unsigned long, int); int socket(int, int, int);
    long sendto(int, const void*, unsigned long, int, const void*, unsigned); int connect(int, const void*, unsigned);
    void* dlsym(void*, const char*);
}
"""
"""What native code may call without a header, which the gate would not let it include."""


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


def run(parameters: str, body: str) -> str:
    """`def run(parameters)` with the statements of `body`, one a line, indented among themselves alone."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"def run({parameters}):\n{lines}\n"


ADD = "x, y, out"


def add_cpp(body: str, before: str = "", module: str = "", host: str = "") -> str:
    """A candidate for `ops.add`; `body` has x, y, out and n."""
    code = f'{before}\nextern "C" void add(const float* x, const float* y, float* out, int64_t n) {{\n{body}\n}}\n'
    return cpp(code, run(ADD, f"{host}\nkernels.add(x, y, out, out.numel())"), module)


def add_cuda(body: str, before: str = "", module: str = "", host: str = "", after: str = "", threads: int = 256) -> str:
    """A candidate for `ops.add`; `body` is what thread i does, which may be beyond n."""
    code = (
        f'{before}\nextern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {{\n'
        f"    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n{body}\n}}\n"
    )
    launch = f"n = out.numel()\nkernels.add[(n + {threads - 1}) // {threads}, {threads}](x, y, out, n)"
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


ALL = "for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];"
EACH = "if (i < n) out[i] = x[i] + y[i];"
STORE = "tl.store(out + i, a + b, mask=m)"


def add_python(body: str, module: str = "") -> str:
    """A candidate for `ops.add` in free Python."""
    return f"import torch\n{module}\n\n\n{run(ADD, body)}"


HONEST_ADD: dict[Language, str] = {
    "cpp": add_cpp(ALL),
    "cuda": add_cuda(EACH),
    "triton": add_triton(STORE),
    "python": add_python("torch.add(x, y, out=out)"),
}
