"""Candidates whose builds came with the job load without their language's package, and every call finds its build.

Nothing is launched: the runner's part is taken by a process that calls `run` on tensors without storage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests import REPOSITORY
from tests.gpu.language_cases import CASES, Case
from warpsmith import prompts
from warpsmith.kernels_db.job.carried_builds import CarriedBuild, CarriedReport, pack_files, source_digest
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.kernels_db.runtime.cutedsl_build import CARRIED_VARIABLE, NOT_CARRIED
from warpsmith.workers.judge.languages import CompileLimits, carried, prepare

CALLED = ("cute", "tilelang")
RUN = """
import json, sys
from pathlib import Path
from warpsmith.workers.judge.languages import abstract
from warpsmith.workers.judge.runner import loading
from warpsmith.kernels_db.runtime import HostError, cutedsl, tilelang

workload = json.loads(Path("workload.json").read_text())
module = loading.import_file("candidate.py")
package = sys.modules[sys.argv[1]]
found, missing = [], []


def called(function, *given):
    try:
        made = function._compiled(function.facts(given), "sm_90", None)
    except HostError as error:
        missing.append(error.message)
    else:
        found.extend(launch.kernel for launch in made.launches)


cutedsl.Function.__call__ = called
tilelang._encoded = lambda one: bytes(128)  # a driver encodes maps
abstract.pretend(90)
note = abstract.trial(module, workload, "cuda", lambda: len(found) + len(missing))
print(json.dumps({"package": type(package).__name__, "found": found, "missing": missing, "note": note}))
"""
LOAD = """
import json, sys
from warpsmith.workers.judge.runner import loading

for path in sys.argv[1:]:
    assert callable(loading.import_file(path).run), path
print(json.dumps(sorted(name for name in ("tvm", "cutlass._mlir", "tilelang.engine") if name in sys.modules)))
"""


def in_process(program: str, *arguments: str, cwd: Path, **variables: str) -> Any:
    """What a process says that imports candidates as a runner with carried builds does."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("case", [case for case in CASES if case.language in CALLED], ids=lambda case: case.name)
def test_every_call_finds_the_build_that_came_along(case: Case, tmp_path: Path) -> None:
    package = LANGUAGES[case.language].package
    assert package is not None
    pytest.importorskip(package, reason="its compiler is not installed")
    workload = case.workload()
    there, here = tmp_path / "there", tmp_path / "here"
    limits = CompileLimits(seconds=200)
    made = prepare(
        case.source, case.language, target_arch="sm_90", cache_dir=there, limits=limits, workloads=[workload]
    )
    build: CarriedBuild = {
        "language": case.language,
        "target": "cuda:sm_90",
        "source_digest": source_digest(case.source),
        "report": cast("CarriedReport", made),
        "versions": {},
        "multiprocessors": 132,
        "files": pack_files(there),
    }
    carried.unpack(build, case.language, case.source, "cuda:sm_90", here)
    (tmp_path / "candidate.py").write_text(case.source)
    (tmp_path / "workload.json").write_text(json.dumps(workload))
    variables = {**carried.variables(build), CACHE_VARIABLE: str(here)}
    said = in_process(RUN, package, cwd=tmp_path, **variables)
    assert said["package"] == "_StandIn"
    assert (said["missing"], said["note"]) == ([], "")
    assert len(said["found"]) == sum(launch["count"] for launch in made["launches"])

    for one in workload["inputs"]:  # rows that it was not compiled for: nothing is compiled in the runner
        one["shape"] = [size + 8 for size in one["shape"] or []]
    (tmp_path / "workload.json").write_text(json.dumps(workload))
    said = in_process(RUN, package, cwd=tmp_path, **variables)
    assert said["missing"]
    assert all(message.startswith(NOT_CARRIED) for message in said["missing"])


def test_candidates_load_without_their_languages_packages(tmp_path: Path) -> None:
    files = sorted(str(path) for name in CALLED for path in (REPOSITORY / "tests" / "candidates").glob(f"*_{name}.py"))
    assert len(files) >= 3
    sources = [case.source for case in CASES if case.language in CALLED]
    sources += [prompts.example(name) for name in ("cute", "cute_product", "tilelang", "tilelang_product")]
    for number, source in enumerate(sources):
        (tmp_path / f"candidate_{number}.py").write_text(source)
        files.append(str(tmp_path / f"candidate_{number}.py"))
    assert in_process(LOAD, *files, cwd=tmp_path, **{CARRIED_VARIABLE: "0" * 64}) == []
