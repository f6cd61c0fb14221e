"""A kernel of an op with named dtypes: its package tells calls apart by them, and serves no other."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import SCALED_ADD, exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.dtypes import of_each_dtype
from warpsmith.kernels_db.spec.op import SpecErrors, parse_op
from warpsmith.workers.exports import verify_export

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

SPEC: dict[str, Any] = {
    **SCALED_ADD,
    "name": "typed_add",
    "dtypes": {"elem": ["float32", "float64"]},
    "inputs": [
        *({**item, "dtype": "elem"} for item in SCALED_ADD["inputs"][:2]),  # type: ignore[index]
        SCALED_ADD["inputs"][2],  # type: ignore[index]
    ],
    "outputs": [{**SCALED_ADD["outputs"][0], "dtype": "elem"}],  # type: ignore[index]
    "workloads": [
        {"id": "small", "role": "bench", "axes": {"rows": 3}, "dtypes": {"elem": "float32"}},
        {"id": "large", "role": "test", "axes": {"rows": 40}, "dtypes": {"elem": "float32"}},
        {"id": "small_double", "role": "bench", "axes": {"rows": 5}, "dtypes": {"elem": "float64"}},
        {"id": "large_double", "role": "test", "axes": {"rows": 20}, "dtypes": {"elem": "float64"}},
    ],
}
SOURCE = '''import torch

from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add_float(const float* x, const float* y, float m, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + m * y[i];
}

extern "C" void add_double(const double* x, const double* y, double m, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + m * y[i];
}
""")


def run(x, y, m, out):
    if x.dtype == torch.float32:
        kernels.add_float(x, y, m, out, out.numel())
    else:
        kernels.add_double(x, y, m, out, out.numel())
'''
KERNEL = exported(SPEC, SOURCE)


def test_each_dtype_has_its_own_envelope_and_evidence() -> None:
    single, double = of_each_dtype(KERNEL)
    assert [one["dtype"] for one in KERNEL.envelope["inputs"]] == ["float32 or float64"] * 2 + ["float32"]
    for kernel, dtype, ids, rows in (
        (single, "float32", ["small", "large"], [3, 40]),
        (double, "float64", ["small_double", "large_double"], [5, 20]),
    ):
        op = parse_op(kernel.spec)
        assert not op.dtypes
        assert [item.dtype for item in op.inputs] == [dtype, dtype, "float32"]
        assert [item.dtype for item in op.outputs] == [dtype]
        assert kernel.envelope["axes"]["rows"]["verified"] == sorted(rows)
        assert kernel.envelope["op_digest"] == op.digest
        assert [row["id"] for row in kernel.evidence["workloads"]] == ids
    assert of_each_dtype(single) == [single]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = registry.named("package").write([KERNEL], tmp_path)
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "cache"))
    monkeypatch.syspath_prepend(project)
    return project


def test_the_package_serves_both_dtypes_within_their_own_sizes(project: Path) -> None:
    package = importlib.import_module(project.name)

    def serves(rows: int, dtype: Any) -> bool:
        x, y = (torch.randn(rows, 8).to(dtype) for _ in range(2))
        before = {name: each["served"] for name, each in package.status()["kernels"].items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a call that falls back says so once
            torch.testing.assert_close(package.typed_add(x, y, 0.5), x + 0.5 * y)
        return any(each["served"] > before[name] for name, each in package.status()["kernels"].items())

    assert serves(3, torch.float32)
    assert serves(5, torch.float64)
    assert serves(40, torch.float32)
    assert not serves(40, torch.float64), "beyond what was verified in float64"
    assert not serves(3, torch.float64)
    assert not serves(3, torch.float16)


@pytest.mark.nightly
def test_the_package_passes_its_own_checks(project: Path) -> None:
    report = verify_export(project)
    assert report.passed, report.text()


def test_a_submission_has_one_dtype_and_the_library_all(tmp_path: Path) -> None:
    for name in ("kernelbench", "gpu-mode"):
        with pytest.raises(SpecErrors, match="dtypes: found '2 choices of dtypes', expected one choice of dtypes"):
            registry.named(name).write([KERNEL], tmp_path)
    written = registry.named("library").write([KERNEL], tmp_path)
    assert json.loads((written / "op.json").read_text())["dtypes"] == {"elem": ["float32", "float64"]}
