"""The GPU's candidates where there is none: they pass the gate, compile for one, and every launch is seen; Triton's
interpreter runs those of Triton.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.gpu.language_cases import CASES, Case
from tests.kinds import nightly_but
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.workers.gate import check, own_kernels
from warpsmith.workers.judge.languages import CompileLimits, prepare

INTERPRET = """
import importlib.util, json, sys, torch
from tests.gpu.language_cases import CASES
from warpsmith.workers.judge.runner.interpreter.launches import interpreted_launches
case = next(case for case in CASES if case.name == sys.argv[1])
specification = importlib.util.spec_from_file_location("candidate", sys.argv[2])
module = importlib.util.module_from_spec(specification)
specification.loader.exec_module(module)
inputs, outputs = case.values("cpu")
with interpreted_launches() as launches:
    module.run(*inputs, *outputs)
wrong = [
    name
    for (name, _, _), found, expected in zip(case.outputs, outputs, case.expected(*inputs), strict=True)
    if not torch.allclose(found.double(), expected.double(), case.tolerance, case.tolerance)
]
print(json.dumps({"wrong": wrong, "launched": sorted({launch["kernel"] for launch in launches})}))
"""


@pytest.mark.parametrize(
    "case",
    nightly_but(lambda case: case.language != "tilelang", CASES),  # NVRTC reads CUTLASS: seconds for each
    ids=lambda case: case.name,
)
def test_a_gpu_candidate_passes_the_gate_and_compiles(case: Case, tmp_path: Path) -> None:
    package = LANGUAGES[case.language].package
    assert package is not None
    pytest.importorskip(package, reason="its compiler is not installed")
    workload = case.workload()
    names = [item["name"] for item in (*workload["inputs"], *workload["outputs"])]
    kinds = {item["name"]: item["dtype"] for item in (*workload["inputs"], *workload["outputs"])}
    assert check(case.source, case.language, (), names, (), kinds) == []
    prepared = prepare(
        case.source,
        case.language,
        target_arch="sm_90",
        cache_dir=tmp_path,
        limits=CompileLimits(seconds=200),
        workloads=[workload],
    )
    own, built = set(own_kernels(case.source, case.language)), {kernel["name"] for kernel in prepared["kernels"]}
    # Functions that kernels call are decorated in Gluon, CuTe DSL and TileLang, too.
    assert built and built <= own if case.language in ("gluon", "cute", "tilelang") else built == own
    if case.language in ("cuda", "cute", "tilelang"):
        assert {launch["kernel"] for launch in prepared["launches"]} == built
    assert "early" not in prepared["log"]


@pytest.mark.parametrize(
    "case",
    nightly_but(
        lambda case: case.name == "host-side descriptors", [case for case in CASES if case.language == "triton"]
    ),
    ids=lambda case: case.name,
)
def test_tritons_interpreter_computes_what_torch_does(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(case.source)
    done = subprocess.run(
        [sys.executable, "-c", INTERPRET, case.name, str(path)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"wrong": [], "launched": sorted(own_kernels(case.source, "triton"))}
