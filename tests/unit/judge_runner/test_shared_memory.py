"""What shared memory is filled with, and the program that does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
import triton

from warpsmith.workers.judge.runner.shared_memory import PATTERNS, PTX

PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_the_program_is_one_for_every_architecture(architecture: str, tmp_path: Path) -> None:
    source = tmp_path / "fill.ptx"
    source.write_text(PTX)
    command = [str(PTXAS), f"-arch={architecture}", str(source), "-o", str(tmp_path / "fill.cubin")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_sums_maxima_and_minima_of_every_type_show_a_pattern(dtype: torch.dtype) -> None:
    values = [torch.full((dtype.itemsize,), byte, dtype=torch.uint8).view(dtype).item() for byte in PATTERNS]
    assert values[0] != values[0]
    huge = torch.finfo(dtype).max * 1e-3
    assert all(value != value or abs(value) > min(huge, 1e30) for value in values)
    if dtype in (torch.float32, torch.bfloat16):  # where fmaxf and fminf would drop NaN
        assert max(values[1:]) > huge
        assert min(values[1:]) < -huge
