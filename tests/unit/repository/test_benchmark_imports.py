"""`benchmarks.imports`: what it takes for a problem, which it draws, and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="problems are torch's, which is not installed")

from benchmarks.imports import AFFORDABLE_BYTES, Row, _affordable, drawn, measure, problems, table
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.file_analysis import Analysis
from warpsmith.workers.judging.judgement import Judgement, no_verdict

PROBLEM = """import torch

size = 2048


class Model(torch.nn.Module):
    def __init__(self, shape):
        super(Model, self).__init__()
        self.shape = shape

    def forward(self, x):
        return torch.relu(x).reshape(self.shape) + 1


def get_inputs():
    return [torch.rand(size, size)]


def get_init_inputs():
    return [(size * size,)]
"""


def no_analysis(request: dict[str, Any]) -> Analysis:
    """No code of these problems has to be run."""
    raise AssertionError(request)


def written(root: Path, *names: str, text: str = "def get_inputs(): ...") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_problems_are_found_by_set(tmp_path: Path) -> None:
    written(tmp_path, "level1/1_A.py", "level1/2_B.py", "tasks/add/task.yml", "fi/definitions/norm/rms.json", "c.py")
    written(tmp_path, "level1/helper.py", "fi/workloads/norm/rms.json", text="x = 1")
    found = [(name, path.relative_to(tmp_path).as_posix()) for name, path in problems(tmp_path)]
    assert found == [
        (".", "c.py"),
        ("fi", "fi/definitions/norm/rms.json"),
        ("level1", "level1/1_A.py"),
        ("level1", "level1/2_B.py"),
        ("tasks", "tasks/add/task.yml"),
    ]


def test_so_many_of_each_set_are_drawn_by_the_seed() -> None:
    found = [(name, Path(f"{name}/{number}.py")) for name in "ab" for number in range(20)]
    assert drawn(found, None, 0) == found
    some = drawn(found, 3, 0)
    assert [name for name, _ in some] == ["a"] * 3 + ["b"] * 3
    assert some == drawn(found, 3, 0)
    assert some != drawn(found, 3, 1)


def test_the_table_counts_by_set_and_says_what_failed() -> None:
    rows = [
        Row("one", "a", True, True, True, "n 4"),
        Row("one", "b", True, True, False, error="admission: x not read"),
        Row("two", "c", True, False, False, error="reference: raises"),
        Row("two", "d", error="no forward"),
    ]
    lines = [" ".join(line.split()) for line in table(rows).splitlines()]
    assert lines == [
        "set problems imported runs admitted",
        "one 2 2 2 1",
        "two 2 1 0 0",
        "all 4 3 2 1",
        "runs and admitted: on a CPU; 1 of 4 at smaller sizes than the file's, or at some of its workloads",
        "one/b: not admitted: admission: x not read",
        "two/c: does not run: reference: raises",
        "two/d: not imported: no forward",
    ]
    assert "imported" in table([Row("one", "a", True)])
    assert table([Row("one", "a", True)]).splitlines()[1].split() == ["one", "1", "1"]


def test_a_file_that_is_no_problem_says_why(tmp_path: Path) -> None:
    written(tmp_path, "bad.py", text="def get_inputs(): ...\ndef get_init_inputs(): ...\n")
    row = measure(".", tmp_path / "bad.py", no_analysis, None)
    assert not row.imported
    assert "no class Model" in row.error


DEFINITION = {
    "name": "twice",
    "op_type": "pointwise",
    "axes": {"batch_size": {"type": "var"}, "width": {"type": "var"}},
    "inputs": {"x": {"shape": ["batch_size", "width"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["batch_size", "width"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x * 2\n",
}


def test_a_definition_gets_a_workload_of_the_sizes_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "fi" / "definitions" / "twice.json"
    written(tmp_path, "fi/definitions/twice.json", text=json.dumps(DEFINITION))
    assert "no Workload" in measure("fi", path, no_analysis, None).error
    row = measure("fi", path, no_analysis, None, {"batch_size": 8, "heads": 2})
    assert (row.error, row.imported) == ("", True)


def test_the_check_asks_for_no_times_and_a_missing_verdict_has_its_reason(tmp_path: Path) -> None:
    written(tmp_path, "fi/definitions/twice.json", text=json.dumps(DEFINITION))
    jobs = []

    def check(job: Job) -> Judgement:
        jobs.append(job)
        return no_verdict(job, "timeout", "no verdict within 3 s")

    row = measure("fi", tmp_path / "fi" / "definitions" / "twice.json", no_analysis, check, {"batch_size": 8})
    assert (row.imported, row.runs, row.admitted, row.error) == (
        True,
        False,
        False,
        "no verdict: no verdict within 3 s",
    )
    assert [workload["role"] for job in jobs for workload in job["workloads"]] == ["test"]
    assert [job["op"]["baselines"] for job in jobs] == [["eager"]]


def test_the_largest_workloads_of_several_are_not_checked() -> None:
    lines = [
        {"uuid": f"{n}", "axes": {"batch_size": n, "width": 1 << 20}, "inputs": {"x": {"type": "random"}}}
        for n in (1, 64)
    ]
    files = [
        RawFile("d.json", json.dumps(DEFINITION).encode()),
        RawFile("w.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode()),
    ]
    op, said = _affordable(import_op(files, None, None).op, AFFORDABLE_BYTES)
    assert ([item.id for item in op.workloads], said) == (["1"], "1 of 2 workloads")


@pytest.mark.nightly
def test_a_problem_is_imported_and_admitted_at_small_sizes(tmp_path: Path) -> None:
    from warpsmith.workers.judge.analysis.client import Analyser  # noqa: PLC0415 - starts a process
    from warpsmith.workers.judging.judge import Judge  # noqa: PLC0415 - starts a judge

    written(tmp_path, "1_Relu.py", text=PROBLEM)
    with Judge() as judge, Analyser(None) as analyse:
        row = measure(".", tmp_path / "1_Relu.py", analyse, judge.submit)
    assert (row.error, row.imported, row.runs, row.admitted, row.sizes) == ("", True, True, True, "size 4")
