"""Runs the C++ compiler where a candidate's text can have it read nothing but the toolchain.

Preprocessor, compiler, assembler and linker each read files by a name in the source, in more ways than any reading of
the text finds: an assembler takes `.incbin` from a section's name, and a lone carriage return begins a line. So the
processes are confined: they read and run what the toolchain itself names, write in the directory of this build, and
reach no network. What they may read holds no secret. Where this kernel confines less, the verdict says so.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from warpsmith.kernels_db.runtime import HostError, cpp
from warpsmith.kernels_db.runtime.process import Finished
from warpsmith.workers.judge.preloaded import programs
from warpsmith.workers.judge.preloaded.programs import Program
from warpsmith.workers.judge.sandbox.sandbox import Confinement, Profile

_ASK_S = 20.0
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec")
"""Where a system keeps the libraries and the parts of its compilers."""
_PARTS = ("cc1plus", "collect2", "as", "ld")


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    memory_bytes: int,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """`process.run_limited`, confined: see there for the arguments.

    Raises HostError where no such process can be started.
    """
    path = os.environ.get("PATH", os.defpath)
    environment = {"PATH": path, "TMPDIR": str(cwd), "LC_ALL": "C", **(variables or {})}
    try:
        return programs.run(Program(command, environment, _profile(cwd), memory_bytes), cwd, timeout_s)
    except OSError as error:
        raise HostError(f"the C++ compiler cannot be started: {error}") from error


def confinement() -> Confinement | None:
    """Return what confines the compiler here; None where this process has started none."""
    try:
        return programs.confinement(_profile(Path()))
    except HostError:  # there is no compiler
        return None


def _profile(workspace: Path) -> Profile:
    return Profile(
        processes=True, gpu=False, tasks=0, readable=(), writable=(str(workspace),), runnable=toolchain_places()
    )


@lru_cache
def toolchain_places() -> tuple[str, ...]:
    """Return the directories that the compiler reads and runs, by its own words, links resolved.

    Its programs and libraries, its headers and the system's. Never a home directory as a whole, nor the root.
    Raises HostError where it says nothing.
    """
    command = [*cpp.compiler()]
    searched = _ask([*command, "-print-search-dirs"])
    included = _ask([*command, "-E", "-v", "-x", "c++", os.devnull])
    places = {*_LIBRARIES, *(os.path.dirname(os.path.realpath(word)) for word in command)}
    for line in searched.splitlines():
        places.update(line.partition(":")[2].strip().removeprefix("=").split(os.pathsep))
    places.update(re.findall(r"^ (/.*?)(?: \(framework directory\))?$", included, re.MULTILINE))
    for part in _PARTS:
        found = _ask([*command, f"-print-prog-name={part}"]).strip()
        for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
            named = os.path.join(directory, found)  # an absolute name stays what it is
            if os.path.isfile(named):
                places.update((os.path.dirname(named), os.path.dirname(os.path.realpath(named))))
    return tuple(sorted(_real(places)))


def _real(places: set[str]) -> Iterator[str]:
    """Yield each directory once, as links resolve, without those inside another."""
    home = os.path.realpath(os.path.expanduser("~"))
    found = {os.path.realpath(place) for place in places if os.path.isabs(place) and os.path.isdir(place)}
    kept = {place for place in found if not f"{home}/".startswith(place.rstrip("/") + "/")}
    for place in kept:
        if not any(place.startswith(other + "/") for other in kept):
            yield place


def _ask(command: list[str]) -> str:
    """Return what the compiler prints of itself. No candidate's text is there."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        told = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"the C++ compiler cannot be asked for its directories: {error}") from error
    return told.stdout + told.stderr
