"""Ideas that were tried before."""

from __future__ import annotations

from warpsmith.workers.search.dedup import idea_digest


def test_wording_that_differs_in_form_alone_is_the_same_idea() -> None:
    one = idea_digest("Memory access", "Use 128-bit loads; keep x in registers.")
    assert one == idea_digest("memory access", "use 128 bit LOADS, keep  x in registers")
    assert one != idea_digest("fusion", "Use 128-bit loads; keep x in registers.")
    assert one != idea_digest("Memory access", "Use 64-bit loads; keep x in registers.")
