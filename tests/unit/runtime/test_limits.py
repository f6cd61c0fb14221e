"""What a launch may ask of a GPU."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.runtime.limits import Launch, Usage, blocks_at_once, is_portable, of_architecture, problem

_found = of_architecture(90)
AMPERE = of_architecture(80)
assert _found is not None
HOPPER = _found
assert AMPERE is not None


@pytest.mark.parametrize(
    ("launch", "usage", "said"),
    [
        (Launch((1, 1, 1), (2048, 1, 1)), Usage(), "block.x: found 2048, expected at most 1024"),
        (Launch((1, 1, 1), (32, 1, 65)), Usage(), "block.z: found 65, expected at most 64"),
        (Launch((1, 1, 1), (64, 32, 1)), Usage(), "found 2048 threads (64, 32, 1), expected at most 1024"),
        (Launch((1, 1, 1), (256, 1, 1)), Usage(threads=128), "__launch_bounds__ promises at most 128"),
        (Launch((1, 70000, 1), (32, 1, 1)), Usage(), "grid.y: found 70000, expected at most 65535"),
        (Launch((2**31, 1, 1), (32, 1, 1)), Usage(), "grid.x: found 2147483648, expected at most 2147483647"),
        (
            Launch((1, 1, 1), (32, 1, 1), shared_bytes=232448),
            Usage(shared=1024),
            "found 1024 static + 232448 dynamic bytes of a block, expected at most 232448 on sm_90",
        ),
        (
            Launch((1, 1, 1), (1024, 1, 1)),
            Usage(registers=168),
            "1024 threads of 168 registers need 172032, and a block has 65536: expected at most 384 threads",
        ),
        (
            Launch((32, 1, 1), (32, 1, 1), (32, 1, 1)),
            Usage(),
            "cluster: found 32 blocks (32, 1, 1), expected at most 16",
        ),
        (Launch((7, 1, 1), (32, 1, 1), (2, 1, 1)), Usage(), "expected a multiple of cluster (2, 1, 1)"),
        (Launch((7, 1, 1), (32, 1, 1)), Usage(cluster=(2, 1, 1)), "expected a multiple of cluster (2, 1, 1)"),
        (Launch((8, 1, 1), (32, 1, 1), (4, 1, 1)), Usage(cluster=(2, 1, 1)), "__cluster_dims__ says (2, 1, 1)"),
        (Launch((1000, 1, 1), (1024, 1, 1), cooperative=True), Usage(registers=32), "264 are resident at once"),
    ],
)
def test_a_launch_beyond_a_limit_is_told_which_and_what_to_ask_for(launch: Launch, usage: Usage, said: str) -> None:
    message = problem(launch, usage, HOPPER)
    assert message is not None
    assert said in message


@pytest.mark.parametrize(
    ("launch", "usage"),
    [
        (Launch((2**31 - 1, 65535, 65535), (1024, 1, 1)), Usage(registers=64)),
        (Launch((1, 1, 1), (32, 32, 1), shared_bytes=232448), Usage(registers=64)),
        (Launch((16, 1, 1), (128, 1, 1), (16, 1, 1)), Usage(registers=255)),
        (Launch((264, 1, 1), (1024, 1, 1), cooperative=True), Usage(registers=32)),
        (Launch((132, 1, 1), (256, 1, 1), shared_bytes=200 * 1024, cooperative=True), Usage(registers=128)),
        (Launch((8, 1, 1), (32, 1, 1), (2, 1, 1)), Usage(cluster=(2, 1, 1))),
    ],
)
def test_a_launch_at_its_limits_passes(launch: Launch, usage: Usage) -> None:
    assert problem(launch, usage, HOPPER) is None


def test_clusters_begin_with_hopper() -> None:
    launch = Launch((2, 1, 1), (32, 1, 1), (2, 1, 1))
    assert problem(launch, Usage(), HOPPER) is None
    assert "sm_80 has no clusters" in (problem(launch, Usage(), AMPERE) or "")
    assert "expected at most 166912 on sm_80" in (
        problem(Launch((1, 1, 1), (32, 1, 1), shared_bytes=200_000), Usage(), AMPERE) or ""
    )
    assert is_portable((2, 2, 2))
    assert is_portable(None)
    assert not is_portable((16, 1, 1))


def test_an_architecture_that_is_not_known_has_no_limits() -> None:
    assert of_architecture(999) is None


EXTENT = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
ONE = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
LAUNCHES = st.builds(Launch, EXTENT, EXTENT, st.none() | ONE, st.integers(0, 300_000), st.booleans())
USAGES = st.builds(Usage, st.integers(0, 255), st.integers(0, 48 * 1024), st.none() | st.integers(1, 1024), st.none())


@given(LAUNCHES, USAGES)
def test_what_passes_fits_and_asking_for_less_passes_too(launch: Launch, usage: Usage) -> None:
    if problem(launch, usage, HOPPER) is not None:
        return
    assert launch.threads <= 1024
    assert blocks_at_once(launch, usage, HOPPER) >= 1
    assert usage.shared + launch.shared_bytes <= HOPPER.shared
    assert problem(Launch(launch.grid, launch.block, launch.cluster), usage, HOPPER) is None


CALCULATOR = """
#include <climits>
#include <cstdio>
#include "cuda_occupancy.h"

int main() {
    int major, minor, threads_sm, shared_kib, registers, threads;
    size_t own, fixed, dynamic;
    while (scanf("%d %d %d %d %zu %d %zu %d %zu", &major, &minor, &threads_sm, &shared_kib, &own, &registers, &fixed,
                 &threads, &dynamic) == 9) {
        cudaOccDeviceProp device;
        memset(&device, 0, sizeof device);
        device.computeMajor = major, device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = threads_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32, device.numSms = 1;
        device.sharedMemPerBlock = 48 << 10, device.sharedMemPerMultiprocessor = (size_t)shared_kib << 10;
        device.sharedMemPerBlockOptin = own;
        device.reservedSharedMemPerBlock = device.sharedMemPerMultiprocessor - own;
        cudaOccFuncAttributes kernel;
        memset(&kernel, 0, sizeof kernel);
        kernel.maxThreadsPerBlock = INT_MAX, kernel.numRegs = registers, kernel.sharedSizeBytes = fixed;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, kernel.maxDynamicSharedSizeBytes = own - fixed;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        auto error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic);
        printf("%d\\n", error ? -(int)error : result.activeBlocksPerMultiprocessor);
    }
}
"""


def test_as_many_blocks_fit_as_nvidias_own_calculator_says(tmp_path: Path) -> None:
    """On each architecture, whatever a kernel takes of a multiprocessor."""
    triton = pytest.importorskip("triton", reason="NVIDIA's occupancy calculator comes with Triton")
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("there is no g++")
    include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    (tmp_path / "calculator.cc").write_text(CALCULATOR)
    command = [compiler, "-O1", "-w", f"-I{include}", "calculator.cc", "-o", "calculator"]
    subprocess.run(command, cwd=tmp_path, check=True)
    rng = random.Random(0)
    cases, lines = [], []
    for capability in (75, 80, 86, 87, 89, 90, 100, 120):
        limits = of_architecture(capability)
        assert limits is not None
        for _ in range(2000):
            fixed = rng.choice([0, 16, 1024, rng.randrange(48 << 10)])
            dynamic = rng.choice([0, 0, rng.randrange(limits.shared - fixed + 1)])
            usage = Usage(rng.randint(1, 255), fixed)
            launch = Launch((1, 1, 1), (rng.randint(1, 1024), 1, 1), shared_bytes=dynamic)
            cases.append((limits, usage, launch))
            device = (*divmod(capability, 10), limits.threads_sm, limits.shared_sm >> 10, limits.shared)
            lines.append(" ".join(map(str, (*device, usage.registers, fixed, launch.threads, dynamic))))
    result = subprocess.run(
        [tmp_path / "calculator"], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    said = [int(line) for line in result.stdout.split()]
    assert len(said) == len(cases)
    assert len(set(said)) > 10
    for (limits, usage, launch), expected in zip(cases, said, strict=True):
        assert blocks_at_once(launch, usage, limits) == expected, (limits.name, usage, launch)
