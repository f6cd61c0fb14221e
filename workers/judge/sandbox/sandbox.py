"""The sandbox of the judge's runners: layers, profiles and the level that was reached.

It holds what this machine can confine a process with, and what a runner may do. Layers are detected one by one and all
that exist are used; the level is the highest of `LEVELS` whose layers are all there. A layer that was detected and then
fails is an error, so no runner is confined less than its verdict says. In order, in a runner's life:

1. The fork server enters a network namespace of its own (`network`); runners are born into it.
2. A runner gets session, death signal, environment, descriptors, limits and a count of its own threads, and gives up
   its capabilities (`fork_server`, `process_control`).
3. On a GPU it initialises CUDA, whose driver writes under /proc.
4. `confine`: Landlock (`landlock`), then seccomp (`seccomp`).
5. Only then it reads untrusted source.

Threads that CUDA's driver started before step 4 are bound by seccomp and not by Landlock; untrusted code runs in the
thread that was confined and in those it creates.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.job.documents import FREE_PYTHON, SandboxLevel
from warpsmith.kernels_db.job.languages import built_by
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.sandbox import landlock as sandbox_landlock
from warpsmith.workers.judge.sandbox import network as sandbox_network
from warpsmith.workers.judge.sandbox import seccomp as sandbox_seccomp
from warpsmith.workers.judge.sandbox.landlock import Right, Rule
from warpsmith.workers.judge.sandbox.network import Way

LEVELS: tuple[SandboxLevel, ...] = get_args(SandboxLevel)
"""The levels from the weakest; each has all that the one before it has.

process: a process and session of its own that dies with the referee, without capabilities, environment or descriptors
    of others, under resource limits. Files, the network and other processes of the user are within its reach.
filtered: and SYSTEM_CALLS. No sockets to others, no namespaces, mounts, tracing or kernel doors; but files.
confined: and FILES. Reads the toolchain and its own directory, writes at most there.
isolated: and NETWORK and SIGNALS. There is no network to reach, filter or not, and no signal goes to processes outside.
"""

SYSTEM_CALLS = "system calls filtered"
FILES = "files by allow-list"
NETWORK = "network namespace of its own"
SIGNALS = "signals kept inside"
THREADS_ONLY = "no new processes"
COUNTED = "threads counted"
_DEMANDED = {"filtered": {SYSTEM_CALLS}, "confined": {FILES}, "isolated": {NETWORK, SIGNALS}}
_PROCESS = (
    "own process and session",
    "killed with its referee",
    "resource limits",
    "memory watch",
    "no capabilities",
    "memory hidden from other processes",
    "clean environment",
    "no inherited descriptors",
)
_OF_RUNNERS = ("memory watch", "memory hidden from other processes")
"""Layers that a program has not which takes the place of its process (`Profile.runnable`)."""

COMPILING = ("compile", "max_autotune", "expert")
"""Modes of runners (`runner.limits.Mode`) that may start compilers, and keep what these make."""

_TRITON_CACHE, _INDUCTOR_CACHE = "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"


class NotConfined(Exception):  # noqa: N818 - named for what happened
    """A runner could not be confined as this machine was found to allow."""


@dataclass(frozen=True)
class Ability:
    """What this kernel lets this user do.

    landlock: ABI, 0 for none. seccomp: filters. network: the way to a namespace. tasks: by what a runner's threads are
    limited: a real user of its own (root), all tasks of this user, or nothing (root that may not change users).
    """

    landlock: int
    seccomp: bool
    network: Way
    tasks: Literal["apart", "user", "none"]


@dataclass(frozen=True)
class Profile:
    """What one runner may do.

    processes: start programs (compilers). gpu: use the NVIDIA devices, and /dev/shm, in which CUDA keeps memory.
    tasks: threads that it may have, where they can be counted apart from the user's others. readable, writable: paths
    besides the toolchain. runnable: where given, these paths are in place of the toolchain, and few system files beside
    them: what a program needs that is no Python.
    """

    processes: bool
    gpu: bool
    tasks: int
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    runnable: tuple[str, ...] = ()
    becomes: bool = False

    def document(self) -> dict[str, Any]:
        """Return the profile as JSON carries it."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Profile:
        """Back from `document`."""
        lists = {name: tuple(document[name]) for name in ("readable", "writable", "runnable")}
        return cls(**{**document, **lists})


@dataclass(frozen=True)
class Confinement:
    """The layers that confine a runner."""

    layers: tuple[str, ...]

    @property
    def level(self) -> SandboxLevel:
        """The highest of LEVELS whose layers, and those of all below it, are there."""
        reached = LEVELS[0]
        for level in LEVELS[1:]:
            if not _DEMANDED[level] <= set(self.layers):
                break
            reached = level
        return reached

    def reaches(self, minimum: SandboxLevel) -> bool:
        """Check whether the level is at least `minimum`."""
        return self.rank() >= LEVELS.index(minimum)

    def rank(self) -> int:
        """Return the level as its place in LEVELS."""
        return LEVELS.index(self.level)

    def document(self) -> dict[str, Any]:
        """Return the confinement as a verdict carries it."""
        return {"level": self.level, "layers": list(self.layers)}


NOTHING_RAN: dict[str, Any] = {"level": "none", "layers": []}
"""The confinement of a verdict that was given before any of the code in question ran."""


@functools.cache
def detect() -> Ability:
    """Return the abilities of this machine for this user; found once per process."""
    tasks: Literal["apart", "user", "none"] = "user"
    if os.geteuid() == 0:
        tasks = "apart" if process_control.works_in_child(lambda: process_control.count_apart(1)) else "none"
    return Ability(sandbox_landlock.abi(), sandbox_seccomp.available(), sandbox_network.way(), tasks)


def profile(
    mode: str,
    device: str,
    language: str | None,
    directory: Path,
    environment: Mapping[str, str],
    cores: int,
    packages: Sequence[str] = (),
) -> Profile:
    """Return the profile of a runner of `mode` (see `runner.limits.Mode`).

    Args:
        device: "cpu" or "cuda".
        language: of the candidate, where it is one.
        directory: the runner's own.
        environment: its variables, which name its caches.
        packages: files and directories of packages that it imports, wherever they are installed.

    A C++ candidate writes nowhere; all others write in their own directory (torch wants a place for temporary files).
    Compiled baselines and experts start compilers and write their cache; Triton and Gluon on a GPU may start compilers,
    for a configuration that was not compiled ahead, and so may free Python there, for what it compiles itself.
    """
    gpu = device == "cuda"
    compiles = mode in COMPILING
    caches = [environment[name] for name in (_INDUCTOR_CACHE, _TRITON_CACHE) if name in environment]
    readable = [str(directory), *packages]
    if CACHE_VARIABLE in environment:
        readable.append(environment[CACHE_VARIABLE])
    return Profile(
        processes=compiles or (gpu and (language in built_by("triton") or language == FREE_PYTHON)),
        gpu=gpu,
        tasks=64 + 8 * cores,
        readable=tuple(readable + ([] if compiles else caches)),
        writable=tuple(([] if language in built_by("g++") else [str(directory)]) + (caches if compiles else [])),
    )


def compiler_profile(directory: str, environment: Mapping[str, str]) -> Profile:
    """Return the profile of a compiling process, which may import a candidate.

    It may start programs, and write in its directory and in the caches that its environment names.
    """
    caches = [environment[name] for name in (CACHE_VARIABLE, _TRITON_CACHE) if name in environment]
    return Profile(processes=True, gpu=False, tasks=0, readable=(), writable=(directory, *caches))


def expected(chosen: Profile, ability: Ability) -> Confinement:
    """Return the confinement that `confine` will reach with this profile and ability."""
    layers = [layer for layer in _PROCESS if not chosen.runnable or layer not in _OF_RUNNERS]
    if not chosen.gpu and not chosen.runnable:
        layers.append("sealed buffers")
    if ability.seccomp:
        layers.append(SYSTEM_CALLS)
        if not chosen.processes:
            layers.append(THREADS_ONLY)
    if ability.landlock and ability.seccomp:  # without a filter, chmod and truncation would go round Landlock
        layers.append(FILES)
    if ability.network != "none":
        layers.append(NETWORK)
    if sandbox_landlock.scopes_signals(ability.landlock) or (ability.seccomp and not chosen.processes):
        layers.append(SIGNALS)
    if not chosen.processes and (ability.tasks == "user" or _counted_apart(chosen, ability)):
        layers.append(COUNTED)
    return Confinement(tuple(layers))


def reachable(ability: Ability) -> SandboxLevel:
    """Return the level that every runner reaches with this ability, compilers included."""
    widest = Profile(processes=True, gpu=False, tasks=0, readable=(), writable=())
    return expected(widest, ability).level


def count_tasks(chosen: Profile, ability: Ability) -> None:
    """Limit the threads of this process where RLIMIT_NPROC alone would not. Raises OSError."""
    if _counted_apart(chosen, ability):
        process_control.count_apart(chosen.tasks)


def _counted_apart(chosen: Profile, ability: Ability) -> bool:
    # Not on a GPU: CUDA's driver names files in /dev/shm after the real user.
    return ability.tasks == "apart" and not chosen.processes and not chosen.gpu


def confine(chosen: Profile, ability: Ability) -> Confinement:
    """Bind this process permanently, and return its layers.

    Call it before untrusted code is read.

    Raises OSError where a layer that `ability` names is refused.
    """
    if ability.landlock:
        sandbox_landlock.restrict(_rules(chosen), ability.landlock)
    if ability.seccomp:
        free = chosen.gpu or chosen.processes
        rules = sandbox_seccomp.Rules(
            processes=chosen.processes,
            memory_files=free,
            scheduled=not free,
            pid=os.getpid(),
            becomes=chosen.becomes,
        )
        sandbox_seccomp.install(sandbox_seccomp.program(rules))
    return expected(chosen, ability)


def verify(pid: int, reached: Confinement) -> None:
    """Hold what a runner said against what the kernel says of it. Raises NotConfined."""
    try:
        status = process_control.status(pid)
    except OSError:
        return  # it is gone, and the next message to it will show that
    wanted = {"NoNewPrivs": "1", "CapEff": "0" * 16}
    if SYSTEM_CALLS in reached.layers:
        wanted["Seccomp"] = "2"
        ours = process_control.status(os.getpid()).get("Seccomp_filters")  # a container may have put us under some
        if ours is not None:  # since Linux 5.9
            wanted["Seccomp_filters"] = str(int(ours) + 1)
    for name, value in wanted.items():
        if status.get(name) != value:
            raise NotConfined(f"the runner's {name} is {status.get(name)}, expected {value}")


def _rules(chosen: Profile) -> list[Rule]:
    """Everything that a runner may open."""
    named = _named("read", chosen.readable) + _named("write", chosen.writable)
    if chosen.runnable:
        return _named("run", chosen.runnable) + _named("read", _PROGRAM_FILES) + _named("device", _DEVICES) + named
    rules = toolchain() + _named("read", _FILES) + _named("device", _DEVICES) + named
    if chosen.gpu:
        devices = sorted(glob.glob("/dev/nvidia*"))
        rules += _named("read", _GPU_FILES) + _named("device", devices) + _named("write", _GPU_MEMORY)
    return rules


_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
_FILES = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/kernel/mm",
)
_PROGRAM_FILES = ("/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_FILES = ("/proc/driver", "/proc/devices", "/proc/modules", "/sys", "/etc/nvidia")
_GPU_MEMORY = ("/dev/shm",)  # noqa: S108 - CUDA's own files, by its own names


@functools.cache
def toolchain() -> list[Rule]:
    """List the paths of the toolchain.

    They are Python, its packages, ours, the system's libraries and programs, CUDA's, and the compiler that CXX names.

    Found once: a process that forks others asks before it does, with its own environment and the modules that it has.
    """
    ours = IMPORT_ROOT / "warpsmith"  # in a checkout the packages are links to their folders
    places = [*_SYSTEM, str(ours), str(ours / "workers"), str(ours / "kernels_db"), *_python()]
    compiler = shutil.which((os.environ.get("CXX") or "g++").split()[-1])
    if compiler is not None:
        places.append(str(Path(compiler).resolve().parents[1]))
    for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        places += [place for place in os.environ.get(name, "").split(os.pathsep) if os.path.isabs(place)]
    return _named("run", _outermost(places))


def _python() -> list[str]:
    """List the interpreter's prefixes and the directories of its packages.

    As named and as links resolve.
    """
    paths = sysconfig.get_paths()
    places = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "include", "scripts")]
    places += site.getsitepackages()
    places += [
        os.path.dirname(module.__file__) for name in _PACKAGES if (module := sys.modules.get(name)) and module.__file__
    ]
    places += [
        os.path.join(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("lib", "lib64", "bin")
    ]
    known = _outermost(places)
    elsewhere = [place for place in sys.path if os.path.isabs(place) and not _inside(os.path.realpath(place), known)]
    return places + [installed for place in elsewhere for installed in _installed(Path(place))]


_PACKAGES = ("torch", "numpy")


def _installed(place: Path) -> Iterator[str]:
    """Yield what packages were installed into a directory, as `pip install --target` does and PYTHONPATH names.

    PyTorch imports some packages where they are there, and one that may not be read is an error in place of none. Only
    what a package's record names is read: a project's own files may lie beside it.
    """
    try:
        records = sorted(place.glob("*.dist-info/RECORD"))
        for record in records:
            lines = record.read_text("utf-8", "replace").splitlines()
            for name in dict.fromkeys(line.partition("/")[0].partition(",")[0] for line in lines):
                if name not in ("", ".", ".."):
                    yield str(place / name)
    except OSError:
        return


def _outermost(places: Iterable[str]) -> list[str]:
    """Return the places, resolved, without those inside another.

    The root directory and homes are left out.
    """
    resolved = sorted(
        {os.path.realpath(place) for place in places if os.path.exists(place)} - {"/", os.path.expanduser("~")}
    )
    kept: list[str] = []
    for place in resolved:
        if not _inside(place, kept):
            kept.append(place)
    return kept


def _inside(place: str, others: Sequence[str]) -> bool:
    return any(place == other or place.startswith(other + os.sep) for other in others)


def _named(right: Right, paths: Sequence[str]) -> list[Rule]:
    return [Rule(path, right) for path in paths]
