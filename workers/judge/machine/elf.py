"""Read 64-bit little-endian ELF files: sections, segments, symbols, relocations, dynamic entries.

Source: the ELF-64 object file format, version 1.5; the System V ABI's chapter on dynamic linking; for versions of
symbols the Linux Standard Base core, "Symbol Versioning". Cubins are such files, too. Every read is bounded by the
file: one that breaks off, or names a place outside of itself, raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

MAGIC = b"\x7fELF\x02\x01"

NO_BITS = 8
"""A section's kind: takes no room in the file."""
_SYMBOLS, _RELOCATIONS, _DYNAMIC, _DYNAMIC_SYMBOLS = 2, 4, 6, 11
_VERSIONS_NEEDED, _VERSIONS = 0x6FFFFFFE, 0x6FFFFFFF
WRITABLE, ALLOCATED, EXECUTABLE, THREAD_LOCAL = 1, 2, 4, 0x400
"""Flags of a section."""
LOAD, RELRO, STACK = 1, 0x6474E552, 0x6474E551
"""Kinds of segments."""
SEGMENT_EXECUTABLE, SEGMENT_WRITABLE = 1, 2
"""Flags of a segment."""
OBJECT, FUNCTION, TLS, IFUNC = 1, 2, 6, 10
"""Kinds of symbols."""
_WEAK = 2
_NEEDED, _TEXT_RELOCATIONS, _RPATH, _RUNPATH, _FLAGS = 1, 22, 15, 29, 30
_FLAG_TEXT_RELOCATIONS = 4


class Section(NamedTuple):
    """One section; `content` is empty where it takes no room in the file."""

    name: str
    flags: int
    size: int
    content: bytes
    address: int = 0
    kind: int = 0
    link: int = 0


class Segment(NamedTuple):
    """One program header: its kind, flags, address and size in memory."""

    kind: int
    flags: int
    address: int
    size: int


class Symbol(NamedTuple):
    """One symbol. section: its number, 0 for one that is undefined. library: which the linker found it in."""

    name: str
    kind: int
    weak: bool
    section: int
    address: int
    size: int
    library: str = ""


class Image(NamedTuple):
    """What a linked library is made of.

    symbols are all, with local ones; dynamic those that the loader sees. needed, paths: libraries that it asks for, and
    directories in which they are looked for.
    """

    sections: list[Section]
    segments: list[Segment]
    symbols: list[Symbol]
    dynamic: list[Symbol]
    relocations: frozenset[int]
    needed: list[str]
    paths: list[str]
    text_relocations: bool


def _unpack(form: str, raw: bytes, at: int = 0) -> tuple[Any, ...]:
    """Unpack what lies at a place that the file names. Raises ValueError where that is not within `raw`."""
    if at + struct.calcsize(form) > len(raw):
        raise ValueError(f"found offset {at}, expected one within {len(raw)} bytes")
    return struct.unpack_from(form, raw, at)


def sections(raw: bytes) -> list[Section]:
    """Return the sections of a 64-bit little-endian ELF file; none for anything else.

    Raises ValueError for such a file that is not whole.
    """
    if raw[:6] != MAGIC:
        return []
    (table,) = _unpack("<Q", raw, 0x28)
    size, count, names = _unpack("<HHH", raw, 0x3A)
    heads = [_unpack("<IIQQQQI", raw, table + i * size) for i in range(count)]
    if heads and names >= count:
        raise ValueError(f"found names in section {names}, expected one of {count}")
    start = heads[names][4] if heads else 0
    found = []
    for name, kind, flags, address, offset, length, link in heads:
        content = b"" if kind == NO_BITS else raw[offset : offset + length]
        found.append(Section(_text(raw, start + name), flags, length, content, address, kind, link))
    return found


def image(raw: bytes) -> Image:
    """Read a linked library. Raises ValueError where it is none."""
    if raw[:6] != MAGIC:
        raise ValueError("found a file of another format, expected a little-endian ELF-64 file")
    found = sections(raw)
    entries = list(_dynamic_entries(found))
    flags = next((value for tag, value in entries if tag == _FLAGS), 0)
    return Image(
        sections=found,
        segments=_segments(raw),
        symbols=symbols(found),
        dynamic=_with_libraries(found, _symbols(found, _DYNAMIC_SYMBOLS)),
        relocations=frozenset(_relocations(found)),
        needed=[_string(found, value) for tag, value in entries if tag == _NEEDED],
        paths=[_string(found, value) for tag, value in entries if tag in (_RPATH, _RUNPATH)],
        text_relocations=bool(flags & _FLAG_TEXT_RELOCATIONS) or any(tag == _TEXT_RELOCATIONS for tag, _ in entries),
    )


def _segments(raw: bytes) -> list[Segment]:
    (table,) = _unpack("<Q", raw, 0x20)
    size, count = _unpack("<HH", raw, 0x36)
    found = []
    for number in range(count):
        kind, flags, address, length = _unpack("<II8xQ16xQ", raw, table + number * size)
        found.append(Segment(kind, flags, address, length))
    return found


def symbols(found: list[Section]) -> list[Symbol]:
    """Return all symbols of a file by its sections, local ones too. Raises ValueError for a table that is not whole."""
    return _symbols(found, _SYMBOLS)


def _symbols(found: list[Section], kind: int) -> list[Symbol]:
    read = []
    for table in found:
        if table.kind != kind:
            continue
        names = _linked(found, table)
        for at in range(24, table.size - 23, 24):  # the first is a dummy
            name, information, section, address, size = _unpack("<IBxHQQ", table.content, at)
            weak = information >> 4 == _WEAK
            read.append(Symbol(_text(names, name), information & 15, weak, section, address, size))
    return read


def _linked(found: list[Section], table: Section) -> bytes:
    """Return the content of the section that a table names, where its strings are."""
    if table.link >= len(found):
        raise ValueError(f"found section {table.link} named by {table.name}, expected one of {len(found)}")
    return found[table.link].content


def _with_libraries(found: list[Section], symbols: list[Symbol]) -> list[Symbol]:
    """Return dynamic symbols with the libraries of their versions."""
    versions = next((one for one in found if one.kind == _VERSIONS), None)
    if versions is None:
        return symbols
    libraries = dict(_versions_needed(found))
    numbers = _unpack(f"<{len(versions.content) // 2}H", versions.content)
    return [
        symbol._replace(library=libraries.get(number & 0x7FFF, ""))
        for symbol, number in zip(symbols, numbers[1:], strict=True)
    ]


def _versions_needed(found: list[Section]) -> Iterator[tuple[int, str]]:
    """Yield the number of each version that is asked for, with its library."""
    for table in found:
        if table.kind != _VERSIONS_NEEDED:
            continue
        names, at = _linked(found, table), 0
        for _ in range(table.size // 16):
            count, library, first, following = _unpack("<2xHIII", table.content, at)
            place = at + first
            for _ in range(count):
                number, after = _unpack("<6xH4xI", table.content, place)
                yield number, _text(names, library)
                place += after
            if not following:
                break
            at += following


def _relocations(found: list[Section]) -> Iterator[int]:
    """Yield the types of relocations."""
    for table in found:
        if table.kind == _RELOCATIONS:
            for at in range(0, table.size - 23, 24):
                (kind,) = _unpack("<8xI", table.content, at)
                yield kind


def _dynamic_entries(found: list[Section]) -> Iterator[tuple[int, int]]:
    for table in found:
        if table.kind == _DYNAMIC:
            for at in range(0, table.size - 15, 16):
                tag, value = _unpack("<QQ", table.content, at)
                yield tag, value


def _string(found: list[Section], offset: int) -> str:
    """Return a string of the dynamic section's table."""
    table = next(one for one in found if one.kind == _DYNAMIC)  # the offset is one of its entries
    return _text(_linked(found, table), offset)


def _text(raw: bytes, at: int) -> str:
    return raw[at : raw.index(b"\0", at)].decode("utf-8", "replace")
