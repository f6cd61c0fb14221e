"""Facts of the processor, from the files of other machines and of this one."""

from __future__ import annotations

from pathlib import Path

from warpsmith.workers.judge.machine.processor import caches, vector_extensions


def test_vector_extensions_of_an_x86_and_of_an_arm(tmp_path: Path) -> None:
    x86, arm = tmp_path / "x86", tmp_path / "arm"
    x86.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx fma avx2 rdtscp\nprocessor\t: 1\nflags\t\t: fpu\n")
    arm.write_text("processor\t: 0\nFeatures\t: fp asimd sve bf16\n")
    assert vector_extensions(x86) == ["sse4_2", "avx", "fma", "avx2"]
    assert vector_extensions(arm) == ["asimd", "bf16", "sve"]
    assert vector_extensions(tmp_path / "none") == []


def test_caches_by_level(tmp_path: Path) -> None:
    for index, (kind, level, size) in enumerate(
        [("Data", "1", "48K"), ("Instruction", "1", "32K"), ("Unified", "2", "1M"), ("Unified", "3", "odd")]
    ):
        place = tmp_path / f"index{index}"
        place.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (place / name).write_text(f"{text}\n")
    (tmp_path / "index9").mkdir()
    assert caches(tmp_path) == {"L1": 48 << 10, "L2": 1 << 20}
    assert caches(tmp_path / "none") == {}


def test_this_machine_is_read_without_error() -> None:
    assert all(size > 0 for size in caches().values())
    assert len(set(vector_extensions())) == len(vector_extensions())
