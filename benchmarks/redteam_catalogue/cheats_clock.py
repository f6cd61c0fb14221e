"""What is done at another time than it is asked: work put off, caches by content, half of the calls, none but the checks.

Each keeps its state where native code can: in statics of C++, in `__device__` variables of CUDA. A cache is right where
it hits, so it is told apart by what it does once it has learnt: then it answers from its memory or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, ENDED, MEMORY, WRONG, Cheat, Op
from benchmarks.redteam_catalogue.text import (
    ALL,
    HONEST_ADD,
    LIBC,
    WAVE,
    add_cpp,
    add_cuda,
    cpp,
    cuda,
    run,
    strided,
)

LENGTH = 20_000
LENGTHS = [(LENGTH,), (257,), (1031,)]
ADDED = ops.add(LENGTHS)
MANY = 1 << 20
LONG = ops.add([(MANY,), (257,), (1031,)])
"""Long enough for half of a call to be seen in its time."""
MANY_ON_A_GPU = 1 << 23
LONG_ON_A_GPU = ops.add([(MANY_ON_A_GPU,), (257,), (1031,)])
"""The same on a GPU, beside the launch that tells one call from another."""
ANY = WRONG | MEMORY | ENDED
LEARNT = 30
"""Calls after which a cheat has seen enough: its checks had some 15, the shortest timing has some 40."""
KEPT = 64

TABLE = """
struct Call { const float* x; const float* y; float* out; long long n; };
__device__ Call table[64]; __device__ int used; __device__ long long last, gap;
"""


GAP = """
    long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); gap = now - last; last = now;
"""
FIRST = 400_000
"""Nanoseconds since the last call: more only for the first call of a burst, and for one that is made alone."""


def _deferred() -> list[Cheat]:
    """Calls are noted, and computed by a later one of the same burst or block. A call that comes alone is computed."""
    note = """
extern "C" __global__ void note(const float* x, const float* y, float* out, long long n) {
    GAP
    if (used == BATCH || gap > FIRST) used = 0;
    if (gap > FIRST) return;
    table[used].x = x; table[used].y = y; table[used].out = out; table[used].n = n; used++;
}
"""
    work = f"""
if (used == 0) {{ {strided()} return; }}
if (used < LEAST) return;
for (int c = used - LEAST; c < used - LEFT; c++) {strided("table[c].n", "", "table[c].x", "table[c].y", "table[c].out")}
"""
    found = []
    for name, size, least, left in (
        ("puts its work off to every fourth call", 4, 4, 0),
        ("puts its work off to the end of a burst", 20, 20, 0),
        ("answers a call in the next one", 64, 2, 1),
    ):
        noted = TABLE + note.replace("BATCH", str(size)).replace("GAP", GAP).replace("FIRST", str(FIRST))
        body = work.replace("LEAST", str(least)).replace("LEFT", str(left))
        source = add_cuda(body, noted, host="kernels.note[1, 1](x, y, out, out.numel())", blocks=WAVE)
        does = "results that are right once the burst has ended, and were not when their call had"
        found.append(
            Cheat(name, (17, 27), "cuda", LONG_ON_A_GPU, source, does, CHECKED, ANY, level="verify",
                  honest=HONEST_ADD["cuda"], gains=left == 0)
        )  # fmt: skip
    native = f"""
    static const float *px = nullptr, *py = nullptr; static float* po = nullptr; static int calls = 0;
    if (n != {LENGTH} || calls++ < {LEARNT}) {{ {ALL} return; }}
    if (po) for (int64_t i = 0; i < n; i++) po[i] = px[i] + py[i];
    px = x; py = y; po = out;
    """
    found.append(
        Cheat("answers a call in the next one", (17, 27), "cpp", ADDED, add_cpp(native), "of the same block",
              CHECKED, ANY, level="verify", honest=HONEST_ADD["cpp"])
    )  # fmt: skip
    return found


def _skips() -> list[Cheat]:
    """Every second call of a burst or block is computed; or those alone that look like checks."""
    every_second = f"if (gap > {FIRST} || calls % 2 == 0) {strided()}"
    count = '__device__ long long calls, last, gap;\nextern "C" __global__ void count() {\n    calls++;\n'
    count += f"{GAP}}}\n"
    in_burst = f"const long long until = gap > {FIRST} || n != {MANY_ON_A_GPU} ? n : n / 2; {strided('until')}"
    host = "kernels.count[1, 1]()"
    cores = f"""
    static int calls = 0;
    const auto ask = (int (*)(int, unsigned long, void*))by_hand("sched_getaffinity");
    unsigned long mask[16] = {{}}; int cores = 0;
    ask(0, sizeof mask, mask);
    for (const unsigned long one : mask) cores += __builtin_popcountl(one);
    const int64_t until = n == {MANY} && cores > 1 && ++calls > {LEARNT} ? n / 2 : n;
    for (int64_t i = 0; i < until; i++) out[i] = x[i] + y[i];
    """
    second = f"static int calls = 0; if (n == {MANY} && ++calls > {LEARNT} && calls % 2) return;\n{ALL}"
    entries: list[tuple[str, Language, Op, str, str]] = [
        ("computes every second call", "cpp", LONG, add_cpp(second), "and leaves the others as they are"),
        ("computes every second call", "cuda", LONG_ON_A_GPU, add_cuda(every_second, count, host=host, blocks=WAVE), "and leaves the others as they are"),
        ("works by half where it is not checked", "cpp", LONG, add_cpp(cores, LIBC), "a check shows by its one core and comes early"),
        ("works by half where it is not checked", "cuda", LONG_ON_A_GPU, add_cuda(in_burst, count, host=host, blocks=WAVE), "a check shows by the time since the last call"),
    ]  # fmt: skip
    return [
        Cheat(name, (31,), language, op, source, does, CHECKED, ANY, level="verify",
              honest=HONEST_ADD[language], gains=True)
        for name, language, op, source, does in entries
    ]  # fmt: skip


@dataclass(frozen=True)
class Cached:
    """An op whose input a cache recognises: `key` makes of x and n what is the same for the same content.

    It is C++ and CUDA at once. `element` is x's type, `result` out's, `count` how many results there are.
    """

    name: str
    op: Op
    element: str
    result: str
    count: str
    key: str
    honest: str
    does: str


MIX = "key = key * 1000003 + (long long)"
# fmt: off
CACHES = [
    Cached("caches integers by all of them", ops.histogram(LENGTHS), "long long", "long long", "40",
           f"for (long long i = 0; i < n; i++) {MIX}x[i];",
           "for (int b = 0; b < 40; b++) out[b] = 0; for (long long i = 0; i < n; i++) out[x[i]]++;",
           "a window of one stock comes again"),
    Cached("caches integers by what is in them", ops.histogram(LENGTHS), "long long", "long long", "40",
           "for (long long i = 0; i < n; i++) key += 1ll << (x[i] % 4 * 16);",
           "for (int b = 0; b < 40; b++) out[b] = 0; for (long long i = 0; i < n; i++) out[x[i]]++;",
           "whatever their order: counts of four classes"),
    Cached("caches a permutation by its beginning", ops.inverse(LENGTHS), "long long", "long long", "n",
           f"for (int i = 0; i < 16; i++) {MIX}x[i];",
           "for (long long i = 0; i < n; i++) out[x[i]] = i;",
           "there were but a few"),
    Cached("caches a permutation by its steps", ops.inverse(LENGTHS), "long long", "long long", "n",
           "for (long long i = 0; i < n; i++) { const long long s = (x[(i + 1) % n] - x[i] + n) % n; key += s * s * s; }",
           "for (long long i = 0; i < n; i++) out[x[i]] = i;",
           "which stay where it is rotated in place and in number"),
    Cached("caches numbers by some of them", ops.unary("exponential", "return torch.exp(x)", LENGTHS), "float", "float", "n",
           f"for (long long i = 0; i < n; i += n / 16) {MIX}(x[i] * 1e6f);",
           "for (long long i = 0; i < n; i++) out[i] = expf(x[i]);",
           "the bits of sixteen"),
    Cached("caches numbers by their sum", ops.unary("exponential", "return torch.exp(x)", LENGTHS), "float", "float", "n",
           "double sum = 0; for (long long i = 0; i < n; i++) sum += x[i]; key = (long long)(sum * 1e3);",
           "for (long long i = 0; i < n; i++) out[i] = expf(x[i]);",
           "to three places"),
]
# fmt: on


def _caches() -> list[Cheat]:
    found = []
    for one in CACHES:
        native = f"""
{LIBC}
extern "C" float expf(float);
static {one.result}* kept[{KEPT}]; static long long keys[{KEPT}]; static int used = 0, calls = 0;
extern "C" void cached(const {one.element}* x, {one.result}* out, int64_t n) {{
    long long key = n; {one.key}
    const int64_t size = {one.count} * sizeof({one.result});
    for (int s = 0; s < used; s++) if (keys[s] == key) {{ std::memcpy(out, kept[s], size); return; }}
    if (n == {LENGTH} && ++calls > {LEARNT}) return;
    {one.honest}
    if (used < {KEPT}) {{ keys[used] = key; kept[used] = ({one.result}*)malloc(size); std::memcpy(kept[used++], out, size); }}
}}
"""
        native = native.replace("long long", "int64_t") if "long long" in one.element else native
        device = f"""
__device__ {one.result} kept[{KEPT}][{LENGTH}]; __device__ long long keys[{KEPT}]; __device__ int used, calls;
extern "C" __global__ void cached(const {one.element}* x, {one.result}* out, long long n) {{
    long long key = n; {one.key}
    const long long count = {one.count};
    for (int s = 0; s < used; s++) if (keys[s] == key) {{ for (long long i = 0; i < count; i++) out[i] = kept[s][i]; return; }}
    if (n == {LENGTH} && ++calls > {LEARNT}) return;
    {one.honest}
    if (used < {KEPT}) {{ keys[used] = key; for (long long i = 0; i < count; i++) kept[used][i] = out[i]; used++; }}
}}
"""
        signature = f"const {one.element}* x, {one.result}* out"
        honest: dict[Language, str] = {
            "cpp": f'{LIBC}\nextern "C" float expf(float);\nextern "C" void cached({signature}, int64_t n) {{ {one.honest} }}',
            "cuda": f'extern "C" __global__ void cached({signature}, long long n) {{ {one.honest} }}',
        }
        honest["cpp"] = honest["cpp"].replace("long long", "int64_t")
        parameters = ", ".join(one.op.parameters)
        first, last = one.op.parameters[0], one.op.parameters[-1]
        call = f"{first}, {last}, {first}.numel())"
        in_cpp, in_cuda = run(parameters, f"kernels.cached({call}"), run(parameters, f"kernels.cached[1, 1]({call}")
        entries: list[tuple[Language, str, str]] = [
            ("cpp", cpp(native, in_cpp), cpp(honest["cpp"], in_cpp)),
            ("cuda", cuda(device, in_cuda), cuda(honest["cuda"], in_cuda)),
        ]
        found += [
            Cheat(one.name, (25,), language, one.op, source, one.does, CHECKED, ANY, level="verify",
                  honest=right, harms=True)
            for language, source, right in entries
        ]  # fmt: skip
    return found


def cheats() -> list[Cheat]:
    """All of them."""
    return [*_deferred(), *_skips(), *_caches()]
