"""Judging of one candidate on this machine, without a service."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.adapted_kernel import Adapted
from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, RawFile
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Op, SpecErrors
from warpsmith.service.client.errors import FAILED, MISUSE, CommandError, misuse
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeClient, JudgeDied, JudgeTimeout

LANGUAGES = ("cpp", "triton", "cuda", "python")
IMPORTED = LANGUAGES[:3]
"""Languages that a candidate's imports can name."""


def run_job(job: Any) -> Verdict:
    """Judge one job in a judge of its own."""
    settings = ServiceSettings()
    with JudgeClient(cache=settings.judge_cache_dir.expanduser().resolve()) as client:
        try:
            return client.judge(job, timeout_s=settings.judge_job_timeout_s)
        except JobRefused as error:
            raise CommandError(str(error), MISUSE) from None
        except (JudgeDied, JudgeTimeout) as error:
            raise CommandError(f"the judge gave no verdict: {error}", FAILED) from None


def language_of(source: str, name: str) -> str:
    """Read the language of a candidate from its imports; misuse where they name none or several."""
    try:
        tree = ast.parse(source, filename=name)
    except (SyntaxError, ValueError) as error:
        raise CommandError(f"{name}: found {error}, expected a Python file", MISUSE) from None
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= (
                {alias.name for alias in node.names}
                if node.module == "kernels_db.runtime"
                else {(node.module or "").partition(".")[0]}
            )
    found = sorted(imported & set(IMPORTED))
    if len(found) != 1:
        misuse(
            f"{name}: imports",
            ", ".join(found) or "no kernel language",
            "exactly one of cpp, triton, cuda; or give --language, which may be python",
        )
    return found[0]


def adapted(path: Path, source: str, spec: Op) -> Adapted | None:
    """Rewrite a file of another format as a candidate; raises SpecErrors.

    None where it defines `run` itself or has no known format.
    """
    file = raw_file(path, source)
    if path.suffix == ".py" and _defines_run(file):
        return None
    if kernel_import.recognise(file) is None:
        if path.suffix == ".json":
            misuse("FILE.py", str(path), f"a candidate, or {kernel_import.FORMATS['flashinfer-bench'].expected}")
        return None
    return kernel_import.adapt(file, spec)


def raw_file(path: Path, text: str) -> RawFile:
    """Name a text as the file of a format; misuse where it is too large."""
    data = text.encode("utf-8")
    if len(data) > MOST_BYTES:
        misuse("FILE", f"{path} of {len(data)} bytes", f"a file of at most {MOST_BYTES} bytes")
    return RawFile(path.name, data)


def _defines_run(file: RawFile) -> bool:
    try:
        return "run" in python_source.defined(python_source.parse(file))
    except SpecErrors:  # the judge reports it, as for any candidate
        return False
