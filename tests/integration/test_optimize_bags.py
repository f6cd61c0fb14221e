"""Grouped embedding bags in models that `warpsmith.optimize` compiles, with real code of Inductor's.

On a CPU the operator's code is PyTorch's own operators; one test has Triton interpret the kernel.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

import warpsmith
from benchmarks import dlrm
from tests.support.plans import with_plans
from warpsmith.workers.optimize import packages
from warpsmith.workers.optimize.compiled import bag_kernel, bags, choice

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any region, Inductor has compiled nothing, and bags are grouped on this machine's CPU."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(bags, "operator_on", lambda _: bag_kernel.NAME)
    torch._dynamo.reset()
    torch.manual_seed(0)


def recommender(rows: int) -> tuple[dlrm.DLRM, list[Any]]:
    model = dlrm.model(tiny=True)
    return model, dlrm.inputs(model, rows, torch.device("cpu"), torch.Generator().manual_seed(0))


def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans of the operator's calls from now on; as it is registered with what it calls, by what that calls."""
    plans: list[str] = []
    plain = bag_kernel.plain

    def noted(tensors: Any, plan: str) -> torch.Tensor:
        plans.append(plan)
        return plain(tensors, plan)

    monkeypatch.setattr(bag_kernel, "plain", noted)
    return plans


def test_a_dlrm_calls_one_operator_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = recommender(6)
    calls = served(monkeypatch)
    reports = []
    for _ in range(2):  # the second time by code of Inductor's cache
        torch._dynamo.reset()
        fast = warpsmith.optimize(model, kernels=[], keep="right")
        with torch.no_grad():
            torch.testing.assert_close(fast(*inputs), model(*inputs))
            before = len(calls)
            fast(*inputs)
        assert len(calls) == before + 1
        reports.append(fast.report())
    assert "1 of 1 places of kernels taken" in reports[0]
    assert "(6 bags of 4 tables, 80 columns): embedding_bags_" in reports[0]
    assert reports[0] == reports[1]
    assert fast.compare(*inputs).agrees


def test_a_report_says_in_a_line_why_bags_are_not_grouped_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags, "operator_on", lambda _: None)
    model, inputs = recommender(6)
    for _ in range(2):  # the second time by code of Inductor's cache
        torch._dynamo.reset()
        fast = warpsmith.optimize(model, kernels=[])
        with torch.no_grad():
            torch.testing.assert_close(fast(*inputs), model(*inputs))
        told = [line.strip() for line in fast.report().splitlines() if "embedding_bags" in line]
        assert told == [
            "embedding_bags at tables: 0, 1, 2, 3 (bags of 4 calls): Inductor's code stays: "
            "bags are grouped on GPUs of NVIDIA's, found cpu"
        ]


@pytest.mark.nightly
def test_bags_that_are_not_faster_together_stay_with_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ratio_with_interval", lambda *_: (0.5, (0.4, 0.6)))
    model, inputs = recommender(6)
    fast = warpsmith.optimize(model, kernels=[])
    with torch.no_grad():
        fast(*inputs)
        calls = served(monkeypatch)
        torch.testing.assert_close(fast(*inputs), model(*inputs))
    assert calls == []
    assert "Inductor's code stays: it is not surely faster than Inductor's code: 0.50x" in fast.report()


def test_a_package_for_a_model_groups_bags_as_warpsmith_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = recommender(6)
    directory = packages.generate(Path("clicks.py"), [], tmp_path, "right")
    monkeypatch.syspath_prepend(directory.parent)
    package = importlib.import_module(directory.name)
    own = importlib.import_module(f"{directory.name}.bags")
    assert own is not bags
    monkeypatch.setattr(own, "operator_on", bags.operator_on)
    fast = package.optimize(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), model(*inputs))
    assert "1 of 1 places of kernels taken" in fast.report()
    assert importlib.import_module(f"{directory.name}.bag_kernel").operator is bag_kernel.operator


PROGRAM = """
import torch, warpsmith
from benchmarks import dlrm
from warpsmith.workers.optimize.compiled import bag_kernel, choice
choice.TIME_S = 0.05
torch.manual_seed(0)
model = dlrm.model(tiny=True)
fast = warpsmith.optimize(model, kernels=[], keep="right")
with torch.no_grad():
    for rows in (6, 9):
        inputs = dlrm.inputs(model, rows, torch.device("cpu"), torch.Generator().manual_seed(0))
        torch.testing.assert_close(fast(*inputs), model(*inputs))
assert bag_kernel.INTERPRETED and bag_kernel.failure() is None, bag_kernel.failure()
print(fast.report())
"""


@pytest.mark.nightly
def test_the_kernel_serves_a_dlrm_where_triton_interprets_it() -> None:
    """With caches of the test's own, which the environment names. The second batch is compiled for any size."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1 of 1 places of kernels taken") == 2, done.stdout
