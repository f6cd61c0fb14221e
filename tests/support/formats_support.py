"""Files in the formats that are imported, and a stand-in for the sandbox: answers as it gave them before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests import REPOSITORY
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.file_analysis import Analysis
from warpsmith.kernels_db.spec.op import SpecErrors

EXAMPLES = REPOSITORY / "examples" / "formats"
KERNELBENCH = sorted((EXAMPLES / "kernelbench").glob("*.py"))
DEFINITIONS = sorted((EXAMPLES / "flashinfer-bench" / "definitions").glob("*/*.json"))
TASKS = sorted((EXAMPLES / "gpu-mode").glob("*/task.yml"))


def files_of(path: Path) -> list[RawFile]:
    """The file and what belongs to it, by the layout of the examples."""
    if path in KERNELBENCH:
        return [RawFile(path.name, path.read_bytes())]
    if path in DEFINITIONS:
        root = EXAMPLES / "flashinfer-bench"
        kind, name = path.parent.name, path.stem
        blobs = (root / "blob" / "workloads" / kind).glob("*")
        paths = [path, root / "workloads" / kind / f"{name}.jsonl", *blobs]
    elif path.parent.parent == EXAMPLES / "robust-kbench":
        root = path.parent.parent
        paths = [path, path.with_name(path.name.replace("func_", "config_")).with_suffix(".json")]
    else:
        root = EXAMPLES / "gpu-mode"
        paths = [*sorted(path.parent.iterdir()), root / "utils.py"]
    return [RawFile(Path(os.path.relpath(each, root)).as_posix(), each.read_bytes()) for each in paths]


def errors_of(error: SpecErrors) -> list[str]:
    """Each error in a sentence."""
    return [str(item) for item in error.errors]


def answering(answer: dict[str, Any]) -> Any:
    """An `Analyse` that has this to say of every file, and finds its reference to be right."""
    compared = {"compared": "values"}
    return lambda request: Analysis(compared if request["task"] == "reference" else answer, "isolated")


MATMUL: dict[str, Any] = {
    "init": [],
    "inputs": [{"shape": [4, 4], "strides": [4, 1], "dtype": "float32", "dist": None} for _ in range(2)],
    "state": [],
    "outputs": [{"shape": [4, 4], "strides": [4, 1], "dtype": "float32"}],
    "written": {"inputs": [], "state": []},
}
"""What the sandbox says of a product of two matrices whose values it did not see drawn."""
