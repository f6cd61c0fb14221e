"""Read from a cubin what ptxas's log lacks: its kernels' declared bounds, and what it may not have.

Source: the ELF format, and the attributes of `.nv.info` sections as NVIDIA's cuobjdump names them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from warpsmith.workers.judge.machine.cubin_symbols import areas, imports, symbol_names
from warpsmith.workers.judge.machine.elf import sections

MOST_BYTES = 64 << 20
"""Of a module's variables: they are read back around every checked call."""
ALLOWED = frozenset({"vprintf", "__assertfail"})
"""What a kernel may take from the driver: it keeps nothing that a kernel could read."""

_MAX_THREADS, _CLUSTER = 0x05, 0x3D  # EIATTR_MAX_THREADS, EIATTR_CTA_PER_CLUSTER
_REGISTERS, _FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
_SIZED = 4  # EIFMT_SVAL: a length and so many bytes; other formats have their value in the length's place
_INFO, _PREFIX = ".nv.info", ".nv.info."


class Bounds(NamedTuple):
    """`__launch_bounds__` (threads of a block) and `__cluster_dims__` of one kernel.

    None where it has none.
    """

    threads: int | None = None
    cluster: tuple[int, int, int] | None = None


class Resources(NamedTuple):
    """What a kernel uses: registers of a thread, and bytes of its local memory, where spills lie as well."""

    registers: int | None = None
    frame: int | None = None


def refusal(cubin: bytes) -> str | None:
    """Say what a cubin may not have: memory of its own making, or more variables than can be looked at.

    Raises ValueError for no cubin.
    """
    if taken := [name for name in imports(cubin) if name not in ALLOWED]:
        return (
            f"the compiled kernel calls {', '.join(taken[:5])}: expected none of the device's own allocator "
            "(malloc, free, new, delete) or runtime; allocate scratch in `run` by torch.empty"
        )
    size = sum(area.size for area in areas(cubin))
    if size > MOST_BYTES:
        return (
            f"the compiled kernels have {size} bytes of device variables, expected at most {MOST_BYTES}: "
            "allocate scratch in `run` by torch.empty"
        )
    return None


def bounds(cubin: bytes) -> dict[str, Bounds]:
    """Return the bounds of each kernel by its name.

    Empty for a file that is not a 64-bit little-endian ELF file.
    """
    found: dict[str, Bounds] = {}
    for section in sections(cubin):
        if section.name.startswith(_PREFIX):
            found[section.name.removeprefix(_PREFIX)] = _bounds(section.content)
    return found


def resources(cubin: bytes) -> dict[str, Resources]:
    """Return what each kernel uses, by its name. Raises ValueError for no cubin."""
    names = symbol_names(cubin)
    found: dict[str, Resources] = {}
    for section in sections(cubin):
        if section.name != _INFO:
            continue
        for attribute, value in _attributes(section.content):
            if attribute in (_REGISTERS, _FRAME) and len(value) == 8:
                number, size = struct.unpack("<II", value)
                if number >= len(names):
                    raise ValueError(
                        f"{_INFO}: found an attribute of symbol {number}, expected one of {len(names) - 1}"
                    )
                name = names[number]
                field = "registers" if attribute == _REGISTERS else "frame"
                found[name] = found.get(name, Resources())._replace(**{field: size})
    return found


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each attribute that has a length of its own."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield attribute, info[at : at + value]
            at += value


def _bounds(info: bytes) -> Bounds:
    threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    for attribute, value in _attributes(info):
        if attribute in (_MAX_THREADS, _CLUSTER) and len(value) == 12:
            x, y, z = struct.unpack("<III", value)
            if attribute == _MAX_THREADS:
                threads = x * y * z
            else:
                cluster = (x, y, z)
    return Bounds(threads, cluster)
