"""Two numbers that differ never look alike in a message."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.shown_numbers import apart, shown


def test_numbers_are_short_where_that_tells_them() -> None:
    assert apart(1.805, 1.806) == ("1.805", "1.806")
    assert apart(1.0000000001, 1.0000000002) == ("1.0000000001", "1.0000000002")
    assert apart(3, "nan") == ("3", "nan")
    assert shown(0.1) == "0.1"


@given(st.floats(), st.floats())
def test_two_numbers_that_differ_differ_as_text(one: float, other: float) -> None:
    texts = apart(one, other)
    if not (one == other or (math.isnan(one) and math.isnan(other))):
        assert texts[0] != texts[1]
