"""The judge that cheats are sent to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warpsmith.workers.judge.protocol.client import JudgeClient

PLANTED = "WARPSMITH_PLANTED_API_KEY"
"""A variable of the judge's caller, which spies look for."""


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with pytest.MonkeyPatch.context() as patch, JudgeClient(cache=tmp_path_factory.mktemp("judge-cache")) as judge:
        patch.setenv(PLANTED, "planted")
        judge.start()
        yield judge
