"""Hold-outs derived from an op's workloads: where an honest kernel must be right, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.kernels_db.job.documents import Job, JobCandidate, ResolvedWorkload
from warpsmith.kernels_db.spec.branch_shapes import BEYOND, BEYOND_BYTES, BEYOND_FLOPS, BRANCHED
from warpsmith.kernels_db.spec.holdouts import DERIVED
from warpsmith.kernels_db.spec.op import Op, Target, parse_op
from warpsmith.kernels_db.spec.resolve import build_job, workload_bytes

CPU = Target.parse("cpu:x86_64")
CANDIDATE: JobCandidate = {"language": "cpp", "source": "def run(a, y):\n    pass\n"}


def matrix_op(sizes: list[tuple[int, int]], **fields: Any) -> Op:
    document = {
        "schema_version": 1,
        "name": "double",
        "axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}, "twice": {"kind": "expr", "expr": "2 * rows"}},
        "inputs": [{"name": "a", "shape": ["twice", "columns"], "dtype": "float32"}],
        "outputs": [{"name": "y", "shape": ["twice", "columns"], "dtype": "float32"}],
        "reference": "def run(a):\n    return a + a\n",
        "workloads": [
            {"id": f"w{n}", "role": "test" if n else "bench", "axes": {"rows": rows, "columns": columns}}
            for n, (rows, columns) in enumerate(sizes)
        ],
    }
    return parse_op(document | fields)


def derived(job: Job) -> list[ResolvedWorkload]:
    return [workload for workload in job["workloads"] if workload.get("derived")]


SIZES = st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600)), min_size=1, max_size=5)


@given(SIZES, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_derived_shapes_stay_among_the_declared_ones(sizes: list[tuple[int, int]], seed: int) -> None:
    op = matrix_op(sizes)
    job = build_job(op, CPU, level="verify", candidate=CANDIDATE, seed=seed)
    declared, found = job["workloads"][: len(sizes)], derived(job)
    assert len(found) <= DERIVED + BRANCHED
    assert job["workloads"] == declared + found
    largest = max(workload_bytes(workload) for workload in declared)
    shapes = [workload["axes"] for workload in job["workloads"]]
    assert all(shapes.count(workload["axes"]) == 1 for workload in found)
    for workload in found:
        assert workload["role"] == "holdout"
        assert workload["axes"]["twice"] == 2 * workload["axes"]["rows"]
        assert workload_bytes(workload) <= max(largest, min(BEYOND_BYTES, BEYOND * largest))
        for axis, place in (("rows", 0), ("columns", 1)):
            given_sizes = [pair[place] for pair in sizes]
            assert min(given_sizes) <= workload["axes"][axis] <= max(given_sizes)
            assert workload["axes"][axis] % math.gcd(*given_sizes) == 0
        if all(rows <= columns for rows, columns in sizes):
            assert workload["axes"]["rows"] <= workload["axes"]["columns"]
        if all(rows == columns for rows, columns in sizes):
            assert workload["axes"]["rows"] == workload["axes"]["columns"]


@given(st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_constraints_hold_on_derived_shapes(seed: int) -> None:
    op = matrix_op([(6, 40), (90, 400), (30, 64)], constraints=["twice % 3 == 0", "columns % 4 == 0"])
    found = derived(build_job(op, CPU, level="verify", candidate=CANDIDATE, seed=seed))
    assert found
    assert all(workload["axes"]["twice"] % 3 == 0 == workload["axes"]["columns"] % 4 for workload in found)


def test_some_are_beside_tiles_and_some_even_where_all_declared_are_odd() -> None:
    """A median that takes the upper of two middles, a loop that drops a remainder of one."""
    op = matrix_op([(101, 4095), (17, 1003)])
    for _ in range(20):
        first, beside, other = (one["axes"] for one in derived(build_job(op, CPU, level="baseline")))
        assert beside["columns"] % 64 in (1, 63) or beside["columns"] in (1003, 4095)
        for axis in ("rows", "columns"):
            assert {sizes[axis] % 2 for sizes in (first, beside, other)} == {0, 1}


def test_there_are_some_where_sizes_vary_and_others_every_time() -> None:
    op = matrix_op([(100, 512), (300, 2048), (17, 33)])
    jobs = [build_job(op, CPU, level="baseline") for _ in range(20)]
    assert all(len(derived(job)) == DERIVED for job in jobs)
    assert len({str(derived(job)[0]["axes"]) for job in jobs}) > 5


def test_the_same_seed_gives_the_same() -> None:
    op = matrix_op([(100, 512), (300, 2048)])
    one, other = (build_job(op, CPU, level="baseline", seed=5) for _ in range(2))
    assert derived(one) == derived(other) != []


def test_fixed_shapes_chosen_workloads_and_screens_have_none() -> None:
    fixed, varied = matrix_op([(64, 64)]), matrix_op([(64, 64), (3, 5)])
    assert not derived(build_job(fixed, CPU, level="baseline"))
    assert not derived(build_job(varied, CPU, level="screen", candidate=CANDIDATE))
    assert not derived(build_job(varied, CPU, level="verify", candidate=CANDIDATE, workloads=varied.workloads))


def test_an_id_that_the_op_uses_is_left_to_it() -> None:
    workloads = [
        {"id": "holdout-1", "role": "bench", "axes": {"rows": 64, "columns": 640}},
        {"id": "small", "role": "test", "axes": {"rows": 3, "columns": 5}},
    ]
    job = build_job(matrix_op([(1, 1)], workloads=workloads), CPU, level="baseline", seed=1)
    ids = [workload["id"] for workload in job["workloads"]]
    assert ids == ["holdout-1", "small", "holdout-2", "holdout-3", "holdout-4"]


def test_input_overrides_come_along() -> None:
    inputs = {"a": {"dist": {"kind": "uniform", "low": 1.0, "high": 2.0}}}
    workloads = [
        {"id": f"w{n}", "role": "bench", "axes": {"rows": n, "columns": 640}, "inputs": inputs} for n in (1, 70)
    ]
    for workload in derived(build_job(matrix_op([(1, 1)], workloads=workloads), CPU, level="baseline", seed=1)):
        assert workload["inputs"][0]["dist"] == {"kind": "uniform", "low": 1.0, "high": 2.0}


def branching(*conditions: str) -> JobCandidate:
    lines = "".join(f"    if {condition}:\n        pass\n" for condition in conditions)
    return {"language": "cpp", "source": f"LIMIT = 4 * 64\n\n\ndef run(a, y):\n    n = a.shape[1]\n{lines}"}


def columns_of(op: Op, candidate: JobCandidate, seed: int) -> list[int]:
    job = build_job(op, CPU, level="verify", candidate=candidate, seed=seed)
    return [workload["axes"]["columns"] for workload in job["workloads"]]


@given(st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_both_sides_of_a_branch_and_the_number_itself_are_asked(seed: int) -> None:
    op = matrix_op([(1, 301), (1, 4000)])
    sizes = columns_of(op, branching("n > LIMIT + 4", "n == 777", "256 < n"), seed)  # 256 and 260 are out of range
    assert 777 in sizes
    assert any(size < 777 for size in sizes)
    assert any(size > 777 for size in sizes)
    assert len(sizes) <= 2 + DERIVED + 1  # below and above lie declared ones


@given(st.lists(st.integers(1, 700), max_size=6), SIZES, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_shapes_for_branches_are_few_and_among_the_declared_ones(
    numbers: list[int], declared: list[tuple[int, int]], seed: int
) -> None:
    op = matrix_op(declared)
    job = build_job(op, CPU, level="verify", candidate=branching(*(f"n < {one}" for one in numbers)), seed=seed)
    found = derived(job)
    assert len(found) <= DERIVED + BRANCHED
    assert len({workload["id"] for workload in job["workloads"]}) == len(job["workloads"])
    for workload in found:
        for axis, place in (("rows", 0), ("columns", 1)):
            given_sizes = [pair[place] for pair in declared]
            assert min(given_sizes) <= workload["axes"][axis] <= max(given_sizes)
            assert workload["axes"][axis] % math.gcd(*given_sizes) == 0


def test_axes_that_are_always_equal_are_so_for_a_branch() -> None:
    op = matrix_op([(301, 301), (4000, 4000)])
    job = build_job(op, CPU, level="verify", candidate=branching("n == 777"), seed=3)
    assert {"rows": 777, "columns": 777, "twice": 1554} in [workload["axes"] for workload in job["workloads"]]


def native(body: str) -> JobCandidate:
    code = f"extern void f(float* y, int64_t rows, int64_t n) {{\n{body}\n}}"
    return {"language": "cpp", "source": f"kernels = cpp.compile(r'''{code}''')\n"}


WRONG_AT: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "a stretch of rows": ("if (rows > 400 && rows <= 408) y[0] = 0;", lambda rows, n: 400 < rows <= 408),
    "a number": ("#define STEP 10\nif (n == STEP * 100) y[0] = 0; // n == 3", lambda rows, n: n == 1000),
    "a remainder": ("int64_t left = n & 63; if (left == 37) y[0] = 0;", lambda rows, n: n % 64 == 37),
    "a block": ("if (n / 256 == 9) y[0] = 0;", lambda rows, n: n // 256 == 9),
    "an index of 16 bits": ("uint16_t at = 2 * rows * n;", lambda rows, n: 2 * rows * n > 1 << 16),
    "many elements": ("if (2 * rows * n > 600000LL) y[0] = 0;", lambda rows, n: 2 * rows * n > 600000),
    "a square": ("y[rows == n] = 0;", lambda rows, n: rows == n),
}
SERVED = [(96, 2000), (1, 3000), (700, 40), (33, 777)]


@pytest.mark.parametrize("what", WRONG_AT)
def test_native_code_is_asked_at_its_own_sizes(what: str) -> None:
    body, wrong = WRONG_AT[what]
    sizes = [(96, 300), (1, 600), (70, 40)] if "bits" in what else SERVED
    op = matrix_op(sizes)
    for seed in range(6):
        job = build_job(op, CPU, level="verify", candidate=native(body), seed=seed)
        asked = [(workload["axes"]["rows"], workload["axes"]["columns"]) for workload in job["workloads"]]
        assert any(wrong(*shape) for shape in asked), asked
        assert not any(wrong(*shape) for shape in sizes)
        assert len(derived(job)) <= DERIVED + BRANCHED


def test_an_order_of_axes_that_all_workloads_have_is_kept_beyond_them() -> None:
    op = matrix_op([(30, 40), (10, 400), (90, 100)])
    job = build_job(op, CPU, level="verify", candidate=native("if (rows > n || rows * n > 5000) y[0] = 0;"), seed=1)
    assert max(workload["axes"]["rows"] * workload["axes"]["columns"] for workload in derived(job)) > 90 * 100
    assert all(workload["axes"]["rows"] <= workload["axes"]["columns"] for workload in job["workloads"])


def test_shapes_beyond_the_workloads_have_a_bound_on_work() -> None:
    op = matrix_op([(1, 4000), (4000, 1)], limits={"flops": "rows * rows * columns * columns"})
    job = build_job(op, CPU, level="verify", candidate=native("if (rows * n > 10000) y[0] = 0;"), seed=1)
    declared = max(workload["flops"] or 0 for workload in job["workloads"] if not workload.get("derived"))
    assert all((workload["flops"] or 0) <= BEYOND_FLOPS * declared for workload in derived(job))
