"""A package folded into one file: text as literals, and what of it is taken."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.export.fold import fold, literal, public_names, reachable

FILES = {
    "__init__.py": "from . import _op\nfrom ._op import call\n__all__ = ['call']\n",
    "_op.py": "def call():\n    from . import _late\n    from ._deep import low\n    return _late.VALUE, low.VALUE\n",
    "_late.py": "VALUE = r'''a\\b''' + \"c\"\n",
    "_deep/__init__.py": "",
    "_deep/low.py": "from .. import _late\nVALUE = _late.VALUE * 2\n",
    "unreached.py": "raise RuntimeError('nobody asked for this')\n",
}


@given(st.text(alphabet="ab'\"\\\r\n \t", max_size=30))
def test_a_literal_reads_as_its_text(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text


def test_only_what_is_reachable_is_taken() -> None:
    assert reachable(FILES, "__init__.py") == FILES.keys() - {"unreached.py"}


@pytest.fixture
def clean() -> Iterator[None]:
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def executed(source: str, path: Path, name: str = "pasted") -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": name, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), found)
    return found


@pytest.mark.usefixtures("clean")
def test_a_folded_package_behaves_as_the_package(tmp_path: Path) -> None:
    found = executed(fold("folded_abcd", FILES), tmp_path / "pasted.py")
    assert "folded_abcd._late" not in sys.modules  # what is imported later is not run before
    assert found["_package"].call() == ("a\\bc", "a\\bca\\bc")
    again = executed(fold("folded_abcd", FILES), tmp_path / "other.py")
    assert again["_package"] is found["_package"]
    assert len([finder for finder in sys.meta_path if type(finder).__name__ == "_FoldedFiles"]) == 1


@pytest.mark.usefixtures("clean")
def test_a_file_may_bear_the_packages_name(tmp_path: Path) -> None:
    (tmp_path / "folded_abcd.py").write_text(fold("folded_abcd", FILES) + "call = _package.call\n")
    sys.path.insert(0, str(tmp_path))
    try:
        pasted = importlib.import_module("folded_abcd")
    finally:
        sys.path.remove(str(tmp_path))
    assert pasted.call() == ("a\\bc", "a\\bca\\bc")


@pytest.mark.usefixtures("clean")
def test_an_error_shows_the_line_that_raised(tmp_path: Path) -> None:
    files = FILES | {"_op.py": "def call():\n    return 1 / 0\n"}
    package = executed(fold("folded_wrong", files), tmp_path / "pasted.py")["_package"]
    with pytest.raises(ZeroDivisionError) as caught:
        package.call()
    assert str(caught.traceback[-1].statement).strip() == "return 1 / 0"


@pytest.mark.usefixtures("clean")
def test_it_needs_no_file_of_its_own() -> None:
    found: dict[str, Any] = {}
    exec(fold("folded_bare", FILES), found)
    assert found["_package"].call()[0] == "a\\bc"


def test_public_names_need_an_all() -> None:
    assert public_names(FILES["__init__.py"]) == ["call"]
    with pytest.raises(ValueError, match="__all__"):
        public_names("x = 1\n")
