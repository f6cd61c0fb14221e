"""The short names by which code from outside imports modules of ours, in processes that load such code alone.

Candidates, shipped kernels, pools and prompts say `from kernels_db.runtime import cpp`; generators of imported ops,
which are part of an op's identity, say `from kernels_db.formats.stand_in import on`. What is installed is
`warpsmith.kernels_db`, so that Warpsmith takes no short name in site-packages. A loader of such code calls
`provide_short_names` first. Standard library only: the judge calls it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import Any

NAME = "kernels_db"
PACKAGES = (NAME, f"{NAME}.formats")
"""Packages that hold the names below and nothing else."""

TARGETS = {
    f"{NAME}.runtime": "warpsmith.kernels_db.runtime",
    f"{NAME}.formats.stand_in": "warpsmith.kernels_db.job.stand_in",
}
"""The module behind each short name; submodules of a package follow it."""


class _ShortNames(MetaPathFinder, Loader):
    """Finds the short names; a module is the same object under both of its names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = fullname in PACKAGES or _installed_name(fullname) is not None
        return ModuleSpec(fullname, self, is_package=fullname in PACKAGES) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        name = _installed_name(spec.name)
        if name is None:
            return None  # a package of PACKAGES: an empty module
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            module.__spec__ = spec.loader_state  # the import system has put the short name's in its place


class _Utf8(SourceFileLoader):
    """Loads a file as UTF-8, whatever its first lines say of its encoding: the text that was checked is what runs."""

    def source_to_code(self, data: Any, path: Any, **options: Any) -> CodeType:  # type: ignore[override]
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return super().source_to_code(text, path, **options)


def specify_file(name: str, path: str) -> ModuleSpec:
    """Return the specification of a module of this name in a file of code from outside, which is UTF-8."""
    specification = spec_from_file_location(name, path, loader=_Utf8(name, path))
    assert specification is not None  # a loader was given
    return specification


def _installed_name(short: str) -> str | None:
    """Return the installed name of a module, None for other names."""
    for name, installed in TARGETS.items():
        if short == name or short.startswith(f"{name}."):
            return installed + short.removeprefix(name)
    return None


_finder = _ShortNames()


def provide_short_names() -> None:
    """Let this process import the modules of TARGETS by their short names.

    A package of that name which was imported before makes way: code from outside means ours.
    """
    if _finder in sys.meta_path:
        return
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _finder)
