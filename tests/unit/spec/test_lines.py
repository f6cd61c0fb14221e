"""Errors of a spec that came as text name its lines, and what is near a wrong word."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.door.bodies import BODIES
from tests.unit.spec.specs import SPEC, spec
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.spec import lines, near_misses
from warpsmith.kernels_db.spec.basic_types import DTYPE_ALIASES
from warpsmith.kernels_db.spec.document import MAX_BYTES
from warpsmith.kernels_db.spec.errors import LONGEST_FIELD, SpecError, SpecErrors
from warpsmith.kernels_db.spec.lines import with_lines
from warpsmith.kernels_db.spec.near_misses import LONGEST_WORD, MOST_COMPARED, MOST_WORDS, one_of, suggest
from warpsmith.kernels_db.spec.op import load_op

TEXT = """# a comment
schema_version: 1
name: x
axes:
  n: {kind: vra}
inputs:
  - {name: a, shape: [n, q], dtype: fp32}
  - name: b
    "shape":
      - n
    rol: weight
outputs: [{name: y, shape: [n], dtype: float32}]
reference: |
  def run(x):
    axes: 3
targets:
  cpu:
    workloads: [{id: a, role: benhc, axes: {}}]
"""


def errors_of(text: str) -> dict[str, SpecError]:
    with pytest.raises(SpecErrors) as caught:
        load_op(text)
    return {error.field: error for error in caught.value.errors}


def test_every_wrong_field_is_told_at_once_with_its_line() -> None:
    found = {field: error.line for field, error in errors_of(TEXT).items()}
    assert found == {
        "axes.n.kind": 5,
        "inputs[0].dtype": 7,
        "inputs[0].shape[1]": 7,
        "inputs[1].dtype": 8,  # it is missing: the line of the input that lacks it
        "inputs[1].rol": 11,
        "reference": 13,
        "targets.cpu.workloads[0].role": 18,
        "workloads": None,
    }


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("axes.n.kind", "var"),
        ("inputs[0].dtype", "float32"),
        ("inputs[1].rol", "role"),
        ("targets.cpu.workloads[0].role", "bench"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_it_is_like(field: str, meant: str) -> None:
    assert errors_of(TEXT)[field].expected.endswith(f"; did you mean {meant}?")


def test_an_unknown_axis_is_answered_with_the_one_it_is_like() -> None:
    document = spec()
    document["inputs"][0]["shape"] = ["tokns", "twice"]
    error = errors_of(yaml.safe_dump(document))["inputs[0].shape[0]"]
    assert "did you mean tokens" in error.expected


def test_what_is_like_no_word_has_no_suggestion() -> None:
    document = spec()
    document["inputs"][0]["dtype"] = "quaternion"
    assert "did you mean" not in errors_of(yaml.safe_dump(document))["inputs[0].dtype"].expected


def test_json_on_several_lines_has_lines_and_on_one_line_none() -> None:
    document = spec()
    document["name"] = "two words"
    lines = json.dumps(document, indent=1).split("\n")
    assert errors_of("\n".join(lines))["name"].line == next(i for i, line in enumerate(lines, 1) if '"name"' in line)
    assert errors_of(json.dumps(document))["name"].line is None


def test_a_text_that_is_no_yaml_keeps_its_own_place() -> None:
    error = errors_of("a: [1\nb: 2\n")["document"]
    assert error.line is None
    assert "line 2" in error.found


def test_the_line_is_said_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(SpecError("inputs[1].dtype", "fp32", "another", 7)))
    assert str(error) == "inputs[1].dtype (line 7): found 'fp32', expected another"


def paths(value: object, path: str = "") -> list[str]:
    if isinstance(value, dict):
        members = [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
    elif isinstance(value, list):
        members = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return []
    return [found for below, item in members for found in (below, *paths(item, below))]


@settings(deadline=None)
@given(st.sampled_from(paths(SPEC)), st.integers(0, 5))
def test_a_line_is_where_the_field_stands_whatever_is_above(field: str, comments: int) -> None:
    text = "# above\n" * comments + yaml.safe_dump(SPEC, default_flow_style=False, sort_keys=False)
    (error,) = with_lines(SpecErrors([SpecError(field, 1, "2")]), text).errors
    assert error.line is not None
    line = text.splitlines()[error.line - 1]
    last = field.rsplit(".", 1)[-1]
    assert ("-" in line) if last.endswith("]") else (f"{last}:" in line)


def test_aliases_are_no_dtypes_and_mean_one() -> None:
    assert not DTYPE_ALIASES.keys() & DTYPE_BYTES.keys()
    assert set(DTYPE_ALIASES.values()) <= set(DTYPE_BYTES)


def test_a_suggestion_ignores_case_and_hyphens_and_very_long_words() -> None:
    assert suggest("Soft-Max", ["softmax", "soft_max"]) == "; did you mean soft_max or softmax?"
    assert suggest("x" * (LONGEST_WORD + 1), ["x" * LONGEST_WORD]) == ""
    assert suggest(3, ["three"]) == ""
    assert one_of("vra", ["const", "var"]) == "one of const, var; did you mean var?"


def test_a_document_of_many_wrong_words_has_few_of_them_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, list[str]]] = []

    def compare(word: str, names: Iterable[str], **options: Any) -> list[str]:
        compared.append((word, list(names)))
        return get_close_matches(word, names, **options)

    monkeypatch.setattr(near_misses, "get_close_matches", compare)
    (attack,) = (body for body in BODIES if "each like" in body.name)
    with pytest.raises(SpecErrors) as caught:
        load_op(attack.make())
    assert any("did you mean" in error.expected for error in caught.value.errors)
    assert 0 < len(compared) <= MOST_WORDS
    for word, names in compared:
        assert len(names) <= MOST_COMPARED
        assert all(len(each) <= LONGEST_WORD for each in (word, *names))
    compared.clear()
    with pytest.raises(SpecErrors):
        load_op(attack.make())
    assert compared  # the next document has words of its own


def test_a_name_is_found_among_many_of_other_lengths() -> None:
    known = [*("a" * 30 for _ in range(200)), "softmax"]
    assert suggest("sotfmax", known) == "; did you mean softmax?"


def test_a_long_key_above_many_items_costs_no_path_of_each() -> None:
    text = f"? {'k' * 100_000}\n: [{'1, ' * 2_000}1]\nname: 5\n"
    tracemalloc.start()
    try:
        errors = errors_of(text)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000  # the paths of all items take 200 MB
    finally:
        tracemalloc.stop()
    assert errors["name"].line == 3
    assert all(len(field) <= LONGEST_FIELD for field in errors)


def test_a_text_refused_for_its_length_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(lines, "compose", read.append)
    assert errors_of("a: 1\n" * (MAX_BYTES // 5 + 1))["document"].line is None
    assert read == []


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("a.b[0]", 2),  # the longer key
        ("a[1]", 5),
        ("a[7]", 3),
        ("a[1].x.y", 5),
        ("a[" + "9" * 5000 + "]", 3),
        ("a[x]", 3),
        ("c", None),
        ("", None),
    ],
)
def test_a_field_is_followed_as_far_as_the_text_has_it(field: str, line: int | None) -> None:
    (error,) = with_lines(SpecErrors([SpecError(field, 1, "2")]), "# keys\na.b: [1]\na:\n  - 1\n  - x: 3\n").errors
    assert error.line == line
