"""Kernels that were written outside of a search and judged: which become entries of the library."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import library_add
from benchmarks.showcase import Shown
from warpsmith.kernels_db.library import SHIPPED, Entry, read_entry


@pytest.fixture
def entry() -> Entry:
    """Return a kernel that ships; its verdict takes the place of one by a judge with that GPU."""
    return read_entry(next(SHIPPED.glob("decode_attention_*")))


def add(entry: Entry, verdict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    shown = Shown(entry.op.name, entry.language, 1.0, cast("Any", verdict))
    monkeypatch.setattr(library_add, "ask", lambda *_: shown)
    monkeypatch.setattr(library_add, "JudgeClient", lambda **_: contextlib.nullcontext())
    spec, file = tmp_path / "op.json", tmp_path / "decode_attention.triton.py"
    spec.write_text(json.dumps(entry.op.document()))
    file.write_text(entry.source)
    return library_add.main([str(spec), str(file), "--target", "cuda:sm_90", "--into", str(tmp_path / "library")])


def test_an_accepted_kernel_is_an_entry(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(entry, entry.evidence, tmp_path, monkeypatch) == 0
    (directory,) = (tmp_path / "library").iterdir()
    made = read_entry(directory)
    assert (made.op, made.source, made.evidence) == (entry.op, entry.source, entry.evidence)
    assert made.document["envelope"]["axes"] == entry.document["envelope"]["axes"]
    assert made.document["id"] != entry.document["id"]


def test_a_rejected_kernel_is_none(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(entry, entry.evidence | {"verdict": "rejected"}, tmp_path, monkeypatch) == 1
    assert not (tmp_path / "library").exists()


def test_a_file_says_its_language() -> None:
    assert library_add.language_of(Path("softmax.cuda.py")) == "cuda"
    with pytest.raises(ValueError, match=r"found the file softmax\.py, expected NAME\.triton\.py"):
        library_add.language_of(Path("softmax.py"))
