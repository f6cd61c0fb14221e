"""Looks at what native code of a candidate leaves behind in its process, from inside that process.

Three places outlive a call: the writable memory of the candidate's libraries, freed memory of the heap, and the
floating-point environment of the threads. The first is compared with the bytes that were loaded, so state that ends a
call as it began (a lock, a counter) passes. Freed memory is overwritten. The third is compared with what it was before
the candidate was read, and put back, so that neither the next call nor the judge's own arithmetic is spoilt.

Native code owns its process and can lie to all of this: it keeps honest code honest. What no value can be kept in is
the protocol's to decide (new values and pointers for every call).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from warpsmith.workers.judge.machine import elf
from warpsmith.workers.judge.machine.elf import Image, Symbol

_M_PERTURB = -6  # mallopt(3): fill what is allocated and what is freed
_CACHED_SIZES = range(24, 1033, 16)
_CACHED_EACH = 7
"""Small chunks that glibc's malloc keeps by thread and never fills: bytes of each kind, and how many of a kind."""

_LONGEST_NAME = 200

_ENVIRONMENT_WORDS = 16
_CONTROL = {"x86_64": ((0, 0xFFFF, "x87 control word"), (7, 0xFFC0, "MXCSR")), "aarch64": ((0, 0xFFFFFFFF, "FPCR"),)}
"""Words of fegetenv's memory that change what arithmetic gives: place, bits and name, by processor.

Of MXCSR all but the flags that stick. Source: glibc's sysdeps/x86/fpu/bits/fenv.h, sysdeps/aarch64/fpu/bits/fenv.h.
"""

Call = Callable[..., Any]


class Finding(NamedTuple):
    """What was left behind, as a verdict's failure says it."""

    kind: str
    message: str
    found: str
    expected: str


class _Region(NamedTuple):
    """Writable memory of a library, and the bytes with which it was loaded."""

    image: Image
    base: int
    address: int
    loaded: bytes


class NativeWatch:
    """Watches this process from before a candidate's libraries are loaded."""

    def __init__(self) -> None:
        """Note the floating-point environment as it is."""
        self._libc = ctypes.CDLL(None)
        self._environment = _FloatEnvironment.here()
        self._regions: list[_Region] = []
        self._openmp: ctypes.CDLL | None = None
        self._threads = 0  # of a region of OpenMP's, where nothing else is asked

    def loaded(self, directory: str) -> None:
        """Note the memory of every library that was loaded from below `directory`, as it is before any call."""
        threaded = False
        for path, base in _libraries(directory):
            image = elf.image(Path(path).read_bytes())
            threaded |= any(one.section == 0 and one.name.startswith(("GOMP_", "omp_")) for one in image.dynamic)
            for address, size in _writable(image):
                self._regions.append(_Region(image, base, base + address, ctypes.string_at(base + address, size)))
        if threaded:
            with contextlib.suppress(OSError, AttributeError):  # another OpenMP than GCC's
                self._openmp = ctypes.CDLL("libgomp.so.1")
                self._threads = self._openmp.omp_get_max_threads()

    def use_threads(self, count: int | None) -> None:
        """Have OpenMP's regions begin with so many threads; None: with as many as before."""
        if self._openmp is not None:
            self._openmp.omp_set_num_threads(ctypes.c_int(count or self._threads))

    def begin(self) -> None:
        """Overwrite freed memory, and have what is allocated and freed from now on filled, until `ended_checked`."""
        pattern = 1 + os.urandom(1)[0] % 254
        for size in _CACHED_SIZES:
            self._overwrite(size, pattern)
        self._perturb(pattern)

    def ended(self) -> Finding | None:
        """Say how a call that has just ended left the calling thread's floating-point environment; put it back."""
        return None if self._environment is None else _told(self._environment.of_caller(), "the calling thread")

    def ended_checked(self) -> Finding | None:
        """Say what a call has left in the libraries' memory, or in the environment of OpenMP's other threads."""
        self._perturb(0)
        for region in self._regions:
            if self._libc.memcmp(ctypes.c_void_p(region.address), region.loaded, ctypes.c_size_t(len(region.loaded))):
                return _kept(region)
        return self._of_the_team()

    def _of_the_team(self) -> Finding | None:
        environment = self._environment
        if self._openmp is None or environment is None:
            return None
        found: list[str | None] = []
        # libgomp hands the function to every thread of the team that the candidate's own regions run in.
        visit = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: found.append(environment.difference()))
        self._openmp.GOMP_parallel(visit, None, ctypes.c_uint(0), ctypes.c_uint(0))
        return next((_told(one, "a thread of OpenMP") for one in found if one is not None), None)

    def _perturb(self, pattern: int) -> None:
        with contextlib.suppress(AttributeError):  # another C library than glibc
            self._libc.mallopt(_M_PERTURB, pattern)

    def _overwrite(self, size: int, pattern: int) -> None:
        """Overwrite the chunks of a size that malloc keeps for this thread."""
        malloc, free = self._libc.malloc, self._libc.free
        malloc.restype = ctypes.c_void_p
        taken = [malloc(ctypes.c_size_t(size)) for _ in range(_CACHED_EACH)]
        for chunk in taken:
            ctypes.memset(chunk, pattern, size)
            free(ctypes.c_void_p(chunk))


class _FloatEnvironment:
    """The floating-point environment of a thread as fegetenv(3) and fesetenv(3) have it."""

    def __init__(self, library: ctypes.CDLL, words: tuple[tuple[int, int, str], ...]) -> None:
        self._library = library
        self._words = words
        self._first, self._first_view = self._read()
        self._own, self._own_view = self._read()  # used again by the calling thread: its look is on the clock

    @classmethod
    def here(cls) -> _FloatEnvironment | None:
        """Note this thread's; None on a processor whose layout is not known."""
        words = _CONTROL.get(platform.machine())
        try:
            return None if words is None else cls(ctypes.CDLL("libm.so.6"), words)
        except OSError:  # another C library than glibc
            return None

    def of_caller(self) -> str | None:
        """Return `difference` for the thread that made this object."""
        self._library.fegetenv(self._own)
        return self._compared(self._own_view)

    def difference(self) -> str | None:
        """Say how the running thread's environment differs from the first, and put that back; None: not at all."""
        return self._compared(self._read()[1])

    def _compared(self, now: memoryview) -> str | None:
        first = self._first_view
        for at, mask, name in self._words:
            if (now[at] ^ first[at]) & mask:
                self._library.fesetenv(self._first)
                return f"{name} is 0x{now[at] & mask:x} and was 0x{first[at] & mask:x}"
        return None

    def _read(self) -> tuple[ctypes.Array[ctypes.c_uint32], memoryview]:
        buffer = (ctypes.c_uint32 * _ENVIRONMENT_WORDS)()
        self._library.fegetenv(buffer)
        return buffer, memoryview(buffer).cast("B").cast("I")


def _told(difference: str | None, where: str) -> Finding | None:
    if difference is None:
        return None
    expected = "rounding, flushing of small numbers and exceptions as they were before the call, in every thread"
    message = f"left the floating-point environment of {where} changed: {difference}; expected {expected}"
    return Finding("floating_point_environment", message, difference, expected)


def _kept(region: _Region) -> Finding:
    """Name the first place of a library's memory that differs from what was loaded."""
    now = ctypes.string_at(region.address, len(region.loaded))
    at = next(n for n, (one, other) in enumerate(zip(now, region.loaded, strict=True)) if one != other)
    name = _named(region.image, region.address + at - region.base)
    expected = "the bytes with which it was loaded: keep values in locals, or in scratch that `run` allocates"
    message = f"keeps state from one call to the next: {name} in the kernel's memory has changed; expected {expected}"
    return Finding("state", message, name, expected)


def _named(image: Image, address: int) -> str:
    """Name the variable at an address of a library, else its section."""

    def holds(one: Symbol) -> bool:
        return one.section > 0 and one.kind == elf.OBJECT and one.address <= address < one.address + max(one.size, 1)

    found = next((one.name for one in image.symbols if holds(one)), None)
    if found is not None:
        return f"`{_demangled(found)[:_LONGEST_NAME]}`"
    places = (one for one in image.sections if one.address and one.address <= address < one.address + one.size)
    place = next(places, None)
    return f"byte {address - place.address} of {place.name}" if place else f"byte {address}"


def _demangled(name: str) -> str:
    """Return the C++ name of a symbol, where it has one."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return name
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int(-1)
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return name
    raw = ctypes.string_at(text)
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return raw.decode("utf-8", "replace")


def _libraries(directory: str) -> list[tuple[str, int]]:
    """List the libraries that this process has mapped from below a directory, with the address of each."""
    prefix = os.path.realpath(directory) + os.sep
    found: dict[str, int] = {}
    with open("/proc/self/maps") as file:
        for line in file:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5].startswith(prefix):
                found.setdefault(words[5], int(words[0].partition("-")[0], 16))
    return list(found.items())


def _writable(image: Image) -> list[tuple[int, int]]:
    """List address and size of what stays writable of a library once it is loaded.

    The linker's own tables (RELRO) are closed by then, as far as they fill pages.
    """
    page = mmap.PAGESIZE
    closed = [
        (one.address // page * page, (one.address + one.size) // page * page)
        for one in image.segments
        if one.kind == elf.RELRO
    ]
    found = []
    for one in image.segments:
        if one.kind != elf.LOAD or not one.flags & elf.SEGMENT_WRITABLE:
            continue
        start, end = one.address, one.address + one.size
        for first, last in closed:
            if first <= start < last:
                start = min(last, end)
        if start < end:
            found.append((start, end - start))
    return found
