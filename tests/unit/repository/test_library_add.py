"""Kernels that were written outside of a search and judged: which become entries of the library."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import library_add
from benchmarks.showcase import Shown
from tests import REPOSITORY
from warpsmith.kernels_db.library import SHIPPED, Entry, read_entry
from warpsmith.service.local import extra

WITHOUT_SERVICE = """
import contextlib, json, sys, types
sys.modules.update(dict.fromkeys({blocked}))
no_gpu = types.SimpleNamespace(is_available=lambda: False)
sys.modules["torch"] = types.SimpleNamespace(cuda=no_gpu)  # its import takes a second
from benchmarks import library_add
from benchmarks.showcase import Shown
verdict = json.loads(sys.stdin.read())
library_add.ask = lambda *_: Shown("op", "triton", 1.0, verdict)
library_add.JudgeClient = lambda **_: contextlib.nullcontext()
sys.exit(library_add.main(sys.argv[1:]))
"""


@pytest.fixture
def entry() -> Entry:
    """Return a kernel that ships; its verdict takes the place of one by a judge with that GPU."""
    return read_entry(next(SHIPPED.glob("decode_attention_*")))


def arguments_for(entry: Entry, tmp_path: Path) -> list[str]:
    spec, file = tmp_path / "op.json", tmp_path / "decode_attention.triton.py"
    spec.write_text(json.dumps(entry.op.document()))
    file.write_text(entry.source)
    return [str(spec), str(file), "--target", "cuda:sm_90", "--into", str(tmp_path / "library")]


def add(entry: Entry, verdict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    shown = Shown(entry.op.name, entry.language, 1.0, cast("Any", verdict))
    monkeypatch.setattr(library_add, "ask", lambda *_: shown)
    monkeypatch.setattr(library_add, "JudgeClient", lambda **_: contextlib.nullcontext())
    return library_add.main(arguments_for(entry, tmp_path))


def test_an_accepted_kernel_is_an_entry(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(entry, entry.evidence, tmp_path, monkeypatch) == 0
    (directory,) = (tmp_path / "library").iterdir()
    made = read_entry(directory)
    assert (made.op, made.source, made.evidence) == (entry.op, entry.source, entry.evidence)
    assert made.document["envelope"]["axes"] == entry.document["envelope"]["axes"]
    assert made.document["id"] != entry.document["id"]


def test_an_entry_that_is_there_is_kept_and_the_verdict_is_not_lost(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(entry, entry.evidence, tmp_path, monkeypatch) == 0
    (directory,) = (tmp_path / "library").iterdir()
    before = (directory / "kernel.json").read_bytes()
    capsys.readouterr()
    assert add(entry, entry.evidence, tmp_path, monkeypatch) == 1
    said = capsys.readouterr()
    assert f"{directory}: found an entry of this kernel, expected none: it stays" in said.err
    assert entry.op.name in said.out, "the table of verdicts"
    assert "nothing written" in said.out
    assert (directory / "kernel.json").read_bytes() == before


def test_a_rejected_kernel_is_none(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(entry, entry.evidence | {"verdict": "rejected"}, tmp_path, monkeypatch) == 1
    assert not (tmp_path / "library").exists()


def test_it_runs_where_the_service_is_not_installed(entry: Entry, tmp_path: Path) -> None:
    blocked = [*extra.MODULES, "kombu", "redis", "starlette"]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVICE.format(blocked=blocked), *arguments_for(entry, tmp_path)],
        cwd=REPOSITORY,
        input=json.dumps(entry.evidence),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    (directory,) = (tmp_path / "library").iterdir()
    assert read_entry(directory).source == entry.source


def test_a_file_says_its_language() -> None:
    assert library_add.language_of(Path("softmax.cuda.py")) == "cuda"
    with pytest.raises(ValueError, match=r"found the file softmax\.py, expected NAME\.triton\.py"):
        library_add.language_of(Path("softmax.py"))
