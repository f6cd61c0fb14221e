"""Problem documents: their shape, their paths, and that every exception finds its problem."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from warpsmith.kernels_db.job.strict_json import count_values, expected_scalar, is_storable, walk
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors, shown
from warpsmith.kernels_db.store.db import StorageFull as DatabaseFull
from warpsmith.service.api.bodies import MOST_VALUES, check_storable, content_type, parse_json
from warpsmith.service.api.handlers import convert_error
from warpsmith.service.documents import problems
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import InvalidInput, MalformedBody, Problem, field_path


def kinds() -> list[type[Problem]]:
    """Every kind of problem there is."""
    found, pending = [], [Problem]
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending.extend(kind.__subclasses__())
    return found


def test_every_kind_has_a_type_of_its_own() -> None:
    slugs = [kind.slug for kind in kinds() if kind is not problems.InternalError]
    assert len(slugs) == len(set(slugs))


def test_the_tree_at_the_top_of_the_file_names_every_kind_with_its_status() -> None:
    tree = problems.__doc__ or ""
    for kind in kinds():
        if kind is Problem:
            continue
        lines = [line for line in tree.splitlines() if kind.__name__ in line.split()]
        assert len(lines) == 1, kind.__name__
        assert str(kind.code) in lines[0]


def test_a_document_has_the_members_of_rfc_9457() -> None:
    problem = InvalidInput.one("budget.candidates", 0, "a whole number above 0")
    response = problem.response()
    assert response.media_type == "application/problem+json"
    assert json.loads(bytes(response.body)) == {
        "type": "urn:warpsmith:problem:invalid-input",
        "title": "A field is wrong",
        "status": 422,
        "detail": "budget.candidates: found 0, expected a whole number above 0",
        "errors": [{"field": "budget.candidates", "found": 0, "expected": "a whole number above 0"}],
    }


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (("body",), "body"),
        (("body", "op", "inputs", 1, "dtype"), "op.inputs[1].dtype"),
        (("query", "limit"), "query.limit"),
        (("header", "Idempotency-Key"), "header.Idempotency-Key"),
        (("body", 3, 0), "[3][0]"),
    ],
)
def test_paths(location: tuple[int | str, ...], path: str) -> None:
    assert field_path(location) == path


def from_database(text: str) -> OperationalError:
    return OperationalError(text, {}, Exception(text))


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (DatabaseFull("full"), 507, "storage-full"),
        (from_database("locked"), 503, "database-unavailable"),
        (SpecErrors([SpecError("a", 1, "b")]), 422, "invalid-spec"),
        (SpecError("a", 1, "b"), 422, "invalid-spec"),
        (HTTPException(404), 404, "not-found"),
        (HTTPException(405, headers={"Allow": "GET"}), 405, "method-not-allowed"),
    ],
)
def test_exceptions_find_their_problem(error: Exception, status: int, slug: str) -> None:
    problem = convert_error(error)
    assert problem is not None
    assert (problem.code, problem.slug) == (status, slug)


def test_an_unknown_exception_is_no_problem() -> None:
    assert convert_error(KeyError("secret")) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(), st.lists))
def test_what_was_found_always_fits_a_json_document(value: Any) -> None:
    document = Problem("x", errors=[FieldError(field="f", found=shown(value), expected="e")]).document()
    text = json.dumps(document, allow_nan=False)
    assert len(text.encode("utf-8")) < 4000


def test_malformed_json_names_line_and_column() -> None:
    with pytest.raises(MalformedBody, match="line 2, column 7"):
        parse_json(b'{"a": 1,\n "b": x}')


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 5000, b"1" * 10000, b'{"a": 1, "a": 2}'])
def test_what_is_not_json_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_json(data)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (rb'{"a": ["x", "\u0000"]}', "a[1]"),
        (rb'{"a": "\ud800"}', "a"),
        (rb'{"\u0000": 1}', "(name)"),
        (b'{"a": 1e999}', "a"),
        (b'{"a": 9223372036854775808}', "a"),
    ],
)
def test_what_no_database_stores_is_refused_with_its_path(data: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(data)
    assert [error.field for error in caught.value.errors] == [field]


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="levels"):
        parse_json(b"[" * 80 + b"]" * 80)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def test_more_values_than_any_spec_has_are_refused() -> None:
    with pytest.raises(InvalidInput, match="values"):
        parse_json(b"[" + b",".join([b"0"] * MOST_VALUES) + b"]")
    assert len(parse_json(b"[" + b",".join([b"0"] * (MOST_VALUES - 1)) + b"]")) == MOST_VALUES - 1


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (None, ""),
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("json", "json"),
        ("; charset=utf-8", "; charset=utf-8"),
        ("a/b/c", "text/plain"),
    ],
)
def test_a_content_type_is_read_without_its_parameters(sent: str | None, found: str) -> None:
    headers = [] if sent is None else [(b"content-type", sent.encode())]
    assert content_type(Request({"type": "http", "headers": headers})) == found


any_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a\0\ud800") | st.sampled_from([2**63, -(2**63)]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\0\ud800", max_size=2), inner),
    max_leaves=20,
)


@given(any_values, st.integers(0, 5))
def test_what_is_right_is_found_so_without_its_places(document: Any, levels: int) -> None:
    right = all(
        level <= levels and (isinstance(value, dict | list) or expected_scalar(value) is None)
        for _, level, value in walk(document)
    )
    assert is_storable(document, levels) == right


@given(any_values)
def test_a_text_has_no_more_values_than_characters(document: Any) -> None:
    """So that those of a short one need not be counted."""
    assert count_values(document, 10**6) <= len(json.dumps(document, separators=(",", ":")))


@given(json_values)
def test_plain_documents_are_read_as_they_are(document: Any) -> None:
    assert parse_json(json.dumps(document).encode()) == document
    check_storable(document)


def test_a_wrong_field_or_word_of_a_body_is_answered_with_those_it_is_like() -> None:
    class Body(BaseModel, extra="forbid"):
        target: str
        level: Literal["screen", "verify"]

    document = {"taget": "cpu", "target": "cpu", "level": "verfy"}
    with pytest.raises(ValidationError) as caught:
        Body.model_validate(document)
    errors = problems.field_errors(caught.value.errors(), Body, document)
    assert [problems.sentence(error) for error in errors] == [
        "level: found 'verfy', expected 'screen' or 'verify'; did you mean verify?",
        "taget: found 'cpu', expected one of the fields target, level; did you mean target?",
    ]


def test_errors_of_the_framework_read_as_ours() -> None:
    errors = problems.field_errors(
        [
            {"type": "string_type", "loc": ("body", "target"), "msg": "Input should be a valid string", "input": 3},
            {"type": "missing", "loc": ("body", "model"), "msg": "Field required", "input": {"target": 3}},
            {"type": "extra_forbidden", "loc": ("body", "x"), "msg": "Extra inputs are not permitted", "input": 1},
        ]
    )
    assert [problems.sentence(error) for error in errors] == [
        "target: found 3, expected text",
        "model: found None, expected a value: the field is required",
        "x: found 1, expected no field of this name",
    ]
