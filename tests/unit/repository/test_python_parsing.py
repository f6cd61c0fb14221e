"""Python is parsed in one place, which works where threads parse at once."""

from __future__ import annotations

import ast
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

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


class Parses:
    """A cycle whose finaliser parses where the collector runs: in the thread that parses."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        PARSED.append(isinstance(parse_module("x"), ast.Module))


def test_a_finaliser_may_parse_while_its_own_thread_does() -> None:
    PARSED.clear()
    gc.collect()
    gc.disable()
    Parses()
    gc.enable()
    assert len(parse_module(TERMS).body) == 1
    assert PARSED == [True]


class WaitsForTheFork:
    """A cycle whose finaliser says that its thread parses, and then waits until a process was forked."""

    def __init__(self, parses: threading.Event, forked: threading.Event) -> None:
        self.itself, self.parses, self.forked = self, parses, forked

    def __del__(self) -> None:
        self.parses.set()
        PARSED.append(self.forked.wait(3))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python warns of a fork beside threads")
def test_a_fork_waits_for_no_thread_that_parses_and_its_child_parses() -> None:
    """A finaliser or a warning may wait for a lock that a fork holds already, as logging's: both would wait forever."""
    PARSED.clear()
    parses, forked = threading.Event(), threading.Event()

    def parse_beside_the_fork() -> None:
        gc.collect()
        gc.disable()
        WaitsForTheFork(parses, forked)
        gc.enable()
        parse_module(TERMS)

    thread = threading.Thread(target=parse_beside_the_fork, daemon=True)
    thread.start()
    assert parses.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if parse_module("x + 1").body else 1)
    forked.set()
    assert os.waitpid(child, 0)[1] == 0
    thread.join(60)
    assert PARSED == [True]


def test_another_system_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []

    def parse(*_: object, **__: object) -> ast.Module:
        raised.append("once")
        raise SystemError("another")

    monkeypatch.setattr(ast, "parse", parse)
    with pytest.raises(SystemError, match="another"):
        parse_module("x")
    assert raised == ["once"]


def test_a_fault_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> ast.Module:
        raise SystemError("AST constructor recursion depth mismatch (before=12, after=-673)")

    monkeypatch.setattr(ast, "parse", parse)
    with pytest.raises(SystemError, match="mismatch"):
        parse_expression("x")


@pytest.mark.parametrize("text", ["1" + "+1" * 5_000, "-" * 5_000 + "1", "(" * 5_000 + ")" * 5_000])
def test_what_is_nested_too_deeply_is_a_syntax_error(text: str, request: pytest.FixtureRequest) -> None:
    """Python raises RecursionError or MemoryError for some of them, by its version."""
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(1_000)  # Python's own: some of what other tests import raises it
    with pytest.raises(SyntaxError):
        parse_expression(text)
    with pytest.raises(SyntaxError):
        parse_module(f"x = {text}\n")
