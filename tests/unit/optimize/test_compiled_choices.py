"""For which machines a decision is kept: those on which it was measured, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from warpsmith.workers.optimize.compiled import choices, inductor
from warpsmith.workers.optimize.compiled.choice import Decision
from warpsmith.workers.optimize.compiled.choices import Choices, kind_of

CPU = torch.device("cpu")
FOUND = Decision("", "", True, 1.0, 2.0, (1.9, 2.1))


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    choices._processor.cache_clear()
    yield
    choices._processor.cache_clear()


def on(
    monkeypatch: pytest.MonkeyPatch, model: str = "A", instructions: tuple[str, ...] = ("avx2",), threads: int = 2
) -> Choices:
    """What is known on a CPU."""
    choices._processor.cache_clear()
    monkeypatch.setattr(choices, "cpu_name", lambda: model)
    monkeypatch.setattr(choices, "vector_extensions", lambda: list(instructions))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    return Choices(CPU, inductor.patches_of(None, None))


@pytest.mark.parametrize(
    "other",
    [
        lambda patch: on(patch, "B"),
        lambda patch: on(patch, instructions=("avx2", "avx512f")),
        lambda patch: on(patch, threads=64),
    ],
)
def test_cpus_of_two_kinds_share_no_decision(
    other: Callable[[pytest.MonkeyPatch], Choices], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = on(monkeypatch)
    choices._write(here.file, {"region": FOUND})
    assert on(monkeypatch)._own == {"region": FOUND}
    assert other(monkeypatch)._own == {}


def test_a_gpu_goes_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions that ship are kept under it."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA H200 {device.index}")
    assert kind_of(torch.device("cuda", 1)) == "NVIDIA H200 1"
