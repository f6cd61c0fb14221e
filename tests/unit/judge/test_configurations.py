"""Which configurations of a candidate are compiled, in what order, and when."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pytest

from tests.support.waiting import wait_until
from warpsmith.workers.gate.tunables import Configuration
from warpsmith.workers.judge.gates import configurations as module
from warpsmith.workers.judge.gates.configurations import Configurations, Prepared, Variant, spread
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.machine.timing_guard import QUIET

GRID = [{"A": a, "B": b} for a, b in itertools.product(range(4), range(2))]


class Compiler:
    """Compiles what it is asked to, but for the values of `refused`, once `go` is set."""

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        self.refused, self.asked, self.go = refused, list[Configuration](), threading.Event()
        self.go.set()

    def __call__(self, values: Configuration) -> Variant:
        self.asked.append(values)
        with QUIET.resting():
            assert self.go.wait(60)
        if values["A"] in self.refused:
            return Variant(values, "", None, None, Stopped("rejected", "compile", f"A={values['A']} does not compile"))
        return Variant(values, "", Prepared(), {}, None, 0.5)


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores_available", lambda: 4)


def test_the_first_configurations_of_any_number_try_all_values_about_equally_often() -> None:
    grid = [dict(zip("ABC", values, strict=True)) for values in itertools.product(range(4), range(4), range(4))]
    ordered = spread(grid)
    assert ordered[0] == grid[0]
    assert sorted(map(str, ordered)) == sorted(map(str, grid))
    assert ordered == spread(grid), "the same each time"
    for number in (4, 8, 16, 32):
        for name in "ABC":
            counts = Counter(one[name] for one in ordered[:number])
            assert len(counts) == 4, f"{name} among the first {number}"
            assert max(counts.values()) - min(counts.values()) <= 2, f"{name} among the first {number}"


def test_the_order_keeps_to_what_conditions_admit() -> None:
    admitted = [one for one in GRID if one["A"] * one["B"] != 2]
    assert sorted(map(str, spread(admitted))) == sorted(map(str, admitted))
    assert spread(GRID[:1]) == (GRID[0],)


@pytest.mark.parametrize(("beside", "at_once"), [(True, 2), (False, 4)])
def test_no_more_are_compiled_than_can_be_timed(beside: bool, at_once: int) -> None:
    """Beside timing half of the cores compile; where the cores are timed, all do, and nothing is timed meanwhile."""
    compiler = Compiler()
    found = Configurations(GRID, compiler, beside=beside)
    assert found.begin(1).values == GRID[0]
    assert (found.compiled, len(compiler.asked)) == (1, 1)
    assert found.take(1) is not None
    assert found.take(5) is not None
    assert found.compiled == 1 + at_once
    for left in (2, 1):
        assert found.take(left) is not None
    assert found.compiled <= 1 + at_once + (1 if beside else 0)
    assert found.seconds == pytest.approx(0.5 * 4)
    found.close()


def test_a_cpu_compiles_nothing_while_a_configuration_is_timed() -> None:
    compiler = Compiler()
    found = Configurations(GRID, compiler, beside=False)
    found.begin(8)
    assert len(compiler.asked) == 4
    for _ in range(4):
        assert found.take(8) is not None
        assert len(compiler.asked) == 4, "what is timed now has the cores"
    assert found.take(8) is not None
    assert len(compiler.asked) == 8


def test_what_is_ready_is_taken_before_what_is_still_compiled() -> None:
    compiler = Compiler()
    found = Configurations(GRID, compiler, beside=True)
    found.begin(1)
    assert found.is_ready()
    compiler.go.clear()
    first = found.take(3)
    assert first is not None
    assert first.values == GRID[0]
    assert not found.is_ready()
    assert found.compiled == 3, "two are compiled beside the timing of the first"
    compiler.go.set()
    second = found.take(2)
    assert second is not None
    assert second.values in GRID[1:3]
    found.close()


def test_where_the_default_is_refused_another_is_looked_for_and_then_its_reason_told() -> None:
    compiler = Compiler(refused=(0, 1))
    found = Configurations(GRID, compiler, beside=True)
    assert found.begin(1).values == {"A": 2, "B": 0}
    taken = [found.take(1) for _ in range(5)]
    assert [one is not None and one.refused is None for one in taken] == [False] * 4 + [True]
    with pytest.raises(Stopped, match="A=0 does not compile"):
        Configurations(GRID, Compiler(refused=(0, 1, 2, 3)), beside=True).begin(8)


def test_after_many_refusals_no_other_is_tried() -> None:
    compiler = Compiler(refused=(0,))
    grid = [{"A": 0, "B": number} for number in range(64)]
    with pytest.raises(Stopped, match="A=0 does not compile"):
        Configurations(grid, compiler, beside=False).begin(1)
    assert len(compiler.asked) == module.MOST_REFUSED


def test_without_time_for_compilers_the_default_alone_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPILE_S", -1.0)
    found = Configurations(GRID, Compiler(), beside=True)
    found.begin(8)
    assert found.take(8) is not None
    assert found.take(8) is None
    assert found.compiled == 1


def test_a_timing_goes_on_while_a_grid_is_compiled() -> None:
    """The thread that prepares a swept candidate rests as it waits, so it does not hold up another job's timing."""
    compiler = Compiler()
    compiler.go.clear()
    built: list[Variant] = []

    def prepare() -> None:
        with QUIET.beside():
            built.append(Configurations(GRID, compiler, beside=True).begin(8))

    preparing = threading.Thread(target=prepare, daemon=True)
    preparing.start()
    wait_until(lambda: len(compiler.asked) == 2)
    timed = threading.Event()

    def judge() -> None:
        with QUIET.timing():
            timed.set()

    threading.Thread(target=judge, daemon=True).start()
    assert timed.wait(60), "the clock waits for the compilers"
    compiler.go.set()
    preparing.join(60)
    assert built[0].values == GRID[0]


def test_whoever_is_alone_waits_for_a_grid_that_is_compiled() -> None:
    compiler = Compiler()
    compiler.go.clear()
    ended = threading.Event()

    def prepare() -> None:
        with QUIET.beside():
            Configurations(GRID, compiler, beside=True).begin(8)
        ended.set()

    threading.Thread(target=prepare, daemon=True).start()
    wait_until(lambda: len(compiler.asked) == 2)
    alone = threading.Event()

    def judge() -> None:
        with QUIET.alone():
            assert ended.is_set()
            alone.set()

    threading.Thread(target=judge, daemon=True).start()
    compiler.go.set()
    assert alone.wait(60), "neither goes on"
