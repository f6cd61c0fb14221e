"""The kernels of others can be read, and their ops loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cases import read_cases
from tests import REPOSITORY
from warpsmith.kernels_db.spec.op import load_op

LISTS = REPOSITORY / "benchmarks" / "kernels_of_others"


@pytest.mark.parametrize(
    ("name", "least", "aside"), [("cpu", 80, True), ("gpu", 80, True), ("gpu_second", 72, True), ("threads", 60, False)]
)
def test_every_case_has_an_op(name: str, least: int, aside: bool) -> None:
    cases = read_cases(LISTS / f"{name}.jsonl")
    assert len({case.name for case in cases}) == len(cases) >= least
    assert {case.wrong for case in cases} == {True, False}
    assert {case.aside for case in cases} == {False, aside}
    for case in cases:
        assert load_op(case.op).name
        assert "def run(" in case.source


def test_a_folder_gives_the_same_as_lines(tmp_path: Path) -> None:
    line = json.loads((LISTS / "cpu.jsonl").read_text().splitlines()[0])
    folder = tmp_path / "cases" / line["name"]
    folder.mkdir(parents=True)
    (folder / "op.yaml").write_text(line["op"])
    (folder / "kernel.py").write_text(line["kernel"])
    (folder / "about.json").write_text(json.dumps({key: line[key] for key in ("wrong", "kind", "note", "aside")}))
    assert read_cases(tmp_path / "cases") == [read_cases(LISTS / "cpu.jsonl")[0]]
