"""Which target a candidate is judged on, and what a machine without that device is told before anything runs."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.target import Target
from warpsmith.service.cli.commands import doctor
from warpsmith.service.cli.commands.judge import describe_kernels
from warpsmith.service.local import service_checks
from warpsmith.service.local.finding import Finding
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine, targets

H200 = machine.Gpu(0, "NVIDIA H200", "9.0", "GPU-aa11")
A100 = machine.Gpu(1, "NVIDIA A100", "8.0", "GPU-ab22")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[machine.Gpu]:
    """The GPUs of this machine: none, until a test adds some. Their torch is built for CUDA."""
    found: list[machine.Gpu] = []
    monkeypatch.setattr(machine, "gpus", lambda: found)
    monkeypatch.setattr(machine, "driver_fault", lambda: None)
    monkeypatch.setattr(machine, "torch_cuda", lambda: "13.0")
    return found


def smi(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an nvidia-smi of our own on the path."""
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def gpu_findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the doctor says of the GPU."""
    monkeypatch.setattr(service_checks, "redis_executable", lambda: None)
    return [item for item in doctor.examine(ServiceSettings()) if item.name == "gpu"]


def test_the_default_target_follows_the_language(gpus: list[machine.Gpu]) -> None:
    gpus += [H200, A100]
    assert targets.choose_target(None, "cpp").device == "cpu"
    assert str(targets.choose_target(None, "triton")) == str(targets.choose_target(None, "cuda")) == "cuda:sm_90"


def test_a_machines_own_targets_are_those_that_it_can_time(
    gpus: list[machine.Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(Target.parse("cpu"))
    assert targets.list_own_targets() == [here]
    gpus += [H200, A100, H200]
    assert targets.list_own_targets() == [here, "cuda:sm_90", "cuda:sm_80"]
    monkeypatch.setattr(machine, "torch_cuda", lambda: None)
    assert targets.list_own_targets() == [here]


@pytest.mark.parametrize("language", ["triton", "cuda", "gluon", "cute", "tilelang"])
def test_without_a_gpu_a_target_must_be_named(language: str, gpus: list[machine.Gpu]) -> None:
    with pytest.raises(
        SpecError, match=rf"target: found nothing, expected cuda:ARCH for a {language} candidate"
    ) as raised:
        targets.choose_target(None, language)
    assert LANGUAGES[language].without_device in str(raised.value)


@pytest.mark.parametrize(
    ("target", "language", "expected"),
    [
        ("cpu", "triton", "expected cuda:ARCH for a triton candidate, such as cuda:sm_90"),
        ("cpu:x86_64", "cuda", "expected cuda:ARCH for a cuda candidate, such as cuda:sm_90"),
        ("cuda:sm_90", "cpp", "expected cpu for a cpp candidate"),
        ("cpu", "gluon", "expected cuda:ARCH for a gluon candidate, such as cuda:sm_90"),
    ],
)
def test_a_target_that_the_language_cannot_run_on(target: str, language: str, expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        targets.choose_target(target, language)
    assert f"target: found {target!r}, {expected}" in str(raised.value)


def test_what_is_lacking_is_said(gpus: list[machine.Gpu], monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.parse("cuda:sm_90")
    assert targets.describe_shortfall(Target.parse("cpu"), "cpp") is None
    assert targets.describe_shortfall(target, "triton") == f"no CUDA GPU here: {LANGUAGES['triton'].without_device}"
    gpus.append(A100)
    assert targets.describe_shortfall(target, "cuda") == (
        f"no GPU of cuda:sm_90 here, but cuda:sm_80: {LANGUAGES['cuda'].without_device}"
    )
    gpus.append(H200)
    assert targets.describe_shortfall(target, "cuda") is None
    monkeypatch.setattr(machine, "torch_cuda", lambda: None)
    assert "built without CUDA" in (targets.describe_shortfall(target, "cuda") or "")


def test_a_driver_that_fails_is_told_from_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo 'Unable to determine the device handle: Unknown Error'; exit 15")
    assert machine.gpus() == []
    assert machine.driver_fault() == "the NVIDIA driver fails (Unable to determine the device handle: Unknown Error)"
    assert "the NVIDIA driver fails" in (targets.describe_shortfall(Target.parse("cuda:sm_90"), "cuda") or "")
    (finding,) = gpu_findings(monkeypatch)
    assert finding.state == "bad"
    assert "Unknown Error" in finding.found


def test_a_driver_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo '0, NVIDIA H200, 9.0, GPU-aa11, 143771, Disabled'")
    assert machine.gpus() == [replace(H200, memory_bytes=143771 * 2**20)]
    assert machine.driver_fault() is None
    monkeypatch.setattr(machine, "torch_cuda", lambda: "13.0")
    (finding,) = gpu_findings(monkeypatch)
    assert (finding.state, finding.found) == ("ok", "0: NVIDIA H200, target cuda:sm_90")
    monkeypatch.setattr(machine, "torch_cuda", lambda: None)
    (finding,) = gpu_findings(monkeypatch)
    assert finding.state == ("bad" if machine.installed("torch") else "ok")


def test_no_driver_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert machine.gpus() == []
    assert machine.driver_fault() is None
    monkeypatch.undo()


def test_the_cuda_of_torch_is_read_without_importing_it() -> None:
    torch = pytest.importorskip("torch")
    assert machine.torch_cuda() == torch.version.cuda


@pytest.mark.parametrize(("language", "module"), [("triton", "triton"), ("cuda", "cuda.core"), ("cuda", "cuda")])
def test_what_a_language_needs(language: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda name: name != module)
    (missing,) = machine.missing_for_judge(language)
    assert missing.startswith({"triton": "triton is not installed", "cuda": "cuda-core is not installed"}[language])
    assert "[judge]" in missing


def test_a_gpu_language_needs_no_cpp_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda name: True)
    monkeypatch.setattr(machine, "compiler", lambda: None)
    assert machine.missing_for_judge("cuda") == machine.missing_for_judge("triton") == []
    assert len(machine.missing_for_judge("cpp")) == 1


def test_kernels_are_listed_once_with_what_they_use() -> None:
    kernel = {"name": "add", "registers": 32, "spills": 0, "shared": 128, "config": {"BLOCK": "1024", "num_warps": 4}}
    line = "kernel    add: 32 registers, 0 bytes spilled, 128 bytes shared (BLOCK=1024, num_warps=4)"
    assert describe_kernels({"kernels": [kernel, dict(kernel)]}) == [line]
    assert describe_kernels({"kernels": [{"name": "add", "registers": None, "spills": None, "shared": None}]}) == []
    many = [{**kernel, "registers": number} for number in range(20)]
    assert describe_kernels({"kernels": many})[-1] == "kernel    and 8 more"
    assert describe_kernels({}) == []
