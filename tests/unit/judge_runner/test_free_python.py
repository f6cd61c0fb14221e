"""What is told of free Python without running it: whether `run` is there and fits, what is imported as the file is
loaded."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from tests import judging
from warpsmith.kernels_db.job.module_imports import DECLARING, loaded_imports
from warpsmith.kernels_db.runtime import CompileError
from warpsmith.workers.judge.languages import python
from warpsmith.workers.judge.languages.prepared import CompileLimits

PLACE = judging.workload("bench", "bench", [judging.tensor("x", (4,))], [judging.output("out", (4,))])
BOUND = [
    "if x:\n    def run(x, out): ...\nelse:\n    def run(x, out): ...",
    "try:\n    import cupy\n    def run(x, out): ...\nexcept ImportError:\n    def run(x, out): ...",
    "with lock:\n    class run: ...",
    "if x:\n    import cupy as run",
    "if x:\n    from cupy import add as run",
    "try:\n    from cupy import *\nexcept ImportError: ...",
    "for run in kernels: ...",
    "if x:\n    (first, [run, *rest]) = kernels",
    "match x:\n    case 1:\n        run: object = f",
    "if (run := f): ...",
    "with f() as run: ...",
    "def pick():\n    global run\n    run = f\npick()",
    "def run(x): ...\nif x:\n    def run(x, out): ...",
    "def run(x): ...\ndef pick(x, y, z):\n    global run",
]
UNBOUND = [
    "def go():\n    def run(x, out): ...",
    "def go():\n    run = 1",
    "class Kernel:\n    def run(self, x, out): ...",
    "found = [run for run in kernels]",
    "go = lambda: [run := 1]",
    "print(run)",
    "kernel.run = f",
    "if x:\n    import cupy.run",
]


def prepared(source: str, tmp_path: Path) -> None:
    limits = CompileLimits()
    python.prepare(source, target_arch="cpu", cache_dir=tmp_path, limits=limits, workloads=[PLACE])


@pytest.mark.parametrize("source", BOUND)
def test_a_run_is_seen_wherever_a_module_may_bind_it(source: str, tmp_path: Path) -> None:
    prepared(source, tmp_path)


@pytest.mark.parametrize("source", UNBOUND)
def test_another_run_is_none_of_the_modules(source: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"no function `run` is defined, expected def run\(x, out\)"):
        prepared(source, tmp_path)


def test_the_last_of_several_is_the_one_that_must_fit(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"line 3: found run\(x\), expected 2 positional parameters"):
        prepared("if x:\n    def run(x, out): ...\ndef run(x): ...", tmp_path)


ABSENT = "absent_here"
MAYBE = {
    "if": "if CUDA:\n    import absent_here",
    "else": "if CUDA:\n    ...\nelif x:\n    ...\nelse:\n    import absent_here",
    "TYPE_CHECKING": "if TYPE_CHECKING:\n    import absent_here",
    "match": "match x:\n    case 1:\n        import absent_here",
    "suppress": "with suppress(ImportError):\n    import absent_here",
    "while": "while x:\n    import absent_here",
    "for": "for _ in x:\n    import absent_here\nelse:\n    import absent_here",
    "try": "try:\n    import absent_here\nexcept ImportError: ...",
    "try in try": "try:\n    try:\n        import absent_here\n    finally: ...\nexcept: ...",
    "handler": "try:\n    f()\nexcept OSError:\n    import absent_here",
    "else of try": "try:\n    f()\nexcept OSError: ...\nelse:\n    import absent_here",
    "group": "try:\n    import absent_here\nexcept* ImportError: ...",
    "function": "def f():\n    import absent_here",
    "method": "class C:\n    def f(self):\n        import absent_here",
}
SURE = {
    "plain": "import absent_here.part",
    "from": "x = 1; from absent_here import part",
    "class": "class C:\n    import absent_here",
    "finally": "try:\n    f()\nexcept OSError: ...\nfinally:\n    import absent_here",
    "try": "try:\n    import absent_here\nfinally: ...",
    "said": f"def {DECLARING}():\n    import absent_here",
}
RUN = "\n\ndef run(x, out): ...\n"


@pytest.mark.parametrize("place", MAYBE)
def test_an_import_that_may_not_be_made_is_left_to_the_runner(place: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec(ABSENT) is None
    assert list(loaded_imports(ast.parse(MAYBE[place]))) == []
    prepared(MAYBE[place] + RUN, tmp_path)


@pytest.mark.parametrize("place", SURE)
def test_an_import_that_is_made_must_be_installed(place: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"line \d: imports 'absent_here', which is not installed here \(.*import"):
        prepared(SURE[place] + RUN, tmp_path)


def test_another_encoding_than_that_of_the_text_is_refused(tmp_path: Path) -> None:
    run = "def run(x, out): ...\n"
    with pytest.raises(CompileError, match="line 1: encoding: found 'raw_unicode_escape', expected utf-8 or none"):
        prepared(f"# coding: raw_unicode_escape\n# \\u000aimport absent_here\n{run}", tmp_path)
    prepared(f"# coding: utf-8\n# a page \f and a line \u2028\n{run}", tmp_path)


def test_imports_come_in_order() -> None:
    source = "import a\ntry:\n    import b\nfinally:\n    import c\nimport d, e\n"
    assert [(item.line, item.top) for item in loaded_imports(ast.parse(source))] == [
        (1, "a"), (3, "b"), (5, "c"), (6, "d"), (6, "e"),
    ]  # fmt: skip
