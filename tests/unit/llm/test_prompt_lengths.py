"""Requests stay short: at most 5,000 tokens for ideas and 6,000 for code, of the op and the candidates of the tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import prompt_scenarios, prompt_scenarios_gpu
from warpsmith import prompts
from warpsmith.workers.llm.base import approximate_tokens
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import RequestContext, build

SCENARIOS = prompt_scenarios.scenarios() | prompt_scenarios_gpu.scenarios()
MOST = {"ideate": 5_000, "reflect": 5_000, "code": 6_000, "repair": 5_000}


def tokens(context: RequestContext) -> int:
    """The tokens of a request, a re-ask left out."""
    return approximate_tokens(sum(len(message["content"]) for message in build(context).messages[:2]))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_no_request_is_longer_than_its_kind_may_be(name: str) -> None:
    assert tokens(SCENARIOS[name]) <= MOST[SCENARIOS[name].kind]


@pytest.mark.parametrize("language", ["cuda", "triton"])
@pytest.mark.parametrize("avoid", [("fusion",), ("fusion", "compute", "memory_access")])
def test_a_restart_on_a_gpu_is_no_longer(language: str, avoid: tuple[str, ...]) -> None:
    parent = SCENARIOS["ideate_cuda"]
    restart = replace(
        parent,
        parent=None,
        best=parent.best or parent.parent,
        ledger=prompt_scenarios.LEDGER,
        avoid=avoid,
        asked=1,
        language=language,
        exemplars=prompt_scenarios.EXEMPLARS,
    )
    assert tokens(restart) <= MOST["ideate"]


def test_of_several_kernels_only_the_one_to_build_on_is_shown_whole() -> None:
    parent, best = SCENARIOS["ideate_cuda"].parent, SCENARIOS["ideate_cuda"].best
    assert parent is not None
    assert best is not None

    def long(node: NodeFacts, seq: int) -> NodeFacts:
        return replace(node, seq=seq, source="\n".join(f"def part_{seq}_{number}(): ..." for number in range(400)))

    shown, others = long(parent, 1), (long(best, 2), long(best, 3))
    context = replace(SCENARIOS["ideate_cuda"], parent=shown, best=others[0], other=others[1], leads_on=("decode",))
    assert tokens(context) <= MOST["ideate"] + approximate_tokens(len(shown.source))


def test_a_restart_tells_of_the_best_by_its_idea_and_its_figures() -> None:
    restart = SCENARIOS["ideate_restart"]
    text = build(restart).messages[1]["content"]
    assert restart.best is not None
    assert restart.best.source.strip() not in text
    assert "## The best so far (#7)" in text
    assert "What the judge found:" in text


def test_the_first_sentence_of_advice_stands_by_itself() -> None:
    for play in prompts.playbook():
        for device in ("cpu", "cuda"):
            found = play.first(device)
            assert found.endswith(".")
            assert not found.endswith("..")
            assert 20 < len(found) <= 260, found
