"""The short names by which code from outside imports modules of ours, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec
from pathlib import Path

import pytest

from warpsmith.kernels_db.candidate_import import TARGETS, specify_file
from warpsmith.kernels_db.formats.gpu_mode import inputs
from warpsmith.kernels_db.formats.kernelbench import added_source
from warpsmith.workers.judge.languages import python as free_python


def run(script: str) -> str:
    """What a fresh process prints that has the short names."""
    given = "from warpsmith.kernels_db.candidate_import import provide_short_names as p; p(); p()\n"
    done = subprocess.run([sys.executable, "-c", given + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_file_is_loaded_as_utf_8_whatever_it_says(tmp_path: Path) -> None:
    """What runs is the text that was checked."""
    path = tmp_path / "candidate.py"
    path.write_text("# coding: raw_unicode_escape\n# \\u000aRUNS = 'é'\nTEXT = 'é'\n", encoding="utf-8")
    specification = specify_file("candidate", str(path))
    module = module_from_spec(specification)
    assert specification.loader is not None
    specification.loader.exec_module(module)
    assert (module.TEXT, module.__file__) == ("é", str(path))
    assert not hasattr(module, "RUNS")


def test_a_module_is_one_object_under_both_names() -> None:
    told = run(
        "from kernels_db.runtime import cpp\nimport kernels_db.runtime.cache as short\n"
        "import kernels_db.runtime as all\n"
        "import warpsmith.kernels_db.runtime.cache as long\nfrom warpsmith.kernels_db.runtime import cpp as same\n"
        "print(short is long, cpp is same, all.cache is long, long.__spec__.name, long.__name__)"
    )
    assert told == f"True True True {'warpsmith.kernels_db.runtime.cache ' * 2}".strip()


def test_nothing_else_has_a_short_name() -> None:
    told = run(
        "for name in ('store', 'formats.files', 'formats', 'runtime'):\n"
        "    try: __import__('kernels_db.' + name); print('found')\n"
        "    except ModuleNotFoundError: print('none')"
    )
    assert told.split() == ["none", "none", "found", "found"]
    assert set(TARGETS) == {"kernels_db.runtime", "kernels_db.formats.stand_in"}


def test_a_generator_that_an_import_once_wrote_still_runs() -> None:
    """Ops that are stored have it word for word."""
    told = run(
        "import torch\nfrom kernels_db.formats.stand_in import on\n"
        "with on(torch.device('cpu')): print(torch.zeros(2, device='cuda').device)"
    )
    assert told == "cpu"


@pytest.mark.parametrize("text", [added_source.INPUT, added_source.STATE, inputs._MAKE])
def test_what_an_import_writes_names_no_module_that_may_move(text: str) -> None:
    """The text is part of an op's digest: a path of ours in it would make another op of the same file."""
    assert "from kernels_db.formats.stand_in import on" in text
    assert "warpsmith" not in text


def test_free_python_may_import_the_runtime() -> None:
    assert free_python._installed("kernels_db")
    assert not free_python._installed("kernels_dbs")
