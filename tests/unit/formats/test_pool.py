"""The pool file: what is written is read back, and what is broken is refused by line and field."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.store.pool_file import (
    KINDS,
    Pool,
    PoolError,
    PoolHeader,
    PoolReply,
    dump_pool,
    parse_pool,
    summary,
)

HEADER: dict[str, Any] = {
    "format": "warpsmith-pool",
    "version": 1,
    "op": "layer_norm",
    "op_digest": "a" * 64,
    "target": "cpu:x86_64",
    "language": "cpp",
    "answered_by": "somebody",
    "recorded_at": 1.7e9,
    "warpsmith_version": "0.1.0",
    "policy": {"name": "idea_beam"},
    "budget": {},
}
REPLY: dict[str, Any] = {
    "request": "b" * 64,
    "ordinal": 0,
    "kind": "code",
    "summary": "code 'One pass' (fusion), variant 0",
    "reply": "```python\n...\n```",
    "finish_reason": "stop",
    "model": "gpt-5",
    "prompt_tokens": 10,
    "completion_tokens": 20,
    "latency_s": 1.5,
}


def text(header: Any = HEADER, *replies: Any) -> str:
    return "\n".join(json.dumps(line) for line in (header, *replies)) + "\n"


def without(document: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != field}


def test_a_pool_is_read() -> None:
    pool = parse_pool(text(HEADER, REPLY, REPLY | {"ordinal": 1}))
    assert pool.header.op == "layer_norm"
    assert [(reply.request, reply.ordinal) for reply in pool.replies] == [("b" * 64, 0), ("b" * 64, 1)]
    assert pool.replies[0].document() == REPLY
    assert pool.header.document() == HEADER
    assert len(pool.digest) == 64


def test_blank_lines_and_windows_line_ends_do_no_harm() -> None:
    assert parse_pool("\n" + text(HEADER, REPLY).replace("\n", "\r\n\r\n")) == parse_pool(text(HEADER, REPLY))


def test_tokens_may_be_unknown() -> None:
    unknown = dict.fromkeys(("model", "finish_reason", "prompt_tokens", "completion_tokens", "latency_s"))
    assert parse_pool(text(HEADER, REPLY | unknown)).replies[0].prompt_tokens is None
    assert (
        parse_pool(text(HEADER, {key: value for key, value in REPLY.items() if key not in unknown}))
        .replies[0]
        .latency_s
        is None
    )


BROKEN = [
    ("", 1, "header", "a JSON object"),
    ("[1]", 1, "line", "one JSON object"),
    ("{", 1, "line", "one JSON object"),
    ("[" * 100_000, 1, "line", "one JSON object"),
    (text(HEADER | {"format": "pool"}), 1, "format", "'warpsmith-pool'"),
    (text(HEADER | {"version": 2}), 1, "version", "1"),
    (text(HEADER | {"version": True}), 1, "version", "1"),
    (text(without(HEADER, "version")), 1, "version", "1"),
    (text(HEADER | {"op": ""}), 1, "op", "text of 1 to 128 characters"),
    (text(HEADER | {"op": 7}), 1, "op", "text of 1 to 128 characters"),
    (text(without(HEADER, "target")), 1, "target", "text of 1 to 64"),
    (text(HEADER | {"op_digest": "A" * 64}), 1, "op_digest", "64 lower-case hexadecimal digits"),
    (text(HEADER | {"recorded_at": -1}), 1, "recorded_at", "seconds, 0 or more"),
    (text(HEADER | {"recorded_at": True}), 1, "recorded_at", "seconds, 0 or more"),
    (text(HEADER | {"policy": []}), 1, "policy", "a JSON object"),
    (text(HEADER | {"policy": {"a": "\x00"}}), 1, "policy", "without NUL"),
    (text(HEADER | {"budget": {"\ud800": 1}}), 1, "budget", "without NUL or lone surrogates"),
    (text(HEADER).replace('"op": ', '"op": "twice", "op": '), 1, "line", "each key once"),
    (text(HEADER | {"colour": 1}), 1, "colour", "no such field"),
    (text(HEADER).replace("1700000000.0", "NaN"), 1, "line", "one JSON object"),
    (text(HEADER).replace("1700000000.0", "1e999"), 1, "recorded_at", "seconds, 0 or more"),
    (text(HEADER, REPLY | {"kind": "chat"}), 2, "kind", "one of reflect, ideate, code, repair"),
    (text(HEADER, REPLY | {"request": "b"}), 2, "request", "64 lower-case hexadecimal digits"),
    (text(HEADER, REPLY | {"ordinal": -1}), 2, "ordinal", "a whole number, 0 or more"),
    (text(HEADER, REPLY | {"ordinal": 1.0}), 2, "ordinal", "a whole number, 0 or more"),
    (text(HEADER, REPLY | {"prompt_tokens": "12"}), 2, "prompt_tokens", "a whole number"),
    (text(HEADER, REPLY | {"reply": "a\x00"}), 2, "reply", "without NUL"),
    (text(HEADER, without(REPLY, "reply")), 2, "reply", "text of 0 to"),
    (text(HEADER, REPLY | {"note": 1}), 2, "note", "no such field"),
    (text(HEADER, REPLY, REPLY), 3, "request", "line 2 already answers this one"),
]


@pytest.mark.parametrize(("broken", "line", "field", "expected"), BROKEN)
def test_a_broken_pool_names_line_field_found_and_expected(broken: str, line: int, field: str, expected: str) -> None:
    with pytest.raises(PoolError) as caught:
        parse_pool(broken)
    error = caught.value
    assert (error.line, error.field) == (line, field)
    assert expected in error.expected
    assert str(error).startswith(f"line {line}, {field}: found ")


def test_summaries() -> None:
    idea = {"title": "One pass", "technique": "fusion"}
    assert summary("reflect", None, 0) == "lessons of the rounds so far"
    assert summary("ideate", None, 0) == "ideas on the reference"
    assert summary("ideate", idea, 0) == "ideas on 'One pass' (fusion)"
    assert summary("code", idea, 1) == "code 'One pass' (fusion), variant 1"
    assert summary("code", None, 2) == "code without an idea, variant 2"
    assert summary("repair", None, 0) == "repair without an idea, variant 0"


def storable(least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), min_size=least, max_size=most)


DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNTS = st.none() | st.integers(0, 2**31 - 1)
SECONDS = st.floats(0, 1e11)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable(0, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable(0, 5), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(storable(0, 10), VALUES, max_size=4)
POOLS = st.builds(
    Pool,
    st.builds(
        PoolHeader,
        storable(1, 128),
        DIGESTS,
        storable(1, 64),
        storable(1, 16),
        storable(1, 128),
        SECONDS,
        storable(1, 64),
        DOCUMENTS,
        DOCUMENTS,
    ),
    st.lists(
        st.builds(
            PoolReply,
            DIGESTS,
            st.integers(0, 3),
            st.sampled_from(KINDS),
            storable(0, 40),
            storable(0, 60),
            st.none() | storable(0, 32),
            st.none() | storable(0, 40),
            COUNTS,
            COUNTS,
            st.none() | SECONDS,
        ),
        max_size=4,
        unique_by=lambda reply: (reply.request, reply.ordinal),
    ).map(tuple),
)


@given(POOLS)
def test_what_is_written_is_read_back(pool: Pool) -> None:
    written = dump_pool(pool)
    assert parse_pool(written) == pool
    assert len(written.splitlines()) == 1 + len(pool.replies)
    assert parse_pool(written).digest == pool.digest


@given(
    st.text()
    | st.lists(st.sampled_from([json.dumps(HEADER), json.dumps(REPLY), "{}", "null", "\n", "x"]), max_size=5).map(
        "\n".join
    )
)
def test_any_text_is_read_or_refused(anything: str) -> None:
    with suppress(PoolError):
        assert parse_pool(anything).header.op
