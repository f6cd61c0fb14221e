"""Parts of the judge that need no process: buffers, inputs, memory estimates, the cache's upkeep, the host's use."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.jobs import Role
from tests import judging
from warpsmith.kernels_db.job.documents import Level, ResolvedWorkload
from warpsmith.kernels_db.job.memory import GUARD, SHARE, needed_bytes
from warpsmith.workers.judge.gates import attack, footprint, sanitizing_gpu
from warpsmith.workers.judge.gates.configurations import Prepared
from warpsmith.workers.judge.gates.gates import own_interval
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Report, Stopped, json_safe
from warpsmith.workers.judge.machine import buffers, cache_pruning, host
from warpsmith.workers.judge.machine.buffers import TensorSpec, contiguous_strides
from warpsmith.workers.judge.machine.device import Cpu
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.warm_ops import WarmOps
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.inputs import BadDistribution, InputSource

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool]


def _spec(name: str, shape: tuple[int, ...], dtype: torch.dtype, alignment: int = buffers.ALIGNMENT) -> TensorSpec:
    return TensorSpec(name, shape, contiguous_strides(shape), dtype, alignment=alignment)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 9), max_size=4), st.sampled_from(DTYPES), st.sampled_from([8, 16, 64, 256])),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_tensors_of_a_slot_are_aligned_and_apart(tensors: list[tuple[list[int], torch.dtype, int]], count: int) -> None:
    specs = [_spec(f"t{n}", tuple(shape), dtype, alignment) for n, (shape, dtype, alignment) in enumerate(tensors)]
    slots = buffers.allocate(specs, count, CPU)
    slot = slots[-1]
    try:
        for position, spec in enumerate(specs):
            tensor = slot.tensor(position)
            assert tuple(tensor.shape) == spec.shape
            assert tensor.data_ptr() % spec.alignment == 0
            if spec.alignment < buffers.ALIGNMENT:
                assert tensor.data_ptr() % (2 * spec.alignment) != 0
            slot.poison(position)
        assert slot.broken_guard() is None
        for position, spec in enumerate(specs):
            storage, offset = slot.storage(position), slot.layout[position][1]
            for place in (offset - 1, offset + storage.numel(), offset - GUARD):
                kept = int(slot.arena[place])
                slot.arena[place] = kept ^ 1
                assert slot.broken_guard() is not None, (spec, place)
                slot.arena[place] = kept
    finally:
        buffers.release(slots)


def test_poison_is_no_number() -> None:
    slot = buffers.allocate([_spec(str(dtype), (8,), dtype) for dtype in DTYPES], 1, CPU)[0]
    for position, dtype in enumerate(DTYPES):
        slot.poison(position)
        if dtype.is_floating_point:
            assert torch.isnan(slot.tensor(position)).all()
    buffers.release([slot])


def test_a_slot_cannot_be_shrunk_or_grown() -> None:
    slot = buffers.allocate([_spec("x", (8,), torch.float32)], 1, CPU)[0]
    for size in (0, slot.size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(slot.fd or -1, size)
    buffers.release([slot])


def _no_make(source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
    raise AssertionError("no code runs here")


def test_values_follow_the_seed_and_differ_between_calls() -> None:
    inputs = [
        judging.tensor("x", (50, 4)),
        judging.tensor("order", (20,), dtype="int64", kind="permutation"),
        judging.tensor("one", (3,), kind="constant", value=1.0),
        judging.scalar("m", 2.0),
    ]
    first, second, other = (InputSource(inputs, seed, _no_make) for seed in (1, 1, 2))
    for _ in range(5):
        one, two, three = first.draw(), second.draw(), other.draw()
        assert one[3] is None
        for position in (0, 1, 2):
            assert torch.equal(one[position], two[position])  # type: ignore[arg-type]
        assert not torch.equal(one[0], three[0])  # type: ignore[arg-type]
    draws = [first.draw()[0] for _ in range(20)]
    assert len({float(draw.flatten()[0]) for draw in draws if draw is not None}) > 15
    assert all(draw is not None and tuple(draw.shape) == (50, 4) for draw in draws)


@pytest.mark.parametrize(
    "dist",
    [{"kind": "zipf"}, {"kind": "randint", "low": 3, "high": 3}, {"kind": "randint"}, {"kind": "constant"}],
)
def test_a_distribution_that_cannot_be_drawn_names_its_input(dist: dict[str, object]) -> None:
    with pytest.raises(BadDistribution) as bad:
        InputSource([judging.tensor("ids", (4,), dtype="int64", **dist)], 1, _no_make)
    assert bad.value.field == "inputs.ids.dist"


@given(st.integers(1, 64), st.integers(1, 64))
def test_memory_grows_with_the_workload_and_holds_all_slots(rows: int, columns: int) -> None:
    small, large = (
        needed_bytes(
            judging.job(judging.LAYER_NORM, judging.LAYER_NORMS)["op"],
            judging.layer_norm_workload("w", "bench", n, columns),
            "cpu",
        )
        for n in (rows, rows * 100)
    )
    assert large > small >= 2 * 3 * (2 * rows * columns + 2 * columns) * 4


def test_memory_is_refused_by_workload_with_numbers() -> None:
    job = judging.job(judging.LAYER_NORM, judging.LAYER_NORMS, memory_bytes=1000)
    with pytest.raises(Stopped) as stopped:
        footprint.check_memory(job, job["workloads"], Cpu(2))
    assert stopped.value.gate == "memory"
    assert stopped.value.failure is not None
    assert stopped.value.failure["workload"] == "bench"
    assert str(stopped.value.failure["found"]) in str(stopped.value)


class Shared(Cpu):
    """A device of 64 GiB, of which others leave `free` bytes."""

    def __init__(self, free: int) -> None:
        super().__init__(2)
        self.free = free

    def free_bytes(self) -> int:
        return self.free

    def all_bytes(self) -> int:
        return 64 << 30


def test_memory_that_others_hold_is_no_fault_of_the_candidate() -> None:
    job = judging.job(judging.LAYER_NORM, judging.LAYER_NORMS)
    needed = max(needed_bytes(job["op"], workload, "cpu") for workload in job["workloads"])
    roomy, full = Shared(2 * needed), Shared(needed)
    assert not footprint.is_crowded(job, job["workloads"], roomy)
    footprint.check_memory(job, job["workloads"], roomy)
    assert footprint.is_crowded(job, job["workloads"], full)
    with pytest.raises(Stopped, match=f"needs {needed} bytes, and {int(0.8 * needed)} are to be had now") as stopped:
        footprint.check_memory(job, job["workloads"], full)
    assert (stopped.value.verdict, stopped.value.gate) == ("ambiguous", "memory")
    assert stopped.value.failure is not None
    assert stopped.value.failure["kind"] == "host"


def test_where_memory_is_short_the_runners_of_other_ops_end() -> None:
    warm, ended = WarmOps(), []
    jobs = [judging.job(judging.LAYER_NORM + "\n" * n, judging.LAYER_NORMS) for n in range(2)]

    def runners(number: int) -> OpRunners:
        stub = SimpleNamespace(device=CPU, used_at=0.0, close=lambda: ended.append(number), forget_passing=bool)
        return cast("OpRunners", stub)

    for number, job in enumerate(jobs):
        warm.keep(job["op"], runners(number))
    warm.end_others(jobs[1]["op"])
    assert ended == [0]
    assert warm.find(jobs[0]["op"]) is None
    kept = warm.find(jobs[1]["op"])
    assert kept is not None
    assert kept.used_at > 0.0
    warm.close()
    assert ended == [0, 1], "the op's own were kept"


def test_a_workload_larger_than_the_device_is_rejected_whatever_is_free() -> None:
    job = judging.job(judging.LAYER_NORM, judging.LAYER_NORMS)
    huge = [judging.layer_norm_workload("huge", "bench", 1 << 20, 1 << 14)]
    assert not footprint.is_crowded(job, huge, Shared(1000)), "nobody's end would make room"
    with pytest.raises(Stopped, match=f"expected at most {int(SHARE * (64 << 30))} ") as stopped:
        footprint.check_memory(job, huge, Shared(1000))
    assert stopped.value.verdict == "rejected"


def sized(name: str, role: Role, elements: int) -> ResolvedWorkload:
    return judging.workload(name, role, [judging.tensor("x", (elements - 1,))], [judging.output("y", (1,))])


@pytest.mark.parametrize("level", ["screen", "verify"])
def test_an_interpreter_gets_the_smallest_workloads_whatever_their_role(level: Level) -> None:
    most = footprint.INTERPRETED_ELEMENTS
    workloads = [
        sized("huge", "bench", 64 * most),
        sized("most", "test", most),
        sized("least", "test", 2),
        sized("beyond", "test", most + 1),
        sized("little", "bench", 9),
    ]
    job = judging.job(judging.LAYER_NORM, workloads, "", language="triton", target="cuda:sm_90", level=level)
    assert [workload["id"] for workload in footprint.select(job, Cpu(2))] == ["least", "little"]
    assert [workload["id"] for workload in footprint.select({**job, "workloads": workloads[:2]}, Cpu(2))] == ["most"]
    second = sized("second", "test", footprint.INTERPRETED_SECOND + 1)
    assert footprint.select({**job, "workloads": [workloads[2], second]}, Cpu(2)) == [workloads[2]]
    assert footprint.select({**job, "target": "cpu"}, Cpu(2)) == workloads
    held: list[ResolvedWorkload] = [{**sized(f"holdout-{n}", "holdout", 30 + n), "derived": True} for n in range(1, 5)]
    with_held = footprint.select({**job, "workloads": [*workloads, *held]}, Cpu(2))
    assert [workload["id"] for workload in with_held] == ["least", "little", "holdout-3", "holdout-4"]
    with pytest.raises(Stopped, match=rf"not checked; workload beyond has {most + 1} elements") as stopped:
        footprint.select({**job, "workloads": [workloads[0], workloads[3]]}, Cpu(2))
    assert (stopped.value.verdict, stopped.value.gate) == ("ambiguous", "screen")


def job_run_of(interpreted: bool) -> JobRun:
    workloads = [sized("least", "test", 2)]
    job = judging.job(judging.LAYER_NORM, workloads, "", language="triton", target="cuda:sm_90")
    bench: Any = SimpleNamespace(device=Cpu(2), factory=SimpleNamespace(probe=lambda: None))
    return JobRun(job, Report(job), Prepared(interpreted=interpreted), bench)


@pytest.mark.parametrize(
    ("kind", "said", "interpreted", "verdict"),
    [
        ("timeout", "did not return within 60 s", True, "ambiguous"),
        ("timeout", "did not return within 60 s", False, "rejected"),
        ("crash", "did not return within 60 s", True, "rejected"),
        ("raises", "NotImplementedError: inline_asm not supported in interpreter mode", True, "ambiguous"),
        ("raises", "NotImplementedError: inline_asm not supported in interpreter mode", False, "rejected"),
        ("raises", "NotImplementedError: libdevice.rint not supported in interpreter mode", True, "ambiguous"),
        ("raises", "NotImplementedError: an axis of 3", True, "rejected"),
    ],
)
def test_what_an_interpreter_cannot_do_proves_nothing(kind: str, said: str, interpreted: bool, verdict: str) -> None:
    class Failing:
        def bind(self, *_: object) -> None:
            raise RunnerFault("candidate", kind, said)

    job_run = job_run_of(interpreted)
    failing: Any = Failing()
    with (
        pytest.raises(Stopped, match=f"workload least: .*{said}") as stopped,
        job_run.bound(failing, job_run.workloads[0], "screen"),
    ):
        pass
    assert stopped.value.verdict == verdict
    assert stopped.value.failure is not None
    assert stopped.value.failure["kind"] == kind


def test_only_what_was_not_used_for_weeks_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "kernels" / "old", tmp_path / "kernels" / "new"
    for directory in (old, new):
        directory.mkdir(parents=True)
        (directory / "kernel.so").write_text("")
        os.utime(directory, (1000.0, 1000.0))
    cache_pruning.touch(new)
    cache_pruning.touch(tmp_path / "absent")
    assert cache_pruning.prune(tmp_path) == [old]
    assert not old.exists()
    assert (new / "kernel.so").exists()


def test_the_share_of_others_is_what_is_busy_and_not_ours() -> None:
    before = host.Usage(total=1000, busy=500, own=100)
    assert host.share_of_others(before, host.Usage(1200, 650, 150)) == 0.5
    assert host.share_of_others(before, host.Usage(1200, 550, 150)) == 0.0
    assert host.share_of_others(before, before) == 0.0
    now = host.usage()
    assert now.total > now.busy > 0
    assert now.own >= 0


def test_numbers_that_json_lacks_become_words() -> None:
    document = {"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": {"c": (True, None)}}
    assert json_safe(document) == {"a": ["nan", "inf", "-inf", 1.5], "b": {"c": [True, None]}}


def vector(name: str, elements: int, *, derived: bool = False) -> ResolvedWorkload:
    found = judging.workload(name, "test", [judging.tensor("x", (elements,))], [judging.output("y", (elements,))])
    if derived:
        found["derived"] = True
    return found


def test_every_workload_is_searched_and_the_smallest_that_shows_something_longest() -> None:
    """A kernel may have a path of its own for each size; chance once chose two of one path."""
    sizes = [vector("one", 1), vector("some", 2000), vector("more", 5000), vector("held", 3000, derived=True)]
    chosen = {one["id"]: share for one, share in attack.attacked([*sizes, vector("huge", 1 << 23)], CPU)}
    assert chosen == {"some": 1.0, "one": 0.5, "more": 0.5, "held": 0.0}
    assert [one["id"] for one, _ in attack.attacked(sizes[3:], CPU)] == ["held"], "where there is no other"
    assert attack.attacked([vector("huge", 1 << 23)], CPU) == []


def test_a_race_is_looked_for_where_more_than_one_warp_works() -> None:
    looked_at = sanitizing_gpu.looked_at([vector("some", 2000), vector("one", 1), vector("more", 5000)])
    assert {tool: one["id"] for tool, one in looked_at.items()} == {
        "memcheck": "one",
        "racecheck": "some",
        "synccheck": "one",
        "initcheck": "some",
    }
    assert {one["id"] for one in sanitizing_gpu.looked_at([vector("one", 1), vector("ten", 10)]).values()} == {
        "one",
        "ten",
    }


def test_the_score_of_one_workload_has_its_interval_over_the_fastest_baseline() -> None:
    """Else two bootstraps of one ratio, each with draws of its own, would stand side by side in a verdict."""

    def entry(**times: float) -> Any:
        return {
            "time_us": {**times, "candidate": 5.0},
            "ci95": {name: [time / 6, time / 4] for name, time in times.items()},
        }

    assert own_interval([entry(eager=12.0)]) == (2.0, 3.0)
    assert own_interval([entry(eager=24.0, compile=12.0)]) == (2.0, 3.0)
    assert own_interval([entry(eager=12.0), entry(eager=12.0)]) is None, "a mean of several is no workload's own"
