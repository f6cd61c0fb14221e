"""On a GPU: what torch.compile generates, a profile on request, binaries that are the same, kernels of a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.jobs import Language, job, output, tensor, workload
from tests import REPOSITORY
from warpsmith.workers.judge.gates.profiling import CALLS
from warpsmith.workers.judge.protocol.client import JudgeClient

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

TIMEOUT_S = 180.0
REFERENCE = "import torch\n\ndef run(x, bias):\n    return torch.relu(x + bias)\n"
PLACES = [workload("bench", "bench", [tensor("x", (4096, 1024)), tensor("bias", (1024,))], [output("y", (4096, 1024))])]
CANDIDATES = REPOSITORY / "tests" / "candidates"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=Path(tmp_path_factory.mktemp("judge")), log=print) as client:
        yield client


def target() -> str:
    major, minor = torch.cuda.get_device_capability(0)
    return f"cuda:sm_{major}{minor}"


def source(language: Language) -> str:
    return (CANDIDATES / f"add_relu_{language}.py").read_text()


def test_the_baselines_carry_inductors_triton(judge: JudgeClient) -> None:
    root = judge.judge(job(REFERENCE, PLACES, target=target(), baselines=("eager", "compile")), TIMEOUT_S)
    assert root["verdict"] == "accepted", root["reason"]
    assert root["generated"]["language"] == "triton"
    assert root["generated"]["source"].startswith("@triton.jit")  # no library call stands in it
    assert "triton_helpers.set_driver" not in root["generated"]["source"]


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_a_profile_has_the_kernel_with_its_launch(judge: JudgeClient, language: Language) -> None:
    asked = job(REFERENCE, PLACES, source(language), level="profile", language=language, target=target())
    found = judge.judge(asked, TIMEOUT_S)
    assert found["verdict"] == "ambiguous"
    row = found["profile"]["rows"][0]
    assert (row["name"], row["kind"], row["count"]) == ("bias_relu", "kernel", CALLS)
    assert row["mean_us"] > 1.0
    assert row["launch"]["grid"][0] == 4096 * 1024 // (1024 if language == "triton" else 256)
    regions = [one["count"] for one in found["profile"]["rows"] if one["name"] == "run"]
    assert CALLS in regions


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_the_same_binary_is_refused_before_the_device(judge: JudgeClient, language: Language) -> None:
    first = judge.judge(job(REFERENCE, PLACES, source(language), language=language, target=target()), TIMEOUT_S)
    assert first["verdict"] == "accepted", first["reason"]
    assert first["compile"] is not None
    renamed = source(language).replace("total" if language == "triton" else "sum", "other_name")
    twin = job(REFERENCE, PLACES, renamed, language=language, target=target())
    found = judge.judge({**twin, "known_binaries": {first["compile"]["digest"]: 5}}, TIMEOUT_S)
    assert (found["gate"], found["reason"]) == ("compile", "duplicate of node #5 (same binary)")
    assert "exclusive" not in found["seconds"]


def test_the_kernels_of_a_call_are_counted(judge: JudgeClient) -> None:
    twice = source("cuda").replace(
        "    kernels.bias_relu", "    kernels.bias_relu[1, 32](x, bias, y, 1, bias.shape[0])\n    kernels.bias_relu"
    )
    asked = job(REFERENCE, PLACES, twice, level="verify", language="cuda", target=target())
    found = judge.judge(asked, TIMEOUT_S)
    assert found["verdict"] == "accepted", found["reason"]
    assert found["workloads"][0]["kernels"] == ["bias_relu"]
    assert found["workloads"][0]["kernel_calls"] == [2]
