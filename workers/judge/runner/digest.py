"""A keyed digest of memory on a device, by which a call's results are proven to be those that stood as it ended.

The runner takes it on the device's queue right after a call, before the next one is launched, and the referee takes it
again after the burst: a result that was written later, by a later call, is seen. A candidate may find the digest in the
device's memory, and cannot make another: it depends on keys that are new for every burst and are never in that memory,
only among the arguments of torch's own kernels.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

import torch

MOST_WORDS = 1 << 22
"""Words of a call's results that are digested; of longer results they are a window at a random place.

A word has 8 bytes where a result's place and length are multiples of that, else 4 or 1.
"""

_HEAD, _WINDOW = struct.Struct("<BqqqB"), struct.Struct("<QQ")
_KEY = 1 << 62
_SHIFT = 31


@dataclass(frozen=True)
class Seal:
    """What is digested, after which call, and with which keys.

    fixed: the place of a call in its burst. windows: offset and length in bytes of parts of that call's slot.
    """

    fixed: int
    keys: tuple[int, int, int]
    windows: tuple[tuple[int, int], ...]

    def packed(self) -> bytes:
        """Return the seal as a runner reads it."""
        return _HEAD.pack(self.fixed, *self.keys, len(self.windows)) + b"".join(
            _WINDOW.pack(*window) for window in self.windows
        )

    @classmethod
    def read(cls, raw: bytes) -> tuple[Seal, bytes]:
        """Read a packed seal; return it and the bytes behind it."""
        fixed, *keys, count = _HEAD.unpack_from(raw)
        end = _HEAD.size + count * _WINDOW.size
        windows = tuple(_WINDOW.iter_unpack(raw[_HEAD.size : end]))
        return cls(fixed, (keys[0], keys[1], keys[2]), windows), raw[end:]


NO_SEAL = Seal(0, (1, 1, 1), ())
"""A digest of nothing."""


def make_seal(fixed: int, extents: list[tuple[int, int]], rng: random.Random) -> Seal:
    """Return a seal with new keys over extents of a slot (offset, bytes), each cut to its share at a random place."""
    most = MOST_WORDS // max(1, len(extents))
    windows = []
    for offset, size in extents:
        width = _width(offset, size)
        words = size // width
        taken = min(words, most)
        windows.append((offset + width * rng.randint(0, words - taken), width * taken))
    first, second, third = (2 * rng.randrange(_KEY) + 1 for _ in range(3))
    return Seal(fixed, (first, second, third), tuple(windows))


class Digester:
    """Takes digests on one device. Making it allocates what it needs; `take` only launches."""

    def __init__(self, device: torch.device) -> None:
        self._place = torch.arange(MOST_WORDS, dtype=torch.int64, device=device)
        self._mixed, self._shifted = (torch.zeros_like(self._place) for _ in range(2))
        self._sum = torch.zeros(1, dtype=torch.int64, device=device)
        self._part = torch.zeros_like(self._sum)

    def take(self, arena: torch.Tensor, seal: Seal) -> torch.Tensor:
        """Launch the digest of parts of a slot's bytes; return where it will stand, until the next one.

        Each word is mixed with its place and the keys, and all are added up modulo 2^64. What is mixed on the way is
        wiped.
        """
        place_key, first, second = seal.keys
        self._sum.zero_()
        for number, (offset, size) in enumerate(seal.windows):
            words = _words(arena, offset, size)
            if words.numel() == 0:
                continue
            mixed, shifted = self._mixed[: words.numel()], self._shifted[: words.numel()]
            torch.add(words, self._place[: words.numel()], alpha=place_key, out=mixed)
            mixed.add_(number)
            for key in (first, second):
                mixed.mul_(key)
                torch.bitwise_right_shift(mixed, _SHIFT, out=shifted)
                mixed.bitwise_xor_(shifted)
            torch.sum(mixed.mul_(place_key), dim=0, keepdim=True, out=self._part)
            self._sum.add_(self._part)
            mixed.zero_()
            shifted.zero_()
        return self._sum


def _words(arena: torch.Tensor, offset: int, size: int) -> torch.Tensor:
    """Return bytes of an arena as the widest words that their place allows."""
    part = arena[offset : offset + size]
    return part.view({8: torch.int64, 4: torch.int32, 1: torch.uint8}[_width(offset, size)])


def _width(offset: int, size: int) -> int:
    return next(width for width in (8, 4, 1) if offset % width == size % width == 0)
