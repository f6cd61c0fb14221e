"""The candidate that prompts show as an example passes the judge that they speak of."""

from __future__ import annotations

import pytest

from tests.support.api_support import ADD_RELU
from warpsmith import Judge, prompts


@pytest.mark.nightly
def test_the_example_in_cpp_is_accepted() -> None:
    with Judge(target="cpu", limits={"time_s": 0.1, "attack_s": 0.5}) as judge:
        verdict = judge(ADD_RELU, prompts.example("cpp"))
    assert verdict.accepted, verdict.reason
