"""What Triton's interpreter or a missing device cannot do says so. In a process of its own: modules are changed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from warpsmith.workers.judge.runner.interpreter.gaps import name_gaps
name_gaps()
import torch
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda
{}
"""


@pytest.mark.parametrize("call", ["libdevice.rint(1.0)", "cuda.rint(1.0)", "torch.cuda.get_device_properties(0)"])
def test_what_is_missing_is_named(call: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    name = call.partition("(")[0].replace("cuda.rint", "libdevice.rint")
    assert ended.stderr.rstrip().endswith(f"NotImplementedError: {name} not supported in interpreter mode")
