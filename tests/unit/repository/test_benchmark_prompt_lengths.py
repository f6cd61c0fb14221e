"""Lengths of the requests that recorded searches would make: which are built, from what, and what is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import prompt_lengths
from benchmarks.prompt_lengths import CODE, CODE_ON_NONE, IDEAS, IDEAS_ON_NONE, POOLS, REPAIR, Length
from warpsmith.kernels_db.library import SHIPPED, Entry, read_entry


@pytest.fixture(scope="module")
def library() -> list[Entry]:
    return [read_entry(next(SHIPPED.glob(f"{name}_*"))) for name in ("silu_and_mul", "swiglu_backward")]


@pytest.mark.parametrize(
    ("pool", "kinds"),
    [
        ("compared/today/masked_cumsum", {IDEAS_ON_NONE: 1, IDEAS: 2, CODE_ON_NONE: 4, CODE: 4}),
        ("silu_and_mul", {IDEAS_ON_NONE: 1, IDEAS: 2, CODE_ON_NONE: 4, CODE: 4, REPAIR: 2}),
    ],
    ids=["an op without evidence", "an op that ships a kernel"],
)
def test_each_reply_of_a_pool_has_its_request(pool: str, kinds: dict[str, int], library: list[Entry]) -> None:
    lengths = list(prompt_lengths.measure([POOLS / f"{pool}.jsonl"], library))
    assert Counter(each.kind for each in lengths) == kinds
    for each in lengths:
        assert (each.parent > 0) == (each.kind in (IDEAS, CODE))
        assert each.sections.get("The kernel to build on", 0) >= each.parent
        assert "What is to be beaten" in each.sections or each.kind == REPAIR
    assert any("Verified kernels of other ops" in each.sections for each in lengths) == (pool == "silu_and_mul")
    assert all("What was tried" in each.sections for each in lengths if each.kind == IDEAS)


def test_a_heading_in_a_code_block_begins_no_section() -> None:
    found = prompt_lengths.sections("# A\n## The op: `x`\n```python\n## not one\n```\n## Rules for cuda\nnone\n")
    assert list(found) == ["head", "The op", "Rules for cuda"]
    assert found["The op"] == 10


def test_requests_above_their_aim_are_counted_and_named() -> None:
    lengths = [Length("a", CODE, 6_000, 1_200, {"x": 5_000, "y": 1_000}), Length("b", CODE, 7_000, 2_500, {"x": 7_000})]
    head, line = prompt_lengths.table(lengths)
    assert dict(zip(head, line, strict=True)) == {
        "requests": CODE,
        "number": "2",
        "median": "6,500",
        "largest": "7,000",
        "aim": "6,000",
        "above it": "1",
        "their code to build on, at least": "2,500",
    }
    assert prompt_lengths.long_table(lengths)[1:] == [["b", CODE, "7,000", "2,500"]]
    assert prompt_lengths.section_table(lengths)[1:] == [
        [CODE, "x", "6,000", "7,000", "2 of 2"],
        [CODE, "y", "1,000", "1,000", "1 of 2"],
    ]


def test_where_there_is_no_pool_is_said(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    with pytest.raises(SystemExit):
        prompt_lengths.main(["--pools", str(tmp_path)])
    assert "found no pool in" in capsys.readouterr().err
