"""Warpsmith: an LLM-driven kernel search service, and the judge of its kernels.

The packages are `warpsmith.service`, `warpsmith.workers`, `warpsmith.prompts` and `warpsmith.kernels_db`. The names
below are what other programs may build on: the judge (`Judge`, the `Judgement` that it gives, and its errors), the op
spec (`Op`, `load_op`), a `Target`, `optimize` for whole models, `record` for the calls of a running one, the version
and where Warpsmith is imported from. A name loads its module when it is first used; all of them work in the base
install, without the extra `service`.
docs/judge-api.md is the judge's page.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
    from warpsmith.kernels_db.spec.op import Op, load_op
    from warpsmith.kernels_db.spec.target import Target
    from warpsmith.workers.judging.judge import Judge, JudgeClosed
    from warpsmith.workers.judging.judgement import Judgement
    from warpsmith.workers.judging.machine import CannotJudge
    from warpsmith.workers.optimize.entry import optimize
    from warpsmith.workers.recording.handle import Recording, record

__all__ = [
    "IMPORT_ROOT",
    "CannotJudge",
    "Judge",
    "JudgeClosed",
    "Judgement",
    "Op",
    "Recording",
    "SpecError",
    "SpecErrors",
    "Target",
    "__version__",
    "load_op",
    "optimize",
    "record",
]

IMPORT_ROOT = Path(__file__).resolve().parents[1]
"""The directory from which `warpsmith` is imported: children that are started with `-P` get it as PYTHONPATH."""

_HOMES = {
    "CannotJudge": "warpsmith.workers.judging.machine",
    "Judge": "warpsmith.workers.judging.judge",
    "JudgeClosed": "warpsmith.workers.judging.judge",
    "Judgement": "warpsmith.workers.judging.judgement",
    "Op": "warpsmith.kernels_db.spec.op",
    "Recording": "warpsmith.workers.recording.handle",
    "SpecError": "warpsmith.kernels_db.spec.errors",
    "SpecErrors": "warpsmith.kernels_db.spec.errors",
    "Target": "warpsmith.kernels_db.spec.target",
    "load_op": "warpsmith.kernels_db.spec.op",
    "optimize": "warpsmith.workers.optimize.entry",
    "record": "warpsmith.workers.recording.handle",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used. Raises AttributeError for every other."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    try:
        return version("warpsmith")
    except PackageNotFoundError:  # imported from a checkout that is not installed
        return "0+checkout"
