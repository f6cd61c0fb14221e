"""Cubins that are not whole: what is read of them is bounded by them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from warpsmith.kernels_db.runtime import cuda_build
from warpsmith.workers.judge.languages.cubin import resources
from warpsmith.workers.judge.machine.elf import sections


def test_an_attribute_of_no_symbol_is_no_cubins(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC compiles the cubin")
    code = cuda_build.build('extern "C" __global__ void k(int* x) { *x = 1; }', "sm_90", cache_dir=tmp_path)
    whole = code.path.read_bytes()
    assert (resources(whole)["k"].registers or 0) > 0
    information = next(one.content for one in sections(whole) if one.name == ".nv.info")
    number = next(at + 4 for at in range(0, len(information), 4) if information[at : at + 4] == b"\x04\x2f\x08\x00")
    altered = information[:number] + struct.pack("<I", 1 << 31) + information[number + 4 :]
    with pytest.raises(ValueError, match=r"\.nv\.info: found an attribute of symbol 2147483648, expected one of"):
        resources(whole.replace(information, altered))
