"""Documents that would take long to read are refused, and refused soon."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.door.bodies import BODIES
from warpsmith.kernels_db.spec import document
from warpsmith.kernels_db.spec.document import MAX_VALUES, read_document
from warpsmith.kernels_db.spec.errors import MAX_ERRORS, SpecErrors
from warpsmith.kernels_db.spec.op import load_op, parse_op
from warpsmith.service.api.submission import ADD_RELU

SPECS = [attack for attack in BODIES if attack.path in ("/v1/ops", "/v1/ops/validate")]
LONGEST_CPU_S = 10.0
"""A busy machine counts processor seconds that it gave to others: `benchmarks.door` holds the one second. Without
limits these specs took 20 s and more.
"""


@pytest.mark.parametrize("attack", SPECS, ids=lambda attack: attack.name)
def test_no_spec_takes_a_second_to_read(attack: Any) -> None:
    text = attack.make()
    refused: list[SpecErrors] = []
    started = time.thread_time()
    try:
        load_op(text)
    except SpecErrors as refusal:
        refused.append(refusal)
    assert time.thread_time() - started < LONGEST_CPU_S
    for error in refused:
        assert len(error.errors) <= MAX_ERRORS
        assert len(str(error)) < 200_000


@pytest.mark.parametrize("text", ["- 1\n" * MAX_VALUES, "[" + "1," * MAX_VALUES + "1]"])
def test_values_are_counted_in_yaml(text: str) -> None:
    with pytest.raises(SpecErrors, match=r"more values .*at most 30000 values"):
        read_document(text)


def test_what_is_too_much_is_said() -> None:
    def refusal(**fields: Any) -> str:
        with pytest.raises(SpecErrors) as caught:
            parse_op({**ADD_RELU, **fields})
        return str(caught.value)

    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 8}} for number in range(1000)]
    tensors = [{"name": f"x{number}", "shape": ["n"], "dtype": "float32"} for number in range(30)]
    assert "1000 workloads of 32 values" in refusal(workloads=workloads, inputs=tensors)
    assert "characters of text" in refusal(description="x" * 200_000)
    assert "characters of Python" in refusal(reference="#" * 300_000)
    assert "an f-string of more than 8192 characters" in refusal(reference="f'" + "{x}" * 3_000 + "'")
    assert "at most 128 items" in refusal(axes={f"a{number}": {"kind": "var"} for number in range(129)})
    assert "more than 100 errors" in refusal(workloads=[{"id": "!"} for _ in range(101)])
    assert "at most 30000 values" in refusal(init=[0] * 40_000)


LINES = st.sampled_from(
    ["a: 1", "b: [1, 2]", "c: {d: 1e-5, e: no}", "  f: x", "- 1", "  - y", "g:", "h: |", "   text",
     "'q': \"z\\n\"", "k: [", "? l", "a: 2", "m: *n", "n: &n 1", "o: !!str 1", "--- ", "p: 'open", "\tq: 1",
     "r: 2001-01-01", "# c", "s: @x", "}", ""]
)  # fmt: skip


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML is built without libyaml")
@given(st.lists(LINES, max_size=8).map("\n".join))
def test_libyaml_reads_as_pyyaml_does(text: str) -> None:
    def outcome(loader: Any) -> Any:
        try:
            return document._read_yaml(text, loader)
        except SpecErrors:
            return "refused"  # their words differ, and some places

    assert outcome(document._Loader) == outcome(document._PureLoader)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML is built without libyaml")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: x\naxes: [", "line 2, column 8"),
        ("a: 1\n b: 2", "line 2, column 3"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1"),
        ("a:\n  - &x 1\n  - *x", "line 3, column 5"),
        ("a: 1\nb: !!set {}", "line 2, column 4"),
        ("a: 'open", "line 1, column 9"),
    ],
)
def test_libyaml_names_the_places_that_pyyaml_names(text: str, place: str) -> None:
    for loader in (document._Loader, document._PureLoader):
        with pytest.raises(SpecErrors, match=place):
            document._read_yaml(text, loader)
