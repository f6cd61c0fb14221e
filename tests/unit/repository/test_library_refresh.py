"""New verdicts in place of the evidence that kernels ship with."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.library_refresh import main, refusal
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.library import SHIPPED, Entry, entries


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A library of one kernel."""
    entry = next(one for one in entries() if one.op.name == "softmax")
    shutil.copytree(entry.directory, tmp_path / "library" / entry.directory.name)
    return tmp_path / "library"


def only(shipped: Path) -> Entry:
    (entry,) = entries(shipped)
    return entry


def refreshed(shipped: Path, *verdicts: Any) -> int:
    file = shipped.parent / "verdicts.json"
    file.write_text(json.dumps(verdicts), encoding="utf-8")
    os.utime(file, (1_800_000_000, 1_800_000_000))
    return main([str(file)], shipped)


def test_evidence_envelope_and_date_are_new_and_the_kernel_is_the_same(shipped: Path) -> None:
    before = only(shipped)
    verdict = copy.deepcopy(before.evidence)
    verdict["score"], verdict["versions"]["torch"] = 1.5, "2.99.0"
    assert refreshed(shipped, verdict) == 0
    after = only(shipped)  # reading checks every digest
    assert after.evidence == verdict
    assert after.document["envelope"]["versions"]["torch"] == "2.99.0"
    assert after.document["verified_at"] == "2027-01-15T08:00:00+00:00"
    for name in ("id", "lineage", "prompts", "source_digest"):
        assert after.document[name] == before.document[name]
    assert (after.source, after.op) == (before.source, before.op)
    prose = (after.directory / "LINEAGE.md").read_text(encoding="utf-8")
    assert "1.50x" in prose


def _rejected(verdict: dict[str, Any]) -> None:
    verdict["verdict"] = "rejected"


def _without_a_baseline(verdict: dict[str, Any]) -> None:
    verdict["workloads"][0]["time_us"].pop("max_autotune")


def _without_a_workload(verdict: dict[str, Any]) -> None:
    verdict["workloads"] = [one for one in verdict["workloads"] if one["id"] != "odd"]


def _of_another(verdict: dict[str, Any]) -> None:
    verdict["op"] = "softmaxes"


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (None, "? ?: left as it is: no verdict: the file does not say why"),
        (
            {"op": "softmax", "language": "cuda", "seconds": 1.0, "verdict": None, "error": "JudgeDied: gone"},
            "softmax cuda: left as it is: no verdict: JudgeDied: gone",
        ),
    ],
)
def test_a_kernel_without_a_verdict_is_named_and_the_others_are_refreshed(
    shipped: Path, without: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = copy.deepcopy(only(shipped).evidence)
    verdict["score"] = 1.5
    assert refreshed(shipped, without, verdict) == 1
    assert said in capsys.readouterr().err
    assert only(shipped).evidence["score"] == 1.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_rejected, "found rejected at level verify, expected accepted"),
        (_without_a_baseline, "found no time of max_autotune at wide"),
        (_without_a_workload, "found no workload odd"),
        (_of_another, "softmaxes cuda:sm_90 cuda: left as it is: no such kernel ships"),
    ],
)
def test_what_is_no_evidence_is_named_and_changes_nothing(
    shipped: Path, capsys: pytest.CaptureFixture[str], change: Any, said: str
) -> None:
    before = {file: file.read_bytes() for file in shipped.rglob("*") if file.is_file()}
    verdict = copy.deepcopy(only(shipped).evidence)
    change(verdict)
    assert refreshed(shipped, verdict) == 1
    assert said in capsys.readouterr().err
    assert {file: file.read_bytes() for file in shipped.rglob("*") if file.is_file()} == before


def test_every_kernel_that_ships_was_verified_beside_all_its_baselines() -> None:
    for entry in entries(SHIPPED):
        assert refusal(entry, cast("Verdict", entry.evidence)) is None, entry.directory.name
