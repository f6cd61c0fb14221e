"""Packages of kernels that ship: an entry is read and built once, and again when its files change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from warpsmith.kernels_db.library import SHIPPED, Entry, read_entry
from warpsmith.workers.optimize import shipped

TARGET = "cuda:sm_90"
ENTRY = "softmax_cuda_sm_90_ece5eae9"


def test_an_entry_is_read_and_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    library = tmp_path / "library"
    shutil.copytree(SHIPPED / ENTRY, library / ENTRY)
    monkeypatch.setattr(shipped, "SHIPPED", library)
    read: list[Path] = []
    own = read_entry

    def counted(directory: Path) -> Entry:
        read.append(directory)
        return own(directory)

    monkeypatch.setattr(shipped, "read_entry", counted)
    (first,) = shipped._directories(TARGET)
    (again,) = shipped._directories(TARGET)
    assert again == first
    assert read == [library / ENTRY]
    assert list(shipped._directories("cuda:sm_80")) == []
    with (library / ENTRY / "LINEAGE.md").open("a") as lineage:
        lineage.write("\n")
    assert len(list(shipped._directories(TARGET))) == 1
    assert len(read) == 3, "one more for the other target, and one for the file that changed"
    (tmp_path / "packages" / "built.cuda_sm_90.json").write_text("[]")
    assert len(list(shipped._directories(TARGET))) == 1
    assert len(read) == 4
