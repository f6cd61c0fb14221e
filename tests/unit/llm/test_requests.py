"""Requests: an identity that holds on any machine, re-asks, the ledger; prices; model documents."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policies import recording
from tests.kinds import nightly_but
from tests.support.prompt_scenarios import BEST, FAILING, IDEA, LEDGER, OTHER_IDEA, PARENT, SPEC, context, op, workloads
from warpsmith.kernels_db.spec.op import SpecError, Target
from warpsmith.kernels_db.store.pool_file import parse_pool
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.prompt.requests import (
    RequestContext,
    build,
    idea_text,
    identity,
    ledger_entry,
    ledger_lines,
    reask,
)
from warpsmith.workers.llm.providers.cost import PriceError, Prices
from warpsmith.workers.llm.providers.factory import check_model
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.llm.reply.parsing import MAX_REASKS

KINDS = ["reflect", "ideate", "code", "repair"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_measured_enters_the_identity(kind: str) -> None:
    here = context(kind)
    there = replace(
        here,
        attempt_id="at_2",
        target=Target.parse("cpu:aarch64"),
        baselines=None,
        best=None,
        ledger=(),
        parent=replace(PARENT, seq=99, verdict=None, idea=None),
        ideas=2,
        variants=5,
        workloads=here.workloads[:1],
    )
    assert identity(here) == identity(there)
    assert build(here).messages != build(there).messages


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("ideate", {"parent": None}),
        ("ideate", {"parent": BEST}),
        ("ideate", {"asked": 1}),
        ("ideate", {"language": "triton"}),
        ("ideate", {"target": Target.parse("cuda:sm_90")}),
        ("ideate", {"op": op(SPEC.replace("rms_norm(residual", "rms_norm(residual * 2"))}),
        ("reflect", {"parent": None}),
        ("reflect", {"asked": 2}),
        ("reflect", {"round": 3}),
        ("code", {"idea": IDEA}),
        ("code", {"variant": 0}),
        ("code", {"parent": BEST}),
        ("repair", {"failing": replace(FAILING, source_digest="d" * 64)}),
    ],
)
def test_what_is_asked_enters_the_identity(kind: str, changes: dict[str, Any]) -> None:
    assert identity(context(kind)) != identity(replace(context(kind), **changes))


def test_the_kinds_have_different_identities() -> None:
    assert len({identity(context(kind)) for kind in KINDS}) == len(KINDS)


def test_blanks_do_not_make_another_idea() -> None:
    assert idea_text(IDEA) == idea_text({**IDEA, "mechanism": IDEA["mechanism"].replace("\n", "  \n ")})
    assert idea_text(IDEA) != idea_text(OTHER_IDEA)


def test_the_identity_is_pinned() -> None:
    """Recorded pools depend on it: a change here makes every one of them unusable."""
    pinned = {kind: identity(context(kind))[:16] for kind in KINDS}
    assert pinned == PINNED


POOLS = sorted(Path("examples/pools").rglob("*.jsonl"))

PINNED = {
    "reflect": "8f1da378aab78795",
    "ideate": "898542a7c8bc243d",
    "code": "2d799fa15a0c13b0",
    "repair": "b8db8f2e1ad2bf0c",
}


@pytest.mark.parametrize("path", nightly_but(POOLS[::3].__contains__, POOLS), ids=lambda path: path.stem)
def test_a_shipped_pool_is_found_again_and_can_be_read(path: Path) -> None:
    """Its requests are keyed by the parents' digests, so another digest would lose all rounds but the first.

    Repairs of stored kernels are found where a search starts from those: their parents are in no pool.
    """
    assert bool(recording.load(path, None).lost) == (path.parent.name == "repairs")
    replies = parse_pool(path.read_text(encoding="utf-8")).replies
    for recorded in replies:
        reply = ModelReply(recorded.reply, None, recorded.finish_reason, None, None, None, 0.0)
        try:
            assert parsing.ideas(reply, 32) if recorded.kind == "ideate" else parsing.code(reply)
        except parsing.Unreadable:
            assert any(each.request == recorded.request and each.ordinal > recorded.ordinal for each in replies), (
                "it was not asked again"
            )


def test_a_re_ask_shares_the_identity_and_counts_up() -> None:
    first = context("code")
    again = reask(first, "no code here", "There is no fenced code block.")
    request = build(again)
    assert (request.identity, request.ordinal) == (identity(first), 1)
    assert [message["role"] for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[:2] == build(first).messages
    assert "no code here" in request.messages[2]["content"]
    assert "> There is no fenced code block." in request.messages[3]["content"]
    assert build(reask(again, "", "The reply is empty.")).ordinal == 2 == MAX_REASKS


def test_lessons_are_told_and_do_not_make_another_request() -> None:
    told = context("ideate", lessons=({"lesson": "Stores\nbind", "evidence": "#7"},), round=2)
    assert identity(told) == identity(context("ideate"))
    assert "> - Stores\n> bind (#7)" in build(told).messages[1]["content"]
    assert "rounds so far taught" not in build(context("ideate")).messages[1]["content"]


def test_an_empty_reply_is_not_repeated_and_a_long_one_is_cut() -> None:
    empty = build(reask(context("ideate"), " \n", "The reply is empty."))
    assert [message["role"] for message in empty.messages] == ["system", "user", "user"]
    long = build(reask(context("ideate"), "x" * 100_000, "No list."))
    assert len(long.messages[2]["content"]) < 7_000


def test_a_missing_part_is_named() -> None:
    with pytest.raises(ValueError, match="failing: found None"):
        build(replace(context("repair"), failing=None))


def test_code_can_be_asked_for_without_an_idea() -> None:
    """A policy that switches ideas off: what is asked is the op, the parent and the variant."""
    bare = context("code", idea=None)
    request = build(bare)
    assert request.summary == "code without an idea, variant 1"
    assert request.identity == identity(replace(bare, best=None, ledger=(), variants=7))
    others = [replace(bare, variant=0), replace(bare, parent=None), replace(bare, parent=BEST), context("code")]
    assert len({request.identity, *map(identity, others)}) == 5
    assert "idea" not in request.messages[1]["content"].split("## Answer")[1]
    assert "The idea to realise" not in request.messages[1]["content"]


def test_a_candidate_without_an_idea_has_its_line_in_the_ledger() -> None:
    entry = ledger_entry(seq=4, idea=None, verdict="accepted", gate="time", score=1.5, reason=None)
    assert ledger_lines((entry,)) == ["[no idea] code #4: 1.50x"]
    assert build(context("ideate", parent=replace(PARENT, idea=None))).summary == "ideas on 'code #3' (no idea)"
    assert build(context("repair", idea=None)).summary == "repair without an idea, variant 0"


def test_summaries_name_the_request() -> None:
    assert build(context("ideate")).summary == "ideas on 'One pass per row, row kept in L1' (fusion)"
    assert build(context("ideate", parent=None)).summary == "ideas on the reference"
    assert build(context("reflect")).summary == "lessons of the rounds so far"
    assert build(context("code")).summary == "code 'Streaming stores for y' (memory_access), variant 1"
    assert build(context("repair")).summary == "repair 'One pass per row, row kept in L1' (fusion), variant 0"


def test_the_ledger_joins_the_variants_of_an_idea() -> None:
    lines = ledger_lines(LEDGER)
    assert len(lines) == 3
    assert lines[0].startswith("[compute] Eight accumulators: 1.12x (62 %")
    assert ledger_lines(tuple(reversed(LEDGER))) == lines


def test_a_ledger_entry_comes_from_a_nodes_columns() -> None:
    entry = ledger_entry(seq=4, idea=IDEA, verdict="rejected", gate="compile", score=None, reason="line 3:\n no")
    assert (entry.outcome, entry.cause, entry.technique) == ("rejected at compile", "line 3: no", "fusion")
    right = {"seq": 4, "idea": IDEA, "verdict": "accepted", "gate": "time", "score": 1.5, "reason": "right everywhere"}
    assert ledger_entry(**right, ci_low=1.41, ci_high=1.6).cause == "1.41 to 1.60"
    assert ledger_entry(**right).cause == ""
    timed = ledger_entry(**right, ci_low=1.41, ci_high=1.6, times=[("decode", 4.9, 1.143), ("prefill", 11_900.0, 2.0)])
    assert timed.cause == "1.41 to 1.60; decode 4.90 us, 1.14x; prefill 11.9 ms, 2.00x"
    built = {"kernels": [{"name": "k", "registers": 40, "spills": 8, "shared": 0}]}
    assert ledger_entry(**right, built=built).cause == "`k` 40 registers, 8 bytes spilled"
    assert ledger_lines((timed,)) == [f"[fusion] {IDEA['title']}: 1.50x ({timed.cause})"]


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_reply_can_be_asked_again(reply: str, problem: str) -> None:
    request = build(reask(context("code"), reply, problem))
    assert request.ordinal == 1


def test_hold_out_workloads_never_reach_a_context_s_prompt() -> None:
    assert any(workload["role"] == "holdout" for workload in workloads(op()))
    for kind in KINDS:
        assert all("secret_shape" not in message["content"] for message in build(context(kind)).messages)


def test_a_context_is_a_plain_value() -> None:
    assert RequestContext.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert context("code") == context("code")


# Prices


def test_shipped_prices_and_names() -> None:
    prices = Prices.load()
    assert prices.cost("gpt-5", 1_000_000, 1_000_000) == pytest.approx(11.25)
    assert prices.cost("gpt-5-2025-08-07", 1_000_000, 0) == prices.cost("openai/gpt-5", 1_000_000, 0)
    assert prices.cost("gpt-5", 1_000_000, 0, cached=2_000_000) == pytest.approx(0.125)
    assert prices.cost("gpt-5-unheard-of", 1, 1) is None
    assert prices.cost(None, 1, 1) is None
    assert prices.cost("gpt-5", None, 1) is None


def test_a_users_prices_stand_over_the_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('["gpt-5"]\nprompt = 2\ncompletion = 3.5\n["mine"]\nprompt = 0\ncompletion = 0\n')
    prices = Prices.load(path)
    assert prices.cost("gpt-5", 1_000_000, 1_000_000, cached=500_000) == pytest.approx(5.5)
    assert prices.cost("mine", 10, 10) == 0
    assert prices.cost("gpt-4o", 1_000_000, 0) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not TOML"),
        ("a = 1", '["a"]: found a number, expected a table'),
        ('key = "sk-0123"', '["key"]: found a string, expected a table'),
        ('["a"]\nprompt = 1', '["a"].completion: missing'),
        ('["a"]\nprompt = -98765\ncompletion = 1', '["a"].prompt: found a number out of range, expected US dollars'),
        ('["a"]\nprompt = 98765432109\ncompletion = 1', '["a"].prompt: found a number out of range'),
        ('["a"]\nprompt = "sk-0123"\ncompletion = 1', '["a"].prompt: found a string, expected US dollars'),
        ('["a"]\nprompt = ["sk-0123"]\ncompletion = 1', '["a"].prompt: found an array'),
        ('["a"]\nprompt = {key = "sk-0123"}\ncompletion = 1', '["a"].prompt: found a table'),
        ('["a"]\nprompt = 2026-11-21\ncompletion = 1', '["a"].prompt: found a date or time'),
        ('["a"]\nprompt = nan\ncompletion = 1', '["a"].prompt: found a number out of range'),
        ('["a"]\nprompt = true\ncompletion = 1', '["a"].prompt: found a boolean'),
        ('["a"]\nprompt = 1\ncompletion = 1\nprice = "sk-0123"', '["a"].price: unknown field'),
        ('["a"]\nprompt = sk-0123\ncompletion = 1', "not TOML"),
    ],
)
def test_a_bad_price_file_is_refused_and_not_quoted(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PriceError) as caught:
        Prices.load(path)
    assert problem in str(caught.value)
    assert not re.search(r"sk-|0123|9876|2026", str(caught.value))


def test_a_missing_price_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match=r"none\.toml: cannot be read"):
        Prices.load(tmp_path / "none.toml")


# Model documents


@pytest.mark.parametrize(
    "document",
    [
        {"provider": "openai"},
        {"provider": "openai", "model": "gpt-5", "base_url": "http://localhost:8000/v1"},
        {"provider": "openai", "model": None, "base_url": None},
        {"provider": "replay", "pool": "pl_1"},
        {"provider": "agent"},
    ],
)
def test_good_model_documents(document: dict[str, Any]) -> None:
    check_model(document)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "model.provider"),
        ({"provider": "llama"}, "model.provider"),
        ({"provider": ["openai"]}, "model.provider"),
        ({"provider": "replay"}, "model.pool"),
        ({"provider": "replay", "pool": ""}, "model.pool"),
        ({"provider": "replay", "pool": 3}, "model.pool"),
        ({"provider": "agent", "pool": " "}, "model.pool"),
        ({"provider": "agent", "model": "gpt"}, "model.model"),
        ({"provider": "openai", "api_key": "sk-1"}, "model.api_key"),
        ({"provider": "openai", "model": " "}, "model.model"),
        ({"provider": "openai", "base_url": "localhost:8000"}, "model.base_url"),
        ({"provider": "openai", "base_url": "file:///etc/passwd"}, "model.base_url"),
        ({"provider": "openai", "base_url": "http://user:word@host/v1"}, "model.base_url"),
        ({"provider": "openai", "base_url": "http://[::1/v1"}, "model.base_url"),
        ({"provider": "openai", "base_url": "http://host:99999/v1"}, "model.base_url"),
    ],
)
def test_bad_model_documents_name_the_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_model(document)
    assert caught.value.field == field
    assert "sk-1" not in str(caught.value)
