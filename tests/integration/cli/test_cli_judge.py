"""`warpsmith judge` with the real judge: exit codes, one JSON document, and what a wrong candidate is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import scenario
from tests.support.launching import REPOSITORY, warpsmith
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.service.cli import run
from warpsmith.service.cli.commands import judge as command
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judging import machine

CANDIDATES = REPOSITORY / "tests" / "candidates"


def files(tmp_path: Path, body: str) -> list[str]:
    """The op, and a candidate with this body."""
    spec, candidate = tmp_path / "spec.yaml", tmp_path / "candidate.py"
    spec.write_text(scenario.OP)
    candidate.write_text(scenario.candidate(body))
    return [str(spec), str(candidate)]


@pytest.fixture
def refused(
    judge: JudgeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What the command says of a candidate that is not accepted, in this process and by the judge that tests share."""
    monkeypatch.setattr(command, "judge_once", lambda job, _: judge.judge(job, 120.0))

    def say(body: str, *arguments: str) -> str:
        assert run(["judge", *files(tmp_path, body), *arguments]) == 1
        return capsys.readouterr().out

    return say


def test_a_good_candidate_is_accepted(tmp_path: Path, judge_cache: Path) -> None:
    """The command as a process, with a judge of its own."""
    result = warpsmith(
        tmp_path / "home",
        *("judge", *files(tmp_path, scenario.LOOP), "--json"),
        WARPSMITH_JUDGE_CACHE=str(judge_cache),
    )
    verdict, err = json.loads(result.stdout), result.stderr
    assert verdict["verdict"] == "accepted"
    assert {"gate", "reason", "op", "target", "language", "sandbox", "versions", "fingerprint"} <= set(verdict)
    declared = [item["id"] for item in verdict["workloads"] if not item["id"].startswith("holdout-")]
    assert declared == ["even", "odd"]
    assert verdict["workloads"][0]["speedup"]["eager"] > 0
    assert "judging" in err


def test_a_cache_that_cannot_be_made_ends_with_one_line(tmp_path: Path) -> None:
    result = warpsmith(
        tmp_path / "home",
        *("judge", *files(tmp_path, scenario.LOOP), "--level", "compile"),
        code=1,
        WARPSMITH_JUDGE_CACHE="/dev/null",
    )
    said, error = result.stderr.splitlines()
    assert said.startswith("judging ")
    reason = "WARPSMITH_JUDGE_CACHE: cannot make the directory /dev/null: Not a directory"
    assert (result.stdout, error) == (
        "",
        f"error: the judge gave no verdict: the judge's host cannot judge, disk: {reason}",
    )


def test_a_wrong_candidate_is_told_workload_element_expected_and_found(refused: Callable[..., str]) -> None:
    out = refused(scenario.LOOP.replace("+ 1.0f", "+ 1.5f"), "--level", "screen")
    assert out.startswith("rejected at screen: workload even: y[")
    for line in (
        r"workload  even",
        r"element   y\[\d+\]",
        r"expected  -?\d",
        r"found     -?\d",
        r"wrong     4,096 of 4,096",
    ):
        assert re.search(rf"^  {line}", out, re.MULTILINE), line


def test_one_that_does_not_compile_shows_the_compilers_words(refused: Callable[..., str]) -> None:
    out = refused("y[0] = two;")
    assert "rejected at compile" in out
    assert "'two' was not declared" in out


@pytest.mark.nightly
def test_the_shipped_pair_is_told_apart(tmp_path: Path) -> None:
    options = ("--workload", "single", "--json")
    for name, code in (("good", 0), ("wrong", 1)):
        path = CANDIDATES / f"layer_norm_cpp_{name}.py"
        result = warpsmith(tmp_path / "home", "judge", "examples/layer_norm.yaml", str(path), *options, code=code)
        verdict = json.loads(result.stdout)
        assert (verdict["verdict"] == "accepted") is (code == 0)
    assert verdict["failure"]["workload"] == "single"
    assert {"tensor", "index", "expected", "found"} <= set(verdict["failure"])


@pytest.mark.nightly
@pytest.mark.skipif(bool(machine.gpus()), reason="this machine has a CUDA GPU")
@pytest.mark.parametrize(
    ("language", "reason"),
    [
        ("triton", "not timed"),
        ("cuda", "not run"),
        ("gluon", "interpreter knows no Gluon"),
        ("cute", "not run"),
        ("tilelang", "not run"),
    ],
)
def test_without_a_gpu_what_still_works_is_said_before_and_after(tmp_path: Path, language: str, reason: str) -> None:
    if missing := machine.missing_for_judge(language):
        pytest.skip(missing[0])
    arguments = ("judge", "examples/add_relu.yaml", str(CANDIDATES / f"add_relu_{language}.py"))
    result = warpsmith(tmp_path / "home", *arguments, "--target", "cuda:sm_90", code=1)
    assert f"no CUDA GPU here: {LANGUAGES[language].without_device}" in result.stderr
    assert result.stdout.startswith("ambiguous at ")
    assert reason in result.stdout.splitlines()[0]
    assert re.search(r"kernel    bias_relu(_kernel)?: \d+ registers, 0 bytes spilled", result.stdout)
    screened = warpsmith(tmp_path / "home", *arguments, "--target", "cuda:sm_90", "--level", "screen", code=1)
    assert ("interpreter on single, floats" in screened.stdout) is (language == "triton"), screened.stdout
    only = ("--target", "cuda:sm_90", "--level", "screen", "--workload", "small")
    named = warpsmith(tmp_path / "home", *arguments, *only, code=1)
    assert ("not checked; workload small has" in named.stdout) is (language == "triton"), named.stdout
    refused = warpsmith(tmp_path / "home", *arguments, code=2)
    assert "target: found nothing" in refused.stderr
