"""Casts to bfloat16 under Triton's interpreter are rounded as PyTorch rounds them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.runner.interpreter.bfloat16_rounding import round_to_bfloat16


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=40))
def test_it_is_what_torch_gives(values: list[float]) -> None:
    data = np.array(values, dtype=np.float32)
    found = torch.from_numpy(round_to_bfloat16(data).view(np.int16)).view(torch.bfloat16).float().numpy()
    expected = torch.from_numpy(data).bfloat16().float().numpy()
    np.testing.assert_array_equal(found, expected)


def test_ties_go_to_the_even_number_and_the_largest_to_infinity() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800001], dtype=np.uint32)
    assert [hex(int(x)) for x in round_to_bfloat16(bits.view(np.float32))] == [
        "0x3f80",
        "0x3f82",
        "0x7f80",
        "0xff80",
        "0x7fc0",
    ]
