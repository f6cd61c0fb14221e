"""Kernels of other formats on their whole way: a problem imported, its kernel made a candidate, and judged; what free
Python gets where it is not there, not right or not held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.redteam_catalogue.cheats_python import SPIES, spy
from benchmarks.redteam_catalogue.text import HONEST_ADD
from tests import degraded, judging
from tests.judging import tensor
from tests.kinds import nightly_but
from tests.support.formats_support import EXAMPLES, files_of
from tests.support.launching import REPOSITORY, warpsmith
from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Op, Target, load_op, parse_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judge.protocol.client import JudgeClient

pytest.importorskip("torch", reason="the judge runs candidates beside PyTorch")

TIMEOUT_S = 240.0
BENCH = EXAMPLES / "flashinfer-bench"
CASES: dict[str, tuple[Path, Path]] = {
    "kernelbench": (
        EXAMPLES / "kernelbench" / "3_conv_batch_norm.py",
        EXAMPLES / "kernelbench" / "candidates" / "3_conv_batch_norm.py",
    ),
    "flashinfer-bench": (
        BENCH / "definitions" / "rmsnorm" / "rmsnorm_h1024.json",
        BENCH / "solutions" / "rmsnorm" / "rmsnorm_h1024_in_place.json",
    ),
    "flashinfer-bench returned": (
        BENCH / "definitions" / "norm" / "add_layer_norm_h512.json",
        BENCH / "solutions" / "norm" / "add_layer_norm_returned.json",
    ),
    "gpu-mode": (
        EXAMPLES / "gpu-mode" / "gated_projection" / "task.yml",
        EXAMPLES / "gpu-mode" / "submissions" / "gated_projection.py",
    ),
}


@pytest.fixture
def client(judge: JudgeClient) -> JudgeClient:
    return judge


def imported(problem: Path, analyse: Analyser) -> Op:
    """An example as an op that is timed beside eager alone: compiling takes its time."""
    document = import_op(files_of(problem), None, analyse).op.document()
    return parse_op(document | {"objective": {"baselines": ["eager"]}})


def judged(client: JudgeClient, op: Op, source: str, level: Any = "verify") -> Verdict:
    candidate: Any = {"language": kernel_import.LANGUAGE, "source": source}
    job = build_job(op, Target.parse("cpu"), level=level, candidate=candidate)
    job["limits"]["time_s"] = 0.1
    return client.judge(job, TIMEOUT_S)


@pytest.mark.parametrize("name", nightly_but({"flashinfer-bench returned"}.__contains__, CASES))
def test_a_kernel_of_a_format_is_judged_in_the_sandbox_tier(client: JudgeClient, analyse: Analyser, name: str) -> None:
    problem, path = CASES[name]
    op = imported(problem, analyse)
    found = kernel_import.adapt(RawFile(path.name, path.read_bytes()), op)
    verdict = judged(client, op, found.source)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert (verdict["language"], verdict["tier"], verdict["sandbox"]["level"]) == ("python", "sandbox", "isolated")
    assert "sandbox tier" in verdict["reason"]
    if name == "kernelbench":
        wrong = path.read_bytes().replace(b"correction=0", b"correction=1")
        verdict = judged(client, op, kernel_import.adapt(RawFile(path.name, wrong), op).source, "screen")
        assert (verdict["verdict"], verdict["gate"]) == ("rejected", "screen"), verdict["reason"]


ADD = "def run(x, y):\n    return x + y\n"
PLACE = [
    judging.workload("bench", "bench", [tensor("x", (5000,)), tensor("y", (5000,))], [judging.output("out", (5000,))])
]
RUN = "def run(x, y, out):\n    pass\n"
MAYBE = "try:\n    import cupy\nexcept ImportError:\n    cupy = None\n\ndef run(x, y, out):\n    cupy.add(x, y)\n"
FORGED = """import sys

def run(x, y, out):
    found = []
    for _ in range(600):
        found = [found]
    raise sys.modules["warpsmith.workers.judge.runner.runner_process"].ContractError("shape", "forged", found=found)
"""
FAULTS = {
    f"import cupy\n\n{RUN}": ("compile", "compile", "line 1: imports 'cupy', which is not installed here"),
    f"from . import near\n\n{RUN}": ("compile", "compile", "line 1: a relative import"),
    "def run(x, out):\n    pass\n": ("compile", "compile", "found run(x, out), expected 3 positional parameters"),
    "def go(x, y, out):\n    pass\n": ("compile", "compile", "no function `run` is defined"),
    "def run(x, y, out:\n    pass\n": ("compile", "compile", "this is not Python"),
    f"import torch.nowhere\n\n{RUN}": ("screen", "raises", "No module named 'torch.nowhere'"),
    FORGED: ("screen", "shape", "forged"),
    MAYBE: ("screen", "raises", "'NoneType' object has no attribute 'add'"),
}


@pytest.mark.parametrize("source", FAULTS)
def test_what_is_wrong_with_a_file_is_said(client: JudgeClient, source: str) -> None:
    gate, kind, words = FAULTS[source]
    verdict = client.judge(judging.job(ADD, PLACE, source, language="python"), TIMEOUT_S)
    assert verdict["failure"] is not None
    assert (verdict["verdict"], verdict["gate"], verdict["failure"]["kind"]) == ("rejected", gate, kind)
    assert words in verdict["reason"]
    assert verdict["sandbox"]["level"] == ("none" if gate == "compile" else "isolated")


def test_it_is_not_run_where_it_cannot_be_held(tmp_path: Path) -> None:
    with JudgeClient(cache=tmp_path / "cache") as judge:
        degraded.start(judge, tmp_path, ("landlock",))
        job = judging.job(ADD, PLACE, HONEST_ADD["python"], language="python")
        verdict = judge.judge(job, TIMEOUT_S)
        assert (verdict["verdict"], verdict["gate"]) == ("ambiguous", "sandbox"), verdict["reason"]
        assert "expected a host that reaches isolated: free Python passes no gate" in verdict["reason"]
        assert verdict["sandbox"]["level"] == "none"


def test_on_a_gpu_that_is_not_here_it_is_only_parsed(client: JudgeClient) -> None:
    job = judging.job(ADD, PLACE, HONEST_ADD["python"], language="python", target="cuda:sm_90")
    verdict = client.judge(job, TIMEOUT_S)
    assert (verdict["verdict"], verdict["gate"], verdict["sandbox"]["level"]) == ("ambiguous", "screen", "none")


TELLING = """
import json, sys, torch
found = []
for source in json.load(sys.stdin):
    x, out, scope = torch.ones(2), torch.zeros(2), {}
    exec(source, scope)
    scope["run"](x, x, out)
    found.append(out.tolist() == [2.0, 2.0])
json.dump(found, sys.stdout)
"""


def test_the_spies_can_tell(tmp_path: Path) -> None:
    """Outside of the sandbox they find what they look for: that they find nothing inside says something."""
    asked = [(name, spy(test)) for name, _, test, outside in SPIES if outside]
    # A judge's module is loaded in a runner, too: one of them looks for its file.
    ended = subprocess.run(
        [sys.executable, "-c", f"import warpsmith.workers.judge.runner.runner_process\n{TELLING}"],
        input=json.dumps([source for _, source in asked]),
        env={**os.environ, "PLANTED": "planted", "PYTHONPATH": str(REPOSITORY / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for (name, _), found in zip(asked, json.loads(ended.stdout), strict=True) if not found] == []


@pytest.mark.nightly
def test_the_command_line_takes_them(tmp_path: Path) -> None:
    """From a Definition and a Solution to a verdict; the file is recognised, or written as a candidate first."""
    problem, solution = CASES["flashinfer-bench returned"]
    home, spec, candidate = tmp_path / "home", tmp_path / "op.json", tmp_path / "candidate.py"
    warpsmith(home, "import", str(problem), "--output", str(spec))
    document = json.loads(spec.read_text()) | {"objective": {"baselines": ["eager"]}}
    spec.write_text(json.dumps(document))
    assert load_op(spec).name == "add_layer_norm_h512"
    said = warpsmith(home, "import", str(solution), "--op", str(spec), "--output", str(candidate), "--json")
    written = json.loads(said.stdout)
    assert (written["language"], written["tier"], written["output"]) == ("python", "sandbox", str(candidate))
    recognised = warpsmith(home, "judge", str(spec), str(solution), "--level", "screen")
    assert "tier: sandbox" in recognised.stdout
    assert "is a flashinfer-bench candidate" in recognised.stderr
    candidate.write_text(f"import cupy\n{candidate.read_text()}")
    refused = warpsmith(home, "judge", str(spec), str(candidate), "--language", "python", "--json", code=1)
    assert "imports 'cupy', which is not installed here" in json.loads(refused.stdout)["reason"]
    named = warpsmith(home, "judge", str(spec), str(CASES["gpu-mode"][1]), "--json", code=2)
    assert "an op that was imported from gpu-mode" in json.loads(named.stdout)["error"]["message"]
