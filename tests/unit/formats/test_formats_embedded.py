"""Files in one module text: they see each other, and the process that runs them sees none of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from warpsmith.kernels_db.formats.shared.embedded import embedding


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def loaded(files: dict[str, str]) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(embedding(files), space)
    return space


def test_tasks_with_files_of_the_same_names_keep_apart() -> None:
    finders = list(sys.meta_path)
    found = []
    for value in (1, 2):
        space = loaded({"utils": f"VALUE = {value}\n", "task": "from utils import VALUE\nimport json, utils\n"})
        found.append(space["_embedded"]("task"))
    assert [(module.VALUE, module.utils.VALUE) for module in found] == [(1, 1), (2, 2)]
    assert found[0].json.loads("3") == 3
    assert sys.meta_path == finders
    assert "utils" not in sys.modules
    assert "task" not in sys.modules


def test_a_module_is_run_once() -> None:
    space = loaded({"counter": "import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\nRUNS = sys.runs\n"})
    try:
        assert space["_embedded"]("counter") is space["_embedded"]("counter")
        assert space["_embedded"]("counter").RUNS == 1
    finally:
        del sys.runs  # type: ignore[attr-defined]


def test_a_module_that_fails_is_not_kept() -> None:
    space = loaded({"broken": "1 / 0\n"})
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            space["_embedded"]("broken")
