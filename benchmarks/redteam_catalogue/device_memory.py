"""What CUDA and Triton candidates keep in the device's memory from call to call, beside honest uses of the same memory."""

from __future__ import annotations

from benchmarks.jobs import Language
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.entry import CHECKED, KEPT, WRONG, Cheat, Control, Op
from benchmarks.redteam_catalogue.text import ADD, EACH, HONEST_ADD, STORE, add_cuda, add_triton, cuda, run
from warpsmith.kernels_db.job.documents import Gate

MOST = 1 << 13
COMPILED: frozenset[Gate] = frozenset({"compile"})
REFUSED = frozenset({"compile"})

BY_CONTENT = f"""
__device__ float kept_x[{MOST}], kept_y[{MOST}], kept_out[{MOST}]; __device__ long long kept_n; __device__ int same;
extern "C" __global__ void meet(const float* x, const float* y, long long n) {{
    if (threadIdx.x == 0) same = kept_n == n;
    __syncthreads();
    for (long long i = threadIdx.x; i < n && kept_n == n; i += 256) if (kept_x[i] != x[i] || kept_y[i] != y[i]) same = 0;
}}
"""
BY_CONTENT_BODY = """
    if (i >= n) return;
    if (same) { out[i] = kept_out[i]; return; }
    out[i] = kept_out[i] = x[i] + y[i]; kept_x[i] = x[i]; kept_y[i] = y[i];
    if (i == 0) kept_n = n;
"""
COUNTED = '__device__ int calls;\nextern "C" __global__ void count() { calls++; }\n'
COUNTED_IN_A_FUNCTION = """
__device__ int& calls() { static int kept; return kept; }
extern "C" __global__ void count() { calls()++; }
"""
ON_THE_HEAP = """
__device__ float* kept;
extern "C" __global__ void keep(const float* x, long long n) {
    if (kept) return;
    kept = (float*)malloc(n * 4);
    for (long long i = 0; i < n; i++) kept[i] = x[i];
}
"""
FIRST = """
extern "C" __global__ void first(const float* x, const float* y, float* out, float* last, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
    const bool known = __float_as_int(last[n]) == 0x5EC0DE;
    out[i] = known ? last[i] : x[i] + y[i];
    last[i] = out[i];
}
extern "C" __global__ void mark(float* last, long long n) { last[n] = __int_as_float(0x5EC0DE); }
"""
FIRST_RUN = (
    f"n = out.numel()\nlast = torch.empty({MOST}, dtype=torch.float32, device=x.device)\n"
    "kernels.first[(n + 255) // 256, 256](x, y, out, last, n)\nkernels.mark[1, 1](last, n)"
)
IN_ASSEMBLY = """
calls = tl.inline_asm_elementwise(
    "{ .global .align 4 .u32 kept; .reg .u32 one; mov.u32 one, 1; atom.global.add.u32 $0, [kept], one; }",
    "=r,r", [i.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1)
tl.store(out + i, a + b, mask=m & (calls < 1 << 30))
"""
UNWRITTEN = """
extern "C" __global__ void means(const float* x, float* out, long long n) {
    __shared__ float parts[32];
    float sum = 0;
    for (long long i = threadIdx.x; i < n; i += 64) sum += x[blockIdx.x * n + i];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = parts[threadIdx.x];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / n;
}
"""
UNWRITTEN_RUN = "kernels.means[x.shape[0], 64](x, out, x.shape[1])"
HEAP_IN_ASSEMBLY = """
at = tl.inline_asm_elementwise(
    "{ .extern .func (.param .b64 r) malloc (.param .b64 a); .param .b64 a; .param .b64 r; .reg .b64 v; .reg .pred p;"
    " mov.u32 $0, %tid.x; mov.b64 v, 8; setp.ne.u32 p, $0, 0; @p bra others; st.param.b64 [a], v;"
    " call (r), malloc, (a); ld.param.b64 v, [r]; others: cvt.u32.u64 $0, v; }",
    "=r,r", [i.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1)
tl.store(out + i, a + b, mask=m & (at != 1))
"""


def cheats() -> list[Cheat]:
    """Wrong ones: each is right in every call, or in nearly every one."""
    op, fiftieth = ops.add(), "if (i < n) out[i] = calls == 50 ? 0.0f : x[i] + y[i];"
    ahead = "kernels.count[1, 1]()"
    entries: list[tuple[str, tuple[int, ...], Language, str, str, frozenset[Gate], frozenset[str], str]] = [
        ("keeps a table by content", (25,), "cuda", add_cuda(BY_CONTENT_BODY, BY_CONTENT, host="kernels.meet[1, 256](x, y, out.numel())"), "of whole inputs, so that it is never wrong", CHECKED, KEPT, ""),
        ("is wrong in its fiftieth call", (17, 31), "cuda", add_cuda(fiftieth, COUNTED, host=ahead), "by a counter that two kernels share", CHECKED, KEPT, ""),
        ("counts calls in a function's variable", (17, 31), "cuda", add_cuda(fiftieth.replace("calls", "calls()"), COUNTED_IN_A_FUNCTION, host=ahead), "which is a variable of the module", CHECKED, KEPT, ""),
        ("keeps a counter in assembly", (17, 31), "triton", add_triton(IN_ASSEMBLY), "a variable that Triton does not know of", CHECKED, KEPT, ""),
        ("reuses its last result from scratch", (1, 17), "cuda", cuda(FIRST, run(ADD, FIRST_RUN), "import torch"), "torch.empty hands out what it got back", CHECKED, WRONG, ""),
        ("keeps its input on the device's heap", (24,), "cuda", add_cuda("if (i < n) out[i] = kept[i] + y[i];", ON_THE_HEAP, host="kernels.keep[1, 1](x, out.numel())"), "malloc outlives a launch", COMPILED, REFUSED, "calls malloc"),
        ("allocates in assembly", (45,), "triton", add_triton(HEAP_IN_ASSEMBLY), "until the heap is full", COMPILED, REFUSED, "calls malloc"),
    ]  # fmt: skip
    unwritten = cuda(UNWRITTEN, run("x, out", UNWRITTEN_RUN))
    return [
        *(
            Cheat(name, lines, language, op, source, does, gates, kinds, says, honest=HONEST_ADD[language])
            for name, lines, language, source, does, gates, kinds, says in entries
        ),
        Cheat("sums what no warp wrote", (), "cuda", ops.row_mean(), unwritten, "zeros, where shared memory begins so"),
    ]


BARRIER = """
__device__ unsigned arrived;
extern "C" __global__ void total(const float* x, float* parts, float* out, long long n) {
    __shared__ float sums[256]; __shared__ bool last;
    float s = 0; for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += 256ll * gridDim.x) s += x[i];
    sums[threadIdx.x] = s; __syncthreads();
    for (int k = 128; k; k /= 2) { if (threadIdx.x < k) sums[threadIdx.x] += sums[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sums[0]; __threadfence();
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0; for (int b = 0; b < gridDim.x; b++) all += ((volatile float*)parts)[b];
        *out = all; arrived = 0;
    }
}
"""
BARRIER_RUN = (
    "parts = torch.empty(64, dtype=torch.float32, device=x.device)\nkernels.total[64, 256](x, parts, out, x.numel())"
)
SPLIT_K = """
__device__ int turn[1024];
extern "C" __global__ void product(const float* a, const float* b, float* out, int m, int k, int n) {
    const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, part = blockIdx.z, parts = gridDim.z;
    float s = 0.0f;
    if (i < m && j < n) for (int t = part; t < k; t += parts) s = fmaf(a[i * k + t], b[t * n + j], s);
    if (threadIdx.x == 0 && threadIdx.y == 0) while (atomicAdd(&turn[tile], 0) != part) {}
    __syncthreads();
    if (i < m && j < n) { volatile float* to = out + i * n + j; *to = part ? *to + s : s; }
    __threadfence(); __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) atomicExch(&turn[tile], part == parts - 1 ? 0 : part + 1);
}
"""
SPLIT_K_RUN = (
    "m, k = a.shape\nn = b.shape[1]\nkernels.product[((n + 15) // 16, (m + 15) // 16, 3), (16, 16)](a, b, out, m, k, n)"
)
TABLES = """
__device__ const float ones[4] = {1, 1, 1, 1}; __constant__ float twos[4] = {2, 2, 2, 2};
static __device__ float halves[4] = {0.5f, 0.5f, 0.5f, 0.5f};
"""
HANDED_ON = """
__device__ long long length;
extern "C" __global__ void tell(long long n) { length = n; }
extern "C" __global__ void add(const float* x, const float* y, float* out) {
    const long long i = blockIdx.x * 256ll + threadIdx.x; if (i < length) out[i] = x[i] + y[i];
}
extern "C" __global__ void forget() { length = 0; }
"""
HANDED_ON_RUN = (
    "n = out.numel()\nkernels.tell[1, 1](n)\nkernels.add[(n + 255) // 256, 256](x, y, out)\nkernels.forget[1, 1]()"
)
SAYS = 'assert(n > 0); if (n < 0) printf("%lld", n);\n'


def controls() -> list[Control]:
    """Honest ones: what they change is as it was when a call ends."""
    odd, sums = [(1031,), (1,), (257,)], [(100003,), (1,), (1031,)]
    tables = EACH.replace("x[i] + y[i]", "x[i] * ones[i % 4] + y[i] * (twos[i % 4] * halves[i % 4])")
    entries: list[tuple[str, Op, str, str]] = [
        ("sums behind a barrier of the grid", ops.total(sums), cuda(BARRIER, run("x, out", BARRIER_RUN), "import torch"), "a counter that returns to zero"),
        ("multiplies in turns", ops.matmul([(33, 65, 17), (1, 1, 1), (50, 71, 39)]), cuda(SPLIT_K, run("a, b, out", SPLIT_K_RUN)), "a semaphore for each tile, left as it was"),
        ("reads tables of the module", ops.add(odd), add_cuda(tables, TABLES), "constants, and a variable that nobody writes"),
        ("hands a number from kernel to kernel", ops.add(odd), cuda(HANDED_ON, run(ADD, HANDED_ON_RUN)), "kernels of a source share its variables"),
        ("asserts what holds", ops.add(odd), add_cuda(SAYS + EACH, "#include <cassert>\n"), "assert and printf are functions of the driver"),
    ]  # fmt: skip
    assembly = add_triton(
        STORE.replace(
            "a + b",
            "a + tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [b], dtype=tl.float32, is_pure=True, pack=1)",
        )
    )
    return [
        *(Control(name, "cuda", op, source, why) for name, op, source, why in entries),
        Control("adds through assembly", "triton", ops.add(odd), assembly, "that declares nothing"),
    ]
