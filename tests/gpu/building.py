"""CUDA kernels for tests in this process, compiled in another, as the judge does it: a compiler that crashes fails one
test, and this process, which holds a GPU, only loads what was built.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from tests import REPOSITORY
from warpsmith.kernels_db.runtime import cuda

_BUILD = """
import json, sys
from kernels_db.runtime import cuda
source, arch = json.load(sys.stdin)
cuda.build(source, arch)
"""


def compiled(source: str) -> cuda.Kernels:
    """The kernels of `source`, built into the cache that WARPSMITH_KERNEL_CACHE names."""
    major, minor = torch.cuda.get_device_capability()
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _BUILD],
        input=json.dumps([source, f"sm_{major}{minor}"]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return cuda.compile(source)


def need_language(language: str) -> None:
    """Skip a test whose language has a package of its own that is not installed here."""
    package = {"cute": "cutlass", "tilelang": "tilelang"}.get(language)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
