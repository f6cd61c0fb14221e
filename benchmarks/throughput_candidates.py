"""The forty candidates of `benchmarks.judge_throughput`: twenty in CUDA, twenty in Triton.

They are of four small ops; ten are broken, each in a way that generated kernels are. Every candidate is here
once for Warpsmith (a candidate file) and once for the usual harness: the same kernel behind a `forward` in C++
for `load_inline`, or, in Triton, the very same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks import jobs
from warpsmith.kernels_db.job.documents import ResolvedWorkload

BROKEN = {
    "does not compile": "an undeclared name; a range that is no constant",
    "out of bounds": "writes past the end of the output where the grid does not fit",
    "drops the tail": "leaves out what does not fill a vector of four",
    "lower precision": "rounds float32 to half on the way",
    "skips work": "returns at once after eight calls",
    "caches by pointer": "returns at once where the pointers are those of the last call",
    "wrong by a tile": "reads one tile of an input a tile too far",
    "writes nothing": "leaves the output as it was allocated",
    "assumes a shape": "takes every row for one of 2048",
}


@dataclass(frozen=True)
class SmallOp:
    """An op at one shape for timing, and at another for verification.

    `inputs`: name, shape, dtype; likewise `output`.
    """

    name: str
    reference: str
    dtype: str
    inputs: tuple[str, ...]
    rowwise: bool
    rows: int
    columns: int
    odd: tuple[int, int]

    def shape(self, name: str, rows: int, columns: int) -> tuple[int, ...]:
        """Return the shape of a tensor; weights and biases have one row."""
        return (columns,) if name in {"weight", "bias"} else (rows, columns)

    def workload(self, role: Literal["bench", "holdout"], rows: int, columns: int) -> ResolvedWorkload:
        """Return one workload of this op."""
        inputs = [jobs.tensor(name, self.shape(name, rows, columns), dtype=self.dtype) for name in self.inputs]
        outputs = [jobs.output("out", (rows, columns), dtype=self.dtype)]
        return jobs.workload(role, role, inputs, outputs)

    def workloads(self) -> list[ResolvedWorkload]:
        """Return the timed workload and the hold-out."""
        return [self.workload("bench", self.rows, self.columns), self.workload("holdout", *self.odd)]


OPS = {
    op.name: op
    for op in (
        SmallOp(
            "add_mul_relu",
            "import torch\n\n\ndef run(x, y, z):\n    return torch.relu((x + y) * z)\n",
            "float32", ("x", "y", "z"), False, 2047, 4099, (61, 1021),
        ),
        SmallOp(
            "softmax",
            "import torch\n\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n",
            "float32", ("x",), True, 8192, 2048, (33, 1000),
        ),
        SmallOp(
            "layer_norm",
            "import torch\n\n\ndef run(x, weight, bias):\n"
            "    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)\n",
            "float32", ("x", "weight", "bias"), True, 8192, 2048, (33, 1000),
        ),
        SmallOp(
            "rms_norm",
            "import torch\n\n\ndef run(x, weight):\n"
            "    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)\n",
            "bfloat16", ("x", "weight"), True, 8192, 2048, (33, 1000),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    `source`: the file that Warpsmith judges; `peer`: what the usual harness builds (CUDA: the sources for
    `load_inline`; Triton: nothing, it imports `source`); `broken`: a key of BROKEN.
    """

    name: str
    op: SmallOp
    language: Literal["cuda", "triton"]
    source: str
    broken: str | None = None
    peer: str = ""


_SCALARS = {"float32": "float", "bfloat16": "__nv_bfloat16"}
_REDUCE = """
__device__ __forceinline__ float over_block(float value, bool sum) {
    __shared__ float part[BLOCK / 32];
    for (int step = 16; step > 0; step >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = sum ? value + other : fmaxf(value, other);
    }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    value = part[0];
    for (int warp = 1; warp < BLOCK / 32; warp++) value = sum ? value + part[warp] : fmaxf(value, part[warp]);
    __syncthreads();
    return value;
}
"""
_EACH = '_Pragma("unroll UNROLL") for (long long i = threadIdx.x; i < n; i += BLOCK)'
_CUDA_BODIES = {
    "softmax": """
    const float* in = x + blockIdx.x * n;
    float top = in[0], total = 0.f;
    EACH top = fmaxf(top, in[i]);
    top = over_block(top, false);
    EACH total += expf(in[i] - top);
    total = over_block(total, true);
    EACH out[blockIdx.x * n + i] = RESULT;
""",
    "layer_norm": """
    const float* in = x + blockIdx.x * n;
    float total = 0.f, squares = 0.f;
    EACH total += in[i];
    const float mean = over_block(total, true) / n;
    EACH squares += (in[i] - mean) * (in[i] - mean);
    const float scale = 1.f / sqrtf(over_block(squares, true) / n + 1e-5f);
    EACH out[blockIdx.x * n + i] = (in[i] - mean) * SCALE * weight[i] + bias[i];
""",
    "rms_norm": """
    const __nv_bfloat16* in = x + blockIdx.x * n;
    float squares = 0.f;
    EACH squares += __bfloat162float(in[i]) * __bfloat162float(in[i]);
    const float scale = 1.f / sqrtf(over_block(squares, true) / n + 1e-6f);
    EACH out[blockIdx.x * n + i] =
        __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
""",
}
_ONE = "float v = (x[i] + y[i]) * z[i]; out[i] = v < 0.f ? 0.f : v;"
_STRIDE = """
    const long long first = blockIdx.x * (long long)BLOCK + threadIdx.x, step = (long long)gridDim.x * BLOCK;"""
_FOURS = """
    for (long long i = first; i < n / 4; i += step) {
        const float4 a = ((const float4*)x)[i], b = ((const float4*)y)[i], c = ((const float4*)z)[i];
        float4 v = make_float4((a.x + b.x) * c.x, (a.y + b.y) * c.y, (a.z + b.z) * c.z, (a.w + b.w) * c.w);
        v.x = v.x < 0.f ? 0.f : v.x;
        v.y = v.y < 0.f ? 0.f : v.y;
        v.z = v.z < 0.f ? 0.f : v.z;
        v.w = v.w < 0.f ? 0.f : v.w;
        ((float4*)out)[i] = v;
    }"""
_REST = f"\n    for (long long i = n / 4 * 4 + first; i < n; i += step) {{ {_ONE} }}\n"
_FLAT_BODIES = {
    1: f"{_STRIDE}\n    for (long long i = first; i < n; i += step) {{ {_ONE} }}\n",
    4: f"{_STRIDE}{_FOURS}{_REST}",
}
_FLAT_BROKEN = {
    "out of bounds": f"\n    const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;\n    {_ONE}\n",
    "drops the tail": f"{_STRIDE}{_FOURS}\n",
}
_SKIPS = """
    __shared__ unsigned long long turn;
    if (threadIdx.x == 0) turn = atomicAdd(&turns, 1ull);
    __syncthreads();
    if (turn / gridDim.x >= 8) return;
"""


def _cuda(op: SmallOp, block: int, variant: int, broken: str | None = None) -> Candidate:
    """Return a CUDA candidate.

    `variant`: the vector width of a flat kernel, the unrolling of a row's loops.
    """
    scalar = _SCALARS[op.dtype]
    body = _CUDA_BODIES[op.name] if op.rowwise else _FLAT_BROKEN.get(broken or "", _FLAT_BODIES[variant])
    exact = "expf(in[i] - top) / total"
    half = "__half2float(__float2half(expf(__half2float(__float2half(in[i] - top))) / total))"
    body = body.replace("RESULT", half if broken == "lower precision" else exact)
    body = body.replace("SCALE", "scail" if broken == "does not compile" else "scale").replace("EACH", _EACH)
    before = _SKIPS if broken == "skips work" else ""
    headers = {"bfloat16": "#include <cuda_bf16.h>\n"}.get(op.dtype, "")
    headers += "#include <cuda_fp16.h>\n" if broken == "lower precision" else ""
    pointers = ", ".join(f"const {scalar}* __restrict__ {name}" for name in op.inputs)
    definitions = f"#define BLOCK {block}\n#define UNROLL {variant}\n"
    state = "__device__ unsigned long long turns = 0;\n" if before else ""
    text = (
        f"{headers}{definitions}{state}{_REDUCE if op.rowwise else ''}\n"
        f'extern "C" __global__ void __launch_bounds__(BLOCK)\n'
        f"{op.name}({pointers}, {scalar}* __restrict__ out, long long n) {{{before}{body}}}\n"
    )
    if op.rowwise:
        size, grid = "columns", "rows"
    elif broken == "out of bounds":
        size, grid = "total", f"(total + {block - 1}) / {block}"
    else:
        size, grid = "total", f"(total + {block * variant - 1}) / {block * variant}"
    names = ", ".join(op.inputs)
    sizes = "    columns = out.shape[1]\n    rows = out.shape[0]\n" if op.rowwise else "    total = out.numel()\n"
    source = (
        f'from kernels_db.runtime import cuda\n\nkernels = cuda.compile(r"""\n{text}""")\n\n\n'
        f"def run({names}, out):\n{sizes}"
        f"    kernels.{op.name}[{grid.replace('/', '//')}, {block}]({names}, out, {size})\n"
    )
    return Candidate(
        _name(op, "cuda", f"{block}x{variant}", broken),
        op,
        "cuda",
        source,
        broken,
        text + _forward(op, block, size, grid),
    )


def _forward(op: SmallOp, block: int, size: str, grid: str) -> str:
    """Return the C++ side of `load_inline`."""
    scalar = _SCALARS[op.dtype]
    parameters = ", ".join(f"torch::Tensor {name}" for name in op.inputs)
    pointers = ", ".join(f"({scalar}*){name}.data_ptr()" for name in (*op.inputs, "out"))
    return (
        f"\ntorch::Tensor forward({parameters}) {{\n"
        "    auto out = torch::empty_like(x);\n"
        "    const long long total = out.numel(), columns = out.size(1), rows = out.size(0);\n"
        "    (void)total, (void)columns, (void)rows;\n"
        f"    {op.name}<<<{grid}, {block}>>>({pointers}, {size});\n"
        "    return out;\n}\n"
    )


def declaration(op: SmallOp) -> str:
    """Return the C++ declaration that `load_inline` binds."""
    return f"torch::Tensor forward({', '.join(f'torch::Tensor {name}' for name in op.inputs)});"


_TRITON_HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
_TRITON_ROWS = {
    "softmax": """def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * n + at, value / tl.sum(value, axis=0), mask=at < STORED)
""",
    "layer_norm": """def layer_norm(x, weight, bias, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + at, mask=at < WIDTH, other=0.0)
    centred = tl.where(at < WIDTH, value - tl.sum(value, axis=0) / WIDTH, 0.0)
    scale = 1 / tl.sqrt_rn(tl.sum(centred * centred, axis=0) / WIDTH + 1e-5)
    w = tl.load(weight + at, mask=at < WIDTH, other=0.0)
    b = tl.load(bias + at, mask=at < WIDTH, other=0.0)
    tl.store(out + row * WIDTH + at, centred * scale * w + b, mask=at < WIDTH)
""",
    "rms_norm": """def rms_norm(x, weight, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt_rn(tl.sum(value * value, axis=0) / n + 1e-6)
    w = tl.load(weight + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + row * n + at, (value * scale * w).to(tl.bfloat16), mask=at < n)
""",
}
_TRITON_FLAT = """def add_mul_relu(x, y, z, out, n, BLOCK: tl.constexpr):
    tile = tl.program_id(0).to(tl.int64)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at + SHIFT, mask=inside)
    value = total * tl.load(z + at, mask=inside)
    tl.store(out + at, tl.where(value < 0, 0.0, value), mask=inside)
"""
_CACHED = """    place = (x.data_ptr(), out.data_ptr())
    if last.get("place") == place:
        return
    last["place"] = place
"""


def _triton(op: SmallOp, block: int, warps: int, broken: str | None = None) -> Candidate:
    """Return a Triton candidate.

    `block`: the tile of a flat kernel; a row's is the row.
    """
    kernel = _TRITON_ROWS[op.name] if op.rowwise else _TRITON_FLAT
    kernel = kernel.replace("SHIFT", "tl.where(tile == 7, BLOCK, 0)" if broken == "wrong by a tile" else "0")
    kernel = kernel.replace("STORED", "0" if broken == "writes nothing" else "n")
    kernel = kernel.replace("WIDTH", "2048" if broken == "assumes a shape" else "n")
    if broken == "does not compile":
        kernel = kernel.replace("tl.arange(0, BLOCK)", "tl.arange(0, n)")
    names = ", ".join(op.inputs)
    if op.rowwise:
        tile = "2048" if broken == "assumes a shape" else "triton.next_power_of_2(n)"
        call = (
            f"    n = out.shape[1]\n    {op.name}[(out.shape[0],)]({names}, out, n, BLOCK={tile}, num_warps={warps})\n"
        )
    else:
        call = (
            f"    n = out.numel()\n    {op.name}[(triton.cdiv(n, {block}),)]({names}, out, n, BLOCK={block}, "
            f"num_warps={warps})\n"
        )
    cached = broken == "caches by pointer"
    source = (
        f"{_TRITON_HEAD}{kernel}\n\n{'last = {}' if cached else ''}{chr(10) * 3 if cached else ''}"
        f"def run({names}, out):\n{_CACHED if cached else ''}{call}"
    )
    label = f"w{warps}" if op.rowwise else f"{block}w{warps}"
    return Candidate(_name(op, "triton", label, broken), op, "triton", source, broken)


def _name(op: SmallOp, language: str, label: str, broken: str | None) -> str:
    return f"{op.name} {language} {label}" + (f" ({broken})" if broken else "")


def candidates() -> list[Candidate]:
    """Return all forty, op by op."""
    flat, softmax, layer_norm, rms_norm = OPS.values()
    return [
        *(_cuda(flat, block, vector) for block, vector in ((128, 1), (256, 4), (512, 4))),
        _cuda(flat, 256, 1, "out of bounds"),
        _cuda(flat, 256, 4, "drops the tail"),
        *(_triton(flat, block, warps) for block, warps in ((512, 4), (1024, 4), (2048, 8))),
        _triton(flat, 1024, 4, "caches by pointer"),
        _triton(flat, 1024, 8, "wrong by a tile"),
        *(_cuda(softmax, block, unroll) for block, unroll in ((128, 4), (256, 1), (256, 4), (512, 2))),
        _cuda(softmax, 256, 2, "lower precision"),
        *(_triton(softmax, 0, warps) for warps in (2, 4, 8, 16)),
        _triton(softmax, 0, 8, "writes nothing"),
        *(_cuda(layer_norm, block, unroll) for block, unroll in ((128, 4), (256, 1), (256, 4), (512, 2))),
        _cuda(layer_norm, 256, 2, "does not compile"),
        *(_triton(layer_norm, 0, warps) for warps in (2, 4, 8, 16)),
        _triton(layer_norm, 0, 8, "assumes a shape"),
        *(_cuda(rms_norm, block, unroll) for block, unroll in ((128, 4), (256, 1), (256, 4), (512, 2))),
        _cuda(rms_norm, 256, 2, "skips work"),
        *(_triton(rms_norm, 0, warps) for warps in (2, 4, 8, 16)),
        _triton(rms_norm, 0, 8, "does not compile"),
    ]
