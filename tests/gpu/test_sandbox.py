"""The sandbox around a runner that holds a GPU: CUDA still works inside, and what is tried from inside still fails."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch

from tests import REPOSITORY

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

from tests import degraded, escapes, judging
from tests.field import REFUSALS, Field
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.workers.judge.machine import gpu
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.protocol.client import judge_environment
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox import sandbox

TIMEOUT_S = 300.0
MAJOR, MINOR = torch.cuda.get_device_capability(0)
ADD_RELU = "import torch\n\ndef run(x, bias):\n    return torch.relu(x + bias)\n"
CANDIDATES = REPOSITORY / "tests" / "candidates"
RIGHT = ("time", "physics")
"""Gates that only a right candidate gets to."""

ABILITY = sandbox.detect()
whole = pytest.mark.skipif(
    sandbox.reachable(ABILITY) != "isolated", reason=f"this machine reaches {sandbox.reachable(ABILITY)}: {ABILITY}"
)


def _job(language: Literal["triton", "cuda"]) -> Job:
    inputs = [judging.tensor("x", (1024, 1024)), judging.tensor("bias", (1024,))]
    work = judging.workload("bench", "bench", inputs, [judging.output("y", (1024, 1024))], min_bytes=8 << 20)
    source = (CANDIDATES / f"add_relu_{language}.py").read_text()
    return judging.job(ADD_RELU, [work], source, language=language, target=f"cuda:sm_{MAJOR}{MINOR}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge-cache")


HIDDEN: dict[tuple[degraded.Hidden, ...], str] = {
    (): "isolated",
    ("namespaces",): "confined",
    ("landlock",): "filtered",
    ("seccomp",): "process",
}
"""Where the first fails and another passes, the part of the kernel that is hidden there is what CUDA cannot bear."""


@whole
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda hidden: "without " + "-".join(hidden))
@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_candidate_is_right_under_every_layer(
    language: Literal["triton", "cuda"], hidden: tuple[degraded.Hidden, ...], cache: Path, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [degraded.interpreter(tmp_path, hidden), "-P", "-m", "warpsmith.workers.judge"],
        input=json.dumps(_job(language)),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=judge_environment(cache, tmp_path),
    )
    assert finished.stdout, finished.stderr[-4000:]
    verdict: Verdict = json.loads(finished.stdout.splitlines()[-1])
    assert verdict["gate"] in RIGHT, (verdict["reason"], verdict["failure"], finished.stderr[-4000:])
    assert verdict["sandbox"]["level"] == HIDDEN[hidden]


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    gpu.initialise()
    made = Field(tmp_path_factory.mktemp("field"), torch.device("cuda:0"), ["cuda.core"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def prisoner(field: Field) -> Iterator[RunnerHandle]:
    """A runner with a CUDA context and native code, such as no candidate of a GPU language has."""
    source = f"""
import ctypes
probe = ctypes.CDLL({str(field.library)!r}).probe

def run(which, out):
    asked, answer = ctypes.c_int64(int(which.item())), ctypes.c_int64(-1)
    probe(ctypes.byref(asked), ctypes.byref(answer))
    out.fill_(answer.value)
"""
    contender = field.runner(source, language="cuda")
    contender.bind([TensorSpec("which", (1,), (1,), torch.int64)], [TensorSpec("out", (1,), (1,), torch.int64)], 1)
    yield contender
    contender.close()


OPEN = {
    "leave a file in /dev/shm",
    "write in its working directory",
    "map memory that no limit counts",
    "leave its core",
    "take turns of its own",
    "go on by a timer",
}
"""What CUDA or Triton need, or may need, on a GPU."""


def _probe(contender: RunnerHandle, name: str) -> int:
    contender.fill(0, [torch.tensor([escapes.NUMBER[name]], device="cuda")])
    contender.call(0, 30.0)
    return int(contender.slots[0].tensor(1).item())


@whole
@pytest.mark.parametrize("name", [name for name in escapes.TRIES | escapes.UNSURE if name not in OPEN])
def test_an_escape_of_native_code_fails_beside_cuda(prisoner: RunnerHandle, name: str) -> None:
    assert _probe(prisoner, name) in REFUSALS


@pytest.mark.parametrize("name", escapes.HONEST)
def test_what_honest_code_does_works_beside_cuda(prisoner: RunnerHandle, name: str) -> None:
    assert _probe(prisoner, name) == 0


def test_threads_of_the_driver_are_filtered_too(prisoner: RunnerHandle) -> None:
    """They were there before the filter."""
    if not ABILITY.seccomp:
        pytest.skip("no seccomp")
    tasks = Path(f"/proc/{prisoner.pid}/task")
    assert len(os.listdir(tasks)) > 1
    for task in tasks.iterdir():
        assert "\nSeccomp:\t2\n" in (task / "status").read_text()
