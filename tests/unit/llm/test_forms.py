"""Which forms of a language a request for code shows: those that its idea calls for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.prompt_scenarios import IDEA, context
from warpsmith import prompts
from warpsmith.kernels_db.spec.op import Target
from warpsmith.workers.gate import gate
from warpsmith.workers.llm.prompt.requests import build

BULK = prompts.example("cuda_bulk").strip()
WAIT = "griddepcontrol.wait; mov.b32 $0, 0;"


def code(language: str, mechanism: str, technique: str = "memory_access", **changes: Any) -> str:
    """A request for code of an idea with this mechanism."""
    idea = {**IDEA, "mechanism": mechanism, "technique": technique}
    changes = {"target": Target.parse("cuda:sm_90"), "language": language, "parent": None, "idea": idea, **changes}
    return build(context("code", **changes)).messages[1]["content"]


@pytest.mark.parametrize(
    ("mechanism", "shown"),
    [
        ("rows come by cp.async.bulk", True),
        ("a TMA ring", True),
        ("a cluster of 4 blocks shares a row", True),
        ("clustered keys are bulky", False),
        ("a block a row", False),
    ],
)
def test_bulk_copies_are_shown_to_ideas_that_name_them(mechanism: str, shown: bool) -> None:
    assert (BULK in code("cuda", mechanism)) == shown
    assert BULK not in code("triton", mechanism)


def test_a_parent_that_has_bulk_copies_is_form_enough() -> None:
    parent = context("code").parent
    assert parent is not None
    assert BULK in code("cuda", "a TMA ring", parent=parent)
    written = type(parent)(parent.seq, parent.idea, "cp.async.bulk", parent.source_digest, parent.verdict)
    assert BULK not in code("cuda", "a TMA ring", parent=written)


@pytest.mark.parametrize(
    ("technique", "mechanism", "shown"),
    [
        ("fusion", "two kernels", True),
        ("asynchrony", "two kernels", True),
        ("memory_access", "two kernels", False),
        ("memory_access", "two kernels, the second a dependent launch", True),
    ],
)
def test_dependent_launches_are_shown_where_they_may_be_called_for(technique: str, mechanism: str, shown: bool) -> None:
    assert (WAIT in code("triton", mechanism, technique)) == shown
    assert WAIT not in code("cuda", mechanism, technique), "the launches of CUDA candidates cannot ask for it"


@pytest.mark.parametrize(("arch", "there"), [("sm_80", False), ("sm_89", False), ("sm_90a", True), ("sm_120a", True)])
def test_forms_are_shown_where_the_architecture_has_them(arch: str, there: bool) -> None:
    target = Target.parse(f"cuda:{arch}")
    assert (BULK in code("cuda", "a TMA ring", target=target)) == there
    assert (WAIT in code("triton", "a dependent launch", target=target)) == there


def test_what_is_shown_passes_the_gate() -> None:
    assert gate.check(prompts.example("cuda_bulk"), "cuda") == []
    launched = prompts.example("triton").replace("BLOCK=1024)", "BLOCK=1024, launch_pdl=True)")
    wait = f'    tl.inline_asm_elementwise("{WAIT}", "=r", [], dtype=tl.int32, is_pure=False, pack=1)\n'
    waiting = launched.replace("    i = tl.program_id(0)", f"{wait}    i = tl.program_id(0)")
    assert waiting.count("launch_pdl") == waiting.count(WAIT) == 1
    assert gate.check(waiting, "triton") == []
