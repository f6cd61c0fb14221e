"""The catalogue on a GPU: every cheat is caught where it may be, every honest control is accepted by every gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.redteam_catalogue import Cheat, Control, cheats, controls
from benchmarks.redteam_catalogue.trial import judge_entry
from warpsmith.workers.judge.protocol.client import JudgeClient

CHEATS, CONTROLS = cheats("cuda"), controls("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=tmp_path_factory.mktemp("judge-cache")) as judge:
        judge.start()
        yield judge


@needs_gpu
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.id)
def test_a_cheat_is_caught(client: JudgeClient, cheat: Cheat) -> None:
    outcome = judge_entry(client, cheat)
    assert outcome.good, f"{outcome.verdict} at {outcome.gate}: {outcome.reason}"


@needs_gpu
@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.id)
def test_a_control_is_accepted(client: JudgeClient, control: Control) -> None:
    outcome = judge_entry(client, control)
    assert outcome.good, f"{outcome.verdict} at {outcome.gate}: {outcome.reason}"
