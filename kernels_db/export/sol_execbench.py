"""The `sol-execbench` format: a problem of SOL-ExecBench, our Solution, and Traces of what was timed.

The directory is a problem as `sol-execbench DIRECTORY --solution DIRECTORY/solution.json` takes it
(https://github.com/NVIDIA/SOL-ExecBench): `definition.json` and `workload.jsonl`. `traces.json` is the list that its
`scripts/run_dataset.py` writes and reads for a problem. Definitions and Workloads are those of FlashInfer-Bench, and
are given back as they came where the op was imported from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export import flashinfer_bench
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, write_project
from warpsmith.kernels_db.spec.op import Op, Target

NAME = "sol-execbench"
LANGUAGES = {"triton": "triton"}
"""Of the entry point's file, where it is not "pytorch", which is Python.

The format's other languages are sources that it compiles itself.
"""

HARDWARE = ["LOCAL"]
"""The GPU of the host that runs the benchmark; the format has no name for others than its own."""


def build(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the problem into a new directory below `directory` and return that.

    Raises FileExistsError where it exists, SpecErrors with every part of the spec that the format cannot say.
    """
    op, target = kernel.op, Target.parse(kernel.target)
    module = name or module_name(kernel)
    raw, definition = flashinfer_bench.definition_of(kernel)
    defined = str(definition.get("name"))
    traces = list(flashinfer_bench.traces_of(kernel, op, target, defined, module))
    files = {
        "definition.json": raw,
        "workload.jsonl": flashinfer_bench.to_json_lines([trace["workload"] for trace in traces]),
        "solution.json": flashinfer_bench.to_json(_solution(kernel, op, target, defined, module)),
        "traces.json": flashinfer_bench.to_json(traces),
    }
    return write_project(directory, f"{module}-{NAME}", files)


def _solution(kernel: ExportedKernel, op: Op, target: Target, definition: str, module: str) -> dict[str, Any]:
    solution = flashinfer_bench.solution_of(kernel, op, target, definition, module)
    spec = {key: value for key, value in solution["spec"].items() if key not in ("language", "binding")}
    return solution | {
        "spec": spec | {"languages": [LANGUAGES.get(kernel.language, "pytorch")], "target_hardware": HARDWARE}
    }
