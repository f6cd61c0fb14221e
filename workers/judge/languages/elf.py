"""Sections of ELF files, and the digest of what a compiler made: equal for equal code.

Source: the ELF-64 object file format, version 1.5; cubins are such files.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

_NO_BITS = 8  # SHT_NOBITS: takes no room in the file
_ALLOCATED = 2  # SHF_ALLOC: there when the code runs
_NO_CODE = re.compile(r"\.(rela?\.|nv_)?debug|\.note|\.comment|\.(sym|str|shstr)tab|\.line|\.nv_frame")
"""Sections that say where code came from, not what it does.

They hold lines, paths, compilers, build ids, names.
"""
_DEVICE_CODE = re.compile(r"\.(text|nv\.(info|constant|shared|global|local)|rodata|data|bss|rela?)\b")


class Section(NamedTuple):
    """One section; `content` is empty where it takes no room in the file."""

    name: str
    flags: int
    size: int
    content: bytes


def sections(raw: bytes) -> list[Section]:
    """Return the sections of a 64-bit little-endian ELF file; none for anything else.

    Raises struct.error or ValueError where the file breaks off.
    """
    if raw[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", raw, 0x28)
    size, count, names = struct.unpack_from("<HHH", raw, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", raw, table + i * size) for i in range(count)]
    start = heads[names][4] if heads else 0
    found = []
    for name, kind, flags, _, offset, length in heads:
        at = start + name
        content = b"" if kind == _NO_BITS else raw[offset : offset + length]
        found.append(Section(raw[at : raw.index(b"\0", at)].decode("utf-8", "replace"), flags, length, content))
    return found


def code_digest(raw: bytes) -> str:
    """Return the SHA-256, hex, of the code and data of a shared object or a cubin.

    Lines, paths and compilers are left out. Anything else is its own identity.
    """
    try:
        found = sections(raw)
    except (struct.error, ValueError):
        found = []
    kept = [one for one in found if _counts(one)]
    digest = hashlib.sha256()
    if not kept:
        digest.update(raw)
    for one in sorted(kept):
        digest.update(f"{one.name}\0{one.flags}\0{one.size}\0".encode())
        digest.update(one.content)
    return digest.hexdigest()


def digests(binaries: Iterable[bytes]) -> list[str]:
    """Return the digests of several binaries, each once, sorted."""
    return sorted({code_digest(raw) for raw in binaries})


def _counts(section: Section) -> bool:
    if _NO_CODE.match(section.name):
        return False
    return bool(section.flags & _ALLOCATED) or _DEVICE_CODE.match(section.name) is not None
