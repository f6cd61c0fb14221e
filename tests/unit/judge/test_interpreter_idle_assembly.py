"""Assembly that computes nothing is no reason to leave a kernel unchecked under Triton's interpreter; other is."""

from __future__ import annotations

import pytest

from tests.unit.judge.test_interpreter_gaps import run_interpreted
from warpsmith.workers.judge.runner.interpreter.idle_assembly import is_idle

KERNEL = """
import pathlib, tempfile, runpy
from contextlib import ExitStack
from warpsmith.workers.judge.runner.interpreter.launches import run_like_a_device
SOURCE = '''
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [(x + i).to(tl.int64)], dtype=tl.int32,
                              is_pure=False, pack=1)
    tl.inline_asm_elementwise("ASSEMBLY", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def run(x, y):
    double[(1,)](x, y, x.numel(), BLOCK=8, launch_pdl=True)
'''
file = pathlib.Path(tempfile.mkdtemp()) / "candidate.py"
file.write_text(SOURCE)
x, y = torch.arange(5.0), torch.zeros(5)
with ExitStack() as until:
    run_like_a_device(until)
    runpy.run_path(str(file))["run"](x, y)
print(y.tolist())
"""


def test_a_kernel_that_waits_for_the_one_before_it_is_computed() -> None:
    idle = "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;"
    ended = run_interpreted(KERNEL.replace("ASSEMBLY", idle))
    assert (ended.returncode, ended.stdout) == (0, "[0.0, 2.0, 4.0, 6.0, 8.0]\n"), ended.stderr


def test_a_kernel_that_computes_in_assembly_is_not() -> None:
    ended = run_interpreted(KERNEL.replace("ASSEMBLY", "griddepcontrol.wait; mov.b32 $0, 1;"))
    assert "inline_asm not supported in interpreter mode" in ended.stderr


@pytest.mark.parametrize(
    ("assembly", "idle"),
    [
        ("griddepcontrol.wait; // dummy $0", True),
        ("prefetchu.L1 [$1];\nmov.b32 $0, 0;", True),
        ("prefetch.global.L2::evict_last [$1]; mov.b32 $0, 0;", True),
        ("prefetch.global.L2 [$1]; ld.global.b32 $0, [$1];", False),
        ("mov.b32 $0, 1;", False),
        ("membar.gl; mov.b32 $0, 0;", False),
    ],
)
def test_what_computes_nothing_is_told_by_each_instruction(assembly: str, idle: bool) -> None:
    assert is_idle(assembly) is idle
