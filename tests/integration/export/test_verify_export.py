"""`warpsmith verify-export`: a package is checked in fresh, offline processes, and a report lies in it afterwards."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import dispatch
from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.service.cli import run
from warpsmith.workers.exports import NotAnExport, Report, Row, open_project, verify_export
from warpsmith.workers.exports.project import Refused
from warpsmith.workers.exports.verification import PACKAGE_CHECKS, build_for_target, package_rows

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

SPEC = SCALED_ADD | {"reference": "def run(x, y, m=0.5):\n    return x + m * y\n"}
CPU_CHECKS = (
    "metadata",
    "contents",
    "evidence",
    "build for the target",
    "offline",
    "import",
    "signature",
    "opcheck",
    "eager",
    "compile",
    "dynamic shapes",
    "fallback",
    "strided inputs",
    "gradients",
    "control",
    "dispatch overhead",
    "uninstall",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return build(exported(SPEC, SCALED_ADD_CPP), tmp_path)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {row["check"]: row["outcome"] for row in report["rows"]}


def test_a_good_package_is_verified_and_keeps_the_report(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify-export", str(project), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["kernel_ran"]) == (True, True), report
    found = outcomes(report)
    assert {name for name, outcome in found.items() if outcome == "failed"} == set()
    assert found["CUDA graph"] == "skipped"
    assert set(found) == {*CPU_CHECKS, "CUDA graph"}
    skipped = {name for name, outcome in found.items() if outcome == "skipped"} - {"CUDA graph"}
    assert skipped <= {"offline", "dispatch overhead"}, "a network namespace may be lacking here, and a quiet moment"
    details = {row["check"]: row["detail"] for row in report["rows"]}
    assert "one compilation for 2 shapes" in details["dynamic shapes"]
    assert "scaled_add" in details["build for the target"]
    assert re.match(
        r"[\d.]+ us over the raw launch|none: [\d.]+ us less than|cannot be told here: ", details["dispatch overhead"]
    )
    assert json.loads((project / "verification.json").read_text()) == report
    text = (project / "VERIFICATION.md").read_text()
    assert f"{project.name}: verified (" in text
    assert "| eager | passed | 2 workloads" in text
    beside = {path.name for path in project.iterdir()}
    assert beside == {"README.md", "LICENSE", "pyproject.toml", "VERIFICATION.md", "verification.json", project.name}
    assert not list(project.rglob("__pycache__")), "a check leaves nothing else in the package"


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("cuda", dispatch.CUDA),
        ("triton", dispatch.TRITON),
        ("gluon", dispatch.GLUON),
        ("cute", dispatch.CUTE),
        pytest.param("tilelang", dispatch.TILELANG, marks=pytest.mark.nightly),
    ],
)
def test_a_gpus_kernel_is_built_without_a_gpu(language: str, source: str, tmp_path: Path) -> None:
    package = LANGUAGES[language].package
    assert package is not None
    pytest.importorskip(package, reason="its compiler is not installed")
    project = open_project(build(dispatch.kernel(language, "cuda:sm_90", source), tmp_path / "exports"))
    assert build_for_target(project, tmp_path / "build") == f"{language} for cuda:sm_90: scale_shift" + "_kernel" * (
        language == "tilelang"
    )


def test_a_report_says_when_the_kernel_itself_did_not_run() -> None:
    rows = [Row("import", "passed", ""), Row("eager", "skipped", "there is no GPU here")]
    report = Report("package", "kn_1", "cuda:sm_90", "0" * 64, "2026-11-21", rows)
    assert report.summary() == "package: verified, but the kernel not run (1 passed, 1 skipped)"
    assert (report.document()["passed"], report.document()["kernel_ran"]) == (True, False)


def test_what_a_package_does_is_confined(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    curious = f"open({str(secret)!r}).read()\n\n\ndef run(x, y, m):\n    return x + m * y\n"
    project = build(exported(SPEC | {"reference": curious}, SCALED_ADD_CPP), tmp_path / "exports")
    report = verify_export(project)
    rows = {row.check: row for row in report.rows}
    if "confined in files" not in rows["offline"].detail:
        pytest.skip(f"this machine confines no files: {rows['offline'].detail}")
    assert "PermissionError" in rows["op"].detail
    assert not report.passed


@pytest.mark.nightly
def test_a_kernel_that_kills_its_process_is_told(tmp_path: Path) -> None:
    deadly = SCALED_ADD_CPP.replace("for (int64_t", "*(volatile int*)nullptr = 1; for (int64_t")
    project = build(exported(SPEC, deadly), tmp_path)
    report = verify_export(project)
    assert not report.passed
    (row,) = [row for row in report.rows if row.check == "op"]
    assert "signal 11" in row.detail
    assert "opcheck" in row.detail, "the check that it died at"
    assert "NOT verified" in (project / "VERIFICATION.md").read_text()


def test_evidence_for_another_source_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    telltale = SCALED_ADD_CPP + f"\nopen({str(marker)!r}, 'w').close()\n"
    project = build(replace(exported(SPEC, telltale), source_digest="0" * 64), tmp_path)
    assert run(["verify-export", str(project)]) == 1
    rows = {row["check"]: row for row in json.loads((project / "verification.json").read_text())["rows"]}
    assert rows["evidence"]["outcome"] == "failed"
    assert f"the evidence is for {'0' * 64}" in rows["evidence"]["detail"]
    assert rows["op"]["outcome"] == "skipped"
    assert not marker.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda package: (package / "_reference.py").write_text("def run(*a): return a[0]\n"),
            "_reference.py was changed",
        ),
        (lambda package: (package / "helper.py").write_text("import os\n"), "helper.py was added"),
        (lambda package: (package / "envelope.json").unlink(), "envelope.json is missing"),
    ],
    ids=["changed", "added", "missing"],
)
def test_files_that_are_not_as_exported_are_named(project: Path, change: Any, said: str) -> None:
    change(project / project.name)
    report = verify_export(project)
    assert not report.passed
    assert said in next(row.detail for row in report.rows if row.check == "contents")


@pytest.mark.parametrize("linked", ["file", "directory"])
def test_a_symbolic_link_is_refused_and_nothing_is_run(project: Path, tmp_path: Path, linked: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    package = project / project.name
    if linked == "directory":
        (package / "more").symlink_to(elsewhere)
        name = "more"
    else:
        (package / "_draws.py").rename(elsewhere / "_draws.py")
        (package / "_draws.py").symlink_to(elsewhere / "_draws.py")
        name = "_draws.py"
    rows = {row.check: row for row in verify_export(project).rows}
    assert rows["contents"].detail.startswith(f"{project.name}/{name}: found a symbolic link")
    assert rows["op"].outcome == "skipped"


def test_the_report_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("verification.json", "VERIFICATION.md"):
        (tmp_path / name).symlink_to(mine)
    report = Report("package", "kn_1", "cpu", "0" * 64, "2026-11-21", [Row("import", "passed", "")])
    report.write(tmp_path)
    assert mine.read_text() == "mine"
    assert json.loads((tmp_path / "verification.json").read_text()) == report.document()
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "verification.json", "VERIFICATION.md"}


def test_what_others_wrote_is_no_markdown() -> None:
    foreign = "a`\n# Verified\n| [b](c) | <d>"
    report = Report(foreign, foreign, foreign, foreign, "2026-11-21", [Row("eager", "failed", foreign)], {"n": foreign})
    lines = report.text().splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Verification of a\\` # Verified \\| \\[b\\](c) \\| \\<d\\>"
    ]
    assert lines[3] == "Kernel {0} for {0}, source SHA-256 {0}.".format("`a' # Verified | [b](c) | <d>`")
    assert "| eager | failed | a\\` # Verified \\| \\[b\\](c) \\| \\<d\\> |" in lines


@pytest.mark.parametrize(
    ("field", "value"),
    [("kernel", "kn_1`\n# verified"), ("source_digest", 3), ("target", "toaster"), ("files", ["_op.py"])],
)
def test_provenance_of_another_form_is_no_export(project: Path, field: str, value: Any) -> None:
    path = project / project.name / "provenance.json"
    document = json.loads(path.read_text())
    changed = {field: value} if field == "files" else {"kernels": [document["kernels"][0] | {field: value}]}
    path.write_text(json.dumps(document | changed))
    where = field if field == "files" else f"kernels\\[0\\].{field}"
    with pytest.raises(NotAnExport, match=f"provenance.json: {where}: "):
        open_project(project)


TOLD = [{"check": name, "outcome": "passed", "detail": "", "seconds": 0.1} for name in PACKAGE_CHECKS]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "expected `checks` and `environment`"),
        ({"checks": {}, "environment": {}}, "expected `checks` and `environment`"),
        ({"checks": TOLD, "environment": []}, "expected `checks` and `environment`"),
        ({"checks": [*TOLD[1:], 3], "environment": {}}, "checks\\[11\\]: expected check, outcome"),
        ({"checks": [*TOLD[1:], TOLD[0] | {"seconds": "1"}], "environment": {}}, "checks\\[11\\]: expected check"),
        ({"checks": [*TOLD[1:], TOLD[0] | {"outcome": "fine"}], "environment": {}}, "outcome 'fine', expected passed"),
        ({"checks": TOLD[1:], "environment": {}}, "found the checks .*, expected import, signature"),
        ({"checks": [*TOLD, TOLD[0]], "environment": {}}, "found the checks .*import, import"),
    ],
)
def test_a_report_of_another_form_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        package_rows(document)
    assert [row.check for row in package_rows({"checks": TOLD, "environment": {}})] == list(PACKAGE_CHECKS)


@pytest.mark.nightly
def test_a_package_that_prints_a_report_of_its_own_fails(tmp_path: Path) -> None:
    said = json.dumps({"checks": [TOLD[3]], "environment": {}})
    forged = f"import os\n\nprint({said!r}, flush=True)\nos._exit(0)\n\n\ndef run(x, y, m):\n    return x + m * y\n"
    report = verify_export(build(exported(SPEC | {"reference": forged}, SCALED_ADD_CPP), tmp_path))
    (row,) = [row for row in report.rows if row.check == "op"]
    assert (row.outcome, report.passed, report.kernel_ran) == ("failed", False, False)
    assert row.detail.startswith("the package's report: found the checks eager, expected import")


def test_evidence_of_another_form_is_refused(project: Path) -> None:
    package = project / project.name
    (package / "evidence.json").write_text("[]")
    rows = {row.check: row for row in verify_export(project).rows}
    assert rows["evidence"].outcome == "failed"
    assert "evidence.json" in rows["evidence"].detail


def test_what_is_no_export_is_misuse(tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify-export", str(tmp_path / "nothing")]) == 2
    assert "expected the directory of an exported package" in capsys.readouterr().err
    assert run(["verify-export", str(project / project.name)]) == 2
    (project / project.name / "provenance.json").write_text("{}")
    with pytest.raises(NotAnExport, match="lacks files, kernels"):
        open_project(project)
