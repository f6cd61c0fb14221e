"""What a launch may ask of a GPU, and what is wrong with one that asks for more.

Source of the numbers: CUDA C++ Programming Guide, technical specifications per compute capability; of how registers
and shared memory are given out: CUDA's occupancy calculator (cuda_occupancy.h).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Extents = tuple[int, int, int]

_PORTABLE_CLUSTER = 8
_REGISTER_UNIT = 8  # registers of a thread are given out in eights
_WARP = 32
_QUARTERS = 4  # of a multiprocessor, each with a quarter of the registers and of a block's warps


@dataclass(frozen=True)
class Limits:
    """What one device has. shared: bytes that a block can be given; shared_sm: bytes of a multiprocessor; shared_unit:
    bytes in which they are given out; cluster: blocks of the largest cluster, 0 without clusters.
    """

    name: str
    shared: int
    shared_sm: int
    threads_sm: int
    blocks_sm: int
    multiprocessors: int
    cluster: int = 0
    threads: int = 1024
    registers: int = 65536
    shared_unit: int = 128
    block: Extents = (1024, 1024, 64)
    grid: Extents = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Usage:
    """What one kernel was compiled to. registers: of a thread; shared: static bytes of a block; threads: the most that
    its launch bounds promise; cluster: what it declares. None: not known, or not declared.
    """

    registers: int | None = None
    shared: int = 0
    threads: int | None = None
    cluster: Extents | None = None


@dataclass(frozen=True)
class Launch:
    """One launch: blocks, threads of a block, blocks of a cluster, dynamic shared bytes of a block."""

    grid: Extents
    block: Extents
    cluster: Extents | None = None
    shared_bytes: int = 0
    cooperative: bool = False

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]


def _limits(name: str, shared_kib: int, threads_sm: int, blocks_sm: int, multiprocessors: int, cluster: int) -> Limits:
    own = shared_kib - 1 if shared_kib > 64 else shared_kib
    return Limits(name, own * 1024, shared_kib * 1024, threads_sm, blocks_sm, multiprocessors, cluster)


_KNOWN = {
    75: replace(_limits("sm_75", 64, 1024, 16, 72, 0), shared_unit=256),
    80: _limits("sm_80", 164, 2048, 32, 108, 0),
    86: _limits("sm_86", 100, 1536, 16, 84, 0),
    87: _limits("sm_87", 164, 1536, 16, 16, 0),
    89: _limits("sm_89", 100, 1536, 24, 142, 0),
    90: _limits("sm_90", 228, 2048, 32, 132, 16),
    100: _limits("sm_100", 228, 2048, 32, 148, 16),
    103: _limits("sm_103", 228, 2048, 32, 160, 16),
    120: _limits("sm_120", 100, 1536, 24, 188, 8),
}
"""By compute capability; multiprocessors are those of the largest part that is sold."""


def of_architecture(capability: int) -> Limits | None:
    """The limits of a compute capability, 90 for sm_90; None where it is not known."""
    return _KNOWN.get(capability)


def problem(launch: Launch, usage: Usage, limits: Limits) -> str | None:
    """Why a device with `limits` refuses `launch` of a kernel with `usage`, and what to ask for instead; None: it does
    not.
    """
    threads = launch.threads
    for axis, most, size in zip("xyz", limits.block, launch.block, strict=True):
        if size > most:
            return f"block.{axis}: found {size}, expected at most {most}"
    if threads > limits.threads:
        return f"block: found {threads} threads {launch.block}, expected at most {limits.threads}"
    if usage.threads is not None and threads > usage.threads:
        return f"block: found {threads} threads, and the kernel's __launch_bounds__ promises at most {usage.threads}"
    for axis, most, size in zip("xyz", limits.grid, launch.grid, strict=True):
        if size > most:
            return f"grid.{axis}: found {size}, expected at most {most}: swap axes, or loop over a smaller grid"
    shared = usage.shared + launch.shared_bytes
    if shared > limits.shared:
        parts = f"{usage.shared} static + {launch.shared_bytes} dynamic" if usage.shared else f"{shared}"
        return f"shared memory: found {parts} bytes of a block, expected at most {limits.shared} on {limits.name}"
    return _registers(threads, usage, limits) or _cluster(launch, usage, limits) or _residency(launch, usage, limits)


def _registers(threads: int, usage: Usage, limits: Limits) -> str | None:
    needed = _registers_of_warp(usage.registers or 0) * _rounded(_warps(threads), _QUARTERS)
    if needed <= limits.registers:
        return None
    fits = threads_by_registers(usage.registers or 0, limits.registers)
    return (
        f"too many resources: {threads} threads of {usage.registers} registers need {needed}, and a block has "
        f"{limits.registers}: expected at most {fits} threads, or __launch_bounds__({threads}) on the kernel"
    )


def _cluster(launch: Launch, usage: Usage, limits: Limits) -> str | None:
    cluster = launch.cluster or usage.cluster
    if cluster is None:
        return None
    blocks = cluster[0] * cluster[1] * cluster[2]
    if limits.cluster == 0:
        return f"cluster: found {cluster}, and {limits.name} has no clusters: they begin with sm_90"
    if usage.cluster is not None and launch.cluster not in (None, usage.cluster):
        return f"cluster: found {launch.cluster}, and the kernel's __cluster_dims__ says {usage.cluster}"
    if blocks > limits.cluster:
        return f"cluster: found {blocks} blocks {cluster}, expected at most {limits.cluster}"
    if any(size % part for size, part in zip(launch.grid, cluster, strict=True)):
        return f"grid: found {launch.grid}, expected a multiple of cluster {cluster}"
    return None


def _residency(launch: Launch, usage: Usage, limits: Limits) -> str | None:
    if not launch.cooperative:
        return None
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    most = blocks_at_once(launch, usage, limits) * limits.multiprocessors
    if blocks <= most:
        return None
    return (
        f"grid: found {blocks} blocks of a cooperative launch, and {most} are resident at once "
        f"({limits.multiprocessors} multiprocessors): expected at most as many, each looping over its share"
    )


def blocks_at_once(launch: Launch, usage: Usage, limits: Limits) -> int:
    """Blocks of `launch` that fit on one multiprocessor."""
    if _registers(launch.threads, usage, limits) is not None:
        return 0
    warps = _warps(launch.threads)
    a_quarter = limits.registers // _QUARTERS // _registers_of_warp(usage.registers or _REGISTER_UNIT)
    reserved = limits.shared_sm - limits.shared  # of each block, by the system
    shared = _rounded(usage.shared + launch.shared_bytes + reserved, limits.shared_unit)
    return min(
        limits.blocks_sm,
        limits.threads_sm // (warps * _WARP),
        a_quarter * _QUARTERS // warps,
        limits.shared_sm // max(shared, 1),
    )


def threads_by_registers(registers: int, available: int = 65536) -> int:
    """The most threads of one block for which a block's registers suffice."""
    warps = available // _registers_of_warp(max(registers, 1)) // _QUARTERS * _QUARTERS
    return min(warps * _WARP, 1024)


def _registers_of_warp(registers: int) -> int:
    """What a warp is given where a thread has so many."""
    return _rounded(registers, _REGISTER_UNIT) * _WARP


def _warps(threads: int) -> int:
    return _rounded(threads, _WARP) // _WARP


def is_portable(cluster: Extents | None) -> bool:
    """Whether every GPU with clusters runs a cluster of this size; larger ones must be asked for."""
    return cluster is None or cluster[0] * cluster[1] * cluster[2] <= _PORTABLE_CLUSTER


def _rounded(value: int, to: int) -> int:
    return (value + to - 1) // to * to
