"""Unpacking an export refuses, whole, whatever is not plain files inside the package."""

from __future__ import annotations

import io
import re
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpsmith.service.client import archive
from warpsmith.service.client.archive import ArchiveError, unpack


def zipped(files: dict[str, bytes], *, link: str | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = ((stat.S_IFLNK if name == link else stat.S_IFREG) | 0o644) << 16
            target.writestr(entry, content)
    return buffer.getvalue()


def test_files_are_written_and_listed(tmp_path: Path) -> None:
    written = unpack(zipped({"pkg/a.py": b"a", "pkg/sub/b.json": b"b"}), tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == ["pkg/a.py", "pkg/sub/b.json"]
    assert (tmp_path / "out/pkg/sub/b.json").read_bytes() == b"b"


@pytest.mark.parametrize("name", ["/etc/x", "../x", "pkg/../../x", "pkg\\..\\x", "C:/x", "pkg/./../../x"])
def test_names_that_lead_out_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="archive: found the entry"):
        unpack(zipped({"pkg/good.py": b"x", name: b"x"}), tmp_path / "out")
    assert list(tmp_path.rglob("*")) == []


def test_links_in_the_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="plain files"):
        unpack(zipped({"pkg/link": b"/etc/passwd"}, link="pkg/link"), tmp_path)


def test_links_on_disk_are_not_followed_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "pkg").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="link"):
        unpack(zipped({"pkg/a.py": b"x"}), tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_grows_beyond_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveError, match="1001 files"):
        unpack(zipped({f"pkg/{index}": b"" for index in range(1001)}), tmp_path)
    monkeypatch.setattr(archive, "LARGEST_FILE_BYTES", 10)
    with pytest.raises(ArchiveError, match="expected less"):
        unpack(zipped({"pkg/big": b"x" * 11}), tmp_path)


def test_a_changed_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    content = zipped({"pkg/a.py": b"new"})
    unpack(content, tmp_path)
    unpack(content, tmp_path)  # the same content is no conflict
    (tmp_path / "pkg/a.py").write_bytes(b"mine")
    with pytest.raises(ArchiveError, match="--force"):
        unpack(content, tmp_path)
    unpack(content, tmp_path, replace=True)
    assert (tmp_path / "pkg/a.py").read_bytes() == b"new"


@pytest.mark.parametrize(("there", "out"), [("out", "out"), ("out", "out/below"), ("out/pkg", "out")])
def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path, there: str, out: str) -> None:
    place = tmp_path / there
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    expected = rf"^output: found {re.escape(str(place))}, which is a file, expected a directory or nothing yet$"
    with pytest.raises(ArchiveError, match=expected):
        unpack(zipped({"pkg/a.py": b"new", "other/b.py": b"new"}), tmp_path / out, replace=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [place]  # refused before anything was written
    assert place.read_text() == "mine"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(content=st.binary(max_size=200))
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveError, match="archive"):
        unpack(content, tmp_path)


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "notes.txt").write_text("mine")
    with pytest.raises(ArchiveError, match=r"output: found .*notes\.txt, which is not of this export"):
        unpack(zipped({"pkg/a.py": b"x"}), tmp_path)
    assert not (tmp_path / "pkg" / "a.py").exists()
    unpack(zipped({"pkg/a.py": b"x"}), tmp_path, replace=True)
    assert (tmp_path / "pkg" / "notes.txt").read_text() == "mine"


def test_an_exports_own_verification_is_no_stranger(tmp_path: Path) -> None:
    content = zipped({"pkg/a.py": b"x"})
    unpack(content, tmp_path)
    (tmp_path / "pkg" / "verification.json").write_text("{}")
    assert unpack(content, tmp_path) == [tmp_path / "pkg" / "a.py"]
