"""What a built C++ library holds: refuses what a kernel has no use for, by what is in it and not by its spelling.

A library's constructors run before the first call and its destructors after the last; IFUNC resolvers run as it is
loaded; thread-local memory belongs to no library that could be compared after a call; code in data, data in code and
sections of its own are ways round what is looked at. None of these makes a kernel faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from warpsmith.kernels_db.runtime import CompileError
from warpsmith.workers.judge.languages.imports import LIBRARIES, foreign
from warpsmith.workers.judge.machine import elf
from warpsmith.workers.judge.machine.elf import Image, Symbol

_KNOWN = re.compile(
    r"\.(text|rodata|data|bss|lrodata|ldata|lbss)(\.\w[\w.$@]*)?|\.tbss|\.tdata|\.init|\.fini|\.(init|fini)_array"
    r"|\.plt(\.\w+)?|\.got(\.plt)?|\.dynamic|\.dynsym|\.dynstr|\.hash|\.gnu\.(hash|version(_[rd])?)|\.rel[ar]?\.\w+"
    r"|\.relr\.dyn|\.eh_frame(_hdr)?|\.gcc_except_table|\.tm_clone_table|\.note(\.[\w.-]+)?|\.comment|\.(sym|str|shstr)tab"
    r"|\.debug_\w+|\.(ARM|riscv)\.attributes|"
)
"""Sections that compiler and linker make; the first of a file has no name."""
_EXPECTED = "the sections of the compiler: functions, constants and variables without a section attribute"
_OF_COMPILER = {".init_array": 8, ".fini_array": 8}
"""Bytes of the arrays that the compiler itself fills, with one function each."""
_OWN_FUNCTIONS = {".init": {"_init"}, ".fini": {"_fini"}}
_IRELATIVE = {37, 1032}
"""Relocations that call a resolver, on x86-64 and on AArch64; neither number means anything else on the other."""
_SHOWN = 5


def inspect(library: Path) -> None:
    """Raise CompileError where a built library has what a kernel has no use for. The message names it."""
    try:
        image = elf.image(library.read_bytes())
        found = next(_problems(image), None)
    except (ValueError, IndexError) as error:  # IndexError: a symbol of a section that is not there
        raise CompileError(f"the built kernel is no library that can be read: {error}") from error
    if found is not None:
        raise CompileError(found)


def _problems(image: Image) -> Iterator[str]:
    """Say what is wrong with a library, worst first."""
    yield from _sections(image)
    yield from _code_that_runs_unasked(image)
    yield from _memory(image)
    if reached := foreign(image.dynamic):
        more = f" and {len(reached) - _SHOWN} more" if len(reached) > _SHOWN else ""
        yield (
            f"the kernel reaches for {', '.join(reached[:_SHOWN])}{more}: expected its own functions and, of the C, "
            "C++, math and OpenMP libraries, mathematics, memory, strings, templates and parallel regions"
        )
    for library in image.needed:
        if not LIBRARIES.fullmatch(library):
            yield f"the kernel needs the library {library}: expected those of C, C++, mathematics and OpenMP alone"
    for path in image.paths:
        yield f"the kernel names a directory of libraries, {path!r}: expected none (no RPATH or RUNPATH)"


def _sections(image: Image) -> Iterator[str]:
    for section in image.sections:
        if not _KNOWN.fullmatch(section.name):
            yield f"the kernel has a section of its own, {section.name[:80]!r}: expected {_EXPECTED}"
        if section.flags & elf.WRITABLE and section.flags & elf.EXECUTABLE:
            yield f"the section {section.name!r} can be written and run: expected code that cannot be written"
    for symbol in _inside(image):
        if symbol.kind == elf.OBJECT and image.sections[symbol.section].flags & elf.EXECUTABLE:
            yield f"{symbol.name!r} is data among the code: expected {_EXPECTED}"
    if image.text_relocations:
        yield "the kernel's code is changed as it is loaded (text relocations): expected position-independent code"
    stack = next((one for one in image.segments if one.kind == elf.STACK), None)
    if stack is None or stack.flags & elf.SEGMENT_EXECUTABLE:
        yield "the kernel asks for a stack that can be run: expected no nested function whose address is taken"


def _code_that_runs_unasked(image: Image) -> Iterator[str]:
    resolved = next((one.name for one in image.symbols if one.kind == elf.IFUNC), None)
    if resolved is not None or image.relocations & _IRELATIVE:
        yield (
            f"{resolved or 'a function'!r} is chosen as the kernel is loaded (IFUNC): expected one version of each "
            "function, since the kernel is built for this processor"
        )
    for section in image.sections:
        size = _OF_COMPILER.get(section.name)
        if size is not None and section.size > size:
            kind = "constructor" if section.name == ".init_array" else "destructor"
            held = f"{section.name} holds {section.size // 8} functions, the compiler's own is one"
            yield (
                f"the kernel has a {kind} ({held}){_named_initialiser(image)}: "
                "expected variables that a constant initialises, or locals of a function"
            )
    for symbol in _inside(image):
        own = _OWN_FUNCTIONS.get(image.sections[symbol.section].name)
        if own is not None and symbol.kind in (elf.FUNCTION, elf.OBJECT) and symbol.name not in own:
            place = image.sections[symbol.section].name
            yield f"{symbol.name!r} is in {place}, which runs unasked: expected {_EXPECTED}"


def _named_initialiser(image: Image) -> str:
    """Name a function by which the compiler initialises variables, where there is one."""
    found = next((one.name for one in image.symbols if "_GLOBAL__sub_I_" in one.name), None)
    return f", by {found!r}" if found else ""


def _memory(image: Image) -> Iterator[str]:
    named = next((one.name for one in image.symbols if one.kind == elf.TLS and one.section), None)
    held = next((one.name for one in image.sections if one.flags & elf.THREAD_LOCAL), None)
    if named is not None or held is not None:
        yield (
            f"{named or held!r} is thread-local memory: expected locals of a function, or scratch that `run` allocates"
        )
    names = {one.name: one for one in image.symbols if one.section and not one.name.startswith("_Z")}
    places: dict[int, str] = {}
    for name, one in names.items():
        if one.kind == elf.FUNCTION and one.weak:
            places[one.address] = name
    for name, one in names.items():
        weak = places.get(one.address)
        if one.kind == elf.FUNCTION and weak is not None and weak != name:
            yield f"{weak!r} is a weak alias of {name!r}: expected functions with one name each"


def _inside(image: Image) -> Iterator[Symbol]:
    """Yield the symbols that lie in a section."""
    for symbol in image.symbols:
        if 0 < symbol.section < len(image.sections):
            yield symbol
