"""A FlashInfer-Bench Solution as a candidate for the op of its Definition.

Its sources lie beside each other as they do in the format's own harness. Under `destination_passing_style` the entry
point takes inputs and outputs; otherwise what it returns (a tensor, several, or a dict by output) is copied into the
outputs within the call. Parameters that have the Definition's names in another order are passed by name.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from warpsmith.kernels_db.formats.flashinfer import definition
from warpsmith.kernels_db.formats.flashinfer.objects import Found, objects
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.adapted_kernel import Adapted, assembled, require_origin, tuple_of
from warpsmith.kernels_db.formats.shared.files import RawFile, is_inside, raw_files, refused
from warpsmith.kernels_db.formats.shared.packed import packed
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.resolve import arguments

FORMAT = definition.FORMAT
EXPECTED = "a Solution: a JSON object with name, definition, sources and spec"

_BODY = """
_entry = _module({module!r}).{function}


def _call(inputs, outputs):
    {call}
"""
_BY_NAME = "**dict(zip({names}, {values}))"


def claim(file: RawFile) -> bool:
    """Check whether a file is such a candidate."""
    try:
        return [found.kind for found in objects(file)] == ["Solution"]
    except SpecErrors:
        return False


def adapt(file: RawFile, op: Op) -> Adapted:
    """Return the candidate. Raises SpecErrors naming the field."""
    found = [item for item in objects(file) if item.kind == "Solution"]
    if len(found) != 1:
        raise refused(file.path, f"{len(found)} Solutions", f"one: {EXPECTED}")
    solution = found[0]
    require_origin(op, FORMAT, "a Solution")
    _check_definition(solution, op)
    files = _sources(solution)
    path, function = _entry_point(solution, files)
    inputs, outputs = [item.name for item in arguments(op)], [item.name for item in op.outputs]
    passing = _passing(solution)
    given = [*inputs, *outputs] if passing else inputs
    values = "(*inputs, *outputs)" if passing else "inputs"
    field = f"{solution.field}: spec.entry_point"
    by_name = _by_name(files[path], function, given, field)
    passed = _BY_NAME.format(names=_texts(given), values=values) if by_name else f"*{values}"
    called = f"_entry({passed})"
    body = _BODY.format(
        module=path.removesuffix(".py").replace("/", "."),
        function=function,
        call=called if passing else _returned(called, function, outputs),
    )
    call = f"_call({tuple_of(inputs)}, {tuple_of(outputs)})"
    title = f"{file.path}: Solution {solution.text('name')!r} for the op {op.name}"
    return Adapted(FORMAT, assembled(packed(title, files, path), body, op, call))


def _returned(called: str, function: str, outputs: Sequence[str]) -> str:
    # A name that is none of the outputs is passed on: one result too many.
    names = f"dict.fromkeys((*{_texts(outputs)}, *found))"
    by_output = f"[found[name] for name in {names}] if isinstance(found, dict) else found"
    return f"found = {called}\n    _delivered({function!r}, {by_output}, outputs)"


def _texts(names: Sequence[str]) -> str:
    return tuple_of([repr(name) for name in names])


def _check_definition(solution: Found, op: Op) -> None:
    assert op.origin is not None
    names = [item.text("name") for file in raw_files(op.origin) for item in objects(file) if item.kind == "Definition"]
    if (named := solution.text("definition")) not in names:
        raise refused(f"{solution.field}: definition", named, f"{' or '.join(names)}, which the op was imported from")


def _spec(solution: Found) -> dict[str, Any]:
    spec = solution.content["spec"]
    if not isinstance(spec, dict):
        raise refused(f"{solution.field}: spec", spec, "an object with entry_point")
    return spec


def _passing(solution: Found) -> bool:
    passing = _spec(solution).get("destination_passing_style", True)  # as the format has it where nothing is said
    if not isinstance(passing, bool):
        raise refused(f"{solution.field}: spec.destination_passing_style", passing, "true or false")
    return passing


def _sources(solution: Found) -> dict[str, str]:
    """Return the sources by path."""
    listed = solution.content["sources"]
    field = f"{solution.field}: sources"
    if not isinstance(listed, list) or not listed:
        raise refused(field, listed, "a list of {path, content}")
    files: dict[str, str] = {}
    for number, item in enumerate(listed):
        path, content = (item.get("path"), item.get("content")) if isinstance(item, dict) else (None, None)
        if not isinstance(path, str) or not isinstance(content, str):
            raise refused(f"{field}[{number}]", item, "an object with the texts path and content")
        if not is_inside(path) or path in files:
            raise refused(f"{field}[{number}].path", path, "a relative path without . and .. that no other source has")
        try:
            content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise refused(f"{field}[{number}].content", f"a lone surrogate at {error.start}", "text") from None
        files[path] = content
    return files


def _entry_point(solution: Found, files: dict[str, str]) -> tuple[str, str]:
    """Return path and name of the function that is called."""
    field, named = f"{solution.field}: spec.entry_point", _spec(solution).get("entry_point")
    path, _, function = named.partition("::") if isinstance(named, str) else ("", "", "")
    pythons = [place for place in files if place.endswith(".py")]
    if path not in pythons or not all(part.isidentifier() for part in path.removesuffix(".py").split("/")):
        said = ", ".join(pythons) or "none: this is no Solution in Python"
        raise refused(field, named, f"FILE.py::FUNCTION, a function in one of the Python sources ({said})")
    tree = python_source.parse(RawFile(f"{solution.field}: {path}", files[path].encode("utf-8")))
    if not function.isidentifier() or function not in python_source.defined(tree):
        names = ", ".join(sorted(python_source.top_level(tree, ast.FunctionDef))) or "no function"
        raise refused(field, named, f"a function that {path} defines, which has {names}")
    return path, function


def _by_name(source: str, function: str, given: Sequence[str], field: str) -> bool:
    """Check whether values are passed by name.

    Raises SpecErrors where the function cannot take so many.
    """
    found = python_source.top_level(parse_module(source), ast.FunctionDef).get(function)
    if found is None or found.decorator_list:
        return False  # what it takes, only running it tells
    positional = python_source.parameters(found)
    keywords = [item.arg for item in found.args.kwonlyargs]
    named = [*positional, *keywords]
    if set(given) <= set(named) and (keywords or positional[: len(given)] != list(given)):
        return True
    least = len(positional) - len(found.args.defaults)
    unset = [name for name, default in zip(keywords, found.args.kw_defaults, strict=True) if default is None]
    if unset or len(given) < least or (len(given) > len(positional) and found.args.vararg is None):
        raise refused(field, f"{function}({', '.join(named)})", f"{function}({', '.join(given)})")
    return False
