"""The counterexample search on a GPU: the wrong Triton kernels of `benchmarks.attack` are found, their honest siblings
pass, and what is found is found again at screening.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.attack import small_job
from benchmarks.attack_triton import on_gpu
from benchmarks.showcase import gpu_target
from warpsmith.kernels_db.spec.resolve import ATTACK_S
from warpsmith.workers.judge.protocol.client import JudgeClient

pytestmark = [pytest.mark.alone, pytest.mark.skipif(gpu_target() is None, reason="no CUDA GPU")]

KERNELS = {f"{kernel.op}, {kernel.does or 'honest'}": kernel for kernel in on_gpu()}
TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=tmp_path_factory.mktemp("judge-cache")) as judge:
        yield judge


@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_kernel_is_found_and_an_honest_one_passes(client: JudgeClient, name: str) -> None:
    kernel, target = KERNELS[name], gpu_target()
    assert target is not None
    verdict = client.judge(
        small_job(kernel, target, 10 * ATTACK_S["cuda"] if kernel.does else ATTACK_S["cuda"]), TIMEOUT_S
    )
    if not kernel.does:
        assert verdict["verdict"] == "accepted", verdict["reason"]
        assert verdict["attack"]["counterexample"] is None
        return
    assert verdict["verdict"] == "rejected", verdict["reason"]
    failure = verdict["failure"]
    assert failure is not None
    if failure["kind"] == "counterexample":
        known = small_job(kernel, target, 0.0)
        known["level"] = "screen"
        known["op"]["counterexamples"] = [failure["recipe"]]
        known["workloads"] = [{**one, "role": "bench"} for one in known["workloads"]]
        screened = client.judge(known, TIMEOUT_S)
        assert (screened["verdict"], screened["gate"]) == ("rejected", "screen"), screened["reason"]
