"""Free Python on a GPU: checked under the sandbox, and not timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.jobs import job, output, tensor, workload
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

TIMEOUT_S = 180.0
ADD = "def run(x, y):\n    return x + y\n"
PLACE = [workload("bench", "bench", [tensor("x", (5000,)), tensor("y", (5000,))], [output("out", (5000,))])]
TRITON = """import torch
import triton
import triton.language as tl

SEEN = []


@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, m) + tl.load(y + i, m), m)


def run(x, y, out):
    SEEN.append(x.data_ptr())
    kernel[(triton.cdiv(out.numel(), 1024),)](x, y, out, out.numel(), BLOCK=1024)
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=Path(tmp_path_factory.mktemp("judge"))) as client:
        yield client


def judged(judge: JudgeClient, source: str) -> Verdict:
    major, minor = torch.cuda.get_device_capability(0)
    return judge.judge(job(ADD, PLACE, source, language="python", target=f"cuda:sm_{major}{minor}"), TIMEOUT_S)


def test_what_is_right_is_not_timed(judge: JudgeClient) -> None:
    for source in (TRITON, "import torch\n\ndef run(x, y, out):\n    torch.add(x, y, out=out)\n"):
        verdict = judged(judge, source)
        assert (verdict["verdict"], verdict["gate"]) == ("ambiguous", "time"), verdict["reason"]
        assert "right on the bench workloads, not timed" in verdict["reason"]
        assert (verdict["tier"], verdict["sandbox"]["level"]) == ("sandbox", "isolated")


def test_what_is_wrong_is_found(judge: JudgeClient) -> None:
    verdict = judged(judge, TRITON.replace("+ tl.load(y + i, m)", "- tl.load(y + i, m)"))
    assert verdict["failure"] is not None
    assert (verdict["verdict"], verdict["failure"]["kind"]) == ("rejected", "wrong_value"), verdict["reason"]
