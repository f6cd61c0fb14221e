"""Python is parsed in one place, which works where threads parse at once."""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests import REPOSITORY
from warpsmith.kernels_db.job.python_parsing import parse_expression, parse_module

HOME = REPOSITORY / "kernels_db" / "job" / "python_parsing.py"
PRODUCT = sorted(
    file
    for package in ("service", "workers", "prompts", "kernels_db", "benchmarks")
    for file in (REPOSITORY / package).rglob("*.py")
    if "node_modules" not in file.parts and file != HOME
)
NODES = {"node", "default"}  # what `ast.literal_eval` is given by name: no text


def elsewhere(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that parse Python by themselves."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.expr):
            continue
        if isinstance(node, ast.ImportFrom):
            parses = node.module == "ast"
        elif isinstance(node, ast.Attribute):
            parses = ast.unparse(node) in ("ast.parse", "ast.PyCF_ONLY_AST")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "ast.literal_eval":
            parses = not is_node(node.args[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "compile":
            parses = len(node.args) + len(node.keywords) > 3  # flags may ask for a tree
        else:
            parses = False
        if parses:
            yield node.lineno


def is_node(given: ast.expr) -> bool:
    """Check whether what `ast.literal_eval` is given is a tree rather than a text, which it would parse."""
    if isinstance(given, ast.Call):
        return ast.unparse(given.func) == "parse_expression"
    return isinstance(given, ast.Attribute) or (isinstance(given, ast.Name) and given.id in NODES)


@pytest.mark.parametrize(
    "source",
    [
        "from ast import parse",
        "ast.parse(text)",
        "read = ast.parse",
        "ast.literal_eval(text)",
        "compile(text, name, 'exec', ast.PyCF_ONLY_AST)",
        "compile(text, name, 'exec', flags=1024)",
    ],
)
def test_the_scan_finds_a_second_place(source: str) -> None:
    assert list(elsewhere(ast.parse(source)))


def test_no_module_of_the_product_parses_elsewhere() -> None:
    assert len(PRODUCT) > 500
    found = [
        f"{file.relative_to(REPOSITORY)}:{line}"
        for file in PRODUCT
        if any(word in (text := file.read_text("utf-8")) for word in ("ast.", "from ast", "compile("))
        for line in elsewhere(ast.parse(text))
    ]
    assert not found, f"expected parse_module or parse_expression of {HOME.relative_to(REPOSITORY)}"


class LetsAnotherThreadParse:
    """A cycle whose finaliser runs where the collector does, and waits a little for another thread that parses."""

    def __init__(self, parse: Callable[[str], object]) -> None:
        self.itself = self
        self.parse = parse

    def __del__(self) -> None:
        parsed = threading.Event()
        threading.Thread(target=lambda: (self.parse("x"), parsed.set()), daemon=True).start()
        PARSED.append(parsed.wait(0.2))


PARSED: list[bool] = []
"""Of each finaliser whether the other thread was done in its time."""

TERMS = " + ".join(f"f(x[{number}])" for number in range(2000))


def parse_beside_another(parse: Callable[[str], object]) -> object:
    """Parse a source; another thread parses as well when the collector runs meanwhile."""
    PARSED.clear()
    gc.collect()
    gc.disable()
    LetsAnotherThreadParse(parse)
    gc.enable()
    return parse(TERMS)


@pytest.mark.skipif(sys.version_info >= (3, 11, 8), reason="this Python has no fault")
def test_this_python_has_the_fault() -> None:
    with pytest.raises(SystemError, match="AST constructor recursion depth mismatch"):
        parse_beside_another(ast.parse)
    assert PARSED == [True]


@pytest.mark.parametrize("parse", [parse_module, parse_expression])
def test_a_thread_may_parse_while_another_does(parse: Callable[[str], object]) -> None:
    tree = parse_beside_another(parse)
    assert isinstance(tree, ast.AST)
    assert sum(isinstance(node, ast.Call) for node in ast.walk(tree)) == 2000
    assert len(PARSED) == 1
