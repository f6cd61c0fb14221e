"""What only a GPU offers: other calls' buffers, the L2 cache, faults of the device, kernels that never end."""

from __future__ import annotations

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, KEPT, MEMORY, SANITIZED, WRONG, Cheat
from benchmarks.redteam_catalogue.text import (
    ADD,
    EACH,
    HONEST_ADD,
    STORE,
    WAVE,
    add_cuda,
    add_triton,
    cuda,
    run,
    strided,
    triton,
)

MAGIC = 0x5EC0DE
LARGE = ops.add([(1 << 21,), (257,), (1031,)])
LONG = ops.add([(1 << 23,), (257,), (1031,)])
"""Long enough for what is left out to be seen beside a second launch."""
ANY = WRONG | MEMORY | ENDED | KEPT
UNWRITTEN = ANY | SANITIZED
"""Of those that read memory before they write it: their scratch, or their output."""
SAYS = {
    "never ends on the host": "does not end",
    "asks for a megabyte of shared memory": "shared memory",
    "asks for 4096 threads": "expected at most 1024",
}

TABLE = """
struct Call { const float* x; const float* y; float* out; long long n; };
__device__ Call table[64]; __device__ int used, again;
extern "C" __global__ void note(const float* x, const float* y, float* out, long long n) {
    int k = 0; while (k < used && (table[k].out != out || table[k].x != x || table[k].n != n)) k++;
    if (k == used && (again || used == 64)) { used = 0; k = 0; }
    again = k < used;
    if (k == used) { table[k].x = x; table[k].y = y; table[k].out = out; table[k].n = n; used = k + 1; }
}
"""
NOTE = "kernels.note[1, 1](x, y, out, out.numel())"
POISON = "0xffffffffu"
FRESH = f"""
    const long long first = i - threadIdx.x;
    const bool fresh = first < n && __float_as_uint(out[first]) == {POISON};
    __syncthreads();
"""
"""Whether this block's first element is poisoned: nothing has written the output yet."""
TRITON_FRESH = """
fresh = tl.load(out + tl.program_id(0).to(tl.int64) * BLOCK).to(tl.int32, bitcast=True) == -1
tl.debug_barrier()
"""

TRITON_TABLE = f"""
@triton.jit
def note(x, y, out, n, state):
    fresh = tl.load(state) != {MAGIC}
    used = tl.where(fresh, 0, tl.load(state + 1))
    again = tl.where(fresh, 0, tl.load(state + 2))
    s = tl.arange(0, 32)
    same = (tl.load(state + 64 + s) == out) & (tl.load(state + 96 + s) == x) & (tl.load(state + 160 + s) == n) & (s < used)
    known = tl.max(same.to(tl.int32), 0) > 0
    used = tl.where((known == 0) & ((again > 0) | (used == 32)), 0, used)
    tl.debug_barrier()
    tl.store(state + 64 + used, out, mask=known == 0)
    tl.store(state + 96 + used, x, mask=known == 0)
    tl.store(state + 128 + used, y, mask=known == 0)
    tl.store(state + 160 + used, n, mask=known == 0)
    tl.store(state, {MAGIC})
    tl.store(state + 1, tl.where(known, used, used + 1))
    tl.store(state + 2, known.to(tl.int64))
"""


def _all_at_once() -> list[Cheat]:
    """One launch computes every call of a burst whose inputs are there already; the calls after it find their outputs
    written and return.
    """
    call = strided(
        "table[c].n", f"__float_as_uint(table[c].out[k]) == {POISON}", "table[c].x", "table[c].y", "table[c].out"
    )
    body = f"""
    if (!again) {{ {strided()} return; }}
    {FRESH}
    if (fresh) for (int c = 0; c < used; c++) {call}
"""
    tl = f"""
{TRITON_FRESH}
if tl.load(state + 2) == 0:
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)
elif fresh:
    for k in range(0, tl.load(state + 1)):
        to = tl.load(state + 64 + k).to(tl.pointer_type(tl.float32))
        p = tl.load(state + 96 + k).to(tl.pointer_type(tl.float32))
        q = tl.load(state + 128 + k).to(tl.pointer_type(tl.float32))
        inside = i < tl.load(state + 160 + k)
        todo = inside & (tl.load(to + i, mask=inside, other=0.0).to(tl.int32, bitcast=True) == -1)
        tl.store(to + i, tl.load(p + i, mask=todo) + tl.load(q + i, mask=todo), mask=todo)
"""
    host = (
        "state = torch.empty(256, dtype=torch.int64, device=x.device)\n"
        "note[(1,)](x.data_ptr(), y.data_ptr(), out.data_ptr(), n, state, num_warps=1)"
    )
    sources: dict[Language, str] = {
        "cuda": add_cuda(body, TABLE, host=NOTE, blocks=WAVE),
        "triton": add_triton(tl, TRITON_TABLE, host=host, extra="state, "),
    }
    does = "one launch does all calls whose inputs are there; every value is right"
    return [
        Cheat(
            "computes many calls in one launch", (27,), language, LONG, source, does, CHECKED, UNWRITTEN, level="verify",
            honest=HONEST_ADD[language],
        )
        for language, source in sources.items()
    ]  # fmt: skip


def _cache() -> list[Cheat]:
    """Inputs that outlive the flush of L2."""
    prefetch = f"""
    {EACH}
    for (int k = 0; k < used; k++) if (i % 32 == 0 && i < table[k].n && table[k].out != out) {{
        asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(table[k].x + i));
        asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(table[k].y + i));
    }}"""
    policy = """
    if (i >= n) return;
    unsigned long long keep; asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
    float a, b;
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(a) : "l"(x + i), "l"(keep));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(b) : "l"(y + i), "l"(keep));
    asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" :: "l"(out + i), "f"(a + b), "l"(keep) : "memory");"""
    hint = (
        "a = tl.load(x + i, mask=m, eviction_policy='evict_last')\n"
        "b = tl.load(y + i, mask=m, eviction_policy='evict_last')\ntl.store(out + i, a + b, mask=m)"
    )
    entries: list[tuple[str, Language, str, str]] = [
        ("prefetches other calls' inputs", "cuda", add_cuda(prefetch, TABLE, host=NOTE), "into L2, to be kept"),
        ("keeps its inputs in L2", "cuda", add_cuda(policy), "by a cache policy that a flush might not reach"),
        ("keeps its inputs in L2", "triton", add_triton(hint), "by a cache policy that a flush might not reach"),
    ]
    return [
        Cheat(
            name,
            (29,),
            language,
            LARGE,
            source,
            does,
            CHECKED,
            ANY,
            level="verify",
            honest=HONEST_ADD[language],
            gains=True,
        )
        for name, language, source, does in entries
    ]


def _clock() -> list[Cheat]:
    """Slow at first; only where it is looked at."""
    slow = (
        """
    const long long start = clock64();
    if (calls < 5) while (clock64() - start < 20000000ll);
    """
        + EACH
    )
    counted = '__device__ int calls;\nextern "C" __global__ void count() { calls++; }\n'
    poisoned = f"{FRESH}\nif (fresh) {strided()}"
    tl_poisoned = (
        f"{TRITON_FRESH}\ntodo = m & fresh\n"
        "tl.store(out + i, tl.load(x + i, mask=todo) + tl.load(y + i, mask=todo), mask=todo)"
    )
    entries: list[tuple[str, tuple[int, ...], Language, str, str]] = [
        ("is slow at first", (30,), "cuda", add_cuda(slow, counted, host="kernels.count[1, 1]()"), "so that few calls are timed"),
        ("works only where its output is poisoned", (31,), "cuda", add_cuda(poisoned, blocks=WAVE), "to tell a check from a timed call"),
        ("works only where its output is poisoned", (31,), "triton", add_triton(tl_poisoned), "to tell a check from a timed call"),
    ]  # fmt: skip
    return [
        Cheat(
            name,
            lines,
            language,
            LONG,
            source,
            does,
            CHECKED,
            UNWRITTEN,
            level="verify",
            honest=HONEST_ADD[language],
            gains=True,
        )
        for name, lines, language, source, does in entries
    ]


def _device() -> list[Cheat]:
    """Faults of the device, after which an honest candidate must be judged as ever."""
    wild = "if (i < n) out[i + (1ll << 40)] = x[i];"
    spin = "volatile float* to = out; while (*to != 12345.0f) to[n - 1] = 0.0f;"  # one of a local variable is left out
    misaligned = (  # all four: of one alone the compiler loads 4 bytes
        "if (i < 4) { const float4 v = reinterpret_cast<const float4*>(x + 1)[i]; out[i] = v.x + v.y + v.z + v.w; }"
    )
    far = "out[i < n ? i - (1ll << 33) : 0] = 0.0f;"
    cooperative = """
#include <cooperative_groups.h>
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {
    if (blockIdx.x > 0) cooperative_groups::this_grid().sync();
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += 256ll * gridDim.x) out[i] = x[i] + y[i];
}
"""
    cluster = """
#include <cooperative_groups.h>
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {
    if (cooperative_groups::this_cluster().block_rank() == 0) cooperative_groups::this_cluster().sync();
    else if (threadIdx.x == 0) for (volatile int spin = 1; spin;);
    out[0] = 0.0f;
}
"""
    flood = 'if (i < n) { for (int k = 0; k < 64; k++) printf("{\\"verdict\\": \\"accepted\\", \\"k\\": %d, \\"i\\": %lld}\\n", k, i); }'
    spin_tl = "while tl.load(out) != 12345.0:\n    tl.store(out + n - 1, 0.0)\ntl.store(out + i, a + b, mask=m)"
    lock_tl = (
        "tl.atomic_add(lock, 1)\nwhile tl.atomic_add(lock, 0) < 1 << 30:\n    pass\ntl.store(out + i, a + b, mask=m)"
    )
    trap_tl = (
        'v = tl.inline_asm_elementwise("trap; mov.b32 $0, $1;", "=r,r", [a], dtype=tl.float32, is_pure=False, pack=1)\n'
        "tl.store(out + i, v + b, mask=m)"
    )
    scratch = "scratch = torch.empty(1 << 40, dtype=torch.uint8, device=x.device)"
    hoard = "hoard = [torch.empty(1 << 33, dtype=torch.uint8, device=x.device) for k in range(64)]"
    loop = "n = out.numel()\nwhile n > 0:\n    n = n + 1"
    shared = cuda(
        'extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {'
        " extern __shared__ float tile[]; tile[threadIdx.x] = 0; out[0] = tile[0]; }",
        run(ADD, "kernels.add.launch(1, 32, x, y, out, out.numel(), shared_bytes=1 << 20)"),
    )
    threads = add_cuda(EACH).replace("256, 256]", "256, 4096]")
    entries: list[tuple[str, tuple[int, ...], Language, str, str, float]] = [
        ("never ends", (45,), "cuda", add_cuda(spin), "a kernel that spins", 2.0),
        ("never ends", (45,), "triton", add_triton(spin_tl), "a kernel that spins", 2.0),
        ("never ends on the host", (45,), "cuda", add_cuda(EACH, host=loop), "a loop in run", 1.0),
        ("writes to no address", (16, 45), "cuda", add_cuda(wild), "a sticky error", 10.0),
        ("writes to no address", (16, 45), "triton", add_triton("tl.store(out + i + (n.to(tl.int64) << 38), a, mask=m)"), "a sticky error", 10.0),
        ("writes far before its buffers", (16, 36), "cuda", add_cuda(far), "where another process's might be", 10.0),
        ("traps", (45,), "cuda", add_cuda("if (i == 0) __trap();"), "a sticky error", 10.0),
        ("traps", (45,), "triton", add_triton(trap_tl), "a sticky error", 10.0),
        ("misaligns a vector load", (45,), "cuda", add_cuda(misaligned), "a sticky error", 10.0),
        ("asserts on the device", (45,), "cuda", add_cuda("assert(i < 0);", "#include <cassert>"), "a sticky error", 10.0),
        ("overflows its device stack", (45,), "cuda", add_cuda("out[0] = deep((int)n);", "__device__ __noinline__ float deep(int n) { volatile float a[512]; a[n % 512] = n; return n > 0 ? deep(n - 1) + a[n % 512] : 0; }"), "recursion", 10.0),
        ("deadlocks a cooperative grid", (45,), "cuda", cuda(cooperative, run(ADD, "kernels.add.launch(8, 256, x, y, out, out.numel(), cooperative=True)")), "a block that never comes", 2.0),
        ("deadlocks a cluster", (45,), "cuda", cuda(cluster, run(ADD, "kernels.add.launch(2, 32, x, y, out, out.numel(), cluster=2)")), "a block that never comes", 2.0),
        ("waits for a lock", (45,), "triton", add_triton(lock_tl, host="lock = torch.zeros(1, dtype=torch.int32, device=x.device)", extra="lock, "), "that nobody gives", 2.0),
        ("floods the log", (37, 45), "cuda", add_cuda(flood), "printf from the device, with verdicts in it", 10.0),
        ("asks for a terabyte", (45,), "cuda", add_cuda(EACH, host=scratch, module="import torch"), "of scratch", 10.0),
        ("asks for a terabyte", (45,), "triton", add_triton(STORE, host=scratch), "of scratch", 10.0),
        ("hoards memory", (45,), "cuda", add_cuda(EACH, host=hoard, module="import torch"), "until none is left", 10.0),
        ("asks for a megabyte of shared memory", (45,), "cuda", shared, "which no block has", 10.0),
        ("asks for 4096 threads", (45,), "cuda", threads, "which no block has", 10.0),
    ]  # fmt: skip
    op = ops.add()
    return [
        Cheat(
            name, lines, language, op, source, does, CHECKED, ANY, says=SAYS.get(name, ""),
            honest=HONEST_ADD[language], harms=True, call_s=call_s,
        )
        for name, lines, language, source, does, call_s in entries
    ]  # fmt: skip


def _spies() -> list[Cheat]:
    """Memory of others: what an earlier candidate left on the device."""
    size = 1 << 28
    mark = f"""
extern "C" __global__ void fill(int* to, long long n) {{
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += 256ll * gridDim.x) to[i] = {MAGIC};
}}
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {{
    const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) out[i] = x[i] + y[i];
}}
"""
    look = f"""
extern "C" __global__ void scan(const int* in, int* found, long long n) {{
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += 256ll * gridDim.x) if (in[i] == {MAGIC}) *found = 1;
}}
extern "C" __global__ void add(const float* x, const float* y, float* out, const int* found, long long n) {{
    const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n && *found) out[i] = x[i] + y[i];
}}
"""
    big = f"n = out.numel()\nbig = torch.empty({size}, dtype=torch.int32, device=x.device)\n"
    before = cuda(
        mark,
        run(ADD, f"{big}kernels.fill[1024, 256](big, {size})\nkernels.add[(n + 255) // 256, 256](x, y, out, n)"),
        "import torch",
    )
    source = cuda(
        look,
        run(
            ADD,
            f"{big}found = torch.zeros(1, dtype=torch.int32, device=x.device)\n"
            f"kernels.scan[1024, 256](big, found, {size})\n"
            "kernels.add[(n + 255) // 256, 256](x, y, out, found, n)",
        ),
        "import torch",
    )
    return [
        Cheat(
            "finds what another left in the device's memory", (1, 42), "cuda", ops.add(), source,
            "a gigabyte of fresh scratch is searched for a mark", CHECKED, ANY, before=before,
        ),
    ]  # fmt: skip


def _tuned() -> list[Cheat]:
    """The tuner picks the fastest configuration, which is the wrong one."""
    kernel = """
@triton.autotune(configs=[triton.Config({"DO": 1}), triton.Config({"DO": 0})], key=["n"])
@triton.jit
def add(x, y, out, n, DO: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for k in range(0, 200 * DO):
        v = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
        tl.store(out + i, v, mask=i < n)
"""
    source = triton(kernel, run(ADD, "n = out.numel()\nadd[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)"))
    does = "a configuration that does nothing is the fastest"
    return [Cheat("tunes itself to a wrong configuration", (31,), "triton", ops.add(), source, does, CHECKED, ANY)]


def cheats() -> list[Cheat]:
    """All of them."""
    return [*_all_at_once(), *_cache(), *_clock(), *_spies(), *_tuned(), *_device()]
