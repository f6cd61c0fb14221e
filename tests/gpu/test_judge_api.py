"""`warpsmith.Judge` on a GPU: many candidates at once, a timeout among them, and the device found by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import torch

from tests import REPOSITORY
from warpsmith import Judge, Judgement

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

SPEC = REPOSITORY / "examples" / "add_relu.yaml"
CANDIDATES = REPOSITORY / "tests" / "candidates"
WORKLOADS = ["small", "single"]
RIGHT = (CANDIDATES / "add_relu_triton.py").read_text()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(cache=tmp_path_factory.mktemp("cache"), limits={"time_s": 0.5}, log=print) as made:
        yield made


def test_many_at_once_come_in_order_with_the_devices_own_target(judge: Judge) -> None:
    sources = [f"# {number}\n{RIGHT}" if number % 3 else "def run(" for number in range(16)]
    told = list(judge.map(SPEC, sources, language="triton", level="screen", workloads=WORKLOADS, timeout=300))
    for number, one in enumerate(told):
        assert one.accepted is bool(number % 3), (number, one.reason)
        assert one.unjudged is None
        assert one.notes == ()
        assert one.target.startswith("cuda:sm_")
    assert all(one.speedup is not None and one.speedup > 0.3 for one in told if one.accepted)


def test_languages_are_awaited_beside_each_other(judge: Judge) -> None:
    async def ask() -> list[Judgement]:
        return await asyncio.gather(
            *(
                judge.ajudge(SPEC, CANDIDATES / f"add_relu_{name}.py", level="screen", workloads=WORKLOADS)
                for name in ("triton", "cuda")
            )
        )

    assert [(one.language, one.accepted) for one in asyncio.run(ask())] == [("triton", True), ("cuda", True)]


def test_one_that_times_out_costs_the_others_nothing(judge: Judge) -> None:
    """The first sent is cut off while the device is taken from it; a new judge serves the rest."""
    assert judge(SPEC, RIGHT, level="screen", workloads=WORKLOADS, timeout=0.01).unjudged in ("timeout", None)
    told = dict(judge.as_completed(SPEC, [RIGHT] * 4, level="screen", workloads=WORKLOADS, timeout=300))
    assert sorted(told) == [0, 1, 2, 3]
    assert all(one.accepted for one in told.values()), [one.reason for one in told.values()]
