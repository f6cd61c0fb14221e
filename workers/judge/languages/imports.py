"""Read what a built C++ kernel takes from the process that loads it.

That is the undefined names of its dynamic symbol table.

The linker resolves every ordinary name against the compiler's own libraries (`-z defs`), so a kernel's calls reach the
C and C++ library, the math library or OpenMP. Two ways remain to reach others, PyTorch's kernels or the interpreter:
the dynamic loader's functions, and weak names, which the linker leaves unresolved. A kernel needs neither. This is no
boundary, since native code may search memory for a library by hand; it keeps a library call from passing as a kernel.

Source of the layout: the ELF-64 object file format, version 1.5.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

_DYNAMIC_SYMBOLS, _WEAK = 11, 2
_LOADER = re.compile(r"(__libc_)?_*dl[a-z_]*(sym|open|close|addr|info|error|iterate_phdr|mopen)\w*|_r_debug|_dl_\w*")
_TOOLCHAIN = frozenset(
    {
        "__cxa_finalize",
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
    }
)
"""Weak names that every shared library has."""
_TEMPLATE = re.compile(r"_ZN?K?S|_ZT[ISV]|__gthr|__gthrw|__pthread_key_create|pthread_|_ZGV")
"""Weak names of the standard library's own templates and of its wrapper of threads."""


def undefined(library: Path) -> list[tuple[str, bool]]:
    """(name, weak) of each undefined dynamic symbol of a little-endian ELF-64 file.

    Raises ValueError where it is none.
    """
    raw = library.read_bytes()
    if raw[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library.name} is no little-endian ELF-64 file")
    (sections,) = struct.unpack_from("<Q", raw, 0x28)
    size, count = struct.unpack_from("<HH", raw, 0x3A)
    found = []
    for number in range(count):
        kind, offset, length, link = struct.unpack_from("<4xI16xQQI", raw, sections + number * size)
        if kind != _DYNAMIC_SYMBOLS:
            continue
        (names,) = struct.unpack_from("<Q", raw, sections + link * size + 0x18)
        for at in range(offset + 24, offset + length, 24):  # the first is a dummy
            name, information, section = struct.unpack_from("<IBxH", raw, at)
            if section == 0:
                end = raw.index(b"\0", names + name)
                found.append((raw[names + name : end].decode(errors="replace"), information >> 4 == _WEAK))
    return found


def foreign(library: Path) -> list[str]:
    """Return the names by which a built kernel would reach code not its own, sorted."""
    return sorted(
        {
            name
            for name, weak in undefined(library)
            if _LOADER.fullmatch(name) or (weak and name not in _TOOLCHAIN and not _TEMPLATE.match(name))
        }
    )
