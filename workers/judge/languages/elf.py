"""The digest of what a compiler made, a shared object or a cubin: equal for equal code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from warpsmith.workers.judge.machine.elf import ALLOCATED, Section, sections

_NO_CODE = re.compile(r"\.(rela?\.|nv_)?debug|\.note|\.comment|\.(sym|str|shstr)tab|\.line|\.nv_frame")
"""Sections that say where code came from, not what it does.

They hold lines, paths, compilers, build ids, names.
"""
_DEVICE_CODE = re.compile(r"\.(text|nv\.(info|constant|shared|global|local)|rodata|data|bss|rela?)\b")


def code_digest(raw: bytes) -> str:
    """Return the SHA-256, hex, of the code and data of a shared object or a cubin.

    Lines, paths and compilers are left out. Anything else is its own identity.
    """
    try:
        found = sections(raw)
    except ValueError:
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
    return bool(section.flags & ALLOCATED) or _DEVICE_CODE.match(section.name) is not None
