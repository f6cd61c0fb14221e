"""What a search will cost: the play of its policy, the weight of its prompts, prices that are known or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.estimates import measure
from tests import REPOSITORY
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.workers.llm.bound import Figures, bound
from warpsmith.workers.llm.estimate import Estimate, estimate, one_line
from warpsmith.workers.llm.forecast import MOST_NODES, CallSize, Play
from warpsmith.workers.llm.providers.cost import PriceError
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.policy import POLICIES, parse_policy
from warpsmith.workers.settings import Settings

SIZES = {kind: CallSize(3000, 1000, 0.01) for kind in ("ideate", "reflect", "code", "repair")}
EXAMPLES = REPOSITORY / "examples"


def play(name: str = "idea_beam", *, budget: dict[str, Any] | None = None, **parameters: Any) -> Play:
    return Play(parse_policy({"name": name, **parameters}), parse_budget(budget or {}), SIZES).run()


def worst(
    name: str = "idea_beam",
    *,
    budget: dict[str, Any] | None = None,
    seeds: int = 0,
    together: int | None = 1,
    **parameters: Any,
) -> Figures:
    return bound(parse_policy({"name": name, **parameters}), parse_budget(budget or {}), SIZES, seeds, together)


def of(
    op: str = "layer_norm", *, model: dict[str, Any], budget: dict[str, Any] | None = None, **values: Any
) -> Estimate:
    return estimate(
        load_op(EXAMPLES / f"{op}.yaml"),
        Target.parse("cpu:x86_64"),
        language="cpp",
        policy={"name": "idea_beam"},
        budget=budget or {},
        model=model,
        settings=Settings(**values),
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_played_to_its_end(name: str) -> None:
    expected, most = play(name), worst(name)
    assert expected.complete
    assert 0 < expected.spend.model_calls <= most.model_calls
    assert expected.spend.candidates <= most.candidates
    assert expected.spend.model_calls == sum(expected.calls.values())
    assert expected.spend.cost_usd == pytest.approx(0.01 * expected.spend.model_calls)
    assert all(count <= most.calls[kind] for kind, count in expected.calls.items())


def test_the_worst_of_a_small_beam_by_hand() -> None:
    # One parent, one idea, one code: each of 2 rounds takes 3 calls for ideas, 3 for code and 3 for its one repair.
    small: dict[str, Any] = {
        "beam": 1,
        "diverse": 0,
        "ideas": 1,
        "codes": 1,
        "repairs": 1,
        "rounds": 2,
        "max_rounds": 2,
        "joins": False,
    }
    found = worst(**small)
    assert found.calls == {"ideate": 6, "code": 6, "repair": 6}
    assert (found.model_calls, found.candidates) == (18, 4), "joins are off"
    assert (found.prompt_tokens, found.completion_tokens, found.tokens) == (54_000, 18_000, 72_000)
    assert found.cost_usd == pytest.approx(0.18)
    # A join a round is written without a call.
    joining = worst(**small | {"joins": True})
    assert (joining.model_calls, joining.candidates) == (18, 6)
    # A seed is one more parent of the first round, with its idea and that idea's code, and may be repaired itself.
    seeded = worst(**small, seeds=1)
    assert seeded.calls == {"ideate": 9, "code": 9, "repair": 12}
    assert (seeded.model_calls, seeded.candidates) == (30, 8)
    # 3 candidates: 9 calls to write them, whether they are first codes or repairs, and the ideas.
    capped = worst(**small, budget={"candidates": 3})
    assert capped.calls == {"ideate": 6, "code": 6, "repair": 6}
    assert (capped.model_calls, capped.candidates) == (15, 3)


def test_the_dearest_kinds_are_bounded_first() -> None:
    sizes = SIZES | {"repair": CallSize(1, 1, 5.0), "code": CallSize(1, 1, 1.0)}
    policy = parse_policy({"name": "greedy", "rounds": 2, "repairs": 1})
    found = bound(policy, parse_budget({"candidates": 3}), sizes, 0, 1)
    # 9 calls for code in all, of which at most 6 are repairs; 6 for ideas.
    assert found.cost_usd == pytest.approx(6 * 5.0 + 6 * 1.0 + 3 * 0.01)


@pytest.mark.parametrize(
    ("limit", "value", "one_more"),
    [("model_calls", 10, 0), ("candidates", 7, 0), ("tokens", 50_000, 4000), ("cost_usd", 0.205, 0.01)],
)
def test_caps_are_met_to_one_call(limit: str, value: float, one_more: float) -> None:
    found = play(budget={limit: value})
    assert 0 < getattr(found.spend, limit) <= value + one_more
    assert limit in found.reason


@pytest.mark.parametrize(
    ("limit", "value", "under_way"),
    [("model_calls", 10, 0), ("candidates", 7, 0), ("tokens", 50_000, 3 * 4000), ("cost_usd", 0.205, 0.03)],
)
def test_the_worst_of_a_cap_is_the_cap_and_what_is_under_way(limit: str, value: float, under_way: float) -> None:
    assert getattr(worst(budget={limit: value}), limit) == pytest.approx(value + under_way)
    assert getattr(worst(budget={limit: value}, together=4), limit) == pytest.approx(value + 4 * under_way)


def test_where_nothing_limits_the_calls_under_way_a_cap_of_tokens_bounds_nothing() -> None:
    assert worst(budget={"tokens": 50_000}, together=None).tokens == worst().tokens


def test_what_is_too_large_to_be_played_says_so() -> None:
    found = play(beam=64, ideas=32, codes=16, rounds=100, max_rounds=100)
    assert not found.complete
    assert len(found.nodes) < 3 * MOST_NODES


@settings(max_examples=2, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_no_search_exceeds_its_worst(seed: int) -> None:
    """Whatever the model answers: `benchmarks.estimates` has the searches, with their rows and steps."""
    for found in measure(searches=4, seed=seed):  # of one database: its migrations take as long as a search
        assert found.exceeded() == [], f"{found.policy} {found.budget} took {found.actual}, at worst {found.worst}"


def test_prompts_of_the_op_are_weighed() -> None:
    small, large = (of(op, model={"provider": "agent"}) for op in ("add_relu", "attention"))
    assert (
        large.expected.prompt_tokens / large.expected.model_calls
        > small.expected.prompt_tokens / small.expected.model_calls
    )
    assert small.worst.tokens > small.expected.tokens
    assert small.expected.cost_usd == small.worst.cost_usd == 0.0


def test_a_known_price() -> None:
    found = of(model={"provider": "openai", "model": "gpt-5"})
    expected = found.expected
    assert expected.cost_usd == pytest.approx((expected.prompt_tokens * 1.25 + expected.completion_tokens * 10) / 1e6)
    assert found.unpriced == ()
    assert f"${expected.cost_usd:,.2f}" in one_line(found)


@pytest.mark.parametrize(
    ("budget", "most"), [({}, 300.0), ({"sweep_seconds": 90}, 90.0), ({"sweep_seconds": 900, "gpu_seconds": 45}, 45.0)]
)
def test_sweeps_are_bounded_by_candidates_and_by_the_budget(budget: dict[str, float], most: float) -> None:
    found = of(model={"provider": "agent"}, budget={"candidates": 5, **budget})
    assert found.worst.candidates == 5
    assert found.sweep_seconds == most
    assert f"at most {most:g} device seconds for sweeps" in one_line(found)


def test_shares_mix_the_prices_and_the_worst_is_the_dearest() -> None:
    both = of(model={"provider": "openai", "models": [{"model": "gpt-5"}, {"model": "gpt-5-mini", "share": 3}]})
    dear = of(model={"provider": "openai", "model": "gpt-5"})
    cheap = of(model={"provider": "openai", "model": "gpt-5-mini"})
    assert dear.expected.cost_usd is not None
    assert cheap.expected.cost_usd is not None
    assert both.expected.cost_usd == pytest.approx(0.25 * dear.expected.cost_usd + 0.75 * cheap.expected.cost_usd)
    assert both.worst.cost_usd == pytest.approx(dear.worst.cost_usd)


def test_a_model_without_a_price_has_an_unknown_cost_and_token_caps_still_hold() -> None:
    model = {"provider": "openai", "models": [{"model": "gpt-5", "for": ["ideate"]}, {"model": "local-7b"}]}
    found = of(model=model, budget={"tokens": 100_000})
    assert found.unpriced == ("local-7b",)
    assert found.expected.cost_usd is None
    assert found.worst.cost_usd is None
    assert found.expected.tokens < 120_000
    assert "cost unknown" in one_line(found)
    assert "no price for local-7b" in one_line(found)
    assert "$" not in one_line(found)


def test_a_bad_price_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[")
    with pytest.raises(PriceError, match=r"prices\.toml"):
        of(model={"provider": "openai", "model": "gpt-5"}, model_prices=path)
