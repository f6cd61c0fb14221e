"""Bundles: spelling, signatures, the key, what is read of a verdict that anybody may have written, the judge's copy."""

from __future__ import annotations

import copy
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import REPOSITORY
from tests.support import steps_support
from warpsmith.kernels_db.job.bundle import (
    LONGEST_REASON,
    SignedJob,
    Ticket,
    canonical,
    digest,
    ticket_of,
)
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.strict_json import read_strictly
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.service.bundles.folder import (
    CHUNK_BYTES,
    BadFolder,
    check_free,
    find_returned_files,
    read_lines,
    split_lines,
)
from warpsmith.service.bundles.judge_copy import copy_judge, list_judge_files
from warpsmith.service.bundles.key import BadKey, load_bundle_key
from warpsmith.service.bundles.signing import is_genuine, sign
from warpsmith.service.bundles.verdicts import LONGEST_LINE, LONGEST_TEXT, read_line
from warpsmith.service.cli.commands.bundles import Returned, read_returned
from warpsmith.service.client.errors import MISUSE, CommandError
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.protocol.answers import BadDirectory, append_unjudged, opened_unjudged, opened_verdicts
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeError, JudgeTimeout
from warpsmith.workers.judge.protocol.contract import BrokenDocument
from warpsmith.workers.judge.protocol.directory import _read_job, read_bundle

KEY = b"k" * 32
NONCE = "bj_" + "0" * 26
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def the_job() -> Job:
    job = build_job(steps_support.OP, steps_support.TARGET, level="baseline", candidate=None)
    job["id"] = NONCE
    return job


def ticket(**changes: str) -> Ticket:
    found: dict[str, str] = {
        "nonce": NONCE,
        "bundle_id": "bn_" + "1" * 26,
        "search_id": "sr_" + "2" * 26,
        "attempt_id": "at_" + "3" * 26,
        "job_digest": digest(JOB),
        **changes,
    }
    return ticket_of(found)


JOB = the_job()
SIGNED = cast("SignedJob", {**ticket(), "signature": sign(KEY, ticket()), "job": JOB})
HEADER: dict[str, Any] = {
    "format": "warpsmith-bundle",
    "version": 1,
    "id": SIGNED["bundle_id"],
    "search_id": SIGNED["search_id"],
    "op": "add_relu",
    "target": JOB["target"],
    "created_at": 1.0,
    "count": 1,
}


def line(**changes: Any) -> dict[str, Any]:
    """A line of verdicts.jsonl; `changes` are of the verdict."""
    verdict: Any = steps_support.verdict("screen", "accepted", 2.0)
    verdict |= {"id": NONCE, "sandbox": {"level": "isolated", "layers": []}, **changes}
    for workload in verdict["workloads"]:
        workload["time_us"] |= {"compile": 90.0, "max_autotune": 80.0}
    return {**ticket(), "signature": SIGNED["signature"], "verdict": verdict, "host": {"name": "node7"}}


# Spelling and signatures


@given(JSON)
def test_the_canonical_spelling_survives_a_journey(document: Any) -> None:
    there = json.loads(json.dumps(document, indent=1))
    assert canonical(there) == canonical(document)
    assert digest(there) == digest(document)


def test_names_are_sorted_and_what_is_no_number_is_refused() -> None:
    assert canonical({"b": 1, "a": [1.5, "é"]}) == b'{"a":[1.5,"\\u00e9"],"b":1}'
    with pytest.raises(ValueError):
        canonical(float("nan"))
    for text in ("NaN", "[Infinity]", '{"a": 1, "a": 1}', "{", "[" * 100_000):
        with pytest.raises(ValueError):
            read_strictly(text)


@given(st.sampled_from(sorted(ticket())), st.text(max_size=40), st.binary().filter(lambda key: bool(key.rstrip(b"\0"))))
def test_a_signature_is_for_one_ticket_and_by_one_key(field: str, value: str, other: bytes) -> None:
    made = sign(KEY, ticket())
    assert is_genuine(KEY, ticket(), made)
    assert is_genuine(KEY, ticket(**{field: value}), made) == (value == ticket()[field])  # type: ignore[literal-required]
    assert is_genuine(KEY + other, ticket(), made) is False
    assert not is_genuine(KEY, ticket(), value)


@settings(max_examples=300)
@given(st.data())
def test_any_changed_byte_of_a_job_is_refused_or_changes_nothing(data: st.DataObject) -> None:
    """By the judge, or in the ticket that it copies by the service; a byte of the spelling alone means nothing."""
    raw = bytearray(json.dumps(SIGNED).encode())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[position]))
    try:
        found = _read_job(raw.decode(), HEADER)  # type: ignore[arg-type]
    except ValueError:
        return
    genuine = is_genuine(KEY, ticket_of(found), found["signature"])
    assert not genuine or json.loads(raw) == SIGNED


# The key


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    home = ServiceSettings(home=tmp_path / "new")
    key = load_bundle_key(home)
    assert len(key) >= 32
    assert load_bundle_key(home) == key
    file = tmp_path / "new" / "bundle.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["bundle.key"]
    assert load_bundle_key(ServiceSettings(home=tmp_path / "other")) != key
    file.chmod(0o640)
    with pytest.raises(BadKey, match="found mode 0640, expected 0600"):
        load_bundle_key(home)
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(BadKey, match="found 5 characters"):
        load_bundle_key(home)


def test_the_setting_comes_first_and_is_never_shown(tmp_path: Path) -> None:
    assert load_bundle_key(ServiceSettings(home=tmp_path, bundle_key="s" * 40)) == b"s" * 40
    with pytest.raises(BadKey, match="WARPSMITH_BUNDLE_KEY: found 9 characters") as told:
        load_bundle_key(ServiceSettings(home=tmp_path, bundle_key="too-short"))
    assert "too-short" not in str(told.value)
    assert not list(tmp_path.iterdir())


# Reading what comes back


def read(document: dict[str, Any]) -> Any:
    """What a line with this document is read as."""
    return read_line(json.dumps(document).encode())


def test_a_verdict_is_read() -> None:
    assert read(line())["verdict"]["score"] == 2.0


def test_errors_that_are_no_numbers_are_read_as_the_judge_writes_them() -> None:
    told = line(score=None, score_ci95=None, verdict="rejected", gate="screen")
    told["verdict"]["workloads"][0]["error"]["candidate"] = "inf"
    told["verdict"]["failure"] = {"kind": "wrong_value", "message": "wrong", "limit": "nan", "found": "nan"}
    assert read(told)["verdict"]["workloads"][0]["error"]["candidate"] == "inf"


RECIPE = {"workload": "large", "seed": 7, "changes": [{"input": "x", "move": "shift", "by": 1e299}]}
ATTACK = {
    "tries": 12,
    "seconds": 2.5,
    "workloads": [{"workload": "large", "tries": 12, "ratio": "inf", "recipe": RECIPE}],
    "counterexample": RECIPE,
}


def test_a_counterexample_is_read_as_the_judge_writes_it() -> None:
    failure = {"kind": "counterexample", "message": "wrong", "recipe": RECIPE, "description": "x: more", "eager": "nan"}
    rejected = {"score": None, "score_ci95": None, "verdict": "rejected", "gate": "verify"}
    told = line(**rejected, attack=ATTACK, failure=failure)
    found = read(told)["verdict"]
    assert (found["attack"], found["failure"]) == (ATTACK, failure)


def _set(path: str, value: Any) -> dict[str, Any]:
    document = line()
    place: Any = document
    *way, last = path.split(".")
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return document


ABSENT = object()


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("verdict.score", float("inf"), "(line)"),
        ("verdict.score", -1.0, "verdict.score"),
        ("verdict.configurations", [], "verdict.configurations"),
        ("verdict.sweep_seconds", -1.0, "verdict.sweep_seconds"),
        ("verdict.score", 1e300, "verdict.score"),
        ("verdict.score", "2", "verdict.score"),
        ("verdict.score", None, "verdict.score_ci95"),
        ("verdict.score_ci95", [1.0], "verdict.score_ci95"),
        ("verdict.score_ci95", None, "verdict.score_ci95"),
        ("verdict.id", "bj_" + "9" * 26, "verdict.id"),
        ("verdict.level", "compile", "verdict.level"),
        ("verdict.level", "profile", "verdict.verdict"),
        ("verdict.verdict", "wonderful", "verdict.verdict"),
        ("verdict.reason", "x" * (LONGEST_TEXT + 1), "verdict.reason"),
        ("verdict.reason", 3, "verdict.reason"),
        ("verdict.bundle", {"id": "mine"}, "verdict.bundle"),
        ("verdict.extra", 1, "verdict.extra"),
        ("verdict.seconds", {"exclusive": -5.0}, "verdict.seconds.exclusive"),
        ("verdict.seconds", {"exclusive": 1e9}, "verdict.seconds.exclusive"),
        ("verdict.compile", {"kernels": [{"registers": "many"}]}, "verdict.compile.kernels[0].registers"),
        ("verdict.compile", {"launches": [{"kernel": "k", "block": [1]}]}, "verdict.compile.launches[0].block"),
        ("verdict.device", {"name": 3}, "verdict.device.name"),
        ("verdict.host_us", {"workload": "large", "run": 7.0}, "verdict.host_us.eager"),
        ("verdict.host_us", {"workload": "large", "run": -7.0, "eager": 5.0}, "verdict.host_us.run"),
        ("verdict.device", {"peaks": {"bandwidth_gbs": {"x": 1.0}}}, "verdict.device.peaks.bandwidth_gbs.x"),
        ("verdict.sandbox", {}, "verdict.sandbox.level"),
        ("verdict.workloads.0.time_us.eager", 0.0, "verdict.workloads[0].time_us.eager"),
        ("verdict.workloads.0.ci95.eager", [3.0, 1.0], "verdict.workloads[0].ci95.eager"),
        ("verdict.workloads.0.ci95", {}, "verdict.workloads[0].ci95.eager"),
        ("verdict.workloads.0.time_us", {}, "verdict.workloads[0].time_us.eager"),
        ("verdict.workloads.0.weight", -1.0, "verdict.workloads[0].weight"),
        ("verdict.workloads.0.limit_us", 0, "verdict.workloads[0].limit_us"),
        ("verdict.attack", {**ATTACK, "workloads": [{"workload": "large"}]}, "verdict.attack.workloads[0].tries"),
        (
            "verdict.failure",
            {"kind": "k", "message": "", "recipe": {**RECIPE, "seed": "7"}},
            "verdict.failure.recipe.seed",
        ),
        ("verdict.failure", {"kind": "k", "message": "", "description": 3}, "verdict.failure.description"),
        ("verdict.workloads.0.role", "main", "verdict.workloads[0].role"),
        ("verdict.workloads.0.error.candidate", "small", "verdict.workloads[0].error.candidate"),
        ("verdict.failure", {"kind": "wrong_value"}, "verdict.failure.message"),
        (
            "verdict.failure",
            {"kind": "wrong_value", "message": "", "wrong_elements": 2, "elements": 0},
            "verdict.failure.wrong_elements",
        ),
        ("nonce", "bj_", "nonce"),
        ("search_id", "sr_'; DROP TABLE", "search_id"),
        ("signature", "ß" * 64, "signature"),
        ("host", {"name": "x" * 1000}, "host"),
        ("host", [], "host"),
        ("more", 1, "more"),
        ("verdict.workloads.0.samples.eager", [2**70], "verdict.workloads[0].samples.eager[0]"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(path: str, value: Any, field: str) -> None:
    document = _set(path, value)
    with pytest.raises(BrokenDocument) as told:
        read_line(json.dumps(document).encode())
    assert told.value.field == field
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "3",
        "{",
        "\x00",
        '"' + "x" * 300,
        "[" * 100_000,
        "[" * 40 + "]" * 40,
        " " * (LONGEST_LINE + 1),
    ],
)
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(BrokenDocument):
        read_line(text.encode())


def test_a_line_that_is_no_text_is_refused_with_its_byte() -> None:
    with pytest.raises(BrokenDocument) as told:
        read_line(b'{"x": "\xff"}')
    assert (told.value.found, told.value.expected) == ("0xff as byte 7", "UTF-8")


def unjudged(**changes: Any) -> dict[str, Any]:
    """A line of unjudged.jsonl; `changes` are of what it says."""
    said = {"kind": "timeout", "reason": "no verdict in time", **changes}
    return {**ticket(), "signature": SIGNED["signature"], "unjudged": said, "host": {"name": "node7"}}


def test_why_there_is_no_verdict_is_read() -> None:
    for reason in ("", "x" * LONGEST_REASON):
        assert read(unjudged(reason=reason)) == unjudged(reason=reason)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (unjudged(kind="bored"), "unjudged.kind"),
        (unjudged(reason="x" * (LONGEST_REASON + 1)), "unjudged.reason"),
        (unjudged(reason=None), "unjudged.reason"),
        (unjudged(more=1), "unjudged.more"),
        ({**unjudged(), "unjudged": "no"}, "unjudged"),
        ({**unjudged(), "verdict": line()["verdict"]}, "verdict"),
        ({**unjudged(), "host": {"name": "x" * 1000}}, "host"),
        ({**unjudged(), "signature": "0"}, "signature"),
    ],
)
def test_what_says_wrongly_why_there_is_no_verdict_is_refused(document: dict[str, Any], field: str) -> None:
    with pytest.raises(BrokenDocument) as told:
        read_line(json.dumps(document).encode())
    assert told.value.field == field
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize(
    ("error", "kind"), [(JobRefused("limits", 0, "more"), "refused"), (JudgeTimeout("late"), "timeout")]
)
def test_a_judge_that_has_no_verdict_writes_what_can_be_read(error: JudgeError, kind: str, tmp_path: Path) -> None:
    with opened_unjudged(tmp_path / "unjudged.jsonl") as file:
        append_unjudged(file, SIGNED, error)
        append_unjudged(file, SIGNED, JudgeDied("x" * LONGEST_LINE + "the end"))
    first, second = (read(json.loads(text)) for text in (tmp_path / "unjudged.jsonl").read_text().splitlines())
    assert first["unjudged"] == {"kind": kind, "reason": str(error)}
    assert second["unjudged"]["kind"] == "died"
    assert second["unjudged"]["reason"].endswith("the end")
    with opened_unjudged(tmp_path / "unjudged.jsonl"):
        assert (tmp_path / "unjudged.jsonl").read_bytes() == b""


def test_a_missing_field_is_named() -> None:
    for name in line()["verdict"]:
        without = line()
        del without["verdict"][name]
        with pytest.raises(BrokenDocument) as told:
            read_line(json.dumps(without).encode())
        assert told.value.field == f"verdict.{name}"


@settings(max_examples=200)
@given(st.data(), JSON)
def test_nothing_in_a_verdict_can_be_replaced_so_that_reading_it_falls_over(data: st.DataObject, value: Any) -> None:
    """Either it is refused by field, or it is a verdict still."""
    document = line()
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = copy.deepcopy(value)
    try:
        found = read(document)
    except BrokenDocument:
        return
    assert found["verdict"]["id"] == found["nonce"]
    assert canonical(found)


@given(JSON)
def test_any_document_is_refused_and_nothing_else(document: Any) -> None:
    with pytest.raises(BrokenDocument):
        read_line(json.dumps(document).encode())


# The directory, on the other host


def bundle_at(directory: Path, header: dict[str, Any] = HEADER, jobs: str = json.dumps(SIGNED) + "\n") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "bundle.json").write_text(json.dumps(header))
    (directory / "jobs.jsonl").write_text(jobs)
    return directory


def test_a_bundle_is_read(tmp_path: Path) -> None:
    header, jobs = read_bundle(bundle_at(tmp_path))
    assert header["id"] == SIGNED["bundle_id"]
    assert jobs == [SIGNED]


@pytest.mark.parametrize(
    ("header", "jobs", "message"),
    [
        ({**HEADER, "format": "zip"}, [SIGNED], "bundle.json: format: found 'zip', expected 'warpsmith-bundle'"),
        ({**HEADER, "version": 2}, [SIGNED], "bundle.json: version: found 2, expected 1"),
        ({**HEADER, "count": 2}, [SIGNED], "jobs.jsonl: found 1 jobs, expected the 2"),
        ({**HEADER, "target": "cpu:vax"}, [SIGNED], "jobs.jsonl: line 1, job.target: found"),
        (HEADER, [SIGNED, SIGNED], "jobs.jsonl: line 2, nonce: found"),
        (HEADER, [{**SIGNED, "job_digest": "0" * 64}], "line 1, job_digest: found"),
        (HEADER, [{**SIGNED, "job": {**JOB, "level": "verify"}}], "line 1, job_digest: found"),
        (HEADER, [{**SIGNED, "job": {}}], "line 1, job.id: found None, expected this field"),
        (HEADER, ["{"], "line 1, found text that is not JSON"),
    ],
)
def test_a_directory_that_is_no_bundle_is_told_so(
    header: dict[str, Any], jobs: list[Any], message: str, tmp_path: Path
) -> None:
    lines = "".join((job if isinstance(job, str) else json.dumps(job)) + "\n" for job in jobs)
    with pytest.raises(BadDirectory) as told:
        read_bundle(bundle_at(tmp_path, header, lines))
    assert message in str(told.value)


def test_a_torn_line_is_cut_off_and_one_judge_works_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "verdicts.jsonl"
    whole = json.dumps(line()) + "\n"
    path.write_text(whole + whole[: len(whole) // 2])
    with opened_verdicts(path) as (_, judged):
        assert judged == {NONCE: line()["verdict"]}
        assert path.read_text() == whole
        with pytest.raises(BadDirectory, match="another judge at work"), opened_verdicts(path):
            pass
    assert "not finished" in capsys.readouterr().err
    path.write_text("{}\n" + whole)
    with pytest.raises(BadDirectory, match=r"verdicts.jsonl: line 1, nonce: found None"), opened_verdicts(path):
        pass


def judged_in(directory: Path) -> subprocess.CompletedProcess[str]:
    """`python -m warpsmith.workers.judge DIR` by this repository's own judge."""
    command = [sys.executable, "-m", "warpsmith.workers.judge", str(directory)]
    repository = REPOSITORY
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=200, check=False)


def test_the_wrong_host_judges_nothing(tmp_path: Path) -> None:
    job = {**JOB, "target": "cuda:sm_11"}
    there = ticket(job_digest=digest(job))
    signed = {**there, "signature": sign(KEY, there), "job": job}
    bundle_at(tmp_path, {**HEADER, "target": "cuda:sm_11"}, json.dumps(signed) + "\n")
    ended = judged_in(tmp_path)
    assert ended.returncode == 2
    assert "expected cuda:sm_11, for which the jobs are" in ended.stderr
    assert (tmp_path / "verdicts.jsonl").read_text() == ""
    bundle_at(tmp_path, {**HEADER, "target": "cpu:vax"}, json.dumps({**SIGNED, "job": JOB}) + "\n")
    assert judged_in(tmp_path).returncode == 2
    ended = judged_in(tmp_path / "nowhere")
    assert ended.returncode == 2
    assert "error: DIR: found no directory" in ended.stderr


# The service's side of the directory


def test_verdicts_go_out_in_chunks_that_know_their_place() -> None:
    lines = [b"a" * 10, b"", b"b" * CHUNK_BYTES, b"c"] + [b"d"] * 1200
    found = list(split_lines(lines))
    assert b"".join(content for _, content in found) == b"\n".join(lines) + b"\n"
    for before, content in found:
        assert content.split(b"\n")[0] == lines[before]
        assert content.count(b"\n") <= 500
    assert list(split_lines([])) == []


def test_a_folder_that_is_in_use_or_empty_handed_is_refused(tmp_path: Path) -> None:
    check_free(tmp_path / "new")
    check_free(tmp_path)
    unjudged, verdicts = tmp_path / "unjudged.jsonl", tmp_path / "verdicts.jsonl"
    unjudged.write_bytes(b"")
    with pytest.raises(BadFolder, match=r"found no verdicts\.jsonl"):
        find_returned_files(tmp_path)
    verdicts.write_bytes(b"one\ntw")
    assert find_returned_files(tmp_path) == [verdicts, unjudged]
    assert read_lines(verdicts) == ([b"one"], True)
    unjudged.unlink()
    assert find_returned_files(tmp_path) == [verdicts]
    assert find_returned_files(unjudged) == [unjudged]
    with pytest.raises(BadFolder, match="not empty"):
        check_free(tmp_path)


def test_of_several_bundles_those_are_merged_that_were_judged(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("sr_a", "sr_b", "sr_c"))
    for each in (first, second, third):
        each.mkdir()
        (each / "bundle.json").write_text("{}")
    with pytest.raises(CommandError, match=r"(?s)sr_a.*sr_b.*sr_c") as refused:
        read_returned([tmp_path])
    assert refused.value.code == MISUSE
    for each in (second, third):
        (each / "verdicts.jsonl").write_bytes(b"one\n")
    for paths in ([tmp_path], [first, second, third]):
        found, left = read_returned(paths)
        assert found == [Returned(each, [(each / "verdicts.jsonl", [b"one"], False)]) for each in (second, third)]
        assert left.keys() == {first}
        assert f"found no verdicts.jsonl in {first}" in left[first]


def test_the_copy_holds_what_the_judge_imports_and_no_more(tmp_path: Path) -> None:
    files = {str(file) for file in list_judge_files()}
    assert {
        "warpsmith/workers/__init__.py",
        "warpsmith/workers/judge/runner/runner_process.py",
        "warpsmith/kernels_db/job/documents.py",
        "warpsmith/kernels_db/runtime/cuda.py",
    } <= files
    assert not files & {
        "warpsmith/kernels_db/store/tables.py",
        "warpsmith/kernels_db/spec/op.py",
        "warpsmith/workers/queue/tasks.py",
        "warpsmith/workers/steps/__init__.py",
    }
    assert not [name for name in files if name.startswith(("warpsmith/service", "warpsmith/prompts"))]
    assert copy_judge(tmp_path) == len(files)
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.py")} == files
