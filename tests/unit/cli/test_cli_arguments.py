"""`--budget`, `--policy` and `--model`: from text to documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.service.cli.arguments import (
    choose_budget,
    parse_budget,
    parse_model,
    parse_policy,
    parse_sizes,
    read_model,
)
from warpsmith.service.client.errors import MISUSE, CommandError

COUNTS = st.integers(min_value=1, max_value=10**9)


@given(candidates=COUNTS, calls=COUNTS, cost=st.floats(min_value=0.01, max_value=1e6))
def test_a_budget_comes_back_as_it_was_written(candidates: int, calls: int, cost: float) -> None:
    assert parse_budget(f"candidates={candidates}, calls={calls},cost={cost!r}") == {
        "candidates": candidates,
        "model_calls": calls,
        "cost_usd": cost,
    }


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("1.5h", 5400)])
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_budget(f"time={text}") == {"wall_clock_s": seconds}


BAD_BUDGETS = (
    "candidates candidates= =3 candidates=0 cost=-1 cost=nan cost=inf time=1d candidates=1.5 candidates=3,candidates=4 "
    "sweets=3 candidates=many"
)


@pytest.mark.parametrize("text", BAD_BUDGETS.split())
def test_bad_budgets_name_the_field(text: str) -> None:
    with pytest.raises(CommandError, match=r"--budget.*: found .*, expected ") as raised:
        parse_budget(text)
    assert raised.value.code == MISUSE


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_budget, parse_policy):
        try:
            parse(text)
        except CommandError as error:
            assert "expected" in str(error)  # noqa: PT017 - either outcome is right


def test_whole_numbers_are_exact() -> None:
    assert parse_sizes("--sizes", "n=9007199254740993,m=-4,eps=1e-6,k=2.0") == {
        "n": 9007199254740993,
        "m": -4,
        "eps": 1e-6,
        "k": 2.0,
    }
    assert parse_policy("seed=9007199254740993")["seed"] == 9007199254740993


def test_policy_values_have_types() -> None:
    policy = parse_policy("beam=2,improvement=0.05,restart=false,name=other")
    assert policy == {"name": "other", "beam": 2, "improvement": 0.05, "restart": False}
    assert isinstance(policy["beam"], int)


def test_models(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text("{}")
    assert parse_model("openai", None) == {"provider": "openai"}
    assert parse_model("openai:org/model:v1", "http://localhost/v1") == {
        "provider": "openai",
        "model": "org/model:v1",
        "base_url": "http://localhost/v1",
    }
    assert parse_model("agent", None) == {"provider": "agent"}
    assert parse_model("replay:pl_01abc", None) == {"provider": "replay", "pool": "pl_01abc"}
    assert parse_model(f"replay:{pool}", None) == {"provider": "replay", "file": str(pool)}
    assert parse_model("agent:pl_01abc", None) == {"provider": "agent", "pool": "pl_01abc"}
    assert parse_model(f"agent:{pool}", None) == {"provider": "agent", "file": str(pool)}


@pytest.mark.parametrize("text", ["gpt", "replay", "replay:", "replay:no-such-file", "agent:me", ""])
def test_bad_models_say_what_there_is(text: str) -> None:
    with pytest.raises(CommandError, match=r"--model: found .* expected"):
        parse_model(text, None)


def test_only_an_openai_model_has_an_endpoint() -> None:
    with pytest.raises(CommandError, match="--base-url"):
        parse_model("agent", "http://localhost")


def test_a_model_may_be_a_document(tmp_path: Path) -> None:
    document = {"provider": "openai", "models": [{"model": "a", "share": 2}, {"model": "b"}]}
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"models": document["models"]}))
    assert read_model(path) == document
    assert parse_model(json.dumps(document), None) == document
    with pytest.raises(CommandError, match="--base-url"):
        parse_model(json.dumps(document), "http://localhost")


SECRET = "sk-proj-0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "is not JSON at line 1, column 2"),
        (SECRET, "is not JSON at line 1, column 1"),
        (f'{{"models":\n  [{SECRET}]}}', "is not JSON at line 2, column 4"),
        (f'"{SECRET}"', "holds a text"),
        (f'["{SECRET}"]', "holds a list"),
        ("{} {}", "is not JSON at line 1, column 4"),
        ("7", "holds a number"),
        ("[" * 100_000, "is not JSON that can be read"),
        ("9" * 5000, "is not JSON that can be read"),
    ],
)
def test_a_bad_model_document_is_placed_and_not_shown(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(CommandError) as caught:
        read_model(path)
    said = str(caught.value) + json.dumps(caught.value.document)
    assert f"--model-file: found '{path}, which {found}', expected a JSON object" in said
    assert SECRET[:6] not in said
    with pytest.raises(CommandError, match=r"--model-file: found .* expected a file that can be read"):
        read_model(tmp_path / "absent.json")


def test_a_model_document_on_the_command_line_is_not_shown_either() -> None:
    with pytest.raises(CommandError) as caught:
        parse_model(f'{{"api_key": {SECRET}}}', None)
    assert "--model: found 'a document, which is not JSON at line 1, column 13'" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_bytes_that_are_no_text_are_placed(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"{\xff}")
    with pytest.raises(CommandError, match=r"byte 1 of which is not UTF-8', expected a text file"):
        read_model(path)


def test_a_recorded_pool_keeps_its_limits_and_none_lifts_them() -> None:
    assert choose_budget("", {"provider": "openai"}) == choose_budget("", {"provider": "agent"}) == {"candidates": 20}
    assert choose_budget("", {"provider": "replay", "file": "x.jsonl"}) is None
    assert choose_budget("", {"provider": "agent", "pool": "pl_1"}) is None
    assert choose_budget("none", {"provider": "replay", "file": "x.jsonl"}) == {}
    assert choose_budget("calls=3", {"provider": "agent", "pool": "pl_1"}) == {"model_calls": 3}
