"""The stand-in for a GPU that the reference of an imported op may use on a CPU, for exports: they lack Warpsmith.

Such a reference imports it by the judge's short name (`candidate_import`), where tensors are not on a GPU. A package
carries it as files of its own, a reference in a single file as text.
"""

from __future__ import annotations

import ast
from importlib import resources

from warpsmith.kernels_db.export.fold import literal, renamed_imports
from warpsmith.kernels_db.job.python_parsing import parse_module

SHORT_NAME = "kernels_db.formats.stand_in"
_OURS = "from warpsmith.kernels_db.job import block_scaled\n"
_INLINE = '''

def _stand_in():
    """A module that runs code written for a GPU on a CPU."""
    import types

    block_scaled, found = types.ModuleType("block_scaled"), types.ModuleType("stand_in")
    exec(compile(_BLOCK_SCALED, "block_scaled.py", "exec"), vars(block_scaled))
    vars(found)["block_scaled"] = block_scaled
    exec(compile(_STAND_IN, "stand_in.py", "exec"), vars(found))
    return found


'''


def carried(reference: str) -> tuple[str, dict[str, str]]:
    """Return a reference for a package, and the files beside it that it needs."""
    if not _imports(reference):
        return reference, {}
    stand_in = _text("stand_in").replace(_OURS, "from . import _block_scaled as block_scaled\n")
    files = {"_stand_in.py": stand_in, "_block_scaled.py": _text("block_scaled")}
    return renamed_imports(reference, SHORT_NAME, "._stand_in"), files


def inlined(reference: str) -> str:
    """Return a reference for a single file: with the text of what it needs."""
    found = _imports(reference)
    if not found:
        return reference
    lines = reference.splitlines(keepends=True)
    for node in found:
        indent = lines[node.lineno - 1][: node.col_offset]
        names = [f"{item.asname or item.name} = _stand_in().{item.name}" for item in node.names]
        lines[node.lineno - 1] = "".join(f"{indent}{name}\n" for name in names)
    text = "".join(lines).rstrip("\n") + _INLINE
    stand_in = _text("stand_in").replace(_OURS, "")
    return f"{text}_BLOCK_SCALED = {literal(_text('block_scaled'))}\n_STAND_IN = {literal(stand_in)}\n"


def _imports(reference: str) -> list[ast.ImportFrom]:
    if SHORT_NAME not in reference:
        return []
    return [
        node
        for node in ast.walk(parse_module(reference))
        if isinstance(node, ast.ImportFrom) and node.module == SHORT_NAME
    ]


def _text(module: str) -> str:
    return (resources.files("warpsmith.kernels_db.job") / f"{module}.py").read_text("utf-8")
