"""The CUDA launcher without a device: what it hands to cuda-core, what it keeps, and how it says that one refused."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from warpsmith.kernels_db.runtime import cuda, cuda_device
from warpsmith.kernels_db.runtime.errors import LaunchError
from warpsmith.kernels_db.runtime.limits import Limits, Usage

SOURCE = """
extern "C" __global__ void scale(const float* x, int n, float by, bool exact) {}
extern "C" __global__ void tiled(const __grid_constant__ CUtensorMap map) {}
"""
DEVICE = Limits("sm_90", 232448, 233472, 2048, 32, 132, 16)


class RefusedError(Exception):
    """What the stub of cuda-core raises."""


class TensorMapDescriptor:
    """By its name cuda-core's."""


class Fake:
    """cuda-core and torch as far as a launch needs them; a launch of more than 1024 threads is refused."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.opted: list[tuple[str, int]] = []
        self.configured = 0

    def config(self, **options: Any) -> dict[str, Any]:
        self.configured += 1
        return options

    def launch(self, stream: Any, config: Any, kernel: Any, *values: Any) -> None:
        if config["block"][0] > 1024:
            raise RefusedError("CUDA_ERROR_INVALID_VALUE")
        self.launched.append((stream, config, kernel, values))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The stubs in their places."""
    made = Fake()
    core = SimpleNamespace(
        LaunchConfig=made.config, Stream=SimpleNamespace(from_handle=lambda handle: f"stream {handle}")
    )
    monkeypatch.setattr(cuda, "core", lambda: core)
    monkeypatch.setattr(cuda, "errors", lambda: (RefusedError,))
    monkeypatch.setattr(cuda, "_functions", lambda: (lambda: 0, lambda device: 7, made.launch, (RefusedError,)))
    monkeypatch.setattr(cuda, "_streams", {})
    monkeypatch.setattr(cuda, "opt_in", lambda kernel, device, name, value, asked: made.opted.append((name, value)))
    monkeypatch.setattr(cuda.Program, "kernel", lambda self, name, device: name)
    monkeypatch.setattr(cuda_device, "_usage", lambda kernel, device: Usage(32))
    monkeypatch.setattr(cuda_device, "_limits", lambda device: DEVICE)
    return made


TENSOR = SimpleNamespace(dtype="torch.float32", data_ptr=lambda: 4096, is_cuda=True, device="cuda:0")


def plain(value: Any) -> Any:
    """A ctypes value as Python's."""
    return (type(value), value.value) if isinstance(value, ctypes._SimpleCData) else value


def test_arguments_and_extents_arrive_as_cuda_core_takes_them(fake: Fake) -> None:
    kernels = cuda.compile(SOURCE)
    kernels.scale[(4, 2), 128](TENSOR, 5, 2, True)
    ((stream, config, kernel, values),) = fake.launched
    assert (stream, kernel) == ("stream 7", "scale")
    assert config == {"grid": (4, 2, 1), "block": (128, 1, 1), "shmem_size": 0, "is_cooperative": False}
    assert [plain(value) for value in values] == [4096, (ctypes.c_int, 5), (ctypes.c_float, 2.0), (ctypes.c_bool, True)]


def test_a_launch_is_made_ready_once(fake: Fake) -> None:
    kernels = cuda.compile(SOURCE)
    for _ in range(3):
        kernels.scale[4, 128](TENSOR, 5, 0.5, False)
    assert (fake.configured, len(fake.launched)) == (1, 3)


def test_a_cluster_is_counted_in_blocks(fake: Fake) -> None:
    kernels = cuda.compile(SOURCE)
    kernels.scale.launch((8, 2), 32, None, 5, 0.5, False, cluster=(4, 1))
    assert fake.launched[0][1]["grid"] == (2, 2, 1)
    assert fake.launched[0][1]["cluster"] == (4, 1, 1)
    assert fake.opted == []
    kernels.scale.launch(32, 32, None, 5, 0.5, False, cluster=16)
    assert fake.opted == [("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)]


def test_shared_memory_is_asked_for_up_to_the_most_so_far(fake: Fake) -> None:
    """A smaller launch must not take back what an earlier one was given: its kernel is the same."""
    kernels = cuda.compile(SOURCE)
    for size in (1000, 200_000, 60_000, 200_000):
        kernels.scale.launch(1, 32, TENSOR, 5, 0.5, False, shared_bytes=size)
    assert [value for _, value in fake.opted] == [1000, 200_000]


def test_a_refused_launch_names_the_kernel_the_launch_and_the_limit(fake: Fake) -> None:
    kernels = cuda.compile(SOURCE)
    with pytest.raises(LaunchError) as caught:
        kernels.scale.launch(3, 2048, TENSOR, 5, 0.5, False, shared_bytes=64)
    said = str(caught.value)
    assert said.startswith(
        "launch of 'scale' (grid (3, 1, 1), block (2048, 1, 1), shared_bytes 64): block.x: found 2048"
    )
    assert said.endswith("[CUDA_ERROR_INVALID_VALUE]")
    kernels.scale[3, 1024](TENSOR, 5, 0.5, False)


def test_a_refusal_without_a_known_limit_gives_the_drivers_word(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(device: int) -> Limits:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    kernels = cuda.compile(SOURCE)
    monkeypatch.setattr(cuda_device, "_limits", lost)
    with pytest.raises(LaunchError, match=r"its limits cannot be read \(CUDA_ERROR_ILLEGAL_ADDRESS\)"):
        kernels.scale[3, 2048](TENSOR, 5, 0.5, False)


def test_what_is_no_tensor_map_is_refused(fake: Fake) -> None:
    kernels = cuda.compile(SOURCE)
    with pytest.raises(TypeError, match=r"'map' of 'tiled': found SimpleNamespace, expected a tensor map: cuda\."):
        kernels.tiled[1, 1](TENSOR)
    kernels.tiled[1, 1](TensorMapDescriptor())
    assert len(fake.launched) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shared_bytes": -1}, "found shared_bytes -1"),
        ({"shared_bytes": 1.5}, "found shared_bytes 1.5"),
        ({"cluster": 3}, r"found grid \(4, 1, 1\), expected a multiple of cluster \(3, 1, 1\)"),
        ({"cluster": 0}, "found cluster 0, expected one to three positive ints"),
    ],
)
def test_an_option_that_cannot_be_is_named(fake: Fake, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cuda.compile(SOURCE).scale.launch(4, 32, TENSOR, 5, 0.5, False, **options)
    assert fake.launched == []
