"""Ideas that were tried before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.search.dedup import fresh, idea_digest


def test_wording_that_differs_in_form_alone_is_the_same_idea() -> None:
    one = idea_digest("Memory access", "Use 128-bit loads; keep x in registers.")
    assert one == idea_digest("memory access", "use 128 bit LOADS, keep  x in registers")
    assert one != idea_digest("fusion", "Use 128-bit loads; keep x in registers.")
    assert one != idea_digest("Memory access", "Use 64-bit loads; keep x in registers.")


@given(items=st.lists(st.text(max_size=3)), seen=st.lists(st.text(max_size=3)))
def test_what_is_kept_is_new_and_in_order(items: list[str], seen: list[str]) -> None:
    kept = fresh(items, str, seen)
    assert len(set(kept)) == len(kept)
    assert set(kept) == set(items) - set(seen)
    assert [item for item in dict.fromkeys(items) if item in set(kept)] == kept
