"""`benchmarks.applied_models`: which kernels it takes, what it says of those that are not accepted, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests import REPOSITORY

pytest.importorskip("torch", reason="the benchmark's models are torch's, which is not installed")

from benchmarks import applied_models as models
from benchmarks.showcase import Shown
from warpsmith.workers.judge.protocol.client import JudgeClient

SPEC = REPOSITORY / "examples" / "add_relu.yaml"
CANDIDATE = REPOSITORY / "tests" / "candidates" / "add_relu_cpp.py"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", models.NAMES)
def test_each_model_has_candidates_for_each_device(name: str, device: str) -> None:
    found = models.candidates(name, device)
    assert found
    assert all(models.DEVICE_OF[each.language] == device for each in found)
    for each in found:
        compile(each.file.read_text(), str(each.file), "exec")


def test_a_spec_that_was_not_written_is_told(tmp_path: Path) -> None:
    candidate = models.Candidate("net", "add_relu", "cpp", CANDIDATE)
    found = models.judged(cast("JudgeClient", None), candidate, tmp_path, "cpu", tmp_path)
    assert found.package is None
    assert models.problems({"kernels": [found]}) == [
        "add_relu_cpp.py: the profile wrote no spec of this name",
        "no kernel to put into the model",
    ]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "no verdict: JudgeTimeout: late"),
        ({"verdict": "rejected", "gate": "correctness", "reason": "off"}, "rejected at correctness: off"),
    ],
)
def test_a_candidate_that_is_not_accepted_gets_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Any, said: str
) -> None:
    jobs = []

    def ask(_: JudgeClient, job: Any) -> Shown:
        jobs.append(job)
        return Shown("add_relu", "cpp", 1.0, verdict, "JudgeTimeout: late")

    monkeypatch.setattr(models, "ask", ask)
    candidate = models.Candidate("net", "add_relu", "cpp", CANDIDATE)
    found = models.judged(cast("JudgeClient", None), candidate, SPEC.parent, "cpu", tmp_path)
    assert (found.said, found.package) == (said, None)
    assert found.document() == {"file": CANDIDATE.name, "said": said, "verdict": verdict}
    (job,) = jobs
    assert (job["level"], job["candidate"]["source"]) == ("verify", CANDIDATE.read_text())
    assert not list(tmp_path.iterdir())


def measured() -> dict[str, Any]:
    """A model with one kernel, all well."""
    candidate = models.Candidate("net", "add_relu", "cpp", CANDIDATE)
    one = {"operators": "add + relu", "places": ["a", "b"], "time_us": 9.0, "limit_us": 4.0, "limit_by": "bytes"}
    none = {"operators": "sort", "places": ["c"], "time_us": 1.0, "limit_us": None, "limit_by": None}
    place = {"op": "add_relu", "where": "a", "replaced": True, "reason": None, "kernel": "package"}
    place |= {"us": 3.0, "inductor_us": 4.5}
    row = {"ms": 0.02, "speedup": 1.5, "over_compiled": 1.2, "over_compiled_ci95": [1.1, 1.3]}
    row |= {"largest_difference": 1e-7, "argmax_agreement": 1.0}
    return {
        "profile": {
            "model": "net.py",
            "device": "cpu",
            "model_us": 30.0,
            "opportunities": [
                one | {"saving_us": 5.0, "file": "/specs/add_relu.yaml", "reason": None},
                none | {"saving_us": 0.0, "file": None, "reason": "not pure"},
            ],
        },
        "kernels": [models.Judged(candidate, "accepted", None, Path("/packages/package"))],
        "apply": {"places": [place], "agrees": True, "weights_untouched": True, "unchanged": True},
        "ablate": {"rounds": 11, "variants": [row | {"variant": "all", "agrees": True}]},
    }


def test_tables() -> None:
    lines = [line.split() for line in models.report(measured()).splitlines()]
    assert ["add", "+", "relu", "2", "9.0", "4.0", "bytes", "5.0", "add_relu"] in lines
    assert ["sort", "1", "1.0", "-", "-", "0.0", "not", "pure"] in lines
    assert ["add_relu", "a", "3.0", "us", "for", "4.5"] in lines
    assert ["all", "0.020", "1.500x", "1.200x", "1.100", "to", "1.300", "1.00e-07", "100.00%", "yes"] in lines


def test_what_is_not_well_is_a_problem() -> None:
    found = measured()
    assert models.problems(found) == []
    found["apply"]["places"][0]["replaced"] = False
    found["apply"] |= {"agrees": False, "unchanged": False}
    found["ablate"]["variants"][0]["agrees"] = False
    assert models.problems(found) == [
        "package has no place in the model",
        "the results with the kernels do not agree",
        "the model itself was changed",
        "ablate: the results of 'all' do not agree",
    ]
