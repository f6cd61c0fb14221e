"""What a runner says of its failure, which may be anything: the fault that becomes of it always fits into a verdict."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.gates.verdict import json_safe
from warpsmith.workers.judge.machine.channel import MAX_MESSAGE
from warpsmith.workers.judge.runner.commands import LONGEST_TEXT
from warpsmith.workers.judge.runner.faults import RunnerFault, ended, reported

FIELDS = ("type", "kind", "message", "trace", "found", "expected")


def carried(error: object) -> RunnerFault:
    """The fault of an error that came as a message, after the way that its words go: into a verdict and out as JSON."""
    fault = reported("candidate", json.loads(json.dumps(error)))
    document = json_safe({"kind": fault.kind, "message": str(fault), **fault.details})
    assert len(json.dumps(document)) < 6 * LONGEST_TEXT * (len(FIELDS) + 1)
    return fault


def nested(depth: int, opened: str = "[", closed: str = "]") -> Any:
    return json.loads(opened * depth + "0" + closed * depth)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("depth", [2, 600])
@pytest.mark.parametrize("contract", [False, True])
def test_a_forged_error_that_nests_becomes_text(name: str, depth: int, contract: bool) -> None:
    error = {"type": "ContractError", "kind": "shape", "message": "x"} if contract else {"type": "ValueError"}
    for value in (nested(depth), nested(depth, '{"x":', "}")):
        fault = carried(error | {name: value})
        assert fault.kind in ("raises", "shape")
        if name in ("found", "expected"):
            assert fault.details[name] == json.dumps(value)[:LONGEST_TEXT]


def test_what_is_nested_as_deeply_as_it_can_be_read_is_a_fault() -> None:
    """A value that JSON reads and does not write is none that Python must fall over."""
    read = 0
    for depth in range(700, 1000):
        try:
            value = nested(depth)
        except RecursionError:
            break
        read += 1
        for name in FIELDS:
            reported("candidate", {"type": "ContractError", name: value})
            reported("candidate", {"type": "ValueError", name: value})
    assert read


def test_what_an_honest_runner_says_stays_as_it_is() -> None:
    for found, expected in ((3, 2), ([2, 4], [2, 5]), ("float32", "float16"), (None, "def run(...)"), ([], [1.5])):
        error = {"type": "ContractError", "kind": "shape", "message": "said", "found": found, "expected": expected}
        fault = carried(error)
        assert (fault.kind, str(fault), fault.details) == ("shape", "said", {"found": found, "expected": expected})
    assert carried({"type": "ValueError", "message": "m", "trace": "t"}).details == {"log": "t"}


def test_a_long_list_becomes_the_beginning_of_its_text() -> None:
    found = list(range(MAX_MESSAGE // 8))
    fault = carried({"type": "ContractError", "kind": "shape", "message": "x", "found": found})
    assert fault.details["found"] == json.dumps(found)[:LONGEST_TEXT]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES) | VALUES)
def test_whatever_a_runner_says_it_is_a_fault(error: object) -> None:
    assert carried(error).kind in ("raises", "protocol", "memory", "crash", "outputs", "shape", "dtype")


@pytest.mark.parametrize(("code", "closing", "said"), [
    (-signal.SIGSEGV, True, True), (-signal.SIGSEGV, False, False), (-signal.SIGBUS, True, False), (3, True, False),
])  # fmt: skip
def test_a_killed_process_is_told_of_closed_buffers_where_they_can_be_the_cause(
    code: int, closing: bool, said: bool
) -> None:
    fault = ended("candidate", code, "", closing=closing)
    assert fault.kind == "crash"
    assert ("`run` has returned" in str(fault)) is said
