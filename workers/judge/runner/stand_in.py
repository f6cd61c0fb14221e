"""Stands in for a language's compiler in a runner whose builds came with the job: the file's names, and no more.

A candidate's file decorates functions, annotates them and makes constants with names of its language's package. None of
these is called once its functions are compiled, so a name here is an object that takes every use and does nothing; a
decorated function stays the function that it is, by whose text its build is found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from warpsmith.kernels_db.job.languages import CARRIED, LANGUAGES

PACKAGES = tuple(one.package for one in LANGUAGES.values() if one.compiler in CARRIED and one.package)
"""Packages of the languages whose builds travel."""


class Name:
    """Any name of a language's package, and whatever is made of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *given: Any, **options: Any) -> Any:
        if len(given) == 1 and not options and isinstance(given[0], FunctionType):
            return _decorated(given[0])
        return self

    def _same(self, *others: Any) -> Any:
        return self

    __getitem__ = __neg__ = __invert__ = _same
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __or__ = __and__ = _same
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __ror__ = __rand__ = _same


class _StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return NAME


class _Finder(MetaPathFinder, Loader):
    """Finds the packages and all that is in them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: its names come when they are asked for."""


NAME = Name()
_finder = _Finder()


def provide() -> None:
    """Let this process import the packages as stand-ins, whether they are installed or not."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _decorated(function: FunctionType) -> Any:
    """Return the function itself, with what the runtime asks of a TileLang function."""
    vars(function).update(orig_func=function, buffer_map={})
    return function
