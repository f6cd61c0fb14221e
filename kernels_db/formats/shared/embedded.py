"""Several Python files as one module, which lets them import each other by name.

Only they see each other so: the process that runs them keeps its own modules `utils` and `reference`.

A spec's sources are single modules, and an imported task has several files. The text written here is part of
the spec and needs nothing of Warpsmith.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

_UNPACKING = """import base64 as _base64
import zlib as _zlib
"""
_LOADER = '''import builtins as _builtins
import hashlib as _hashlib
import sys as _sys
import types as _types

_FILES = {files}
_PREFIX = "_task_" + _hashlib.sha256(repr(sorted(_FILES.items())).encode()).hexdigest()[:16] + "_"


def _embedded(name):
    """The module of that file. Its name is one that nobody else uses: another task has files of the same names."""
    own = _PREFIX + name
    if own not in _sys.modules:
        module = _sys.modules[own] = _types.ModuleType(own)
        module.__dict__["__builtins__"] = {**vars(_builtins), "__import__": _import}
        try:
            exec(compile(_FILES[name], name + ".py", "exec"), module.__dict__)
        except BaseException:
            del _sys.modules[own]
            raise
    return _sys.modules[own]


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name in _FILES:
        return _embedded(name)
    return _builtins.__import__(name, globals, locals, fromlist, level)
'''
_IMPORTLIB = """
import importlib as _importlib

_import_statement = _import


def _import(*arguments, **named):
    found = _import_statement(*arguments, **named)
    if found is not _importlib:
        return found
    own = _types.ModuleType("importlib")
    own.__dict__.update(vars(found), import_module=_import_module)
    return own


def _import_module(name, package=None):
    return _embedded(name) if name in _FILES else _importlib.import_module(name, package)
"""
"""Added where a file uses `importlib.import_module`, which knows nothing of the files by itself."""


def embedding(files: Mapping[str, str], *, packed: bool = False) -> str:
    """Return source that defines `_embedded(name)`, the modules in `files` (name to text).

    `packed`: the texts compressed, for a spec that must repeat them more often than it has room.
    """
    loader = _LOADER + (_IMPORTLIB if any("import_module" in text for text in files.values()) else "")
    if packed:
        unpacked = f"_json.loads({_unpacked(json.dumps(dict(sorted(files.items()))))})"
        return _UNPACKING + "import json as _json\n" + loader.replace("{files}", unpacked)
    lines = "".join(f"    {name!r}: {literal(text)},\n" for name, text in sorted(files.items()))
    return loader.replace("{files}", "{\n" + lines + "}")


def packed_source(text: str) -> str:
    """Return source that is a module's text compressed, and defines the same names."""
    return f"{_UNPACKING}exec({_unpacked(text)}, globals())\n"


def _unpacked(text: str) -> str:
    """Return a Python expression whose value is the text, and which holds it compressed."""
    data = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return f"_zlib.decompress(_base64.b85decode({data!r})).decode()"


def literal(text: str) -> str:
    """Return a text as Python source that keeps its lines readable."""
    if "'''" in text or text.endswith("'") or not text.isascii() or any(special in text for special in "\\\0\r\f"):
        return repr(text)
    return f"'''{text}'''"
