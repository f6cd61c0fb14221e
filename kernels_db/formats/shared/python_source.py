"""Python files read by their syntax alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeVar

from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.basic_types import MAX_SOURCE, python_tree

Definition = TypeVar("Definition", ast.FunctionDef, ast.ClassDef)


def parse(file: RawFile) -> ast.Module:
    """Return the file's syntax tree.

    Raises SpecErrors: no UTF-8, too long, or no Python that parses.
    """
    text = file.text()
    if len(text) > MAX_SOURCE:
        raise refused(file.path, f"{len(text)} characters", f"at most {MAX_SOURCE} characters of Python")
    try:
        return python_tree(text.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise refused(file.path, f"{error.msg} (line {error.lineno})", "Python that parses") from None
    except ValueError as error:
        raise refused(file.path, str(error), "Python that parses") from None


def top_level(tree: ast.Module, kind: type[Definition]) -> dict[str, Definition]:
    """Return the functions or classes that a module defines, by name; the last of a name counts."""
    return {node.name: node for node in tree.body if isinstance(node, kind)}


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a module's top level binds."""
    return {name for node in tree.body for name in bound(node)}


def bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that one statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)


def parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's positional parameters, in order."""
    return [item.arg for item in [*function.args.posonlyargs, *function.args.args]]


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the first part of the name of every module imported anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


BY_TEXT = frozenset({"globals", "vars", "eval", "exec", "__import__", "import_module", "sys.modules"})
"""Names through which a module may reach one of its definitions, or another module, by a text."""


def reaches_by_text(node: ast.AST) -> bool:
    """Check whether code mentions one of BY_TEXT, or imports it under another name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute):
            text = ast.unparse(each)
            if text in BY_TEXT or text.endswith(".import_module"):
                return True
        elif isinstance(each, ast.ImportFrom) and any(
            alias.name in BY_TEXT or f"{each.module}.{alias.name}" in BY_TEXT for alias in each.names
        ):
            return True
    return False


def needed_for(tree: ast.Module, name: str, unless: Collection[str] = ()) -> str:
    """Return the text of the part of a module that the definition of `name` needs, without comments.

    Left out are imports of names, and definitions without an effect beside their names (`_has_effect`) or named in
    `unless`, that nothing else in the part mentions. Nothing is left out where the part may reach a definition by a
    text (BY_TEXT).
    """
    definitions: dict[str, list[ast.stmt]] = {}
    kept: set[ast.stmt] = set()
    plain = _names_of_torch(tree)
    for statement in tree.body:
        names = list(bound(statement))
        lasting = isinstance(statement, ast.ImportFrom) and (statement.module == "__future__" or "*" in names)
        if not names or lasting or (_has_effect(statement, plain) and not set(names) & set(unless)):
            kept.add(statement)
        for each in names:
            definitions.setdefault(each, []).append(statement)
    left: list[ast.stmt] = [*kept, *definitions.get(name, [])]
    while left:
        statement = left.pop()
        kept.add(statement)
        mentioned = {ast.unparse(node) for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute)}
        if reaches_by_text(statement):
            return ast.unparse(tree) + "\n"
        left += [other for each in mentioned for other in definitions.get(each, []) if other not in kept]
    return ast.unparse(ast.Module([each for each in tree.body if each in kept], [])) + "\n"


def _has_effect(statement: ast.stmt, plain: Collection[str]) -> bool:
    """Check whether a definition may do more than bind its names: decorators, calls and bases may register it.

    Attributes of the names in `plain` are bases that register no class (`torch.nn.Module`).
    """
    if isinstance(statement, ast.FunctionDef):
        return bool(statement.decorator_list)
    if isinstance(statement, ast.ClassDef):
        known = all(isinstance(base, ast.Attribute) and _root(base) in plain for base in statement.bases)
        return bool(statement.decorator_list or statement.keywords or not known)
    return any(isinstance(node, ast.Call | ast.NamedExpr) for node in ast.walk(statement))


def _root(value: ast.expr) -> str | None:
    """Return `a` of `a.b.c`."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def _names_of_torch(tree: ast.Module) -> set[str]:
    """Return the names that stand for torch or a part of it throughout a module: `torch`, `nn`."""
    found: set[str] = set()
    others: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                (found if root == "torch" else others).add(alias.asname or root)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).partition(".")[0] == "torch":
            found |= set(bound(node))
        else:
            others |= set(bound(node))
    return found - others


def without_comments(text: str) -> str:
    """Return the text of the same module without its comments and docstrings, for a spec that must repeat it."""
    tree = parse_module(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
