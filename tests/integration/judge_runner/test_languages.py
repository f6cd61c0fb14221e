"""The three languages through their real compilers."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from tests import REPOSITORY
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import Build, CompileError, cpp, cuda
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.languages import CompileLimits, prepare
from warpsmith.workers.judge.languages.prepared import ptxas_reports

CANDIDATES = REPOSITORY / "tests" / "candidates"
LIMITS = CompileLimits(seconds=100)
ADD = r"""
extern "C" void add(const float* x, const float* y, float* out, int64_t n) {
    #pragma omp parallel for simd
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}
"""
FOREVER = "template <int N> struct T { using type = typename T<N + 1>::type; };"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build cache of the test's own."""
    directory = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(directory))
    return directory


def workload(rows: int, columns: int) -> ResolvedWorkload:
    """examples/add_relu.yaml with its axes bound."""
    return {
        "id": f"{rows}x{columns}",
        "role": "bench",
        "axes": {"rows": rows, "columns": columns},
        "inputs": [
            {
                "name": name,
                "shape": shape,
                "strides": None,
                "dtype": "float32",
                "dist": {},
                "value": None,
                "mutated": False,
            }
            for name, shape in (("x", [rows, columns]), ("bias", [columns]))
        ],
        "outputs": [{"name": "y", "shape": [rows, columns], "dtype": "float32", "tolerance": None}],
        "min_bytes": 1,
        "flops": None,
    }


# C++


def test_a_kernel_computes_what_torch_does() -> None:
    kernels = cpp.compile(ADD)
    x, y = torch.randn(1000), torch.randn(1000)
    out = torch.empty(1000)
    kernels.add(x, y, out, 1000)
    assert torch.equal(out, x + y)


def test_a_call_that_does_not_fit_names_the_parameter() -> None:
    add = cpp.compile(ADD).add
    x = torch.zeros(4)
    with pytest.raises(
        TypeError, match=r"parameter 'y' \(float\*\) of 'add': found a tensor of float64, expected float32"
    ):
        add(x, x.double(), x, 4)
    with pytest.raises(TypeError, match=r"parameter 'n' .*found 4\.0 \(float\), expected an int"):
        add(x, x, x, 4.0)
    with pytest.raises(OverflowError, match="parameter 'n'"):
        add(x, x, x, 2**63)
    with pytest.raises(TypeError, match=r"add takes 4 arguments \(x, y, out, n\), found 3"):
        add(x, x, x)


def test_every_kind_of_parameter_arrives_as_it_was_passed() -> None:
    kernels = cpp.compile(r"""
    extern "C" void put(double* out, int8_t a, uint16_t b, int c, uint64_t d, float e, double f, bool g, const void* h,
                        const uint16_t* i) {
        const double all[] = {double(a), double(b), double(c), double(d), double(e), f, double(g), double(h == nullptr),
                              double(i != nullptr)};
        for (int k = 0; k < 9; ++k) out[k] = all[k];
    }
    """)
    out = torch.zeros(9, dtype=torch.float64)
    kernels.put(out, -128, 65535, -(2**31), 2**53, 0.5, 1e-300, True, None, torch.zeros(1, dtype=torch.bfloat16))
    assert out.tolist() == [-128, 65535, -(2**31), 2**53, 0.5, 1e-300, 1, 1, 1]


def test_the_interpreter_goes_on_during_a_call() -> None:
    kernels = cpp.compile(r"""
    extern "C" void wait_for(volatile int32_t* flag, int64_t limit) { while (!*flag && limit-- > 0) {} }
    """)
    flag = torch.zeros(1, dtype=torch.int32)
    waiting = threading.Thread(target=kernels.wait_for, args=(flag, 20_000_000_000), daemon=True)
    waiting.start()
    flag.fill_(1)  # only possible while the call runs without the interpreter's lock
    waiting.join(30)
    assert not waiting.is_alive()


def test_intrinsics_need_no_include() -> None:
    cpp.build('extern "C" void f(float* x) {\n#ifdef __SSE2__\n_mm_storeu_ps(x, _mm_setzero_ps());\n#endif\n}')


def test_fast_math_does_not_change_the_process(cache: Path) -> None:
    """Linking with -ffast-math makes a library flush denormals in whatever loads it."""
    built = cpp.build('extern "C" void f(float* x) { x[0] = 0; }', ("-ffast-math", "-Ofast"))
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); assert sys.float_info.min / 2 > 0"
    subprocess.run([sys.executable, "-c", script, str(built.path)], check=True)


def test_a_build_is_found_again_and_each_difference_is_another() -> None:
    first = cpp.build(ADD)
    again = cpp.build(ADD)
    assert (first.cached, again.cached, again.path) == (False, True, first.path)
    assert cpp.build(ADD, ("-O2",)).path != first.path
    assert cpp.build(ADD + "\n").path != first.path


def test_a_build_is_found_where_no_compiler_can_run(cache: Path) -> None:
    """A runner may be forbidden to start processes or to write: what it needs is there already."""
    cpp.build(ADD)
    script = (
        "import os, resource, sys\n"
        "from kernels_db.runtime import cpp\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "os.fork = os.execve = None\n"
        "import subprocess; subprocess.Popen = None\n"
        "cpp.compile(sys.stdin.read()).add\n"
    )
    subprocess.run([sys.executable, "-c", script], input=ADD, text=True, check=True, cwd=REPOSITORY)


def test_a_damaged_record_is_built_again() -> None:
    built = cpp.build(ADD)
    built.path.with_suffix(".json").write_text("{")
    assert not cpp.build(ADD).cached


def build_add(directory: str) -> Build:
    """For a process of its own."""
    return cpp.build(ADD, cache_dir=directory)


@pytest.mark.nightly
def test_concurrent_builds_agree(cache: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        builds = list(pool.map(build_add, [str(cache)] * 4))
    assert len({build.path for build in builds}) == 1
    assert ctypes.CDLL(str(builds[0].path)).add
    assert sorted(path.suffix for path in cache.rglob("*") if path.is_file()) == [".json", ".so"]


def test_a_syntax_error_has_the_line_of_the_source() -> None:
    with pytest.raises(CompileError) as caught:
        cpp.build('extern "C" void f(float* x) {\n    x[0] = 1.0f\n}\n')
    assert caught.value.message.startswith("candidate.cpp:2:")
    assert "expected ';'" in caught.value.message
    assert "x[0] = 1.0f" in caught.value.log


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('extern "C" void f(float* x) { g(); }', "'g' was not declared"),
        ('void g(); extern "C" void f(float* x) { g(); }', "undefined reference to `g()'"),
        ('#include "nowhere.h"\nextern "C" void f(float* x) {}', "nowhere.h: No such file"),
        (FOREVER + '\nextern "C" void f(T<0>::type* x) {}', "template instantiation depth"),
        ('extern "C" void f(float* x) { static_assert(sizeof(float) == 8, "wide floats"); }', "wide floats"),
        ('#error "not here"\n', "not here"),
    ],
)
def test_a_source_that_does_not_compile_says_why_in_one_line(source: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        cpp.build(source)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.log) < 10_000


def test_a_compiler_without_end_is_stopped_with_its_children(cache: Path) -> None:
    source = """
    constexpr unsigned long spin(unsigned long n) {
        unsigned long s = 0;
        for (unsigned long i = 0; i < n; ++i) s ^= i * s + 1;
        return s;
    }
    template <unsigned long N> struct S { static constexpr unsigned long value = spin(250000 + N) + S<N - 1>::value; };
    template <> struct S<0> { static constexpr unsigned long value = 0; };
    extern "C" void f(unsigned long* x) { x[0] = S<250>::value; }
    """
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"ran longer than 0\.5 s") as caught:
        cpp.build(source, timeout_s=0.5)
    assert caught.value.cause == "timeout"
    assert time.monotonic() - start < 60
    assert not [path for path in cache.glob("*") if path.name.startswith(".build-")]
    deadline = time.monotonic() + 10
    while str(cache) in "".join(_processes()) and time.monotonic() < deadline:
        time.sleep(0.05)  # what was killed needs a moment to be gone
    assert str(cache) not in "".join(_processes())


def _processes() -> list[str]:
    """The command line and directory of everything that runs now."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found.append((path / "cmdline").read_text() + os.readlink(path / "cwd"))
        except OSError:
            continue
    return found


def test_a_compiler_that_needs_too_much_memory_is_stopped() -> None:
    doubling = "".join(f"#define M{i} M{i - 1},M{i - 1}\n" for i in range(1, 26))
    source = f'#define M0 1,1\n{doubling}int b[] = {{M25}};\nextern "C" void f(int* x) {{ x[0] = b[5]; }}'
    with pytest.raises(CompileError, match="MiB of memory"):
        cpp.build(source, memory_bytes=256 << 20)


def test_a_huge_include_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        cpp.build('#include "/dev/zero"\nextern "C" void f(float* x) {}', timeout_s=10, memory_bytes=1 << 30)
    assert caught.value.message


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    cpp.compiler.cache_clear()
    cpp.toolchain.cache_clear()
    try:
        with pytest.raises(CompileError, match=r"no C\+\+ compiler: found no 'no-such-compiler'"):
            cpp.build(ADD)
    finally:
        cpp.compiler.cache_clear()
        cpp.toolchain.cache_clear()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CompileError, match=f"{CACHE_VARIABLE}"):
        cpp.build(ADD, cache_dir=file / "below")


def test_a_cpp_candidate_is_prepared_where_its_runner_looks(cache: Path) -> None:
    source = (CANDIDATES / "add_relu_cpp.py").read_text()
    prepared = prepare(source, "cpp", target_arch="x86_64", cache_dir=cache, limits=LIMITS)
    assert not prepared["cached"]
    assert [kernel["name"] for kernel in prepared["kernels"]] == ["bias_relu"]
    files = sorted(cache.rglob("*.so"))
    module: dict[str, object] = {}
    exec(compile(source, "candidate", "exec"), module)
    x, bias, y = torch.randn(33, 7), torch.randn(7), torch.empty(33, 7)
    module["run"](x, bias, y)  # type: ignore[operator]
    assert torch.equal(y, torch.relu(x + bias))
    assert sorted(cache.rglob("*.so")) == files
    assert prepare(source, "cpp", target_arch="x86_64", cache_dir=cache, limits=LIMITS)["cached"]


# CUDA

CUDA = r"""
#include <cuda_fp16.h>
extern "C" __global__ void __launch_bounds__(128) rows(const __half* x, float* out, long long n) {
    __shared__ float tile[128];
    tile[threadIdx.x] = n > 0 ? __half2float(x[threadIdx.x]) : 0.0f;
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
}
"""


def cuda_candidate(source: str) -> str:
    """A candidate with `source`."""
    return f'from kernels_db.runtime import cuda\nkernels = cuda.compile(r"""{source}""")\ndef run(x, out):\n    pass\n'


def test_a_cuda_candidate_becomes_a_cubin_without_a_gpu(cache: Path) -> None:
    prepared = prepare(cuda_candidate(CUDA), "cuda", target_arch="sm_90", cache_dir=cache, limits=LIMITS)
    (kernel,) = prepared["kernels"]
    assert kernel["name"] == "rows"
    assert kernel["shared"] == 512
    assert kernel["spills"] == 0
    assert (kernel["registers"] or 0) > 0
    (cubin,) = cache.rglob("*.cubin")
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert prepare(cuda_candidate(CUDA), "cuda", target_arch="sm_90", cache_dir=cache, limits=LIMITS)["cached"]


def test_cuda_architectures_and_flags_are_other_builds() -> None:
    paths = {
        cuda.build(CUDA, arch, flags).path
        for arch in ("sm_80", "sm_90")
        for flags in ((), ("--use_fast_math", "-DN=2", "--maxrregcount=32"))
    }
    assert len(paths) == 4
    assert cuda.build(CUDA, "sm_90a").cached


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            'extern "C" __global__ void f(float* x) {\n    x[0] = y;\n}',
            'candidate.cu(2): error: identifier "y" is undefined',
        ),
        ('#include <nowhere.h>\nextern "C" __global__ void f(float* x) {}', 'open source file "nowhere.h"'),
        ('extern "C" __global__ void f(Thing* x) {}', "parameter 'x' of 'f'"),
        ("__global__ void f(float* x) {}", "defines no kernel"),
    ],
)
def test_a_cuda_source_that_does_not_compile_says_why(source: str, said: str, cache: Path) -> None:
    with pytest.raises(CompileError) as caught:
        prepare(cuda_candidate(source), "cuda", target_arch="sm_90", cache_dir=cache, limits=LIMITS)
    assert said in caught.value.message


def test_the_headers_that_cuda_sources_name_by_habit_are_there() -> None:
    headers = ("cstdint", "cmath", "cfloat", "climits", "stdlib.h", "cuda.h", "cuda_runtime.h", "cuda_bf16.h", "mma.h")
    cuda.build(
        "".join(f"#include <{header}>\n" for header in headers)
        + 'extern "C" __global__ void f(const __grid_constant__ CUtensorMap map, float* x, std::int64_t n) {\n'
        "x[0] = n > INT_MAX ? FLT_MAX : 0; }"
    )


def test_nvrtc_without_end_is_stopped(cache: Path) -> None:
    body = "".join(f"x[{i} + threadIdx.x] = sinf(x[{i}]) * powf(x[{i + 1}], x[{i + 2}]);\n" for i in range(6000))
    source = f'extern "C" __global__ void f(float* x) {{ {body} }}'
    start = time.monotonic()
    with pytest.raises(CompileError, match="took longer than 2 s"):
        prepare(cuda_candidate(source), "cuda", target_arch="sm_90", cache_dir=cache, limits=CompileLimits(seconds=2))
    assert time.monotonic() - start < 100


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(CompileError, match="arch: found 'hopper'"):
        cuda.build(CUDA, "hopper")


def test_spills_are_read_from_the_log() -> None:
    log = """
ptxas info    : Compiling entry function 'f' for 'sm_90a'
    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem, 16 bytes cmem[0]
ptxas info    : Compiling entry function 'g' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""
    assert ptxas_reports(log) == [
        {"name": "f", "registers": 255, "spills": 24, "shared": 1024},
        {"name": "g", "registers": 8, "spills": 0, "shared": 0},
    ]


def test_what_ptxas_says_to_cost_time_is_put_to_its_kernel() -> None:
    why = "wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline"
    loss = f"ptxas info    : (C7511) Potential Performance Loss: {why} in the function 'f'\n"
    reports = ptxas_reports(f"""{loss}{loss}
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Used 31 registers, used 1 barriers, 16384 bytes smem
ptxas info    : Compiling entry function 'g' for 'sm_90a'
ptxas info    : Used 8 registers
""")
    assert [(report["name"], report.get("losses")) for report in reports] == [("f", [why]), ("g", None)]


SERIALISED = r"""
__device__ __noinline__ float touch(float v) { return v * 1.5f; }
extern "C" __global__ void __launch_bounds__(128) products(float* out, int n) {
    __shared__ __align__(1024) short a[64 * 64];
    unsigned long long at = ((unsigned long long)__cvta_generic_to_shared(a) & 0x3FFFF) >> 4;
    float d[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < n; i++) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(at));
        d[0] = touch(d[0]);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int j = 0; j < 4; j++) out[threadIdx.x * 4 + j] = d[j];
}
"""


def test_serialised_tensor_core_instructions_are_found_by_the_compiler_itself(cache: Path) -> None:
    (report,) = ptxas_reports(cuda.build(SERIALISED, "sm_90", cache_dir=cache).log)
    (loss,) = report["losses"]
    assert loss.startswith("wgmma.mma_async instructions are serialized due to")
    assert "function" not in loss


# Triton


def test_a_triton_candidate_is_compiled_for_an_architecture_without_a_gpu(cache: Path) -> None:
    source = (CANDIDATES / "add_relu_triton.py").read_text()
    loads = [workload(64, 64), workload(31, 7)]
    prepared = prepare(source, "triton", target_arch="sm_90", cache_dir=cache, limits=LIMITS, workloads=loads)
    assert not prepared["cached"]
    assert prepared["log"] == ""
    # 64 and 4096 are multiples of 16, 7 and 217 are not: Triton compiles both ways.
    assert [kernel["name"] for kernel in prepared["kernels"]] == ["bias_relu", "bias_relu"]
    assert [kernel["workload"] for kernel in prepared["kernels"]] == [load["id"] for load in loads]
    for kernel in prepared["kernels"]:
        assert (kernel["registers"] or 0) > 0
        assert kernel["spills"] == 0
        assert "x: float32" in kernel["signature"]
        assert kernel["config"]["BLOCK"] == "1024"
    assert prepare(source, "triton", target_arch="sm_90", cache_dir=cache, limits=LIMITS, workloads=loads)["cached"]


TRITON_TUNED = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 16384}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"])
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 4096, "too large a block")
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)

def run(x, bias, y):
    copy[lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)](x, y, y.numel())
    if BROKEN:
        x.tolist()
"""


def test_an_autotuned_kernel_is_prepared_with_a_configuration_that_compiles(cache: Path) -> None:
    source = TRITON_TUNED.replace("BROKEN", "True")
    prepared = prepare(
        source, "triton", target_arch="sm_90", cache_dir=cache, limits=LIMITS, workloads=[workload(64, 64)]
    )
    assert [kernel["config"]["BLOCK"] for kernel in prepared["kernels"]] == ["256"]
    assert prepared["kernels"][0]["config"]["num_warps"] == 8
    assert "run ends early on tensors without values" in prepared["log"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "tl.load(x + i, i < n)",
            "tl.load(x + j, i < n)",
            "kernel 'copy' does not compile: NameError('j is not defined')",
        ),
        (
            "import triton.language as tl",
            "import triton.language as tl\n1 / 0",
            "cannot be imported: ZeroDivisionError",
        ),
        ("import triton.language as tl", "import triton.language as tl\nwhile True: pass", "took longer than 3 s"),
        ("import triton.language as tl", "import os\nos._exit(7)", "ended with status 7"),
    ],
)
def test_a_triton_candidate_that_does_not_compile_says_why(old: str, new: str, said: str, cache: Path) -> None:
    source = TRITON_TUNED.replace("BROKEN", "False").replace(old, new)
    with pytest.raises(CompileError) as caught:
        prepare(
            source,
            "triton",
            target_arch="sm_90",
            cache_dir=cache,
            limits=CompileLimits(seconds=3) if "longer" in said else LIMITS,
            workloads=[workload(8, 8)],
        )
    assert said in caught.value.message


INTERPRET = """
import importlib.util, json, sys, torch
from warpsmith.workers.judge.runner.interpreter.launches import interpreted_launches
specification = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(specification)
specification.loader.exec_module(module)
x, bias, y = torch.randn(33, 7), torch.randn(7), torch.empty(33, 7)
with interpreted_launches() as launches:
    module.run(x, bias, y)
print(json.dumps({"launches": launches, "right": torch.equal(y, x if "copy" in dir(module) else torch.relu(x + bias))}))
"""


@pytest.mark.parametrize("tuned", [False, True])
@pytest.mark.nightly
def test_interpreted_launches_are_noted(tuned: bool, tmp_path: Path) -> None:
    path = CANDIDATES / "add_relu_triton.py"
    if tuned:
        path = tmp_path / "tuned.py"
        path.write_text(TRITON_TUNED.replace("BROKEN", "False").replace('triton.Config({"BLOCK": 16384}), ', ""))
    done = subprocess.run(
        [sys.executable, "-c", INTERPRET, str(path)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    document = json.loads(done.stdout)
    assert document["right"]
    (launch,) = document["launches"]
    assert launch["kernel"] == ("copy" if tuned else "bias_relu")
    assert launch["arguments"]["x"] == "float32"
    assert launch["constexprs"]["BLOCK"] == ("256" if tuned else "1024")


def test_an_unknown_language_is_refused(cache: Path) -> None:
    with pytest.raises(ValueError, match="found 'rust', expected one of cpp, cuda, triton"):
        prepare("", "rust", target_arch="sm_90", cache_dir=cache, limits=LIMITS)
