"""compute-sanitizer on a real GPU: each tool finds its fault, and an honest kernel passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.jobs import Language, job
from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.text import ADD, EACH, HONEST_ADD, add_cuda, add_triton, cuda, run
from benchmarks.redteam_catalogue.trial import target
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judge.sanitizers import sanitizer

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)
if sanitizer.find() is None:
    pytest.skip("no compute-sanitizer on this machine", allow_module_level=True)

OP = ops.add()
READS_BEHIND = EACH + "\nelse if (i < n + 64 && ((volatile const float*)x)[i] == 1.5f) out[0] = 0.0f;"
RACES = """
    __shared__ float tile[256]; tile[threadIdx.x] = i < n ? x[i] + y[i] : 0.0f;
    const float other = tile[(threadIdx.x + 128) % 256];
    if (i < n) out[i] = x[i] + y[i] + (other == 12345.0f ? 1.0f : 0.0f);
"""
UNSET = cuda(
    'extern "C" __global__ void add(const float* x, const float* y, float* out, const float* scratch, long long n) {\n'
    "const long long i = blockIdx.x * 256ll + threadIdx.x;"
    " if (i < n) out[i] = x[i] + y[i] + (scratch[i] == 12345.0f ? 1.0f : 0.0f); }",
    run(ADD, "n = out.numel()\nscratch = torch.empty(n, dtype=torch.float32, device=x.device)\n"
        "kernels.add[(n + 255) // 256, 256](x, y, out, scratch, n)"),
    "import torch",
)  # fmt: skip
TRITON_BEHIND = add_triton(
    "more = tl.load(x + i + n, mask=i < 64, other=0.0)\n"
    "tl.store(out + i, a + b + tl.where(more == 12345.0, 1.0, 0.0), mask=m)"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=tmp_path_factory.mktemp("judge-cache"), log=print) as judge:
        judge.start()
        yield judge


def verified(client: JudgeClient, source: str, language: Language, **limits: bool) -> Verdict:
    asked = job(OP.reference, list(OP.workloads), source, level="verify", language=language, target=target("cuda"))
    asked["limits"] = {**asked["limits"], **limits}  # type: ignore[typeddict-item]
    return client.judge(asked, 300.0)


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_an_honest_kernel_passes_every_tool(client: JudgeClient, language: Language) -> None:
    verified(client, HONEST_ADD[language], language, sanitize=False)  # builds, and measures the baseline's peaks
    plain = verified(client, HONEST_ADD[language], language, sanitize=False)
    looked_at = verified(client, HONEST_ADD[language], language)
    assert (plain["verdict"], looked_at["verdict"]) == ("accepted", "accepted"), looked_at["reason"]
    assert "sanitizer" not in looked_at["reason"]
    spent = [sum(value for name, value in one["seconds"].items() if name != "exclusive") for one in (plain, looked_at)]
    print(f"{language}: {spent[0]:.1f} s without the tools, {spent[1]:.1f} s with them: {looked_at['seconds']}")


@pytest.mark.parametrize(
    ("source", "language", "tool", "said"),
    [
        (add_cuda(READS_BEHIND), "cuda", "memcheck", "Invalid __global__ read"),
        (TRITON_BEHIND, "triton", "memcheck", "Invalid __global__ read"),
        (add_cuda(RACES), "cuda", "racecheck", "Race reported"),
        (UNSET, "cuda", "initcheck", "Uninitialized __global__ memory read"),
    ],
    ids=["reads behind its input", "reads behind its input in Triton", "races in shared memory", "reads unset scratch"],
)
def test_a_fault_that_spoils_no_result_is_found(
    client: JudgeClient, source: str, language: Language, tool: str, said: str
) -> None:
    assert verified(client, source, language, sanitize=False)["verdict"] == "accepted"
    found = verified(client, source, language)
    assert found["verdict"] == "rejected", found["reason"]
    assert found["failure"] is not None
    assert (found["failure"]["kind"], found["failure"]["found"]) == ("sanitizer", tool)
    assert said in found["reason"]
