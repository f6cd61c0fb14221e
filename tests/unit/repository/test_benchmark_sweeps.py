"""`benchmarks.sweeps`: what a recorded candidate's sweep begins with, and its whole grid, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import sweeps
from benchmarks.showcase import ROOT
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.gates import configurations

SOURCE = '''
from kernels_db.runtime import cuda

TUNE = {"BLOCK": [32, 64, 128, 256], "WIDE": [1, 2]}
BLOCK = 64
kernels = cuda.compile(r"""
extern "C" __global__ void f(const float* x, float* y, int n) {}
""", flags=("-DWIDE=1",))


def run(x, y):
    kernels.f[1, BLOCK](x, y, y.numel())
'''


def test_a_sweep_begins_with_what_its_seconds_may_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "cores_available", lambda: 16)

    def prepare(source: str, language: str, **options: Any) -> languages.Prepared:
        del language, options
        if "BLOCK = 256\n" in source:
            raise languages.CompileError("too many threads")
        return {"seconds": 0.0, "log": "", "cached": False, "kernels": [], "binaries": []}

    monkeypatch.setattr(languages, "prepare", prepare)
    op = load_op(ROOT / "examples" / "softmax.yaml")
    first, whole = sweeps.compiled("softmax", sweeps.screening(op, "cuda:sm_90", "cuda", SOURCE, 3.0))
    assert first[:4] == ["softmax: begins with", "-", "8", "3"]
    assert whole[:6] == ["softmax: whole", "-", "8", "8", "0", "2"]
    assert len(first) == len(whole) == len(sweeps.HEAD)
