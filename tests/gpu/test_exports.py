"""Exported packages on a real GPU: verified in full, and watched by shadow mode outside of capture alone."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("pydantic", reason="op specs are read with pydantic")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

from benchmarks import dispatch
from kernels_db.envelope import build_envelope
from kernels_db.export.package import build
from kernels_db.op import Target, parse_op
from kernels_db.resolve import resolve_workload
from service import machine
from workers.exports import verify_export

SOURCES = {"triton": dispatch.TRITON, "cuda": dispatch.CUDA}
EVERYWHERE = {"dynamic shapes", "CUDA graph", "eager", "compile", "build for the target", "dispatch overhead"}


def exported(language: str, directory: Path, source: str | None = None) -> Path:
    """The op of `benchmarks.dispatch`, verified at two sizes on this GPU."""
    target = machine.gpus()[0].target
    kernel = dispatch.kernel(language, target, source or SOURCES[language])
    sizes = [{"id": f"n{n}", "role": "bench" if n == 4096 else "test", "axes": {"n": n}} for n in (4096, 16384)]
    op = parse_op({**kernel.spec, "workloads": sizes})
    workloads = [resolve_workload(op, workload) for workload in op.workloads_for(Target.parse(target))]
    rows = [{"id": size["id"], "role": "test", "error": {}, "time_us": {}, "speedup": {}, "ci95": {}} for size in sizes]
    return build(
        replace(
            kernel,
            spec=op.document(),
            envelope=build_envelope(op.digest, target, workloads, {}),
            evidence={**kernel.evidence, "workloads": rows},
        ),
        directory,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", SOURCES)
def test_a_package_passes_every_check(language: str, tmp_path: Path) -> None:
    report = verify_export(exported(language, tmp_path))
    assert report.passed, report.text()
    assert {row.check for row in report.rows if row.outcome == "passed"} >= EVERYWHERE, report.text()


def test_shadow_mode_stays_out_of_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dispatch.CUDA.replace("* 2.0f + 1.0f", "* 2.0f + 2.0f")
    project = exported("cuda", tmp_path, wrong)
    monkeypatch.setenv("WARPSMITH_SHADOW_DIR", str(tmp_path / "shadow"))
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    x = torch.randn(4096, device="cuda")
    package.scale_shift(x)
    package.shadow(every=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        package.scale_shift(x)
    assert package.status()["shadow"]["checked"] == 0
    with pytest.warns(RuntimeWarning, match="shadow mode found a wrong result"):
        found = package.scale_shift(x)
    torch.testing.assert_close(found, x * 2 + 1)
    assert package.status()["shadow"]["mismatches"] == 1
