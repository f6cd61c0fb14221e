"""The forty candidates of the throughput benchmark are what they say they are, as far as that shows without a GPU."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import judge_throughput, peer
from benchmarks.throughput_candidates import BROKEN, OPS, Candidate, candidates
from warpsmith.workers.judge.protocol.client import JudgeClient

INTERPRETED = ("lower precision", "wrong by a tile", "writes nothing", "assumes a shape")
"""What Triton's interpreter shows at small shapes."""


def test_there_are_forty_and_a_quarter_is_broken() -> None:
    forty = candidates()
    assert len({one.source for one in forty}) == len({one.name for one in forty}) == 40
    assert sum(one.language == "cuda" for one in forty) == 20
    for language in ("cuda", "triton"):
        assert sum(one.broken is not None for one in forty if one.language == language) == 5
    assert {one.broken for one in forty} - {None} == set(BROKEN)
    assert {one.op.name for one in forty} == set(OPS)


@pytest.mark.nightly
def test_gate_and_compiler_refuse_those_that_they_should_and_no_other() -> None:
    said = judge_throughput.check(candidates())
    assert sorted(line.split(": ")[1] + " " + line[line.index("(") : line.index(")")] for line in said) == [
        "compile (does not compile",
        "compile (does not compile",
        "gate (caches by pointer",
    ], said


@pytest.mark.nightly
def test_triton_candidates_under_the_interpreter(tmp_path: Path) -> None:
    small = {name: dataclasses.replace(op, rows=5, columns=2048, odd=(2, 1000)) for name, op in OPS.items()}
    chosen = [
        dataclasses.replace(one, op=small[one.op.name])
        for one in candidates()
        if one.language == "triton" and (one.broken in INTERPRETED or (one.broken is None and "w4" in one.name))
    ]
    with JudgeClient(cache=tmp_path) as client, ThreadPoolExecutor(len(chosen)) as pool:
        jobs = [judge_throughput.job_of(one.op, one, "verify", "cuda:sm_90", ["eager"]) for one in chosen]
        verdicts = list(pool.map(lambda job: client.judge(job, 280), jobs))
    for one, verdict in zip(chosen, verdicts, strict=True):
        assert verdict["verdict"] == ("rejected" if one.broken else "ambiguous"), (one.name, verdict["reason"])
        if one.broken:
            assert verdict["failure"] is not None
            assert verdict["failure"]["kind"] in {"wrong_value", "not_written", "out_of_bounds"}, verdict["reason"]


@pytest.mark.nightly
def test_the_peer_answers_for_its_candidate_whatever_happens(tmp_path: Path) -> None:
    op = OPS["softmax"]
    request = {"language": "triton", "source": "raise KeyError('tiles')", "reference": op.reference, "dtype": "float32"}
    (tmp_path / "request.json").write_text(json.dumps({**request, "inputs": [[2, 2]]}))
    command = [sys.executable, "-P", str(peer.__file__), "request.json", "answer.json"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["accepted"], answer["reason"]) == (False, "KeyError: 'tiles'")


def test_what_was_not_run_is_extrapolated_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Candidate] = []

    def answered(one: Candidate) -> dict[str, object]:
        asked.append(one)
        return {"accepted": one.broken != "does not compile", "reason": "", "time_us": 1.0, "build_s": 1.0}

    monkeypatch.setattr(judge_throughput, "_peer", answered)
    found = judge_throughput.usual(candidates(), 6, 20)
    assert found["run"] == {"cuda": 6, "triton": 20}
    assert found["extrapolated"]
    assert sum(one.broken is not None for one in asked) == 10, "the broken ones come first"
    assert "EXTRAPOLATED from 6 of 20 cuda candidates" in "\n".join(judge_throughput.about_usual(found))
    whole = judge_throughput.usual(candidates(), 20, 20)
    assert not whole["extrapolated"]
    assert "EXTRAPOLATED" not in "\n".join(judge_throughput.about_usual(whole))
    assert "broken candidates accepted: 8 of 10" in "\n".join(judge_throughput.about_usual(whole))


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_throughput, "gpu_target", lambda: None)
    monkeypatch.setattr(sys, "argv", ["judge_throughput"])
    assert judge_throughput.main() == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err
