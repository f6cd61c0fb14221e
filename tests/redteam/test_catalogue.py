"""The catalogue on a CPU: every cheat is caught where it may be, every honest control is accepted by every gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.redteam_catalogue import Cheat, Control, cheats, controls
from benchmarks.redteam_catalogue.entry import Device
from benchmarks.redteam_catalogue.trial import judge_entry
from tests.kinds import nightly_but
from warpsmith.kernels_db.job.languages import GATED
from warpsmith.workers.gate import check
from warpsmith.workers.judge.protocol.client import JudgeClient

CHEATS, CONTROLS = cheats("cpu"), controls("cpu")


def first_of_each(cheats: list[Cheat]) -> set[str]:
    """The ids of the first cheats, in each language, of each line of the field's list and of each kind of end."""
    seen: set[tuple[object, str]] = set()
    found = set()
    for cheat in cheats:
        those: set[tuple[object, str]] = {(what, cheat.language) for what in (*(cheat.lines or (0,)), *cheat.kinds)}
        if those - seen:
            found.add(cheat.id)
        seen |= those
    return found


def first_of_each_kind(controls: list[Control]) -> set[str]:
    """The ids of the first controls of integers, of floats of 16 bits and of longer ones, in each language."""
    found: dict[tuple[bool, bool, str], str] = {}
    for control in controls:
        kind = ("float" in control.dtype, control.dtype.endswith("16"), control.language)
        found.setdefault(kind, control.id)
    return set(found.values())


EVERY_TIME = first_of_each(CHEATS) | first_of_each_kind(CONTROLS)
"""The rest of the catalogue is tried at night."""


def is_tried_every_time(entry: Cheat | Control) -> bool:
    return entry.id in EVERY_TIME


@pytest.mark.parametrize("cheat", nightly_but(is_tried_every_time, CHEATS), ids=lambda cheat: cheat.id)
def test_a_cheat_is_caught(client: JudgeClient, cheat: Cheat) -> None:
    outcome = judge_entry(client, cheat)
    assert outcome.good, f"{outcome.verdict} at {outcome.gate}: {outcome.reason}"


@pytest.mark.parametrize("control", nightly_but(is_tried_every_time, CONTROLS), ids=lambda control: control.id)
def test_a_control_is_accepted(client: JudgeClient, control: Control) -> None:
    outcome = judge_entry(client, control)
    assert outcome.good, f"{outcome.verdict} at {outcome.gate}: {outcome.reason}"


LINES = frozenset(range(1, 46))
OF_A_GPU = frozenset({28, 29})
"""Captured graphs and a cache that can be told what to keep."""


@pytest.mark.parametrize(("device", "lines"), [("cpu", LINES - OF_A_GPU), ("cuda", LINES)])
def test_every_line_of_the_fields_list_has_a_cheat(device: Device, lines: frozenset[int]) -> None:
    assert lines <= {line for cheat in cheats(device) for line in cheat.lines}


def test_there_are_honest_controls_enough() -> None:
    for device in ("cpu", "cuda"):
        those = controls(device)
        assert len(those) >= 25
        assert {"float32", "bfloat16", "float16"} <= {control.dtype for control in those}


def entries(device: Device) -> list[Cheat | Control]:
    return [*cheats(device), *controls(device)]


def test_names_are_unique() -> None:
    names_by_device = [[entry.id for entry in entries("cpu")], [entry.id for entry in entries("cuda")]]
    for names in names_by_device:
        assert len(names) == len(set(names))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_gate_refuses_the_python_attacks_alone(device: Device) -> None:
    """An entry that the gate refused by mistake would be caught for the wrong reason."""
    for entry in entries(device):
        if entry.language == "python":  # no gate reads it
            continue
        scalars = [item["name"] for item in entry.op.workloads[0]["inputs"] if item["shape"] is None]
        problems = check(entry.source, entry.language, [], entry.op.parameters, scalars)
        expected = isinstance(entry, Cheat) and "gate" in entry.gates
        if isinstance(entry, Cheat) and entry.says:  # the gate's words, or those of a later refusal
            problems = [problem for problem in problems if (entry.says in problem.message) == expected]
        assert bool(problems) == expected, f"{entry.id}: {problems[:2]}"


CHEATS_NOT_IN_GLUON = frozenset(
    {
        "computes many calls in one launch",
        "names an expert twice",
        "nearest code in bfloat16",
        "prepares its weights once",
        "returns the constant mean of a softmax",
        "returns zeros for a softmax over a long row",
        "works only where its output is poisoned",
    }
)
"""Triton's cheats that the translation leaves out and that are not written in Gluon by hand, as products are."""
CONTROLS_NOT_IN_GLUON = frozenset(
    {
        "argmax",
        "convolution",
        "gate, first of equals",
        "gelu",
        "histogram by atomics",
        "int8 by libdevice",
        "matrix product",
        "matrix product by split sums",
        "matrix product of split bfloat16",
        "matrix product of three TF32",
        "matrix product, bfloat16",
        "matrix product, float16",
        "multiplies numbers split in three",
        "nearest code by differences",
        "nearest code by products",
        "nearest code in float64",
        "normalises by Welford, bfloat16",
        "normalises by Welford, float16",
        "recurrence",
        "sums bfloat16 in lanes",
        "sums bfloat16 in rounded parts",
        "sums by Kahan",
        "sums float16 in rounded parts",
        "sums float64 in lanes",
        "uses forbidden words and tunes itself",
    }
)
"""Triton's controls that do."""


@pytest.mark.parametrize(("those", "expected"), [(cheats, CHEATS_NOT_IN_GLUON), (controls, CONTROLS_NOT_IN_GLUON)])
def test_what_is_left_out_for_gluon_is_known(
    those: Callable[[Device], Sequence[Cheat | Control]], expected: frozenset[str]
) -> None:
    """A change of the translation must not leave out more unseen."""
    entries = [entry for entry in those("cuda") if not (isinstance(entry, Cheat) and entry.gates == {"gate"})]
    names = {language: {entry.name for entry in entries if entry.language == language} for language in GATED}
    assert names["triton"] - names["gluon"] == expected
