"""Kernels as the store hands them to an exporter, and processes that use an export without Warpsmith."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.plans import with_plans
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.library import Entry
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


def shipped(entry: Entry) -> ExportedKernel:
    """A kernel of the library that ships, as the store hands it to an exporter."""
    facts = {name: entry.document[name] for name in ("id", "envelope", "lineage", "verified_at", "prompts")}
    return ExportedKernel(
        **facts,
        spec=entry.op.document(),
        target=entry.target,
        language=entry.language,
        source=entry.source,
        source_digest=entry.document["source_digest"],
        evidence=entry.evidence,
    )


def _exported(
    spec: dict[str, Any], source: str, language: str, target: Target, name: str, times_us: Mapping[str, float]
) -> ExportedKernel:
    op = parse_op(spec)
    workloads = [resolve_workload(op, w) for w in op.workloads_for(target)]
    rows = [
        {
            "id": workload["id"],
            "role": workload["role"],
            "error": {"candidate": 1e-8, "eager": 1e-8, "limit": 6e-8, "absolute": 3e-8},
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


FORKS = """
import json, os, runpy, signal, sys, traceback
import torch


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"warpsmith", "kernels_db"}:
            raise ModuleNotFoundError("Warpsmith is not installed here: " + name)


sys.meta_path.insert(0, Refuse())


def perform(arguments, directory, variables, paths, files, limit_s):
    signal.alarm(limit_s)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    sys.path[:0] = paths
    first, *rest = arguments
    if first == "-c":
        sys.argv = arguments[:1] + rest[1:]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            perform(**job)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has PyTorch and refuses Warpsmith's packages; each job is done by a fork of it."""


@cache
def _forks() -> tuple[subprocess.Popen[str], str]:
    """The process, and a cache for the kernels of all that it runs."""
    kernels = TemporaryDirectory(prefix="ws-kernels-")
    atexit.register(kernels.cleanup)
    with_plans(Path(kernels.name))
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # the last that is registered is the first to be called
    return process, kernels.name


def in_fresh_process(
    project: Path, *arguments: str, home: Path, paths: Sequence[Path] = (), variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the export and `paths` alone on its path, and Warpsmith's packages refused.

    What runs has PyTorch already, which takes longer to import than most of it takes; kernels are built once for all,
    unless `variables` name another cache.
    """
    server, kernels = _forks()
    assert server.stdin is not None
    assert server.stdout is not None
    with TemporaryDirectory(prefix="ws-fresh-") as place:
        files = [Path("/dev/null"), Path(place, "out"), Path(place, "err")]
        job = {
            "arguments": arguments,
            "directory": str(home),
            "variables": {
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "WARPSMITH_KERNEL_CACHE": kernels,
                **(variables or {}),
            },
            "paths": [str(path) for path in (project, *paths)],
            "files": [str(file) for file in files],
            "limit_s": 240,
        }
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, files[1].read_text(), files[2].read_text())
