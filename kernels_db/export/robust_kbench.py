"""The `robust-kbench` format: the results of a task's kernel and of PyTorch, as its tools write and read them.

    func_*.py, config_*.json              the task with its configuration, as it was imported
    eval_results/DIRECTION/torch_*.json   times of PyTorch, eager and compiled
    kernel/eval_results/time_results.json times of the kernel
    kernel/PACKAGE/, provenance.json      the kernel, as an importable package, and where it comes from

The tools of robust-kbench (https://github.com/SakanaAI/robust-kbench) take such files in place of a measurement of
PyTorch, and divide the times in their summaries. The kernel is a package, not the one file of CUDA with a PyTorch
binding that they compile themselves, so they cannot measure it. An op that came from no task has no configuration by
whose name results go.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from warpsmith.kernels_db.export.evidence import provenance
from warpsmith.kernels_db.export.flashinfer_bench import to_json
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, write_project
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.formats.robust_kbench import task
from warpsmith.kernels_db.formats.shared.files import raw_files
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors

NAME = "robust-kbench"
BASELINES = {"eager": "torch_native_results.json", "compile": "torch_compile_results.json"}
"""Our baselines, by the files that the format has for them."""

STATISTIC = "median over rounds of the means of blocks of calls, by Warpsmith's judge"


def build(kernel: ExportedKernel, directory: Path, name: str | None = None) -> Path:
    """Write the task with its results into a new directory below `directory` and return that.

    Raises FileExistsError where it exists; SpecErrors where the op was imported from no task, or was not timed.
    """
    module = name or module_name(kernel)
    files, setting, direction, times = said(kernel)
    files |= {
        f"eval_results/{direction}/{file}": to_json(_results(kernel, setting, times[baseline]))
        for baseline, file in BASELINES.items()
        if baseline in times
    }
    files["kernel/eval_results/time_results.json"] = to_json(_results(kernel, setting, times["candidate"]))
    files["kernel/provenance.json"] = to_json(provenance(kernel))
    files |= {f"kernel/{module}/{path}": text for path, text in importable_files([kernel], module).items()}
    return write_project(directory, f"{module}-{NAME}", files)


def said(kernel: ExportedKernel) -> tuple[dict[str, str], str, str, Mapping[str, float]]:
    """Return the files of the task that the op came from, its setting, its direction and the times of its workload.

    The times are in microseconds, by contender. Raises SpecErrors where the op was imported from no task, or was not
    timed.
    """
    op = kernel.op
    if op.origin is None or op.origin.format != task.FORMAT:
        found = None if op.origin is None else op.origin.format
        raise SpecErrors([SpecError("origin.format", found, f"{task.FORMAT}: results go by a task's configuration")])
    given = raw_files(op.origin)
    files = {PurePosixPath(file.path).name: file.text() for file in task.task_and_configuration(given)}
    return files, *task.setting(given), _times(kernel, op)


def _times(kernel: ExportedKernel, op: Op) -> Mapping[str, float]:
    for row in kernel.evidence["workloads"]:
        if row["id"] == op.workloads[0].id and row["time_us"] and "candidate" in row["time_us"]:
            found: Mapping[str, float] = row["time_us"]
            return found
    raise SpecErrors([SpecError("evidence.workloads", "no time of the kernel", "a kernel that was timed")])


def _results(kernel: ExportedKernel, setting: str, time_us: float) -> dict[str, Any]:
    """Return the results of one contender: times in milliseconds, by the name of the task's configuration.

    The format's tools divide `avg_mean_time`: it holds the judge's own statistic, which `statistic` names. The spread
    of single calls is not measured.
    """
    time_ms = time_us / 1000
    device = kernel.evidence.get("device", {}).get("name") or kernel.target
    return {
        "summary": {
            "avg_mean_time": time_ms,
            "avg_median_time": time_ms,
            "avg_iqr_time": None,
            "all_configs_str": [setting],
            "statistic": STATISTIC,
        },
        "eval_settings": {setting: {"mean_time": time_ms, "median_time": time_ms, "iqr_time": None}},
        "device_info": {
            "num_gpus": int(kernel.target.startswith("cuda")),
            "devices": {"GPU_0" if kernel.target.startswith("cuda") else "CPU": {"name": device}},
            "versions": dict(kernel.evidence.get("versions", kernel.envelope["versions"])),
        },
    }
