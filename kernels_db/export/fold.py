"""Folds an importable package into one Python file.

The file holds the package's files as text, each under its own name, and imports them from there: so the one
file behaves as the package does, the kernel's source is in it unchanged, and nothing of it runs before it is
needed.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping

from warpsmith.kernels_db.job.python_parsing import parse_module

IMPORTER = '''
import importlib.abc as _importlib_abc
import importlib.util as _importlib_util
import sys as _sys


class _FoldedFiles(_importlib_abc.MetaPathFinder, _importlib_abc.ExecutionLoader):
    """Imports the files of this one by their own names, when they are needed. Other imports pass by."""

    def __init__(self, package, files, path):
        self._package, self._files, self._path = package, files, path

    def _name(self, module):
        below = module[len(self._package) :].replace(".", "/") + "/"
        for name in (f"{below}__init__.py", f"{below[:-1]}.py"):
            if name.lstrip("/") in self._files:
                return name.lstrip("/")
        return None

    def find_spec(self, module, path=None, target=None):
        if module != self._package and not module.startswith(self._package + ".") or self._name(module) is None:
            return None
        return _importlib_util.spec_from_loader(module, self, is_package=self.is_package(module))

    def is_package(self, module):
        return self._name(module).endswith("__init__.py")

    def get_filename(self, module):
        return f"{self._path}/{self._name(module)}"

    def get_source(self, module):
        return self._files[self._name(module)]


if globals().get("__name__") == _PACKAGE:  # this file itself bears the name
    _PACKAGE += "_folded"
if _PACKAGE not in _sys.modules:  # the name holds a hash of the content: what is loaded already is the same
    _finder = _FoldedFiles(_PACKAGE, _FILES, globals().get("__file__", _PACKAGE))
    _sys.meta_path.append(_finder)
    _spec = _finder.find_spec(_PACKAGE)
    _sys.modules[_PACKAGE] = _importlib_util.module_from_spec(_spec)
    try:
        _spec.loader.exec_module(_sys.modules[_PACKAGE])
    except BaseException:
        del _sys.modules[_PACKAGE]
        raise
_package = _sys.modules[_PACKAGE]
'''
"""Puts the package `_package` into the file; reads _PACKAGE and _FILES."""


def fold(module: str, files: Mapping[str, str], entry: str = "_kernel") -> str:
    """Return Python source that defines `_package`, the package `module` made of `files`.

    `files` are texts by path inside the package. Only those that `__init__.py` can reach are taken, those whose
    names begin with `entry` first. The source has no imports from the future and needs no `__file__`: it may be in
    the middle of another file, and be executed without one.
    """
    taken = sorted(reachable(files, "__init__.py"), key=lambda name: (not name.startswith(entry), "/" in name, name))
    lines = [f"_PACKAGE = {module!r}", "_FILES = {"]
    lines += [f"    {name!r}: {literal(files[name])}," for name in taken]
    return "\n".join([*lines, "}", IMPORTER])


def reachable(files: Mapping[str, str], start: str) -> set[str]:
    """Return the names of the Python files that `start` imports by relative imports.

    Directly or through others. Importing a module imports the packages above it, so their `__init__.py` counts.
    """
    found: set[str] = set()
    pending = [start]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [other for other in _imports(name, files) if other not in found]
    return found


def public_names(init: str) -> list[str]:
    """Read `__all__` of a package's `__init__.py`."""
    for node in parse_module(init).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("__init__.py: found no __all__, expected one")


def literal(text: str) -> str:
    """Return `text` as a string literal over several lines that reads as the text does."""
    if "'''" not in text and "\r" not in text and not text.endswith(("\\", "'")):
        return f"r'''{text}'''"
    # Quotes at the end would run into the literal's own.
    body = text.rstrip("'")
    escaped = body.replace("\\", "\\\\").replace("'''", "\\'\\'\\'").replace("\r", "\\r")
    return f"'''{escaped}" + "\\'" * (len(text) - len(body)) + "'''"


def _imports(name: str, files: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(parse_module(files[name])):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        place = posixpath.dirname(name)
        for _ in range(node.level - 1):
            place = posixpath.dirname(place)
        base = posixpath.join(place, *(node.module or "").split(".")).rstrip("/")
        for path in (base, *(posixpath.join(base, item.name) for item in node.names)):
            for candidate in (f"{path}.py", posixpath.join(path, "__init__.py")):
                if candidate in files:
                    yield candidate
                    above = posixpath.dirname(candidate)
                    while above:
                        yield posixpath.join(above, "__init__.py")
                        above = posixpath.dirname(above)


def renamed_imports(source: str, old: str, new: str) -> str:
    """Return a source whose `from old... import` say `from new... import`."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(parse_module(source)):
        if isinstance(node, ast.ImportFrom) and ("." * node.level + (node.module or "")).startswith(old):
            lines[node.lineno - 1] = lines[node.lineno - 1].replace(old, new, 1)
    return "".join(lines)
