"""Warpsmith: an LLM-driven kernel search service.

The packages are `warpsmith.service`, `warpsmith.workers`, `warpsmith.prompts` and `warpsmith.kernels_db`. The names
below are what other programs may build on: the op spec (`Op`, `load_op`), a `Target`, the version and where Warpsmith
is imported from. A name loads its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpsmith.kernels_db.spec.op import Op, load_op
    from warpsmith.kernels_db.spec.target import Target

__all__ = ["IMPORT_ROOT", "Op", "Target", "__version__", "load_op"]

IMPORT_ROOT = Path(__file__).resolve().parents[1]
"""The directory from which `warpsmith` is imported: children that are started with `-P` get it as PYTHONPATH."""

_HOMES = {
    "Op": "warpsmith.kernels_db.spec.op",
    "load_op": "warpsmith.kernels_db.spec.op",
    "Target": "warpsmith.kernels_db.spec.target",
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
