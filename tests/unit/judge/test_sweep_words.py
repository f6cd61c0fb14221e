"""Sweeps, and what Triton's autotuner took, in words."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.prompt_scenarios import LEDGER
from warpsmith.kernels_db.job.sweep_documents import (
    LONGEST,
    MOST_LEADERS,
    describe_sweep,
    describe_tuned,
    find_leaders,
    list_tuned,
)
from warpsmith.workers.llm.prompt.requests import MAX_LEDGER_TIMES, ledger_entry, ledger_lines


def took(name: str, block: int, *, role: str = "bench", kernel: str = "scale") -> dict[str, Any]:
    """A workload of a verdict, whose kernel was tuned."""
    configuration = {"BLOCK": block, "num_warps": 4, "num_ctas": 1}
    return {
        "id": name,
        "role": role,
        "configurations": [{"kernel": kernel, "key": [8], "configuration": configuration}],
    }


def test_a_choice_that_is_the_same_everywhere_is_told_once() -> None:
    assert describe_tuned([took("wide", 256), took("narrow", 256)]) == "autotuned scale: BLOCK=256, num_warps=4"


def test_choices_that_differ_are_told_by_workload() -> None:
    told = describe_tuned([took("wide", 256), took("narrow", 64)])
    assert told == "autotuned scale: wide BLOCK=256, num_warps=4; narrow BLOCK=64, num_warps=4"


def test_hold_outs_and_tests_are_not_told() -> None:
    assert describe_tuned([took("secret", 256, role="holdout"), took("ragged", 64, role="test")]) is None
    assert describe_tuned([{"id": "wide", "role": "bench"}]) is None
    assert describe_tuned([]) is None


def test_each_kernel_has_its_own_choice() -> None:
    told = describe_tuned([took("wide", 256), took("wide", 32, kernel="reduce")])
    assert told == "autotuned scale: BLOCK=256, num_warps=4; autotuned reduce: BLOCK=32, num_warps=4"


def test_the_ledger_tells_it_of_an_accepted_candidate() -> None:
    values: dict[str, Any] = {
        "seq": 99,
        "idea": None,
        "gate": "time",
        "reason": None,
        "tuned": ("autotuned scale: BLOCK=256",),
    }
    entry = ledger_entry(verdict="accepted", score=1.5, **values)
    assert any("autotuned scale: BLOCK=256" in line for line in ledger_lines((*LEDGER, entry)))
    assert "autotuned" not in ledger_entry(verdict="rejected", score=None, **values).cause


def at_keys(name: str, *taken: tuple[list[int], int]) -> dict[str, Any]:
    """A workload on which a kernel is launched at several values of its key."""
    configurations = [{"kernel": "k", "key": key, "configuration": {"B": block}} for key, block in taken]
    return {"id": name, "role": "bench", "configurations": configurations}


def test_a_kernel_that_is_tuned_for_several_keys_on_one_workload_has_them_all_told() -> None:
    two = at_keys("b", ([8, 2], 1), ([16, 2], 2))
    assert describe_tuned([two]) == "autotuned k: B=1 at key [8, 2] and B=2 at key [16, 2]"
    told = describe_tuned([at_keys("a", ([8, 2], 1)), two])
    assert told == "autotuned k: a B=1; b B=1 at key [8, 2] and B=2 at key [16, 2]"
    assert describe_tuned([at_keys("b", ([8], 1), ([16], 1))]) == "autotuned k: B=1", "keys that are alike are not told"


def test_a_kernel_with_many_keys_is_told_in_a_few_words() -> None:
    differing = describe_tuned([at_keys("b", *(([number], number) for number in range(9)))])
    assert differing == "autotuned k: B=0 at key [0] and B=1 at key [1] and B=2 at key [2] and 6 more"
    mixed = describe_tuned([at_keys("b", ([99], 2), *(([number], 1) for number in range(9)))])
    assert mixed == "autotuned k: B=2 at key [99] and B=1 at key [0], [1], [2], ..."


def test_the_ledger_keeps_registers_and_spills_beside_many_choices_of_the_tuner() -> None:
    kernels = [{"name": "k", "registers": 128, "spills": 64}]
    workloads = [
        took(f"workload_{number}", 16 * number, kernel=kernel) for kernel in ("scale", "sum") for number in range(12)
    ]
    chosen = list_tuned(workloads)
    assert len(chosen) == 24
    entry = ledger_entry(
        seq=1,
        idea=None,
        verdict="accepted",
        gate="time",
        score=1.5,
        reason=None,
        built={"kernels": kernels},
        tuned=chosen,
    )
    assert entry.cause.split("; ") == ["`k` 128 registers, 64 bytes spilled", *chosen[:MAX_LEDGER_TIMES]]
    assert "128 registers, 64 bytes spilled" in ledger_lines((entry,))[0]


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,63}", fullmatch=True)
CONFIGURATIONS = st.dictionaries(NAMES, st.integers(0, 2**31 - 1), min_size=1, max_size=6)


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, Any]:
    workloads = draw(st.lists(st.text("abc_", min_size=1, max_size=40), min_size=1, max_size=12, unique=True))
    values = draw(st.lists(CONFIGURATIONS, min_size=1, max_size=12, unique_by=str))
    times = st.fixed_dictionaries({name: st.floats(0.1, 1e7) for name in workloads})
    entries = [{"values": one, "time_us": draw(times), "rounds": 1} for one in values]
    entries += [{"values": one, "time_us": {}, "rounds": 0, "failure": "wrong"} for one in values[:1]]
    return {"chosen": values[0], "configurations": entries, "left_out": draw(st.integers(0, 64)), "seconds": 1.0}


@given(sweeps(), st.integers(20, 900))
def test_a_sweep_in_words_is_no_longer_than_it_may_be(sweep: dict[str, Any], longest: int) -> None:
    whole = describe_sweep(sweep, longest=10**6)
    told = describe_sweep(sweep, longest=longest)
    assert len(told) <= longest
    assert told == whole or (told.endswith(" ...") and whole.startswith(told.removesuffix(" ...")))
    assert (told == whole) == (len(whole) <= longest)


def test_what_was_not_timed_is_told() -> None:
    sweep = {"chosen": {"A": 1}, "configurations": [{"values": {"A": 1}, "time_us": {"b": 2.0}, "rounds": 1}]}
    assert describe_sweep({**sweep, "left_out": 7}) == "A=1 best of 1 timed, 7 not timed"
    assert describe_sweep({**sweep, "left_out": 7, "limit_s": 12.5}) == "A=1 best of 1 timed, 7 not timed within 12.5 s"


def test_the_tuner_in_words_is_bounded() -> None:
    told = describe_tuned([took(f"workload_{number}", number) for number in range(100)])
    assert told is not None
    assert len(told) <= LONGEST
    assert told.endswith(" ...")


def test_a_long_sweep_leaves_resources_their_place_in_the_ledger() -> None:
    values = {f"A_TUNABLE_WITH_A_LONG_NAME_{number}": 2**30 for number in range(6)}
    sweep = {
        "chosen": values,
        "configurations": [
            {"values": {**values, "OTHER": other}, "time_us": {"b": 2.0 + other}, "rounds": 1} for other in range(9)
        ],
    }
    entry = ledger_entry(
        seq=1,
        idea=None,
        verdict="accepted",
        gate="time",
        score=1.5,
        reason=None,
        built={"kernels": [{"name": "k", "registers": 128, "spills": 64}]},
        sweep=sweep,
    )
    assert "128 registers, 64 bytes spilled" in ledger_lines((entry,))[0]


def swept(*times: dict[str, float] | str) -> dict[str, Any]:
    """A sweep over A, whose first value was chosen; a text in place of times is a failure."""
    entries = [
        {"values": {"A": number}, "time_us": {}, "rounds": 0, "failure": time}
        if isinstance(time, str)
        else {"values": {"A": number}, "time_us": time, "rounds": 1}
        for number, time in enumerate(times)
    ]
    return {"chosen": {"A": 0}, "configurations": entries}


def test_leaders_are_the_fastest_of_each_workload_where_the_chosen_one_is_surely_slower() -> None:
    chosen = {"short": 10.0, "long": 100.0, "wide": 50.0}
    assert find_leaders(swept(chosen)) == ()
    assert find_leaders(swept(chosen, {"short": 9.6, "long": 97.0, "wide": 48.0}, "wrong")) == ()
    found = find_leaders(swept(chosen, {"short": 9.0, "long": 300.0, "wide": 99.0}, {"short": 8.0, "long": 99.0}))
    assert found == ({"A": 2},)
    many = find_leaders(
        swept(chosen, {"short": 9.0, "long": 101.0}, {"long": 50.0, "short": 11.0}, {"wide": 30.0, "short": 12.0})
    )
    assert many == ({"A": 2}, {"A": 3}), "the largest leads"
    assert len(many) == MOST_LEADERS
    assert find_leaders({"chosen": {"A": 9}, "configurations": []}) == ()


@given(sweeps())
def test_leaders_are_timed_configurations_of_the_sweep_and_never_the_chosen_one(sweep: dict[str, Any]) -> None:
    timed = [one["values"] for one in sweep["configurations"] if "failure" not in one]
    found = find_leaders(sweep)
    assert all(values in timed and values != sweep["chosen"] for values in found)
    assert len(found) <= MOST_LEADERS
