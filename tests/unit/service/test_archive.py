"""Unpacking an export refuses, whole, whatever is not plain files inside the package."""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.service.client import archive
from warpsmith.service.client.archive import ArchiveError, unpack
from warpsmith.workers.exports.project import check_contents, open_project


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


def package_of(kernel: ExportedKernel, where: Path) -> bytes:
    project = registry.named("package").write([kernel], where, "warpsmith_scaled")
    paths = sorted(path for path in project.rglob("*") if path.is_file())
    return zipped({path.relative_to(where).as_posix(): path.read_bytes() for path in paths})


FIRST = exported(SCALED_ADD, SCALED_ADD_CPP)
BETTER = replace(
    exported(SCALED_ADD, SCALED_ADD_CPP.replace("= 0; i", "= 0L; i")), verified_at="2026-11-22T00:00:00+00:00"
)


def test_another_version_takes_the_place_of_an_unchanged_package(tmp_path: Path) -> None:
    old, new = package_of(FIRST, tmp_path / "old"), package_of(BETTER, tmp_path / "new")
    out, told = tmp_path / "out", list[str]()
    unpack(old, out, told=told.append)
    root = out / "warpsmith_scaled"
    (root / "verification.json").write_text("{}")
    unpack(old, out, told=told.append)
    assert told == []
    unpack(new, out, told=told.append)
    [said] = told
    assert re.fullmatch(r"warpsmith_scaled: 2026\.11\.22\.0\+\w{8} in place of 2026\.11\.21\.43200\+\w{8}", said)
    assert not (root / "verification.json").exists(), "it is of the other version"
    check_contents(open_project(root))


@pytest.mark.parametrize("name", ["README.md", "pyproject.toml", "warpsmith_scaled/_kernel.py", "mine.txt"])
def test_a_package_that_was_changed_stays(name: str, tmp_path: Path) -> None:
    old, new = package_of(FIRST, tmp_path / "old"), package_of(BETTER, tmp_path / "new")
    unpack(old, tmp_path / "out")
    mine = tmp_path / "out" / "warpsmith_scaled" / name
    mine.write_text("mine")
    with pytest.raises(ArchiveError, match="--force"):
        unpack(new, tmp_path / "out")
    assert mine.read_text() == "mine"


def test_no_file_that_a_package_names_is_removed_elsewhere(tmp_path: Path) -> None:
    old, new = package_of(FIRST, tmp_path / "old"), package_of(BETTER, tmp_path / "new")
    unpack(old, tmp_path / "out")
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    provenance = tmp_path / "out/warpsmith_scaled/warpsmith_scaled/provenance.json"
    document = json.loads(provenance.read_text())
    document["beside"]["../../victim.txt"] = hashlib.sha256(b"mine").hexdigest()
    provenance.write_text(json.dumps(document))
    unpack(new, tmp_path / "out")
    assert victim.read_text() == "mine"
