"""What Triton's interpreter or a missing device cannot do says so. In a process of its own: modules are changed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from warpsmith.workers.judge.runner.interpreter.gaps import name_gaps
name_gaps()
import torch
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda
{}
"""


CALLS = """
for missing in (libdevice, cuda):
    try:
        missing.rint(1.0)
    except NotImplementedError as error:
        print(error)
device = torch.cuda.get_device_properties(torch.device("cpu"))
print(device.multi_processor_count, device.major, device.minor)
"""


def test_what_is_missing_is_named_and_a_grid_may_have_the_size_of_the_missing_device() -> None:
    """Prompts allow candidates to ask for the number of multiprocessors, the gate for the compute capability too."""
    ended = run_interpreted(CALLS)
    missing = "libdevice.rint not supported in interpreter mode"
    assert (ended.returncode, ended.stdout.splitlines()) == (0, [missing, missing, "4 9 0"]), ended.stderr


def run_interpreted(statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
