"""README.md, CONTRIBUTING.md and docs/ name files, folders and modules that exist."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest

from tests import REPOSITORY
from tests.unit.repository.test_cli_docs import DOCUMENTS, FENCE, INLINE

FOLDERS = (
    "service",
    "workers",
    "prompts",
    "kernels_db",
    "tests",
    "benchmarks",
    "docs",
    "examples",
    "docker",
    "kubernetes",
    "src",
)
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})(?:/[\w.-]+)+/?|(?:{'|'.join(FOLDERS)})/")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b(?!\.md)")
"""As in `examples/OP.yaml`."""
MODULE = re.compile(r"\b(?:warpsmith|benchmarks)(?:\.\w+)+")


def read(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def paths(text: str) -> set[str]:
    """The paths inside the repository that a page has in code marks."""
    coded = (code for code in INLINE.findall(FENCE.sub("", text)) if PATH.fullmatch(code.split()[0]))
    return {code.split()[0] for code in coded if not PLACEHOLDER.search(code)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    missing = {path for path in paths(read(document)) if not (REPOSITORY / path).exists()}
    assert not missing


def test_there_are_paths_to_check() -> None:
    assert len(paths(read("docs/architecture.md"))) > 50
    assert paths("`workers/queue/tasks.py`, `workers/`, `examples/OP.yaml`, `POST /v1/x`") == {
        "workers/queue/tasks.py",
        "workers/",
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_exist(document: str) -> None:
    for name in sorted(set(MODULE.findall(read(document)))):
        assert is_there(name), name


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # what is left of the last dot is no package
        pass
    parent, _, attribute = name.rpartition(".")
    return hasattr(importlib.import_module(parent), attribute)


def test_a_wrong_name_would_be_found() -> None:
    assert not is_there("warpsmith.workers.model")
    assert not is_there("warpsmith.workers.queue_names.NO_QUEUE")


@pytest.mark.parametrize("document", ["docs/architecture.md", "README.md"])
def test_what_is_read_first_is_short(document: str) -> None:
    assert len(read(document).splitlines()) <= 120


@pytest.mark.parametrize("document", DOCUMENTS)
def test_words_that_are_hard_to_read_are_not_used(document: str) -> None:
    text = INLINE.sub("", FENCE.sub("", read(document)))
    assert not re.findall(r"(?i)\b(?:somebody|someone|whoever|stands|for want of|the house)\b", text)


NAMED = re.compile(r"`(?:warpsmith\.)?((?:service|workers|kernels_db|prompts)(?:\.[a-z_]\w*)+)")
SHORT_NAMES = ("kernels_db.runtime", "kernels_db.formats.stand_in")
"""Names by which code from outside imports modules (`kernels_db/candidate_import.py`)."""


def test_modules_that_docstrings_and_comments_name_exist() -> None:
    named = {
        (str(file.relative_to(REPOSITORY)), name)
        for package in ("service", "workers", "kernels_db", "prompts")
        for file in (REPOSITORY / package).rglob("*.py")
        if "node_modules" not in file.parts
        for name in NAMED.findall(file.read_text(encoding="utf-8"))
        if not name.startswith(SHORT_NAMES)
    }
    assert len(named) > 20
    assert not {(file, name) for file, name in named if not is_there(f"warpsmith.{name}")}
