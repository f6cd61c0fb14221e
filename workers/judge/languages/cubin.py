"""Read from a cubin what ptxas's log lacks: the bounds that its kernels were declared with.

Source: the ELF format, and the attributes of `.nv.info` sections as NVIDIA's cuobjdump names them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from warpsmith.workers.judge.languages.elf import sections

_MAX_THREADS, _CLUSTER = 0x05, 0x3D  # EIATTR_MAX_THREADS, EIATTR_CTA_PER_CLUSTER
_SIZED = 4  # EIFMT_SVAL: a length and so many bytes; other formats have their value in the length's place
_PREFIX = ".nv.info."


class Bounds(NamedTuple):
    """`__launch_bounds__` (threads of a block) and `__cluster_dims__` of one kernel.

    None where it has none.
    """

    threads: int | None = None
    cluster: tuple[int, int, int] | None = None


def bounds(cubin: bytes) -> dict[str, Bounds]:
    """Return the bounds of each kernel by its name.

    Empty for a file that is not a 64-bit little-endian ELF file.
    """
    found: dict[str, Bounds] = {}
    for section in sections(cubin):
        if section.name.startswith(_PREFIX):
            found[section.name.removeprefix(_PREFIX)] = _bounds(section.content)
    return found


def _bounds(info: bytes) -> Bounds:
    threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    at = 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute in (_MAX_THREADS, _CLUSTER) and value == 12:
            x, y, z = struct.unpack_from("<III", info, at)
            if attribute == _MAX_THREADS:
                threads = x * y * z
            else:
                cluster = (x, y, z)
        at += value
    return Bounds(threads, cluster)
