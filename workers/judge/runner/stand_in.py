"""Stands in for a language's compiler in a runner whose builds came with the job: the file's names, and no more.

A candidate's file decorates functions, annotates them and gives names of its language's package other names. None of
these is called once its functions are compiled, so a name here is an object that can be called, indexed and asked for
names in it; a decorated function stays the function that it is, by whose text its build is found. Whatever would tell a
name from another, or compute with one, ends the job as the host's fault: here the result would be another than where
the file was compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from warpsmith.kernels_db.job.languages import CARRIED, LANGUAGES
from warpsmith.kernels_db.runtime.cutedsl_build import NOT_CARRIED
from warpsmith.kernels_db.runtime.errors import HostError

PACKAGES = tuple(one.package for one in LANGUAGES.values() if one.compiler in CARRIED and one.package)
"""Packages of the languages whose builds travel."""


class Name:
    """Any name of a language's package, and whatever is made of it; the same object each time that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return _named(self, name)

    def __call__(self, *given: Any, **options: Any) -> Any:
        if len(given) == 1 and not options and isinstance(given[0], FunctionType):
            return _decorated(given[0])
        return Name()

    def _other(self, *others: Any) -> Any:
        return Name()

    __getitem__ = __or__ = __ror__ = _other  # of annotations

    def _refuse(self, *others: Any) -> Any:
        raise HostError(
            f"{NOT_CARRIED} the values of names of {' and '.join(PACKAGES)}, and this file computes with one: install "
            "its language's compiler on this host"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __bool__ = __len__ = __iter__ = __contains__ = _refuse
    __int__ = __float__ = __index__ = __str__ = __repr__ = __format__ = _refuse
    __neg__ = __pos__ = __invert__ = __abs__ = __round__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = __matmul__ = _refuse
    __and__ = __xor__ = __lshift__ = __rshift__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __rpow__ = _refuse
    __rmatmul__ = __rand__ = __rxor__ = __rlshift__ = __rrshift__ = _refuse


def _named(owner: Any, name: str) -> Name:
    """Return a name in a package or in another name, made when it is first asked for."""
    if name.startswith("__"):
        raise AttributeError(name)
    found: Name = vars(owner).setdefault(name, Name())
    return found


class _StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        return _named(self, name)


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


_finder = _Finder()


def provide() -> None:
    """Let this process import the packages as stand-ins, whether they are installed or not."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _decorated(function: FunctionType) -> Any:
    """Return the function itself, with what the runtime asks of a TileLang function."""
    vars(function).update(orig_func=function, buffer_map={})
    return function
