"""Configurations of a candidate with tunables in an export: which serves which size, and what may not ship."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from tests.exporting import SCALED_ADD, exported
from tests.services import migrate
from tests.support.plans import with_plans
from tests.support.steps_support import Driver, call, small_policy
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.configurations import spread
from warpsmith.kernels_db.export.kernel import ExportedKernel, kernel_name
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.kernels_db.store.tables import KernelRow, SearchRow
from warpsmith.service.api.kernel_export import check_exportable, collect_kernel
from warpsmith.workers import steps
from warpsmith.workers.exports import verify_export
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.judge.protocol.configurations import verify_configurations
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.winners import keep_winner

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

# It repeats its work where there are few rows (SLOW 0), or many (1), or in any case (2).
SOURCE = '''from kernels_db.runtime import cpp

TUNE = {"SLOW": [0, 1, 2]}
SLOW = 2
kernels = cpp.compile(r"""
extern "C" void scaled_add(const float* x, const float* y, float m, float* out, int64_t n, int64_t slow) {
    const bool many = n > 8 * 1000;
    const int64_t times = slow == 2 || slow == many ? (many ? 3000 : 20000) : 1;
    for (int64_t t = 0; t < times; ++t) {
        for (int64_t i = 0; i < n; ++i) out[i] = x[i] + m * y[i];
    }
}
""")


def run(x, y, m, out):
    kernels.scaled_add(x, y, m, out, out.numel(), SLOW)
'''
SPEC = {
    **SCALED_ADD,
    "name": "sized_add",
    "workloads": [
        {"id": "few", "role": "bench", "axes": {"rows": 64}},
        {"id": "middle", "role": "bench", "axes": {"rows": 512}},
        {"id": "many", "role": "bench", "axes": {"rows": 4096}},
    ],
}
SLOW_REFERENCE = "def run(x, y, m):\n    z = x + m * y\n    for _ in range(600):\n        z = z * 1.0\n    return z\n"
DEFAULT = specialise(SOURCE, {"SLOW": 0})
SLOWER = {"few": 5.0, "middle": 3.0, "many": 4.0}


def configuration(values: Mapping[str, int], times_us: Mapping[str, float], **changes: Any) -> dict[str, Any]:
    """A configuration as a worker puts it on a verdict, with these times, eager's being twice SLOWER's."""
    source = specialise(SOURCE, values)
    verdict = exported(SPEC, source, times_us=times_us).evidence
    return {
        "values": dict(values),
        "source": source,
        "source_digest": normalised_digest(source),
        "reason": "right",
        "verdict": {"verdict": "accepted", "level": "verify", **_sped(verdict, times_us), **changes},
    }


def _sped(evidence: dict[str, Any], times_us: Mapping[str, float]) -> dict[str, Any]:
    rows = []
    for row in evidence["workloads"]:
        ratio = 10.0 / times_us[row["id"]]
        timed = {"speedup": {"eager": ratio}, "ci95": {"eager": [0.99 * ratio, 1.01 * ratio]}}
        rows.append({**row, **timed, "limit_fraction": 1.0 / times_us[row["id"]]})
    return {**evidence, "workloads": rows}


def kernel(*configurations: dict[str, Any]) -> ExportedKernel:
    found = exported(SPEC, DEFAULT, name="kn_tuned", times_us=SLOWER)
    return replace(found, evidence={**_sped(found.evidence, SLOWER), "configurations": list(configurations)})


def imported(project: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(project.parent / "cache"))
    monkeypatch.syspath_prepend(project)
    return importlib.import_module(project.name)


def serving(package: ModuleType, rows: int) -> str:
    """The name of the kernel that served a call, whose result was right; empty for PyTorch."""
    x, y = torch.randn(rows, 8), torch.randn(rows, 8)
    before = {name: each["served"] for name, each in package.status()["kernels"].items()}
    torch.testing.assert_close(package.sized_add(x, y, 0.5), x + 0.5 * y)
    served = [name for name, each in package.status()["kernels"].items() if each["served"] > before[name]]
    assert len(served) <= 1
    return served[0] if served else ""


def test_each_size_has_its_best_verified_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = configuration({"SLOW": 1}, {"few": 1.0, "middle": 2.99, "many": 9.0})
    stored = kernel(other)
    chosen, small = spread(stored)
    assert (chosen.source, small.source) == (DEFAULT, other["source"])
    assert small.leads == ({"rows": 64},), "where the difference is not sure the default stays"
    project = registry.named("package").write([stored], tmp_path)
    package = imported(project, monkeypatch)
    for rows, expected in ((64, small), (128, small), (256, chosen), (512, chosen), (3008, chosen), (4096, chosen)):
        assert serving(package, rows) == kernel_name(expected), rows
    with pytest.warns(RuntimeWarning, match="verified from 64 to 4096"):
        assert serving(package, 8192) == "", "beyond what was verified"
    package.disable(kernel_name(chosen))
    assert serving(package, 4096) == kernel_name(small), "it was verified there too"
    assert "another configuration" in (project / "README.md").read_text()


def test_a_format_for_one_kernel_has_the_default(tmp_path: Path) -> None:
    stored = kernel(configuration({"SLOW": 1}, {"few": 1.0, "middle": 3.0, "many": 9.0}))
    project = registry.named("library").write([stored], tmp_path)
    assert (project / "candidate.py").read_text() == DEFAULT
    assert '"configurations"' not in (project / "verdict.json").read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "rejected"},
        {"verdict": "quarantined"},
        {"level": "screen"},
        {"workloads": kernel().evidence["workloads"][:2]},
    ],
    ids=["rejected", "quarantined", "screened alone", "not on every workload"],
)
def test_what_was_not_verified_on_all_of_it_does_not_ship(changes: dict[str, Any]) -> None:
    fast = {"few": 1.0, "middle": 1.0, "many": 1.0}
    assert len(spread(kernel(configuration({"SLOW": 1}, fast)))) == 2
    assert len(spread(kernel(configuration({"SLOW": 1}, fast, **changes)))) == 1
    unjudged = configuration({"SLOW": 1}, fast)
    del unjudged["verdict"]
    assert len(spread(kernel(unjudged))) == 1


def test_what_leads_nowhere_does_not_ship() -> None:
    assert len(spread(kernel(configuration({"SLOW": 1}, {"few": 4.9, "middle": 2.9, "many": 3.9})))) == 1


@pytest.mark.alone
@pytest.mark.nightly
def test_a_searched_candidate_ships_the_configuration_of_each_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the sweep by the real judge to the package, which is verified like any other."""
    here = WorkerProcess(Settings(home=tmp_path / "home"))
    try:
        migrate(here.db)
        stored = kept(here)
    finally:
        here.close()
    check_exportable({"path.kernel_id": stored.id}, [stored])
    few, many = (
        next(kernel_name(one) for one in spread(stored) if f"\nSLOW = {slow}\n" in one.source) for slow in (1, 0)
    )
    project = registry.named("package").write([stored], tmp_path)
    package = imported(project, monkeypatch)
    assert serving(package, 512) == few
    assert serving(package, 4096) == many
    report = verify_export(project)
    assert report.passed, report.rows


def kept(here: WorkerProcess) -> ExportedKernel:
    """The candidate swept, verified and kept as a search does it."""
    db, limits = here.db, limits_with(None, 0.0)
    search_id = steps.create_search(
        db,
        parse_op({**SPEC, "objective": {"baselines": ["eager"]}, "reference": SLOW_REFERENCE}),
        Target("cpu", "x86_64"),
        language="cpp",
        now=1000.0,
        policy={"name": "idea_beam"},
        budget={"sweep_seconds": 600},
        model={"provider": "agent"},
    )
    driver = Driver(db, search_id, decide=small_policy(codes=1, ideas=1))
    work = driver.until("code")
    assert steps.complete_code(db, work.attempt_id, "me", SOURCE, "cpp", [call()], driver.now)
    driver.advance()
    screening = driver.claim(
        next(one.id for one in driver.attempts() if (one.kind, one.node_id) == ("judge", work.node.id))
    )
    screened = here.judge_job(job_of(screening, limits))
    assert screened["verdict"] == "accepted", screened["reason"]
    chosen = screened["sweep"]["chosen"]["SLOW"]
    assert chosen in (0, 1), screened["sweep"]
    assert steps.complete_judge(db, screening.attempt_id, "me", screened, driver.now)
    verifying = driver.until("verify")
    assert verifying.configurations == ({"SLOW": 1 - chosen},), screened["sweep"]
    began = time.monotonic()
    job = job_of(verifying, limits)
    verdict = here.judge_job(job)
    before_s = verdict["seconds"]["exclusive"]
    verify_configurations(
        job,
        verdict,
        verifying.configurations,
        device_s=verifying.sweep_s,
        judge=lambda further, left_s: here.judge_job(further, None, left_s),
        timeout_s=here.settings.judge_job_timeout_s,
        began=began,
    )
    assert verdict["configurations"][0]["verdict"]["verdict"] == "accepted"
    assert verdict["seconds"]["exclusive"] == pytest.approx(before_s + verdict["sweep_seconds"])
    assert steps.complete_judge(db, verifying.attempt_id, "me", verdict, driver.now)
    assert driver.search().sweep_seconds == pytest.approx(screened["sweep_seconds"] + verdict["sweep_seconds"])
    with db.writing() as session:
        assert keep_winner(session, session.get_one(SearchRow, search_id), driver.now) is not None
        return collect_kernel(session, session.scalars(select(KernelRow)).one())
