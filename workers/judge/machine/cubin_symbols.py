"""Read from a cubin what outlives a launch: its module's variables, and the functions of the driver that it calls.

Source of the layout: the ELF-64 object file format, version 1.5; NVIDIA's sections as cuobjdump names them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_SYMBOLS = 2  # SHT_SYMTAB
_OBJECT, _FUNCTION = 1, 2  # STT_OBJECT, STT_FUNC
_SYMBOL_BYTES = 24

VARIABLES = (".nv.global", ".nv.global.init", ".nv.constant3")
"""Sections of `__device__` and `__managed__` variables, zeroed or not, and of `__constant__` ones."""


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


class _Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int


def areas(cubin: bytes) -> list[Area]:
    """Return the variables of a module by the sections in which they lie together. Raises ValueError for no cubin."""
    found: dict[int, list[Variable]] = {}
    sections = _sections(cubin)
    for name, kind, number, value, size in _symbols(cubin, sections):
        if kind == _OBJECT and 0 < number < len(sections) and sections[number].name in VARIABLES:
            found.setdefault(number, []).append(Variable(name, value, size))
    return [
        Area(sections[number].name, sections[number].size, tuple(sorted(variables, key=lambda one: one.offset)))
        for number, variables in sorted(found.items())
    ]


def imports(cubin: bytes) -> list[str]:
    """Return the functions that a cubin calls and does not have, sorted: the driver has them, `malloc` for one.

    Raises ValueError for no cubin.
    """
    sections = _sections(cubin)
    return sorted({name for name, kind, number, _, _ in _symbols(cubin, sections) if kind == _FUNCTION and number == 0})


def symbol_names(cubin: bytes) -> list[str]:
    """Return the names of a cubin's symbols, by their numbers. Raises ValueError for no cubin."""
    return [name for name, *_ in _symbols(cubin, _sections(cubin))]


def _symbols(raw: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield each symbol's name, kind, number of its section (0: not here), place in it, and bytes."""
    for section in sections:
        if section.kind != _SYMBOLS:
            continue
        if section.link >= len(sections) or section.offset + section.size > len(raw):
            raise ValueError("the table of symbols lies outside of the file")
        names = sections[section.link].offset
        for at in range(section.offset, section.offset + section.size - _SYMBOL_BYTES + 1, _SYMBOL_BYTES):
            name, information, number, value, size = struct.unpack_from("<IBxHQQ", raw, at)
            yield _text(raw, names + name), information & 15, number, value, size


def _sections(raw: bytes) -> list[_Section]:
    if raw[:6] != b"\x7fELF\x02\x01" or len(raw) < 64:
        raise ValueError(f"found {raw[:6]!r}, expected a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", raw, 0x28)
    size, count, names = struct.unpack_from("<HHH", raw, 0x3A)
    if size < 64 or table + size * count > len(raw) or names >= max(count, 1):
        raise ValueError("the table of sections lies outside of the file")
    heads = [struct.unpack_from("<IIQQQQI", raw, table + number * size) for number in range(count)]
    start = heads[names][4] if heads else 0
    return [_Section(_text(raw, start + head[0]), head[1], head[4], head[5], head[6]) for head in heads]


def _text(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at)
    if end < 0 or at > len(raw):
        raise ValueError("a name lies outside of the file")
    return raw[at:end].decode("utf-8", "replace")
