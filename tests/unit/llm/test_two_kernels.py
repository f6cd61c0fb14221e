"""A second kernel beside the parent: which one a request names, and what the prompts say of it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.prompt_scenarios import context
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import build, identity
from warpsmith.workers.steps.values import BenchTime, Tried
from warpsmith.workers.steps.work import find_leader

OTHER = NodeFacts(
    17,
    {"title": "another", "technique": "fusion", "sketch": "a sketch"},
    "def run():\n    other_kernel()\n",
    "d17",
    None,
)


def tried(seq: int, verdict: str = "accepted", **speedups: float) -> Tried:
    times = tuple(BenchTime(name, 10.0, speedup) for name, speedup in speedups.items())
    return Tried(seq, None, verdict, "time", 1.0, None, times=times)


def test_the_candidate_that_adds_most_is_named_with_the_workloads_on_which_it_leads() -> None:
    ledger = (
        tried(1, small=2.0, large=1.0),
        tried(2, small=1.0, large=1.3),
        tried(3, small=2.2, large=1.2),
        tried(4, "rejected", small=9.0, large=9.0),
        tried(5, small=2.09, large=1.04),
    )
    assert find_leader(ledger, 1) == ((3,), ("small", "large"))
    assert find_leader(ledger, 3) == ((2,), ("large",))
    assert find_leader(ledger[:1], 1) == ((), ())
    assert find_leader((ledger[0], ledger[4]), 1) == ((), ()), "within 5 % neither leads"
    assert find_leader(ledger, 9) == ((), ()), "nothing is known of the parent's times"


def test_a_request_for_ideas_shows_it_and_asks_by_the_same_identity() -> None:
    plain = context("ideate")
    with_other = context("ideate", other=OTHER, leads_on=("decode",))
    text = build(with_other).messages[1]["content"]
    assert "## Faster on decode: #17" in text
    assert "a sketch" in text
    assert "other_kernel()" not in text, "its writer is given the code"
    assert "Such an idea names #17" in text
    assert identity(plain) == identity(with_other)
    assert "## Faster on" not in build(plain).messages[1]["content"]
    rootless = context("ideate", parent=None, other=OTHER, leads_on=("decode",))
    assert "#17" not in build(rootless).messages[1]["content"], "the root has nothing to join"


def test_where_the_search_joins_by_size_itself_no_idea_is_asked_for_that() -> None:
    text = build(context("ideate", other=OTHER, leads_on=("decode",), joins=True)).messages[1]["content"]
    assert "The search itself joins the two by size" in text
    assert "by shape, where `run`" not in text
    assert "Such an idea names #17" in text


def test_one_that_is_the_best_is_shown_once() -> None:
    text = build(context("ideate", best=OTHER, other=OTHER, leads_on=("decode",))).messages[1]["content"]
    assert text.count("a sketch") == 1
    assert "it is shown above" in text


def test_one_that_changes_little_in_the_kernel_to_build_on_is_shown_by_its_change() -> None:
    parent = context("ideate").parent
    assert parent is not None
    changed = replace(OTHER, source=parent.source.replace("def run", "def helper(): ...\n\n\ndef run"))
    text = build(context("ideate", other=changed, leads_on=("decode",))).messages[1]["content"]
    assert "Its code where it differs from the kernel to build on" in text
    assert "+def helper(): ..." in text
    assert text.count("other_kernel") == 0
    assert "a sketch" not in text, "the change says what is done"


def test_a_request_for_code_shows_the_one_that_its_idea_names() -> None:
    text = build(context("code", other=OTHER)).messages[1]["content"]
    assert "## The other kernel that the idea names (#17)" in text
    assert "other_kernel()" in text
    assert identity(context("code")) == identity(context("code", other=OTHER))


def test_one_without_an_idea_is_shown_by_its_code() -> None:
    seed = replace(OTHER, idea=None)
    text = build(context("ideate", other=seed, leads_on=("decode",))).messages[1]["content"]
    assert "other_kernel()" in text
    assert "it is shown above" not in text
    best = build(context("ideate", parent=None, best=seed)).messages[1]["content"]
    assert "other_kernel()" in best
