"""Cache directories of compilers: one for each reference, and one for each expert.

So no reference can leave code for another.

On a new directory Inductor first finds out the abilities of the machine's compiler, which takes longer than compiling
the reference. That depends on nothing of the user's: a trivial function of ours is compiled once into a seed directory,
and every new directory starts as a copy of it.

What Inductor keeps names other files of its cache by their whole path, and a runner can read its own directory alone. A
cache that was moved or copied would make every compiled baseline fail, and the candidate would be compared with eager:
so the path is part of each directory's name, and files kept under another are not found.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from warpsmith.workers.judge.machine import cache_pruning
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

SEED_REFERENCE = "def run(x):\n    return x.relu()\n"
SEED_LIMIT_S = 120.0

StartCompiled = Callable[[str, dict[str, str]], RunnerHandle]
"""Starts a runner of a reference's source in mode `compile`, with these variables."""


def variables(directory: Path) -> dict[str, str]:
    """Return the variables that make a compiled baseline use `directory`."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(directory), "TRITON_CACHE_DIR": str(directory / "triton")}


def expert_variables(directory: Path) -> dict[str, str]:
    """Return the variables that make an expert keep what it compiles below `directory`.

    FlashInfer and QuACK have variables of their own; what follows the XDG standard finds it there too.
    """
    own = {name: str(directory / name.lower()) for name in ("QUACK_CACHE_DIR", "XDG_CACHE_HOME")}
    return {**variables(directory), **own, "FLASHINFER_WORKSPACE_BASE": str(directory)}


def expert_directory(source: str, root: Path) -> Path:
    """Return the cache directory of an expert below `root`. Raises OSError."""
    directory = root / hashlib.sha256(source.encode()).hexdigest()[:32]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache_pruning.touch(directory)
    return directory


def directory_for(reference: str, root: Path, start: StartCompiled) -> Path:
    """Return the cache directory of a reference below `root`, seeded when it is new.

    Raises RunnerFault, OSError.
    """
    directory = root / hashlib.sha256(f"{root.absolute()}\0{reference}".encode()).hexdigest()[:32]
    if not directory.is_dir():
        _copy(_seed(root, start), directory)
    cache_pruning.touch(directory)
    return directory


def _seed(root: Path, start: StartCompiled) -> Path:
    seed = root / f"seed-{torch.__version__}-{hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:8]}"
    cache_pruning.touch(seed)
    if not seed.is_dir():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = root / f"seed.{os.getpid()}"
        unfinished.mkdir(mode=0o700)
        try:
            _compile_once(start(SEED_REFERENCE, variables(unfinished)))
            _rename(unfinished, seed)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return seed


def _compile_once(runner: RunnerHandle) -> None:
    try:
        runner.bind(
            [TensorSpec("x", (64, 64), (64, 1), torch.float32)], [TensorSpec("y", (64, 64), (64, 1), torch.float32)], 1
        )
        runner.fill(0, [torch.randn(64, 64)])
        runner.call(0, SEED_LIMIT_S)
    finally:
        runner.close()


def _copy(seed: Path, directory: Path) -> None:
    unfinished = directory.with_suffix(f".{os.getpid()}")
    shutil.copytree(seed, unfinished)
    _rename(unfinished, directory)


def _rename(unfinished: Path, directory: Path) -> None:
    """Move into place; another judge of this cache may have been first, with the same content."""
    try:
        unfinished.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise
        shutil.rmtree(unfinished)
