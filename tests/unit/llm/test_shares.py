"""Several models in one search: the documents, and which model a request goes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.llm.providers.factory import check_model
from warpsmith.workers.llm.providers.shares import KINDS, Choice, choose, parse_choices, serving

BIG = {"model": "big", "for": ["ideate", "reflect"]}
SMALL = {"model": "small", "base_url": "http://localhost:8000/v1", "share": 3, "for": ["code", "repair"]}


def test_the_simple_form_is_one_choice() -> None:
    assert parse_choices({"provider": "openai"}) == (Choice(None),)
    assert parse_choices({"provider": "openai", "model": "m", "base_url": "http://h/v1"}) == (
        Choice("m", "http://h/v1"),
    )


def test_models_serve_the_kinds_they_are_for() -> None:
    choices = parse_choices({"provider": "openai", "models": [BIG, SMALL]})
    for kind, model in [("ideate", "big"), ("reflect", "big"), ("code", "small"), ("repair", "small")]:
        assert choose(choices, kind, "a" * 64, 0).model == model


def test_reflection_goes_to_those_that_have_ideas_where_nobody_else_is_named() -> None:
    choices = parse_choices({"provider": "openai", "models": [BIG | {"for": ["ideate"]}, SMALL]})
    assert [choice.model for choice in serving(choices, "reflect")] == ["big"]


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=5), st.sampled_from(KINDS), st.text("0123456789abcdef"))
def test_the_choice_depends_on_the_request_alone(shares: list[float], kind: str, identity: str) -> None:
    choices = [Choice(f"m{number}", share=share) for number, share in enumerate(shares)]
    first = choose(choices, kind, identity, 0)
    assert first in choices
    assert choose(list(choices), kind, identity, 0) == first


def test_requests_are_shared_out_as_the_shares_say() -> None:
    choices = [Choice("one", share=1), Choice("three", share=3)]
    drawn = [choose(choices, "code", f"{number:064x}", 0).model for number in range(4000)]
    assert drawn.count("three") / len(drawn) == pytest.approx(0.75, abs=0.03)
    again = [choose(choices, "code", f"{number:064x}", 1).model for number in range(4000)]
    assert 0.3 < sum(a != b for a, b in zip(drawn, again, strict=True)) / len(drawn) < 0.45, "a re-ask is drawn anew"


@pytest.mark.parametrize(
    ("models", "field"),
    [
        ([], "model.models"),
        ("gpt-5", "model.models"),
        ([BIG], "model.models"),
        ([BIG, {"model": "small", "for": ["code"]}], "model.models"),
        (["gpt-5"], r"model.models\[0\]"),
        ([{"share": 1}], r"model.models\[0\].model"),
        ([{"model": "m", "share": 0}], r"model.models\[0\].share"),
        ([{"model": "m", "share": True}], r"model.models\[0\].share"),
        ([{"model": "m", "share": "much"}], r"model.models\[0\].share"),
        ([{"model": "m", "share": float("nan")}], r"model.models\[0\].share"),
        ([{"model": "m", "for": []}], r"model.models\[0\].for"),
        ([{"model": "m", "for": ["prose"]}], r"model.models\[0\].for"),
        ([{"model": "m", "for": [1]}], r"model.models\[0\].for"),
        ([{"model": "m", "base_url": "ftp://h"}], r"model.models\[0\].base_url"),
        ([{"model": "m", "base_url": "http://me:secret@h/v1"}], r"model.models\[0\].base_url"),
        ([{"model": "m"}] * 33, "model.models"),
    ],
)
def test_a_bad_document_names_its_field(models: Any, field: str) -> None:
    with pytest.raises(SpecError, match=rf"^{field}: ") as caught:
        check_model({"provider": "openai", "models": models})
    assert "secret" not in str(caught.value)


def test_a_kind_that_nobody_serves_is_named() -> None:
    with pytest.raises(SpecError, match=r"^model\.models: found .*ideate, reflect.*, expected a model for code too"):
        check_model({"provider": "openai", "models": [BIG]})


def test_a_key_is_no_part_of_a_document() -> None:
    with pytest.raises(SpecError, match=r"models\[0\]\.api_key") as caught:
        check_model({"provider": "openai", "models": [{"model": "m", "api_key": "sk-secret"}]})
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("beside", [{"model": "m"}, {"base_url": "http://h/v1"}])
def test_the_two_forms_do_not_mix(beside: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="beside models"):
        check_model({"provider": "openai", "models": [{"model": "m"}], **beside})
