"""The candidate that prompts show as an example passes the judge that they speak of."""

from __future__ import annotations

import pytest

from warpsmith import Judge, prompts

OP = """
schema_version: 1
name: add_then_relu
axes:
  n: {kind: var}
inputs:
  - {name: x, shape: [n], dtype: float32}
  - {name: "y", shape: [n], dtype: float32}
outputs:
  - {name: out, shape: [n], dtype: float32}
reference: |
  import torch

  def run(x, y):
      return torch.relu(x + y)
workloads:
  - {id: bench, role: bench, axes: {n: 200000}}
  - {id: odd, role: test, axes: {n: 4099}}
"""


@pytest.mark.nightly
def test_the_example_in_cpp_is_accepted() -> None:
    with Judge(target="cpu", limits={"time_s": 0.1, "attack_s": 0.5}) as judge:
        verdict = judge(OP, prompts.example("cpp"))
    assert verdict.accepted, verdict.reason
