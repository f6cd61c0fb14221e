"""The GPUs and MIG slices of a host, from recorded answers of nvidia-smi, and which of them `--gpu` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.service.local.launcher import Launcher
from warpsmith.service.local.worker_host import Device, WorkerHost, choose_devices, cpu_device, gpu_device
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine
from warpsmith.workers.queue_names import compile_queue

LISTING = """\
0, NVIDIA H100 80GB HBM3, 9.0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, 81559, Enabled
1, NVIDIA H100 80GB HBM3, 9.0, GPU-7f4a1c22-0e4b-9d6a-8b1e-1f2e3d4c5b6a, 81559, Disabled
2, NVIDIA A100-SXM4-40GB, 8.0, GPU-0c3f7a11-3a58-4c8f-b9aa-6d1d3f0e2b44, 40960, Enabled
3, NVIDIA L4, 8.9, GPU-a2b3c4d5-1111-2222-3333-444455556666, 23034, [N/A]
"""
SLICES = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.40gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.10gb     Device  1: (UUID: MIG-0b9c7a6d-55aa-5f1e-8d7c-2f3e4d5c6b7a)
  MIG 1g.10gb+me  Device  2: (UUID: MIG-4e5f6a7b-1c2d-5e3f-9a8b-7c6d5e4f3a2b)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-7f4a1c22-0e4b-9d6a-8b1e-1f2e3d4c5b6a)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-0c3f7a11-3a58-4c8f-b9aa-6d1d3f0e2b44)
GPU 3: NVIDIA L4 (UUID: GPU-a2b3c4d5-1111-2222-3333-444455556666)
"""
FOUND = machine.split_gpus(machine.parse_gpus(LISTING), LISTING, SLICES)


def test_a_partitioned_gpu_is_its_slices_and_without_a_slice_none() -> None:
    assert [(gpu.label, gpu.target, (gpu.memory_bytes or 0) // 2**30, gpu.uuid[:8]) for gpu in FOUND] == [
        ("gpu0-mig0", "cuda:sm_90", 40, "MIG-c6d4"),
        ("gpu0-mig1", "cuda:sm_90", 10, "MIG-0b9c"),
        ("gpu0-mig2", "cuda:sm_90", 10, "MIG-4e5f"),
        ("gpu1", "cuda:sm_90", 79, "GPU-7f4a"),
        ("gpu3", "cuda:sm_89", 22, "GPU-a2b3"),
    ]
    assert FOUND[1].name == "NVIDIA H100 80GB HBM3, MIG 1g.10gb"


def test_a_slice_of_an_older_driver_has_another_kind_of_uuid() -> None:
    older = "GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-0c3f)\n  MIG 1g.5gb Device 0: (UUID: MIG-GPU-0c3f7a11/7/0)\n"
    (found,) = machine.split_gpus(machine.parse_gpus(LISTING)[2:3], LISTING, older)
    assert (found.uuid, found.memory_bytes) == ("MIG-GPU-0c3f7a11/7/0", 5 * 2**30)


@pytest.mark.parametrize(
    ("named", "labels"),
    [("MIG-0b9c", ["gpu0-mig1"]), ("1, MIG-c6d4", ["gpu1", "gpu0-mig0"]), ("0", ["gpu0-mig0"]), ("2", [])],
)
def test_cuda_visible_devices_chooses_slices(named: str, labels: list[str]) -> None:
    assert [gpu.label for gpu in machine.select_visible(FOUND, named)] == labels


def test_all_devices_get_a_worker_each_that_sees_its_own_alone() -> None:
    chosen = choose_devices("all", FOUND)
    assert chosen[1] == Device("judge-gpu0-mig1", "cuda:sm_90", FOUND[1].name, FOUND[1].uuid)
    assert [device.worker for device in chosen[3:]] == ["judge-gpu1", "judge-gpu3"]
    assert [device.worker for device in choose_devices("3,MIG-0b9c", FOUND)] == ["judge-gpu3", "judge-gpu0-mig1"]


def test_without_a_gpu_there_is_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = choose_devices("none", [])
    assert (device.worker, device.target, device.visible) == ("judge", machine.cpu_target(), None)
    monkeypatch.setattr(machine, "driver_fault", lambda: None)
    with pytest.raises(ValueError, match="no CUDA GPU is found; without one: --gpu none"):
        choose_devices("all", [])
    monkeypatch.setattr(machine, "driver_fault", lambda: "the NVIDIA driver fails (it does)")
    with pytest.raises(ValueError, match="the NVIDIA driver fails"):
        choose_devices("all", [])


@pytest.mark.parametrize("given", [None, False, True])
def test_tries_that_only_compile_have_a_worker_beside_a_processors_judge(given: bool | None, tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path, judge_compiles=given)
    host = WorkerHost(settings, {}, [cpu_device()], "far", print)
    joined = {spec.name: spec for spec in map(host._make_spec, host._devices)}
    local = {spec.name: spec for spec in Launcher(settings, print)._make_specs()}
    for found in (joined, local):
        assert ("compile" in found) is (given is not True)
        if given is True:
            assert "WARPSMITH_JUDGE_COMPILES" not in found["judge"].environment, "as the setting says"
            continue
        assert compile_queue(machine.cpu_target()) in found["compile"].command
        assert found["judge"].environment["WARPSMITH_JUDGE_COMPILES"] == "false"
        assert "WARPSMITH_JUDGE_COMPILES" not in found["compile"].environment
    assert "compile@far" in joined["compile"].command if given is not True else True


def test_a_gpus_judge_compiles_beside_its_steps(tmp_path: Path) -> None:
    host = WorkerHost(ServiceSettings(home=tmp_path), {}, [gpu_device(FOUND[-1])], "far", print)
    (spec,) = map(host._make_spec, host._devices)
    assert "WARPSMITH_JUDGE_COMPILES" not in spec.environment


@pytest.mark.parametrize("wanted", ["7", "1,7", "gpu1", ""])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(wanted: str) -> None:
    with pytest.raises(ValueError, match=r"gpu0-mig1, NVIDIA H100 80GB HBM3, MIG 1g\.10gb"):
        choose_devices(wanted, FOUND)
