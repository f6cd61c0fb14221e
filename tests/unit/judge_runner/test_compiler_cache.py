"""Inductor's cache directories: seeded once, and never taken along to another path."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

from warpsmith.workers.judge.runner import compiler_cache
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

REFERENCE = "def run(x):\n    return x.exp()\n"


class _Runner:
    """Stands for a compiled baseline's runner: its call leaves what a compiler would."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def bind(self, *_: Any) -> None: ...

    def fill(self, *_: Any) -> None: ...

    def call(self, *_: Any) -> int:
        (self._directory / "found").write_text("what the machine's compiler can do")
        return 0

    def close(self) -> None: ...


class _Starts:
    """Counts the seeds that were compiled."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, source: str, variables: dict[str, str]) -> RunnerHandle:
        assert source == compiler_cache.SEED_REFERENCE
        self.made += 1
        return cast("RunnerHandle", _Runner(variables["TORCHINDUCTOR_CACHE_DIR"]))


def test_every_reference_has_its_own_copy_of_one_seed(tmp_path: Path) -> None:
    start = _Starts()
    one = compiler_cache.directory_for(REFERENCE, tmp_path / "inductor", start)
    other = compiler_cache.directory_for(REFERENCE + "\n", tmp_path / "inductor", start)
    assert one != other
    assert (one / "found").read_text() == (other / "found").read_text()
    assert compiler_cache.directory_for(REFERENCE, tmp_path / "inductor", start) == one
    assert start.made == 1


def test_a_cache_that_was_moved_is_not_used(tmp_path: Path) -> None:
    """What Inductor keeps names files by their whole path: a runner could not read what lies under another root."""
    start = _Starts()
    before = compiler_cache.directory_for(REFERENCE, tmp_path / "before", start)
    (before / "kept").write_text(f"see {before}")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    after = compiler_cache.directory_for(REFERENCE, tmp_path / "after", start)
    assert (after / "found").exists()
    assert not (after / "kept").exists()
    assert start.made == 2
