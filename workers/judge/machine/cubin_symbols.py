"""Read from a cubin what outlives a launch: its module's variables, and the functions of the driver that it calls.

Source: NVIDIA's sections as cuobjdump names them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from warpsmith.workers.judge.machine import elf
from warpsmith.workers.judge.machine.elf import Section, Symbol

VARIABLES = (".nv.global", ".nv.global.init", ".nv.constant3")
"""Sections of `__device__` and `__managed__` variables, zeroed or not, and of `__constant__` ones."""


_OF_HEADERS = re.compile(r"_Z(St|NSt|NK?(\d+_INTERNAL_\w+?_cu_[0-9a-f]{8})?(4cuda|4cute|7cutlass|2tl))")
"""Names of what the C++ library, libcu++, CUTLASS and TileLang's headers declare, as compilers write them."""


class Variable(NamedTuple):
    """One variable: its name as the compiler wrote it, where it lies in its section, and its bytes."""

    name: str
    offset: int
    size: int


class Area(NamedTuple):
    """A section of variables."""

    name: str
    size: int
    variables: tuple[Variable, ...]


def areas(cubin: bytes) -> list[Area]:
    """Return the variables of a module by the sections in which they lie together. Raises ValueError for no cubin."""
    found: dict[int, list[Variable]] = {}
    sections, symbols = _read(cubin)
    for one in symbols:
        if one.kind == elf.OBJECT and 0 < one.section < len(sections) and sections[one.section].name in VARIABLES:
            found.setdefault(one.section, []).append(Variable(one.name, one.address, one.size))
    return [
        Area(sections[number].name, sections[number].size, tuple(sorted(variables, key=lambda one: one.offset)))
        for number, variables in sorted(found.items())
    ]


def own_variables(cubin: bytes) -> list[str]:
    """Return the variables of a module that are no constants of TileLang's headers. Raises ValueError for no cubin.

    NVRTC compiles these headers with `-default-device`, which makes variables of their constants.
    """
    return [one.name for area in areas(cubin) for one in area.variables if not _OF_HEADERS.match(one.name)]


def imports(cubin: bytes) -> list[str]:
    """Return the functions that a cubin calls and does not have, sorted: the driver has them, `malloc` for one.

    Raises ValueError for no cubin.
    """
    _, symbols = _read(cubin)
    return sorted({one.name for one in symbols if one.kind == elf.FUNCTION and one.section == 0})


def symbol_names(cubin: bytes) -> list[str]:
    """Return the names of a cubin's symbols, by their numbers. Raises ValueError for no cubin."""
    _, symbols = _read(cubin)
    return ["", *(one.name for one in symbols)]  # number 0 is nobody's


def _read(cubin: bytes) -> tuple[list[Section], list[Symbol]]:
    """Return a cubin's sections and symbols. Raises ValueError for no cubin."""
    if not cubin.startswith(elf.MAGIC):
        raise ValueError(f"found {cubin[:6]!r}, expected a 64-bit little-endian ELF file")
    sections = elf.sections(cubin)
    return sections, elf.symbols(sections)
