"""The calls that the host's time is measured of: real kernels, with and without a launch plan."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks.dispatch import CPP_THREE
from tests.support.plans import with_plans
from warpsmith.kernels_db.candidate_import import provide_short_names
from warpsmith.kernels_db.runtime import plan_build
from warpsmith.workers.judge.runner.host_calls import HostCalls

SOURCE = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void count(const float* x, float* total, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = (total[i] += x[i]);
}
""")


def run(x, total, y):
    kernels.count(x, total, y, x.numel())
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(plan_build.build(with_plans(tmp_path_factory.mktemp("plans"))).path)


@pytest.fixture
def extension(built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(plan_build, "_built", None)
    return built


def imported(directory: Path, source: str) -> ModuleType:
    provide_short_names()
    file = directory / "candidate.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_call_that_writes_to_its_arguments_has_its_own(extension: str, tmp_path: Path) -> None:
    module = imported(tmp_path, SOURCE)
    x, total, y = torch.ones(3), torch.zeros(3), torch.zeros(3)
    calls = HostCalls(module.run, module, [x, total], [y], [1])
    for plan, told in ((None, {}), (extension, {"launches": 1})):
        assert calls.ready(4, plan) == told
        calls.make()
        arguments = calls._arguments
        assert len(arguments) == len({given[1].data_ptr() for given in arguments}) == 4
        assert all(torch.equal(given[1], x) for given in arguments)  # one call each, counted in its own
    assert torch.equal(total, torch.zeros(3))  # the slot's own tensors stay as they are


def test_scratch_memory_and_several_launches_are_a_plan(extension: str, tmp_path: Path) -> None:
    module = imported(tmp_path, CPP_THREE)
    calls = HostCalls(module.run, module, [torch.ones(5)], [torch.zeros(5)], [])
    assert calls.ready(3, extension) == {"launches": 3}
    calls.make()


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("torch.add(x, total, out=y)", "run calls PyTorch's add"),
        ("int(x.sum()) or 1 / 0", "recording raised ZeroDivisionError"),
    ],
)
def test_without_a_plan_its_run_is_called(extension: str, tmp_path: Path, run: str, why: str) -> None:
    module = imported(tmp_path, f"import torch\n\n\ndef run(x, total, y):\n    {run}\n")
    calls = HostCalls(module.run, module, [torch.zeros(3), torch.zeros(3)], [torch.zeros(3)], [])
    assert calls.ready(2, extension)["unplanned"].startswith(why)
    assert calls._call is module.run
    assert len(calls._arguments[0]) == 3
