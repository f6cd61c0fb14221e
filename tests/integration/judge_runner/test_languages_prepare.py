"""What preparing a candidate finds out without a GPU: every launch is seen, and one that no device takes is refused
with its line and the remedy.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests import REPOSITORY
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedOutput, ResolvedWorkload
from warpsmith.kernels_db.runtime import CompileError
from warpsmith.workers.gate.sources import kernel_sources
from warpsmith.workers.judge.languages import CompileLimits, Prepared, TrialError, abstract, prepare
from warpsmith.workers.judge.languages.cubin import bounds

LIMITS = CompileLimits(seconds=100)


def given(name: str, shape: list[int], dtype: str = "float32", alignment: int | None = None) -> ResolvedInput:
    """A contiguous input."""
    entry: ResolvedInput = {
        "name": name,
        "shape": shape,
        "strides": None,
        "dtype": dtype,
        "dist": {},
        "value": None,
        "mutated": False,
    }
    return entry if alignment is None else {**entry, "alignment": alignment}


def made(name: str, shape: list[int], dtype: str = "float32") -> ResolvedOutput:
    """An output."""
    return {"name": name, "shape": shape, "dtype": dtype, "tolerance": None}


def workload(inputs: list[ResolvedInput], outputs: list[ResolvedOutput], name: str = "bench") -> ResolvedWorkload:
    """A workload of these."""
    return {
        "id": name,
        "role": "bench",
        "axes": {},
        "inputs": inputs,
        "outputs": outputs,
        "min_bytes": 1,
        "flops": None,
    }


ROWS = workload([given("x", [64, 128])], [made("out", [64, 128])])

CUDA = '''
import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_fp16.h>
extern "C" __global__ void scale(const float* x, float* out, int n, float by) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * by;
}
extern "C" __global__ void __launch_bounds__(128) bounded(const float* x, float* out) {
    __shared__ float row[1024];
    row[threadIdx.x] = x[threadIdx.x]; __syncthreads(); out[threadIdx.x] = row[127 - threadIdx.x];
}
extern "C" __global__ void halves(const __half* x, float* out) { out[0] = x[0]; }
extern "C" __global__ void tiled(const __grid_constant__ CUtensorMap map, float* out) { out[0] = 1; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) paired(float* out) { out[0] = 1; }
""")


def run(x, out):
    n = out.numel()
    BODY
'''


def cuda(body: str, cache: Path, *workloads: ResolvedWorkload, arch: str = "sm_90", source: str = CUDA) -> Prepared:
    """Prepare the candidate above with `body`."""
    text = source.replace("BODY", body.replace("\n", "\n    "))
    return prepare(text, "cuda", target_arch=arch, cache_dir=cache, limits=LIMITS, workloads=workloads or [ROWS])


def line_of(source: str, text: str) -> int:
    """The line of the first occurrence of `text`."""
    return source[: source.index(text)].count("\n") + 1


def test_every_launch_is_seen_without_a_gpu(tmp_path: Path) -> None:
    body = """blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
kernels.scale[(n + 255) // 256, 256](x, out, n, 2.0)
for row in range(3):
    kernels.bounded[1, 128](x[row], out[row, :].view(-1))
kernels.scale.launch((blocks, 1), (64, 2), x, out, n, 2, shared_bytes=98304, cooperative=True)
kernels.tiled.launch(16, 32, cuda.tensor_map(x, (8, 32), swizzle=128), out, cluster=16)
kernels.paired[4, 32](out)"""
    prepared = cuda(body, tmp_path)
    assert [
        (launch["kernel"], launch["grid"], launch["block"], launch["count"]) for launch in prepared["launches"]
    ] == [
        ("scale", [32, 1, 1], [256, 1, 1], 1),
        ("bounded", [1, 1, 1], [128, 1, 1], 3),
        ("scale", [132, 1, 1], [64, 2, 1], 1),
        ("tiled", [16, 1, 1], [32, 1, 1], 1),
        ("paired", [4, 1, 1], [32, 1, 1], 1),
    ]
    assert prepared["launches"][2]["shared_bytes"] == 98304
    assert not any("early" in line for line in prepared["log"].splitlines())
    again = cuda(body, tmp_path)
    assert again["cached"]
    assert again["launches"] == prepared["launches"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("kernels.scale[1, 256](x, out, n)", r"scale takes 4 arguments (x, out, n, by), found 3"),
        ("kernels.scale[1, 256](n, out, n, 1.0)", "parameter 'x' (float*) of 'scale': found int, expected a tensor"),
        ("kernels.scale[1, 256](x, out, x, 1.0)", "parameter 'n' (int) of 'scale': found a tensor, expected an int"),
        ("kernels.scale[1, 256](x, out, n / 2, 1.0)", "parameter 'n' (int) of 'scale': found 4096.0 (float)"),
        ("kernels.scale[1, 256](x, out, 2**31, 1.0)", "parameter 'n' (int) of 'scale': found 2147483648"),
        ("kernels.halves[1, 256](x, out)", "of 'halves': found a tensor of float32, expected float16"),
        ("kernels.tiled[1, 256](x, out)", "'map' of 'tiled': found FakeTensor, expected a tensor map"),
        ("kernels.scale[0, 256](x, out, n, 1.0)", "found grid 0, expected one to three positive ints"),
        ("kernels.scale[1, 2048](x, out, n, 1.0)", "block.x: found 2048, expected at most 1024"),
        ("kernels.bounded[1, 256](x, out)", "__launch_bounds__ promises at most 128"),
        ("kernels.scale.launch(1, 32, x, out, n, 1.0, shared_bytes=240000)", "240000 bytes of a block, expected at"),
        ("kernels.bounded.launch(1, 32, x, out, shared_bytes=232448)", "found 4096 static + 232448 dynamic bytes"),
        ("kernels.scale[(1, 70000), 32](x, out, n, 1.0)", "grid.y: found 70000, expected at most 65535"),
        ("kernels.scale.launch(32, 32, x, out, n, 1.0, cluster=32)", "found 32 blocks (32, 1, 1), expected at most 16"),
        ("kernels.scale.launch(9, 32, x, out, n, 1.0, cluster=2)", "expected a multiple of cluster (2, 1, 1)"),
        ("kernels.paired[3, 32](out)", "expected a multiple of cluster (2, 1, 1)"),
        ("kernels.scale.launch(9999, 1024, x, out, n, 1.0, cooperative=True)", "264 are resident at once"),
        ("cuda.tensor_map(x, (8, 33))", "box: found rows of 132 bytes, expected a multiple of 16"),
        ("cuda.tensor_map(x, (8, 64), swizzle=128)", "box: found rows of 256 bytes, expected at most swizzle's 128"),
        ("cuda.tensor_map(x.t(), (8, 8))", "expected 1 for the last axis"),
        ("cuda.tensor_map(x, (64,))", "expected a tuple of 2 sizes"),
        ("raise ValueError(f'found {tuple(x.shape)}')", "run raises ValueError: found (64, 128) (workload bench)"),
        ("assert x.shape[0] == 1, 'one row'", "run raises AssertionError: one row"),
        ("t = (1, 2)[n]", "run raises IndexError"),
    ],
)  # fmt: skip
def test_a_launch_that_no_device_takes_is_refused_with_its_line(body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        cuda(body, tmp_path)
    assert said in caught.value.message
    assert caught.value.message.startswith(f"line {line_of(CUDA, 'BODY')}: ")


def test_a_launch_and_a_refusal_name_the_workload(tmp_path: Path) -> None:
    body = "kernels.scale[1, x.shape[0]](x, out, n, 1.0)\nkernels.paired[2, 32](out)"
    less = workload([given("x", [32, 8])], [made("out", [32, 8])], "less")
    more = workload([given("x", [2048, 8])], [made("out", [2048, 8])], "more")
    launches = cuda(body, tmp_path, ROWS, less)["launches"]
    assert [(launch["kernel"], launch["block"][0], launch["workload"]) for launch in launches] == [
        ("scale", 64, "bench"),
        ("paired", 32, "bench"),
        ("scale", 32, "less"),
    ]
    with pytest.raises(TrialError, match=r"block\.x: found 2048") as caught:
        cuda(body, tmp_path, ROWS, less, more)
    assert caught.value.workload == "more"
    with pytest.raises(CompileError, match="cannot be imported") as imported:
        cuda("pass", tmp_path, source="1 / 0\n" + CUDA)
    assert not isinstance(imported.value, TrialError)


def test_a_run_that_launches_nothing_is_refused_where_there_is_work(tmp_path: Path) -> None:
    body = "if x.shape[0] > 64:\n    kernels.scale[1, 256](x, out, n, 1.0)"
    more = workload([given("x", [65, 8])], [made("out", [65, 8])], "more")
    none = workload([given("x", [0, 8])], [made("out", [0, 8])], "none")
    assert [launch["kernel"] for launch in cuda(body, tmp_path, more, none)["launches"]] == ["scale"]
    with pytest.raises(CompileError, match="workload bench: run launches nothing: expected at least one launch"):
        cuda(body, tmp_path, more, ROWS)
    source = CUDA.replace("BODY", "pass")
    prepared = prepare(
        source,
        "cuda",
        target_arch="sm_90",
        cache_dir=tmp_path,
        limits=LIMITS,
        workloads=[ROWS],
        library_calls=["torch.mm"],
    )
    assert prepared["launches"] == []


def test_a_run_without_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abstract, "RUN_S", 0.2)
    endless = ModuleType("endless")
    exec("def run(x, out):\n    while True:\n        pass\n", vars(endless))
    with pytest.raises(abstract.Refused, match=r"workload bench: run does not end within 0\.2 s of CPU time"):
        abstract.trial(endless, ROWS, "cpu", lambda: 0)


@pytest.mark.nightly
def test_a_run_without_end_is_no_compilation(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="run does not end within 10 s of CPU time"):
        cuda("while n > 0:\n    n = n + 1", tmp_path)


def test_registers_limit_the_threads_of_a_block(tmp_path: Path) -> None:
    # Enough live values that a thread needs more than 64 registers, which 1024 threads do not have.
    values = "".join(f"float a{i} = x[{i} * n];\n" for i in range(80))
    many = f'extern "C" __global__ void many(const float* x, float* out, int n) {{ {values} __syncthreads();\n'
    many += "".join(f"out[{i} * n] = a{i} * a{79 - i};\n" for i in range(80)) + "}\n"
    source = CUDA.replace('""")', many + '""")')
    assert cuda("kernels.many[1, 256](x, out, n)", tmp_path, source=source)["launches"]
    with pytest.raises(CompileError, match=r"too many resources: 1024 threads of \d+ registers"):
        cuda("kernels.many[1, 1024](x, out, n)", tmp_path, source=source)


def test_the_architecture_decides_what_a_launch_may_ask_for(tmp_path: Path) -> None:
    body = "kernels.scale.launch(4, 32, x, out, n, 1.0, cluster=2)"
    source = CUDA.replace(CUDA[CUDA.index('extern "C" __global__ void tiled') : CUDA.index('""")')], "")
    cuda(body, tmp_path, source=source)
    with pytest.raises(CompileError, match="sm_80 has no clusters: they begin with sm_90"):
        cuda(body, tmp_path, arch="sm_80", source=source)


FENCE = 'asm volatile("wgmma.fence.sync.aligned;");'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (FENCE, r"line LINE: .*wgmma.*; the target is sm_80: expected what it has"),
        ("#error needs sm_90", r"line LINE: candidate\.cu\(6\).*needs sm_90"),
        ("out[0] = missing;", r'line LINE: candidate\.cu\(6\): error: identifier "missing" is undefined'),
    ],
)
def test_a_source_for_another_architecture_is_told_its_line(line: str, said: str, tmp_path: Path) -> None:
    source = CUDA[: CUDA.index('extern "C" __global__ void __launch')] + CUDA[CUDA.index('""")') :]
    source = source.replace("    int i =", f"    float s = 0;\n    {line}\n    int i =")
    at = str(line_of(source, line))
    with pytest.raises(CompileError, match=re.compile(said.replace("LINE", at), re.DOTALL)):
        cuda("kernels.scale[1, 32](x, out, n, 1.0)", tmp_path, arch="sm_80", source=source)


def test_a_cpp_message_has_the_candidates_line(tmp_path: Path) -> None:
    source = (
        'from kernels_db.runtime import cpp\n\nSOURCE = r"""\nextern "C" void f(float* x) {\n    x[0] = y;\n}\n"""\n'
    )
    source += "kernels = cpp.compile(SOURCE)\n\ndef run(x):\n    kernels.f(x)\n"
    with pytest.raises(CompileError, match=r"^line 5: candidate\.cpp:3:12: error: 'y' was not declared"):
        prepare(source, "cpp", target_arch="x86_64", cache_dir=tmp_path, limits=LIMITS)
    assert kernel_sources(source)[0].place(3) == line_of(source, "x[0] = y")


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_a_parameter_that_nothing_fits_has_its_functions_line(language: str, tmp_path: Path) -> None:
    kernel = "__global__ " if language == "cuda" else ""
    source = f'from kernels_db.runtime import {language}\nkernels = {language}.compile(r"""\n// f is below\n'
    source += f'extern "C" {kernel}void f(Thing* x) {{}}\n""")\n\ndef run(x):\n    pass\n'
    with pytest.raises(CompileError, match=r"^line 4: parameter 'x' of 'f': found `Thing \* x`"):
        prepare(source, language, target_arch="sm_90", cache_dir=tmp_path, limits=LIMITS)


def test_the_bounds_of_what_is_no_cubin_are_none() -> None:
    assert bounds(b"") == bounds(b"\x7fELF") == bounds(b"#!/bin/sh" * 50) == {}


# Triton

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def helper(a, b):
    return a MORE b


@triton.autotune(configs=CONFIGS, key=["n"], restore_value=["out"])
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, helper(tl.load(x + i, i < n), 2.0), i < n)


def run(x, out):
    n = out.numel()
    BODY
"""
TWO = "[triton.Config({'BLOCK': 256}), triton.Config({'BLOCK': 1024}, num_warps=8)]"
LAUNCH = "scale[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, out, n)"


def triton(
    cache: Path, body: str = LAUNCH, configs: str = TWO, more: str = "*", loads: list[ResolvedWorkload] | None = None
) -> Prepared:
    """Prepare the candidate above."""
    source = TRITON.replace("BODY", body).replace("CONFIGS", configs).replace("MORE", more)
    return prepare(
        source,
        "triton",
        target_arch="sm_90",
        cache_dir=cache,
        limits=LIMITS,
        workloads=[ROWS] if loads is None else loads,
    )


def test_every_configuration_is_compiled(tmp_path: Path) -> None:
    kernels = triton(tmp_path)["kernels"]
    assert [(kernel["config"]["BLOCK"], kernel["config"]["num_warps"]) for kernel in kernels] == [
        ("256", 4),
        ("1024", 8),
    ]


def test_a_configuration_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    configs = TWO[:-1] + ", triton.Config({'BLOCK': 1 << 21})]"
    with pytest.raises(CompileError, match=r"line \d+: kernel 'scale' does not compile: .*numel"):
        triton(tmp_path, configs=configs)  # Triton's tuner does not skip it either
    source = TRITON.replace("tl.store(out", "tl.static_assert(BLOCK < 1000)\n    tl.store(out").replace("MORE", "*")
    source = source.replace("BODY", LAUNCH).replace("CONFIGS", TWO)
    prepared = prepare(source, "triton", target_arch="sm_90", cache_dir=tmp_path, limits=LIMITS, workloads=[ROWS])
    assert [kernel["config"]["BLOCK"] for kernel in prepared["kernels"]] == ["256"]


@pytest.mark.parametrize(
    ("changes", "text", "said"),
    [
        ({"more": "@"}, "return a MORE b", "kernel 'scale' does not compile"),
        ({"configs": "[triton.Config({'BLOCK': 2 ** (i % 5 + 5)}, num_stages=i + 1) for i in range(65)]"}, "BODY",
         "kernel 'scale': found 65 configurations, expected at most 64"),
        ({"body": "scale[(1,)](x, out)"}, "BODY", "scale missing 1 required positional argument: 'n'"),
        ({"body": "scale[(1,)](x, out, n, 5, 6)"}, "BODY", "launch of 'scale': scale got multiple values for argument"),
        ({"body": "scale[(1,)](x, out, n, BLOCK=64)"}, "BODY", "BLOCK is given here and by a configuration: leave it"),
        ({"body": "scale[(1,)](x, out, n, num_wraps=4)"}, "BODY", "launch of 'scale': 'Keyword argument num_wraps"),
        ({"body": "scale[(1.5,)](x, out, n)"}, "BODY", "found grid (1.5,), expected one to three ints"),
        ({"body": "scale[(1, 70000)](x, out, n)"}, "BODY", "found grid (1, 70000), expected one to three ints, at"),
        ({"body": "scale[(1,)](n, out, n)"}, "tl.store", "kernel 'scale' does not compile"),
        ({"body": "t = x.shape[5]\n    scale[(1,)](x, out, n)"}, "BODY", "run raises IndexError"),
    ],
)  # fmt: skip
def test_a_triton_launch_that_cannot_be_is_refused_with_its_line(
    changes: dict[str, str], text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(CompileError) as caught:
        triton(tmp_path, **changes)
    assert said in caught.value.message
    assert caught.value.message.startswith(f"line {line_of(TRITON, text)}: "), caught.value.message


def test_triton_launches_nothing(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="workload bench: run launches nothing"):
        triton(tmp_path, body="pass")


def test_what_an_input_is_aligned_to_is_what_triton_compiles_for(tmp_path: Path) -> None:
    """A pointer that is a multiple of 16 is another specialisation than one that is not; so is an offset of a view."""
    one = "[triton.Config({'BLOCK': 256})]"
    loads = [
        workload([given("x", [64, 128], alignment=alignment)], [made("out", [64, 128])], name)
        for name, alignment in (("own", None), ("aligned", 512), ("sixteen", 16), ("four", 4))
    ]
    counts = [len(triton(tmp_path, configs=one, loads=[load])["kernels"]) for load in loads]
    assert counts == [1, 1, 1, 1]
    assert len(triton(tmp_path, configs=one, loads=loads[:3])["kernels"]) == 1
    assert len(triton(tmp_path, configs=one, loads=loads)["kernels"]) == 2
    views = "scale[(1,)](x[0], out, n)\n    scale[(1,)](x[0, 1:], out, n)\n    scale[(1,)](x[0, 4:], out, n)"
    assert len(triton(tmp_path, body=views, configs=one)["kernels"]) == 2


DESCRIPTORS = """
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def on_device(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([i, j], source.load([i, j]) * 2)


@triton.jit
def on_host(source, target, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([i, j], source.load([i, j]) * 2)


def run(x, out):
    rows, columns = x.shape
    grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 32))
    on_device[grid](x, out, rows, columns, 16, 32)
    source = TensorDescriptor.from_tensor(x, [16, 32])
    target = TensorDescriptor(out, shape=[rows, columns], strides=[columns, 1], block_shape=[16, 32])
    on_host[grid](source, target, 16, 32)
"""


def test_kernels_with_tensor_descriptors_are_compiled(tmp_path: Path) -> None:
    prepared = prepare(DESCRIPTORS, "triton", target_arch="sm_90", cache_dir=tmp_path, limits=LIMITS, workloads=[ROWS])
    assert prepared["log"] == ""
    assert [kernel["name"] for kernel in prepared["kernels"]] == ["on_device", "on_host"]


CANDIDATES = REPOSITORY / "tests" / "candidates"


@pytest.mark.parametrize(("language", "local"), [("triton", "total"), ("cuda", "sum")])
def test_the_binary_of_a_kernel_does_not_tell_lines_and_names_of_locals(
    language: str, local: str, tmp_path: Path
) -> None:
    source = (CANDIDATES / f"add_relu_{language}.py").read_text()
    rows = workload([given("x", [64, 128]), given("bias", [128])], [made("y", [64, 128])])

    def binaries(name: str, text: str) -> list[str]:
        return prepare(text, language, target_arch="sm_90", cache_dir=tmp_path / name, limits=LIMITS, workloads=[rows])[
            "binaries"
        ]

    first = binaries("first", source)
    assert len(first) == 1
    assert binaries("renamed", "# one line further down\n" + re.sub(rf"\b{local}\b", "renamed", source)) == first
    assert binaries("other", source.replace("0.0", "1.0")) != first
