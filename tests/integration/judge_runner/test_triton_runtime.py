"""Triton's set-up in a runner: it reads what was prepared, writes elsewhere, and builds its C module once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from tests import REPOSITORY
from tests.gpu.language_cases import CASES
from warpsmith.workers.judge.languages import CompileLimits, prepare
from warpsmith.workers.judge.languages.triton import triton_cache

CASE = next(case for case in CASES if case.name == "host-side descriptors")
# A runner without a device: what would launch compiles instead, from the same caches by the same keys.
COMPILE = """
import json, sys
from pathlib import Path
from warpsmith.workers.judge.languages import abstract, triton_child
from warpsmith.workers.judge.runner import triton_runtime
triton_runtime.install()
request = json.loads(Path(sys.argv[1]).read_text())
answer = triton_child.compile_candidate(request)
assert "error" not in answer, answer
made = sorted(path.name for path in Path("triton").rglob("*") if path.is_file())
print(json.dumps({"kernels": len(answer["kernels"]), "made": made}))
"""
PRELOAD = """
import json, os, sys, time
from pathlib import Path
from warpsmith.workers.judge.runner import triton_runtime
from triton.backends.nvidia import driver
times = []
for _ in range(2):
    start = time.perf_counter()
    triton_runtime.preload(Path(sys.argv[1]), 90)
    times.append(time.perf_counter() - start)
assert "TRITON_CACHE_DIR" not in os.environ
if os.fork() == 0:
    triton_runtime.install()
    os.environ["TRITON_CACHE_DIR"] = "/nowhere"
    os.environ["PATH"] = ""  # no compiler can be found
    driver.CudaUtils()
    os._exit(0)
print(json.dumps({"times": times, "status": os.wait()[1], "built": len(list(Path(sys.argv[1]).rglob("*.so")))}))
"""

TUNED = """
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["n"])
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0)
"""
ONE_CALL = """
import importlib.util, json, sys
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver
from warpsmith.workers.judge.runner import triton_runtime
triton_runtime.install()
triton_runtime.tune_by_one_call()
driver.set_active(object.__new__(nvidia.CudaDriver))  # there is no device to ask
spec = importlib.util.spec_from_file_location("tuned", sys.argv[1])
spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
launched = []
module.kernel.fn.run = lambda *arguments, **named: launched.append(named["BLOCK"])
module.kernel[(1,)](None, 3)
module.kernel[(1,)](None, 3)
print(json.dumps({"launched": launched}))
"""


def run(script: str, argument: Path, place: Path, **variables: str) -> dict[str, object]:
    """What the script prints, run in `place`."""
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "TRITON_INTERPRET": "0", **variables}
    command = [sys.executable, "-W", "ignore", "-c", script, str(argument)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.nightly
def test_what_was_prepared_is_found_and_the_rest_is_written_elsewhere(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    limits = CompileLimits(seconds=100)
    prepare(CASE.source, "triton", target_arch="sm_90", cache_dir=cache, limits=limits, workloads=[CASE.workload()])
    prepared = triton_cache(cache)
    before = sorted(path for path in prepared.rglob("*") if path.is_file())
    request = tmp_path / "request.json"
    request.write_text(
        json.dumps({"source": CASE.source, "arch": 90, "workloads": [CASE.workload()], "library": False})
    )
    found = run(COMPILE, request, tmp_path / "first", TRITON_CACHE_DIR=str(prepared))
    assert found == {"kernels": 1, "made": []}
    missed = run(COMPILE, request, tmp_path / "second", TRITON_CACHE_DIR=str(tmp_path / "empty"))
    assert missed["kernels"] == 1
    assert "product.cubin" in missed["made"]  # type: ignore[operator]
    assert not (tmp_path / "empty").exists()
    assert sorted(path for path in prepared.rglob("*") if path.is_file()) == before


@pytest.fixture
def libcuda(tmp_path: Path) -> Path:
    """A directory with a libcuda that has the functions that Triton's C module names, and does nothing."""
    sources = Path(triton.__file__).parent / "backends" / "nvidia"
    text = "".join((sources / name).read_text() for name in ("driver.c", "driver.py"))
    names = sorted(set(re.findall(r"\bcu[A-Z]\w+(?=\()", text)))
    directory = tmp_path / "libcuda"
    directory.mkdir()
    (directory / "stub.c").write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in names))
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "stub.c"]
    subprocess.run(command, cwd=directory, check=True)
    return directory


def test_tritons_c_module_is_built_once_and_inherited(tmp_path: Path, libcuda: Path) -> None:
    place = {"TRITON_LIBCUDA_PATH": str(libcuda), "LD_LIBRARY_PATH": str(libcuda)}
    said = run(PRELOAD, tmp_path / "tools", tmp_path / "place", **place)
    assert said["status"] == 0
    assert said["built"] == 1


def test_under_a_sanitizer_each_configuration_is_launched_once_and_the_first_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "tuned.py"
    source.write_text(TUNED)
    assert run(ONE_CALL, source, tmp_path / "place")["launched"] == [16, 32, 64, 16, 16]
