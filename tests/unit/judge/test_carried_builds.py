"""Builds that come with a bundle: what is packed is what is read, and what was altered is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import steps_support
from warpsmith import prompts
from warpsmith.kernels_db.job import carried_builds
from warpsmith.kernels_db.job.bundle import SignedJob, digest
from warpsmith.kernels_db.job.carried_builds import (
    BUILDS,
    BadBuild,
    CarriedBuild,
    CarriedReport,
    check_build,
    pack_files,
    read_files,
    source_digest,
)
from warpsmith.kernels_db.job.documents import Failure, Job
from warpsmith.kernels_db.runtime import HostError, cuda_build
from warpsmith.kernels_db.runtime.cutedsl_build import CARRIED_VARIABLE, NOT_CARRIED
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.gates import candidates
from warpsmith.workers.judge.gates.job_run import candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.languages import carried
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.machine.kernel_cache import kernel_cache
from warpsmith.workers.judge.protocol.answers import BadDirectory
from warpsmith.workers.judge.protocol.builds import add_build, read_builds
from warpsmith.workers.judge.runner.faults import RunnerFault

SOURCE = prompts.example("cute")
KEY = "ab" + "0" * 62
TARGET = "cuda:sm_90"
REPORT: CarriedReport = {
    "seconds": 1.0,
    "log": "",
    "cached": False,
    "kernels": [],
    "binaries": [],
    "launches": [],
    "compiler": "c" * 64,
}


def build(source: str = SOURCE, **changed: Any) -> CarriedBuild:
    made: CarriedBuild = {
        "language": "cute",
        "target": TARGET,
        "source_digest": source_digest(source),
        "report": REPORT,
        "versions": {"nvidia-cutlass-dsl": "4.8.1"},
        "multiprocessors": 132,
        "files": [],
    }
    return {**made, **changed}  # type: ignore[typeddict-item]


def one_file(content: bytes, name: str = f"ab/{KEY}.cubin") -> Any:
    text = base64.b64encode(zlib.compress(content)).decode()
    return {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "content": text}


def test_what_is_packed_is_what_is_read(tmp_path: Path) -> None:
    wanted = {f"ab/{KEY}.cubin": b"\x7fELF", f"ab/{KEY}.launches": b"[]", f"ab/{KEY}.json": b"{}"}
    others = {
        "ab/ab.cubin": b"x",
        f"cd/{KEY}.cubin": b"x",
        "ab/" + "ab" + "1" * 62 + ".json": b"{}",
        "ab/x.report": b"x",
    }
    for name, content in {**wanted, **others}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read_files(build(files=pack_files(tmp_path))) == wanted


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({**one_file(b"x"), "sha256": "0" * 64}, "found a file of digest"),
        (one_file(b"x", f"../{KEY}.cubin"), "name: found"),
        (one_file(b"x", f"cd/{KEY}.cubin"), "name: found"),
        (one_file(b"x", f"ab/{KEY}.py"), "name: found"),
        ({**one_file(b"x"), "content": "é"}, "no file by zlib"),
        ({**one_file(b"x"), "content": base64.b64encode(b"plain").decode()}, "no file by zlib"),
        (one_file(bytes(1001)), "more than 1000 bytes"),
    ],
)
def test_an_altered_file_is_refused(file: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_builds, "MOST_BYTES", 1000)
    with pytest.raises(BadBuild, match=said):
        read_files(build(files=[file]))


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"language": "tilelang"}, "language"), ({"target": "cuda:sm_80"}, "target"), ({"source_digest": "0"}, "digest")],
)
def test_a_build_is_for_one_candidate(changed: dict[str, Any], field: str) -> None:
    check_build(build(), "cute", SOURCE, TARGET)
    with pytest.raises(BadBuild, match=rf"build\.\w*{field}: found"):
        check_build(build(**changed), "cute", SOURCE, TARGET)


def test_a_cubin_is_looked_at_before_it_is_used(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC compiles the cubins")
    plain = cuda_build.build('extern "C" __global__ void k(int* x) { *x = 1; }', "sm_90", cache_dir=tmp_path)
    code = plain.path.read_bytes()
    report = {**REPORT, "binaries": digests([code])}
    launches = one_file(b"[]", f"ab/{KEY}.launches")
    good = build(report=report, files=[one_file(code), launches])
    assert carried.unpack(good, "cute", SOURCE, TARGET, tmp_path / "good") == report
    assert (tmp_path / "good" / f"ab/{KEY}.cubin").read_bytes() == code
    kept = 'extern "C" { __device__ int seen; __global__ void k(int* x) { *x = seen++; } }'
    stateful = cuda_build.build(kept, "sm_90", cache_dir=tmp_path).path.read_bytes()
    taking = 'extern "C" __global__ void k(void** x) { *x = malloc(8); }'
    allocating = cuda_build.build(taking, "sm_90", cache_dir=tmp_path).path.read_bytes()
    for language, content, said in (
        ("cute", b"no cubin", "found no cubin"),
        ("cute", allocating, "calls malloc"),
        ("tilelang", stateful, "device variable 'seen'"),
        ("cute", stateful, "expected digests of cubins"),
    ):
        bad = build(language=language, report=report, files=[one_file(content), launches])
        with pytest.raises(HostError, match=said):
            carried.unpack(bad, language, SOURCE, TARGET, tmp_path / "bad")
    for beside, said in (
        ([], "found no launches"),
        ([one_file(b"{}", f"ab/{KEY}.launches")], "expected a list of launches"),
    ):
        bad = build(report=report, files=[one_file(code), *beside])
        with pytest.raises(HostError, match=said):
            carried.unpack(bad, "cute", SOURCE, TARGET, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_a_language_that_needs_no_build_takes_none(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="build: found one of a candidate in cpp, expected one of cute or tilelang"):
        carried.unpack(build(language="cpp"), "cpp", SOURCE, TARGET, tmp_path)


def screening(**candidate: Any) -> Job:
    made = build_job(steps_support.OP, steps_support.TARGET, level="baseline", candidate=None)
    given = {"language": "cute", "source": SOURCE, **candidate}
    return {**made, "target": TARGET, "level": "screen", "candidate": given}  # type: ignore[return-value, typeddict-item]


def test_a_carried_build_is_not_compiled_and_its_compilers_are_named(tmp_path: Path) -> None:
    job = screening(build=build())
    report = Report(job)
    prepared = candidates.prepare(job, report, tmp_path, interpreted=False)
    assert prepared is not None
    assert prepared.environment[CARRIED_VARIABLE] == "c" * 64
    assert report.compilers == {"nvidia-cutlass-dsl": "4.8.1"}
    assert report.notes == ["compiled where its bundle was written, by nvidia-cutlass-dsl 4.8.1"]
    assert report.compile is not None
    assert report.compile["compiler"] == "c" * 64
    # What is compiled here of the same source lies elsewhere: a build from outside replaces nothing of it.
    assert str(kernel_cache(tmp_path, SOURCE)) not in prepared.environment.values()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": "cuda:sm_80"}, r"build\.target: found 'cuda:sm_80'"),
        ({"report": {**REPORT, "compiler": ""}}, r"build\.report: found none with the key of its compiler"),
    ],
)
def test_a_build_for_something_else_is_nobodys_fault(changed: Any, said: str, tmp_path: Path) -> None:
    job = screening(build=build(**changed))
    with pytest.raises(Stopped, match=said) as caught:
        candidates.prepare(job, Report(job), tmp_path, interpreted=False)
    assert (caught.value.verdict, caught.value.gate) == ("ambiguous", "compile")


def test_what_did_not_compile_there_is_rejected_here(tmp_path: Path) -> None:
    failure: Failure = {"kind": "compile", "message": "line 3: no such function"}
    refused = build(refused={"reason": "line 3: no such function", "failure": failure})
    del refused["report"]
    elsewhere = screening(build={**refused, "target": "cuda:sm_80"})
    with pytest.raises(Stopped, match=r"build\.target") as caught:
        candidates.prepare(elsewhere, Report(elsewhere), tmp_path, interpreted=False)
    assert caught.value.verdict == "ambiguous"
    job = screening(build=refused)
    with pytest.raises(Stopped, match="line 3") as caught:
        candidates.prepare(job, Report(job), tmp_path, interpreted=False)
    assert (caught.value.verdict, caught.value.gate, caught.value.failure) == ("rejected", "compile", failure)


def signed(job: Job) -> SignedJob:
    nonce = {"nonce": "bj_1", "bundle_id": "bn_1", "search_id": "sr_1", "attempt_id": "at_1", "signature": "s"}
    return {**nonce, "job_digest": digest(job), "job": job}  # type: ignore[return-value, typeddict-item]


def test_builds_of_a_bundle_are_given_to_their_jobs(tmp_path: Path) -> None:
    one = signed(screening())
    assert read_builds(tmp_path, [one]) == {}
    line = {"nonce": "bj_1", "job_digest": one["job_digest"], "build": build()}
    (tmp_path / BUILDS).write_text(json.dumps(line) + "\n")
    found = read_builds(tmp_path, [one])
    given = add_build(one["job"], found["bj_1"])
    assert given["candidate"] is not None
    assert given["candidate"]["build"] == build()
    assert "build" not in (one["job"]["candidate"] or {})
    swept = screening(source=SOURCE + "\n")  # a sweep has set other numbers
    assert add_build(swept, found["bj_1"]) is swept


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"nonce": "bj_2"}, "nonce: found 'bj_2', expected that of a job of the bundle"),
        ({"job_digest": "0"}, "expected that of a job of the bundle, with its digest"),
        ({"build": {}}, "line 1, build.language"),
        ({"build": build(files=[{"name": 3}])}, r"build\.files\[0\]\.name: found 3"),
        ({"build": build(report={**REPORT, "binaries": 3})}, r"build\.report\.binaries: found 3"),
    ],
)
def test_a_line_that_is_no_build_of_the_bundle_is_refused(line: Any, said: str, tmp_path: Path) -> None:
    one = signed(screening())
    whole = {"nonce": "bj_1", "job_digest": one["job_digest"], "build": build(), **line}
    (tmp_path / BUILDS).write_text(json.dumps(whole) + "\n")
    with pytest.raises(BadDirectory, match=said):
        read_builds(tmp_path, [one])


def test_a_job_has_one_build(tmp_path: Path) -> None:
    one = signed(screening())
    line = json.dumps({"nonce": "bj_1", "job_digest": one["job_digest"], "build": build()}) + "\n"
    (tmp_path / BUILDS).write_text(2 * line)
    with pytest.raises(BadDirectory, match="line 2, nonce: found 'bj_1', expected one that no other line has"):
        read_builds(tmp_path, [one])


def test_host_code_that_asks_for_the_devices_size_needs_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "blocks = torch.cuda.get_device_properties(x.device).multi_processor_count"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=114))
    carried.unpack(build(), "cute", SOURCE, TARGET, tmp_path)
    carried.unpack(build(source, multiprocessors=114), "cute", source, TARGET, tmp_path)
    with pytest.raises(HostError, match=r"build\.multiprocessors: found 132, expected this device's 114"):
        carried.unpack(build(source), "cute", source, TARGET, tmp_path)


def test_a_call_without_a_build_is_no_fault_of_the_candidates() -> None:
    lacking = f"HostError: {NOT_CARRIED} 'add'"
    for carried_, message, word in (
        (True, lacking, "ambiguous"),
        (True, "HostError: no", "rejected"),
        (True, f"ValueError: {lacking}", "rejected"),
        (False, lacking, "rejected"),
    ):
        with pytest.raises(Stopped) as caught, candidate_at_fault("screen", None, carried=carried_):
            raise RunnerFault("candidate", "raises", message)
        assert caught.value.verdict == word
