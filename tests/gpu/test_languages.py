"""The languages on a real GPU: what the compile step prepares is what is launched, and it computes what torch does.

Each candidate is prepared as the judge does it and run in a process of its own, as a runner's is: Triton and CUDA are
set up there, nothing is compiled there, and the names of the kernels that ran are its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import REPOSITORY
from tests.gpu.building import compiled, need_language
from tests.gpu.language_cases import CASES, Case
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.kernels_db.runtime.errors import LaunchError
from warpsmith.workers.gate import own_kernels
from warpsmith.workers.judge.languages import CompileLimits, prepare
from warpsmith.workers.judge.languages.triton import triton_cache
from warpsmith.workers.judge.runner.kernel_names import base_name, foreign, record

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

RUN = """
import importlib.util, json, os, sys, time
import torch
from tests.gpu.language_cases import CASES
from warpsmith.workers.judge.runner import kernel_names

case = next(case for case in CASES if case.name == sys.argv[1])
spoken = {}
if case.language == "triton":
    from pathlib import Path
    from warpsmith.workers.judge.runner import triton_runtime
    major, minor = json.loads(sys.argv[2])
    start = time.perf_counter()
    triton_runtime.preload(Path(os.environ["TOOLS"]), 10 * major + minor)
    spoken["preload_s"] = time.perf_counter() - start
    assert not torch.cuda.is_initialized(), "preloading initialised CUDA"
    if os.fork():  # as runners are: the preloaded process forks, the child initialises CUDA
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    triton_runtime.install()
torch.cuda.init()
specification = importlib.util.spec_from_file_location("candidate", "candidate.py")
module = importlib.util.module_from_spec(specification)
sys.modules["candidate"] = module
specification.loader.exec_module(module)
inputs, outputs = case.values("cuda")
torch.cuda.synchronize()
start = time.perf_counter()
module.run(*inputs, *outputs)
torch.cuda.synchronize()
spoken["first_s"] = time.perf_counter() - start
ran = kernel_names.record(lambda: module.run(*inputs, *outputs))
spoken["ran"] = [list(entry) for entry in ran]
spoken["wrong"] = []
for (name, _, _), found, expected in zip(case.outputs, outputs, case.expected(*inputs), strict=True):
    found, expected = found.double(), expected.double()
    off = (found - expected).abs() - case.tolerance * (1 + expected.abs())
    if not bool((off <= 0).all()):
        spoken["wrong"].append([name, float(off.max()), found.flatten()[:4].tolist(), expected.flatten()[:4].tolist()])
spoken["built"] = [str(path) for path in __import__("pathlib").Path("triton").rglob("*") if path.is_file()]
print("SPOKEN" + json.dumps(spoken))
"""


def needs_hopper(case: Case) -> None:
    """Skip what a GPU before compute capability 9.0 cannot do."""
    found = torch.cuda.get_device_capability()
    if found[0] < 9 and case.name in ("clusters", "tensor maps", "device-side descriptors", "host-side descriptors"):
        pytest.skip(f"{case.name} need compute capability 9.0, this GPU has {found[0]}.{found[1]}")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Triton's C module is built once."""
    return tmp_path_factory.mktemp("tools")


def run_prepared(case: Case, directory: Path, tools: Path) -> dict[str, Any]:
    """Prepare the candidate, then run it in a process of its own; what that process says."""
    cache, place = directory / "cache", directory / "runner"
    place.mkdir()
    major, minor = torch.cuda.get_device_capability()
    prepare(
        case.source,
        case.language,
        target_arch=f"sm_{major}{minor}",
        cache_dir=cache,
        limits=CompileLimits(seconds=200),
        workloads=[case.workload()],
    )
    built = sorted(cache.rglob("*.cubin"))
    (place / "candidate.py").write_text(case.source)
    done = subprocess.run(
        [sys.executable, "-c", RUN, case.name, json.dumps([major, minor])],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
            CACHE_VARIABLE: str(cache),
            "TRITON_CACHE_DIR": str(triton_cache(cache)),
            "TRITON_INTERPRET": "0",
            "TOOLS": str(tools),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SPOKEN")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines, done.stdout + done.stderr
    spoken: dict[str, Any] = json.loads(lines[-1].removeprefix("SPOKEN"))
    assert sorted(cache.rglob("*.cubin")) == built, "compiled beside the device"
    return spoken


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_prepared_candidate_computes_what_torch_does(case: Case, tmp_path: Path, tools: Path) -> None:
    needs_hopper(case)
    need_language(case.language)
    spoken = run_prepared(case, tmp_path, tools)
    print({name: value for name, value in spoken.items() if name != "wrong"})
    assert spoken["wrong"] == []
    # Everything was there: neither a kernel nor a launcher was built beside the device.
    assert spoken["built"] == []
    own = own_kernels(case.source, case.language)
    names = [name for name, _, _ in spoken["ran"]]
    launched = {base_name(name) for name in names}
    # Helpers of Gluon's, CuTe DSL's and TileLang's are decorated functions, too, part of the kernels that call them.
    if case.language != "cute":  # whose kernels have longer names
        assert launched & set(own) if case.language in ("gluon", "tilelang") else set(own) <= launched, names
    assert foreign(names, own) == []


def test_what_ran_is_traced_and_a_library_kernel_is_foreign() -> None:
    x = torch.randn(256, 256, device="cuda")
    out = torch.empty_like(x)
    ran = record(lambda: (out.zero_(), torch.relu(x), torch.mm(x, x, out=out)))
    print(ran)
    if not any(entry.source == "cupti" for entry in ran):
        pytest.skip("no CUPTI in this process: nothing is traced")
    found = foreign([entry.name for entry in ran], {"own"})
    assert len(found) >= 2, ran
    assert any("at::native" in name for name in found)
    assert not any("FillFunctor" in name for name in found)
    assert foreign([entry.name for entry in ran], {"own"}, ["mm"]) == []


def test_a_refused_launch_names_the_kernel_and_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    kernels = compiled(
        'extern "C" __global__ void __launch_bounds__(64) small(float* x) { x[threadIdx.x] = 1; }\n'
        'extern "C" __global__ void tile(float* x) { extern __shared__ float s[]; s[0] = 1; x[0] = s[0]; }'
    )
    x = torch.zeros(2048, device="cuda")
    for launch, said in (
        (lambda: kernels.small[1, 2048](x), r"launch of 'small' .*block.x: found 2048, expected at most 1024"),
        (lambda: kernels.small[1, 128](x), r"launch of 'small' .*__launch_bounds__ promises at most 64"),
        (lambda: kernels.small[(1, 70000), 32](x), r"launch of 'small' .*grid.y: found 70000, expected at most 65535"),
        (
            lambda: kernels.tile.launch(1, 32, x, shared_bytes=1 << 20),
            r"launch of 'tile' .*shared memory: found 1048576",
        ),
        (
            lambda: kernels.small.launch(1 << 20, 64, x, cooperative=True),
            r"launch of 'small' .*cooperative launch, and \d+ are resident at once",
        ),
    ):
        with pytest.raises(LaunchError, match=said):
            launch()
    # None of these is an error of the device: it goes on.
    kernels.small[1, 64](x)
    assert float(x.sum()) == 64


def test_a_launch_takes_a_few_microseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    source = 'extern "C" __global__ void f(const float* x, const float* y, float* out, long long n, float e) {}'
    kernels = compiled(source)
    x = torch.zeros(16, device="cuda")
    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            kernels.f[1, 32](x, x, x, 16, 1.0)
        best = min(best, (time.perf_counter() - start) / 200 * 1e6)
        torch.cuda.synchronize()
    print(f"a launch through cuda-core: {best:.2f} us of the host's time")
    assert best < 20
