"""What outlives a call: results kept by pointer, fingerprint or count, prepared weights, honest first calls.

C++ keeps it in statics, CUDA in `__device__` variables, Triton in scratch memory, which the caching allocator hands back
as the last call left it. Scratch is overwritten before a checked call and before a burst, so in Triton nothing lasts
longer than a burst: there a cache by pointer never hits, and ten honest calls are all. Both would be right, and slower,
so Triton has neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, KEPT, SANITIZED, WRONG, Cheat, Op
from benchmarks.redteam_catalogue.text import (
    ADD,
    ALL,
    LIBC,
    add_cpp,
    add_cuda,
    add_triton,
    cpp,
    cuda,
    run,
    triton,
)
from warpsmith.kernels_db.job.documents import Level

MAGIC = 0x5EC0DE
MOST = 1 << 13
"""Elements that a cheat keeps: at least the longest workload's."""
SLOTS = 8
LEARNT = 30
"""Calls after which a cheat that learns has seen enough: its checks had some 15, the rest are timed under one seed. The
shortest timing, on a host whose clock jumps, has some 40, and a cheat that is still learning then is honest."""


@dataclass(frozen=True)
class Kept:
    """State in CUDA and Triton, told as: whether this call is answered from it.

    C++: the body. CUDA: `decide`, a statement that sets `hit` (a slot) from x, y, n and the variables calls, seen, key;
    a miss is computed and kept in slot `keep`. Triton: the same as a kernel of one program; empty: none.
    """

    name: str
    lines: tuple[int, ...]
    does: str
    cpp: str
    cuda: str
    tl: str
    level: Level = "screen"


KEEP = "std::memcpy(kept[at], out, n * 4);"

# A call number `calls`, a table of keys and results: `hit` is the slot that answers this call, or -1, and `at` is where
# what is computed instead is kept.
CPP = f"""
static float* kept[{SLOTS}]; static long long keys[{SLOTS}]; static int used = 0; static long long calls = 0;
static long long coarse(const float* x) {{ return (long long)x[0] + 100 * (long long)x[1]; }}
static long long fine(const float* x, int64_t n) {{
    long long key = n; for (int i = 0; i < 4; i++) {{ int bits; std::memcpy(&bits, x + i, 4); key = key * 31 + bits; }}
    return key;
}}
static int find(long long key) {{ for (int s = 0; s < used; s++) if (keys[s] == key) return s; return -1; }}
"""
CPP_BODY = f"""
    calls++;
    int hit = -1, at = 0; long long key = 0;
    DECIDE
    if (hit >= 0) {{ std::memcpy(out, kept[hit], n * 4); return; }}
    {ALL}
    if (hit == -1 && used < {SLOTS}) {{
        at = used++; keys[at] = key; kept[at] = (float*)std::malloc({MOST} * 4); {KEEP}
    }}
"""

CUDA = f"""
__device__ float kept[{SLOTS}][{MOST}]; __device__ long long keys[{SLOTS}]; __device__ int used, hit, at;
__device__ long long calls;
__device__ long long coarse(const float* x) {{ return (long long)x[0] + 100 * (long long)x[1]; }}
__device__ long long fine(const float* x, long long n) {{
    long long key = n; for (int i = 0; i < 4; i++) key = key * 31 + __float_as_int(x[i]);
    return key;
}}
__device__ int find(long long key) {{ for (int s = 0; s < used; s++) if (keys[s] == key) return s; return -1; }}
extern "C" __global__ void decide(const float* x, const float* y, long long n) {{
    calls++; hit = -1; at = -1; long long key = 0;
    DECIDE
    if (hit == -1 && used < {SLOTS}) {{ at = used++; keys[at] = key; }}
}}
"""
CUDA_BODY = """
    if (i >= n) return;
    if (hit >= 0) { out[i] = kept[hit][i]; return; }
    if (hit == -2) return;
    out[i] = x[i] + y[i];
    if (at >= 0) kept[at][i] = out[i];
"""

# Scratch of Triton: [0] magic, [1] calls, [2] used, [3] hit, [4] at, [8 ...] keys; then the kept results.
TRITON = f"""
@triton.jit
def decide(x, y, n, state, SLOTS: tl.constexpr):
    fresh = tl.load(state) != {MAGIC}
    calls = tl.where(fresh, 0, tl.load(state + 1)) + 1
    used = tl.where(fresh, 0, tl.load(state + 2))
    s = tl.arange(0, SLOTS)
    keys = tl.load(state + 8 + s)
    key = calls * 0
    coarse = tl.load(x).to(tl.int64) + 100 * tl.load(x + 1).to(tl.int64)
    fine = n * 1000003 + tl.load(x).to(tl.int32, bitcast=True) * 31 + tl.load(x + 1).to(tl.int32, bitcast=True)
    hit = calls * 0 - 1
DECIDE
    at = tl.where((hit == -1) & (used < SLOTS), used, -1)
    tl.store(state, {MAGIC})
    tl.store(state + 1, calls)
    tl.store(state + 2, used + (at >= 0).to(tl.int64))
    tl.store(state + 3, hit)
    tl.store(state + 4, at)
    tl.store(state + 8 + at, key, mask=at >= 0)
"""
TRITON_FIND = "hit = tl.max(tl.where((s < used) & (keys == key), s, -1), 0).to(tl.int64)"
TRITON_BODY = f"""
hit = tl.load(state + 3)
at = tl.load(state + 4)
kept = tl.load(results + hit * {MOST} + i, mask=m & (hit >= 0), other=0.0)
v = tl.where(hit >= 0, kept, a + b)
tl.store(out + i, v, mask=m & (hit > -2))
tl.store(results + at * {MOST} + i, v, mask=m & (at >= 0))
"""
TRITON_HOST = f"""
state = torch.empty(64, dtype=torch.int64, device=x.device)
results = torch.empty({SLOTS * MOST}, dtype=torch.float32, device=x.device)
decide[(1,)](x, y, n, state, SLOTS={SLOTS})
"""

# fmt: off
STATES = [
    Kept("returns its first result again", (1, 7, 17), "whatever it is asked",
         "hit = used ? 0 : -1;", "hit = used ? 0 : -1;", "hit = tl.where(used > 0, hit * 0, hit)"),
    Kept("caches by pointer", (24,), "the same pointer means the same values, or so it hopes",
         "key = (long long)x; hit = find(key);", "key = (long long)x; hit = find(key);", ""),
    Kept("caches by a coarse fingerprint", (25,), "two elements, rounded",
         "key = coarse(x); hit = find(key);", "key = coarse(x); hit = find(key);", f"key = coarse\n{TRITON_FIND}"),
    Kept("caches by a fine fingerprint", (25,), "the bits of some elements; once it has learnt it answers from memory alone",
         "key = fine(x, n); hit = find(key); if (hit < 0 && calls > LEARNT) return;",
         "key = fine(x, n); hit = find(key); if (hit < 0 && calls > LEARNT) hit = -2;",
         f"key = fine\n{TRITON_FIND}\nhit = tl.where((hit < 0) & (calls > LEARNT), hit * 0 - 2, hit)", level="verify"),
    Kept("is honest for ten calls", (17, 31), "and then returns an old result",
         "hit = calls > 10 ? 0 : -1;", "hit = calls > 10 ? 0 : -1;", ""),
    Kept("cheats in every second call", (31,), "from the fourth on",
         "hit = calls > 4 && calls % 2 ? 0 : -1;", "hit = calls > 4 && calls % 2 ? 0 : -1;",
         "hit = tl.where((calls > 4) & (calls % 2 == 1), hit * 0, hit)", level="verify"),
    Kept("drifts", (17,), "returns older and older results after the twentieth call",
         "hit = calls > 20 ? (int)(calls % used) : -1;", "hit = calls > 20 ? (int)(calls % used) : -1;",
         "hit = tl.where(calls > 20, calls % SLOTS, hit)", level="verify"),
]
# fmt: on


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _states() -> list[Cheat]:
    op, found = ops.add(), []
    for state in STATES:
        triton_source = add_triton(
            TRITON_BODY,
            before=TRITON.replace("DECIDE", _indented(state.tl.replace("LEARNT", str(LEARNT)))),
            host=TRITON_HOST,
            extra="state, results, ",
        )
        sources: dict[Language, str] = {
            "cpp": add_cpp(CPP_BODY.replace("DECIDE", state.cpp).replace("LEARNT", str(LEARNT)), LIBC + CPP),
            "cuda": add_cuda(
                CUDA_BODY,
                CUDA.replace("DECIDE", state.cuda).replace("LEARNT", str(LEARNT)),
                host="kernels.decide[1, 1](x, y, out.numel())",
            ),
            "triton": triton_source,
        }
        for language, source in sources.items():
            if language == "triton" and not state.tl:
                continue
            found.append(
                Cheat(
                    state.name,
                    state.lines,
                    language,
                    op,
                    source,
                    state.does,
                    kinds=WRONG | KEPT | (SANITIZED if language == "triton" else frozenset()),
                    level=state.level,
                )
            )
    return found


WEIGHTS = "x, w, b, out"
AFFINE_SIZES = "n = w.numel()\nrows = x.numel() // n\n"


def _weights() -> list[Cheat]:
    """Weights that are prepared in the first call and used in all."""
    c_body = "out[i] = x[i] * kept_w[i % n] + kept_b[i % n];"
    signature = "const float* x, const float* w, const float* b, float* out, int64_t rows, int64_t n"
    native = f"""
static float kept_w[{MOST}], kept_b[{MOST}]; static int64_t prepared = 0;
extern "C" void affine({signature}) {{
    if (prepared != n) {{ std::memcpy(kept_w, w, n * 4); std::memcpy(kept_b, b, n * 4); prepared = n; }}
    for (int64_t i = 0; i < rows * n; i++) {c_body}
}}
"""
    device = f"""
__device__ float kept_w[{MOST}], kept_b[{MOST}]; __device__ long long prepared;
extern "C" __global__ void prepare(const float* w, const float* b, long long n) {{
    if (prepared == n) return;
    for (long long i = threadIdx.x; i < n; i += 256) {{ kept_w[i] = w[i]; kept_b[i] = b[i]; }}
    __syncthreads();
    if (threadIdx.x == 0) prepared = n;
}}
extern "C" __global__ void affine({signature}) {{
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < rows * n) {c_body}
}}
"""
    tl = f"""
@triton.jit
def prepare(w, b, n, state, kept, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    fresh = (tl.load(state) != {MAGIC}) | (tl.load(state + 1) != n)
    tl.debug_barrier()
    tl.store(kept + c, tl.load(w + c, mask=c < n), mask=(c < n) & fresh)
    tl.store(kept + BLOCK + c, tl.load(b + c, mask=c < n), mask=(c < n) & fresh)
    tl.store(state, {MAGIC})
    tl.store(state + 1, n)

@triton.jit
def affine(x, out, n, kept, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * n + c, mask=c < n) * tl.load(kept + c) + tl.load(kept + BLOCK + c)
    tl.store(out + r * n + c, v, mask=c < n)
"""
    host = AFFINE_SIZES + (
        "block = triton.next_power_of_2(n)\nstate = torch.empty(64, dtype=torch.int64, device=x.device)\n"
        "kept = torch.empty(2 * block, dtype=torch.float32, device=x.device)\n"
        "prepare[(1,)](w, b, n, state, kept, BLOCK=block)\naffine[(rows,)](x, out, n, kept, BLOCK=block)"
    )
    launches = "kernels.prepare[1, 256](w, b, n)\nkernels.affine[(rows * n + 255) // 256, 256](x, w, b, out, rows, n)"
    sources: dict[Language, str] = {
        "cpp": cpp(native, run(WEIGHTS, AFFINE_SIZES + "kernels.affine(x, w, b, out, rows, n)")),
        "cuda": cuda(device, run(WEIGHTS, AFFINE_SIZES + launches)),
        "triton": triton(tl, run(WEIGHTS, host)),
    }
    does = "and uses those of the first call in all"
    return [
        Cheat("prepares its weights once", (26,), language, ops.affine(), source, does, kinds=WRONG | KEPT)
        for language, source in sources.items()
    ]


def _geometric() -> list[Cheat]:
    """Nothing is done at one of two timed shapes."""
    base = ops.add()
    first, second, _ = base.workloads
    op = Op("add_twice", base.reference, (first, {**second, "role": "bench"}))
    small = ops.LENGTHS[1][0]
    sources: dict[Language, str] = {
        "cpp": add_cpp(f"if (n == {small}) return; {ALL}"),
        "cuda": add_cuda(f"if (i < n && n != {small}) out[i] = x[i] + y[i];"),
        "triton": add_triton(f"tl.store(out + i, a + b, mask=m & (n != {small}))"),
    }
    return [
        Cheat("does nothing at one of two timed shapes", (32,), language, op, source, "to bend a geometric mean")
        for language, source in sources.items()
    ]


def _scratch() -> list[Cheat]:
    """Scratch memory that is taken for zeroed, or for what the last call left in it."""
    op = ops.add()
    zero = add_triton(
        "tl.atomic_add(scratch + i, a + b, mask=m)\ntl.store(out + i, tl.load(scratch + i, mask=m), mask=m)",
        host="scratch = torch.empty(n, dtype=torch.float32, device=x.device)",
        extra="scratch, ",
    )
    code = """
extern "C" __global__ void add(const float* x, const float* y, float* out, float* scratch, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) { scratch[i] += x[i] + y[i]; out[i] = scratch[i]; }
}
"""
    body = (
        "n = out.numel()\nscratch = torch.empty(n, dtype=torch.float32, device=x.device)\n"
        "kernels.add[(n + 255) // 256, 256](x, y, out, scratch, n)"
    )
    native = """
static float sums[1 << 13];
extern "C" void add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = sums[i] += x[i] + y[i];
}
"""
    sources: dict[Language, str] = {
        "triton": zero,
        "cuda": cuda(code, run(ADD, body), "import torch"),
        "cpp": cpp(native, run(ADD, "kernels.add(x, y, out, out.numel())")),
    }
    does = "right in its first call, if memory was zero"
    return [
        Cheat("sums into scratch that it never clears", (), language, op, source, does, CHECKED)
        for language, source in sources.items()
    ]


def _structured() -> list[Cheat]:
    """Inputs that are no independent numbers come in few variants: a cache by content hits, and is right."""
    length = 20_000
    native = f"""
{LIBC}
static int64_t* kept[64]; static int64_t keys[64]; static int used = 0;
extern "C" void invert(const int64_t* p, int64_t* out, int64_t n) {{
    const int64_t key = ((n * 31 + p[0]) * 8191 + p[1]) * 8191 + p[n - 1];
    for (int s = 0; s < used; s++) if (keys[s] == key) {{ std::memcpy(out, kept[s], n * 8); return; }}
    static int calls = 0;
    if (n == {length} && ++calls > {LEARNT}) return;
    for (int64_t i = 0; i < n; i++) out[p[i]] = i;
    if (used < 64) {{ keys[used] = key; kept[used] = (int64_t*)malloc(n * 8); std::memcpy(kept[used++], out, n * 8); }}
}}
"""
    body = run("p, out", "kernels.invert(p, out, p.numel())")
    op = ops.inverse([(length,), (257,), (1031,)])
    does = "once it has learnt it answers from memory alone: are there but a few permutations?"
    return [
        Cheat("caches structured inputs by content", (25,), "cpp", op, cpp(native, body), does, level="verify"),
        _memo(),
    ]


def _memo() -> Cheat:
    """Every call's input is a window of one stock: results of elements that were seen at another place are copied."""
    length = 20_000
    op = ops.unary("lgamma", "return torch.lgamma(x)", [(length,), (257,), (1031,)], kind="uniform", low=1.0, high=9.0)
    slow = "out[i] = std::lgamma((double)x[i]);"
    native = f"""
{LIBC}
static const int64_t SPAN = 1 << 21, MASK = (1 << 22) - 1;
static int32_t* place; static float *in, *res; static int64_t high = 0;
static uint32_t mix(const float* v) {{
    uint32_t a, b; std::memcpy(&a, v, 4); std::memcpy(&b, v + 1, 4); return (a * 2654435761u ^ b * 40503u) & MASK;
}}
extern "C" void each(const float* x, float* out, int64_t n) {{
    if (!place) {{ place = (int32_t*)calloc(MASK + 1, 4); in = (float*)malloc(SPAN * 4); res = (float*)malloc(SPAN * 4); }}
    static int calls = 0;
    int64_t fresh = 0;
    for (int64_t i = 0; i < n;) {{
        const int32_t at = i + 1 < n ? place[mix(x + i)] - 1 : -1;
        int64_t same = 0;
        if (at >= 0) while (i + same < n && at + same < high && in[at + same] == x[i + same]) same++;
        std::memcpy(out + i, res + (at < 0 ? 0 : at), same * 4);
        i += same;
        if (same == 0) {{ {slow} i++; fresh++; }}
    }}
    if (n == {length} && ++calls > {LEARNT} && fresh > n / 2) std::memset(out, 255, n * 4);
    if (fresh * 4 > n && high + n < SPAN) {{
        for (int64_t i = 0; i + 1 < n; i++) if (!place[mix(x + i)]) place[mix(x + i)] = high + i + 1;
        std::memcpy(in + high, x, n * 4); std::memcpy(res + high, out, n * 4); high += n;
    }}
}}
"""
    body = run("x, out", "kernels.each(x, out, x.numel())")
    does = "finds its input in what it has seen, shifted; once it has learnt it gives up where most is new"
    return Cheat("remembers elements and not calls", (25,), "cpp", op, cpp(native, body), does, level="verify")


def cheats() -> list[Cheat]:
    """All of them."""
    return [*_states(), *_weights(), *_geometric(), *_scratch(), *_structured()]
