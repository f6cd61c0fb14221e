"""Kernels as the store hands them to an exporter, and processes that use an export without Warpsmith."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.gate.normalise import normalised_digest

SCALED_ADD = {
    "schema_version": 1,
    "name": "scaled_add",
    "description": "y scaled and added to x",
    "axes": {
        "rows": {"kind": "var"},
        "columns": {"kind": "const", "value": 8},
        "half": {"kind": "expr", "expr": "columns // 2"},
    },
    "inputs": [
        {"name": "x", "shape": ["rows", "columns"], "dtype": "float32"},
        {"name": "y", "shape": ["rows", "columns"], "dtype": "float32"},
        {"name": "m", "shape": None, "dtype": "float32", "value": 0.5},
    ],
    "outputs": [{"name": "out", "shape": ["rows", "columns"], "dtype": "float32"}],
    "reference": "def run(x, y, m):\n    return x + m * y\n",
    "workloads": [
        {"id": "small", "role": "bench", "axes": {"rows": 3}},
        {"id": "large", "role": "test", "axes": {"rows": 40}},
    ],
}
SCALED_ADD_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scaled_add(const float* x, const float* y, float m, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + m * y[i];
}
""")


def run(x, y, m, out):
    kernels.scaled_add(x, y, m, out, out.numel())
'''
SCALED_ADD_TRITON = """import triton
import triton.language as tl


@triton.jit
def scaled_add(x, y, m, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + m * tl.load(y + i, i < n), i < n)


def run(x, y, m, out):
    n = out.numel()
    scaled_add[(triton.cdiv(n, 64),)](x, y, m, out, n, BLOCK=64)
"""
IN_PLACE = SCALED_ADD | {
    "name": "scaled_add_",
    "inputs": [SCALED_ADD["inputs"][0] | {"mutated": True}, *SCALED_ADD["inputs"][1:]],  # type: ignore[index]
    "outputs": [],
    "reference": "def run(x, y, m):\n    x.add_(y, alpha=m)\n",
}
IN_PLACE_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scaled_add(float* x, const float* y, float m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += m * y[i];
}
""")


def run(x, y, m):
    kernels.scaled_add(x, y, m, x.numel())
'''


def exported(
    spec: dict[str, Any],
    source: str,
    language: str = "cpp",
    *,
    target: str = "cpu",
    name: str = "kn_test",
    times_us: Mapping[str, float] | None = None,
) -> ExportedKernel:
    """A kernel as the store hands it to an exporter; `times_us` are its own, by workload, 2 where it has none."""
    return _exported(spec, source, language, Target.parse(target), name, times_us or {})


def _exported(
    spec: dict[str, Any], source: str, language: str, target: Target, name: str, times_us: Mapping[str, float]
) -> ExportedKernel:
    op = parse_op(spec)
    workloads = [resolve_workload(op, w) for w in op.workloads_for(target)]
    rows = [
        {
            "id": workload["id"],
            "role": workload["role"],
            "error": {"candidate": 1e-8, "eager": 1e-8, "limit": 6e-8},
            "time_us": {"candidate": times_us.get(workload["id"], 2.0), "eager": 4.0},
            "speedup": {"eager": 2.0},
            "ci95": {"eager": [1.9, 2.1]},
            "limit_us": 1.0,
            "limit_by": "bytes",
            "limit_fraction": 0.5,
            "samples": {},
        }
        for workload in workloads
    ]
    return ExportedKernel(
        id=name,
        spec=spec,
        target=str(target),
        language=language,
        source=source,
        source_digest=normalised_digest(source),
        envelope=build_envelope(op.digest, str(target), workloads, {"torch": "2.13.0"}),
        evidence={"workloads": rows, "device": {"name": "a test"}, "versions": {"torch": "2.13.0"}},
        lineage=[{"seq": 1, "round": 1, "technique": "fusion", "idea": {"title": "one pass"}, "score": 2.0}],
        verified_at="2026-11-21T12:00:00+00:00",
        prompts=[{"kind": "code", "provider": "openai", "model": "a-model", "prompt": "0" * 64}],
    )


def in_fresh_process(
    project: Path, *arguments: str, cache: Path, paths: Sequence[Path] = (), variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the export and `paths` alone on its path, and Warpsmith's packages refused."""
    guard = project.parent / "sitecustomize.py"
    guard.write_text(
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'warpsmith', 'kernels_db'}:\n"
        "            raise ModuleNotFoundError('Warpsmith is not installed here: ' + name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(cache),
        "PYTHONPATH": ":".join(map(str, [project.parent, project, *paths])),
        "WARPSMITH_KERNEL_CACHE": str(cache),
        **(variables or {}),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        cwd=cache,
        check=False,
    )
