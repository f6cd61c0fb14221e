"""A bundle's candidates compiled where it is written, and what a judge elsewhere makes of their builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from warpsmith import prompts
from warpsmith.kernels_db.job.bundle import SignedJob, digest
from warpsmith.kernels_db.job.carried_builds import BUILDS
from warpsmith.kernels_db.job.documents import JobCandidate
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.protocol.builds import add_build, read_builds
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judging import machine
from warpsmith.workers.judging.builds import write_builds

GOOD = (REPOSITORY / "tests" / "candidates" / "add_relu_cute.py").read_text()
WRONG = GOOD.replace("cute.size(bias)).launch", "cute.size(bias, 3, 4)).launch")
REFUSED = GOOD.replace("    launch(x, bias, y)", "    print(x)")


def written(directory: Path, *candidates: JobCandidate | None) -> list[SignedJob]:
    """Write a bundle of screenings by hand; its signatures are nobody's."""
    op = load_op(REPOSITORY / "examples" / "add_relu.yaml")
    jobs = []
    for number, candidate in enumerate(candidates):
        level = "baseline" if candidate is None else "screen"
        job = build_job(op, Target("cuda", "sm_90"), level=level, candidate=candidate)  # type: ignore[arg-type]
        job["id"] = f"bj_{number}"
        ticket = {"nonce": job["id"], "bundle_id": "bn_1", "search_id": "sr_1", "attempt_id": f"at_{number}"}
        jobs.append({**ticket, "job_digest": digest(job), "signature": "", "job": job})
    directory.mkdir()
    (directory / "jobs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in jobs))
    header = {"format": "warpsmith-bundle", "version": 1, "id": "bn_1", "search_id": "sr_1", "op": op.name}
    header |= {"target": "cuda:sm_90", "created_at": 1.0, "count": len(jobs)}
    (directory / "bundle.json").write_text(json.dumps(header))
    return jobs  # type: ignore[return-value]


def test_a_bundle_without_such_candidates_has_no_builds(tmp_path: Path) -> None:
    triton: JobCandidate = {"language": "triton", "source": prompts.example("triton")}
    written(tmp_path / "bundle", None, triton)
    assert write_builds(tmp_path / "bundle") == 0
    assert not (tmp_path / "bundle" / BUILDS).exists()


@pytest.mark.nightly
@pytest.mark.skipif(bool(machine.gpus()), reason="with a GPU the candidates would run")
def test_there_compiled_here_not(tmp_path: Path) -> None:
    pytest.importorskip("cutlass", reason="CuTe DSL is not installed: pip install -e '.[cute]'")
    candidates: list[JobCandidate] = [{"language": "cute", "source": source} for source in (GOOD, WRONG, REFUSED)]
    jobs = written(tmp_path / "bundle", *candidates)
    assert write_builds(tmp_path / "bundle") == 2  # what the gate refuses is refused on the other host as well
    builds = read_builds(tmp_path / "bundle", jobs)
    with JudgeClient(cache=tmp_path / "cache") as judge:
        verdicts: list[Any] = [judge.judge(add_build(one["job"], builds.get(one["nonce"])), 200) for one in jobs]
    good, wrong, refused = verdicts
    assert (good["verdict"], good["gate"]) == ("ambiguous", "screen")
    assert "compiled where its bundle was written, by nvidia-cutlass-dsl " in good["reason"]
    assert good["versions"]["nvidia-cutlass-dsl"]
    assert {kernel["workload"] for kernel in good["compile"]["kernels"]} <= {
        workload["id"] for workload in jobs[0]["job"]["workloads"] if workload["role"] == "bench"
    }
    assert (wrong["verdict"], wrong["gate"], wrong["failure"]["kind"]) == ("rejected", "compile", "compile")
    assert (refused["verdict"], refused["gate"]) == ("rejected", "gate")
