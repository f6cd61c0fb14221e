"""Limit this host's calls under way at an endpoint: slot files under `home`, one call each.

A slot is an exclusive `flock`: the kernel lets go of it when its process dies, however it dies. The limit holds across
the worker processes of a host that share `home`; hosts and containers with homes of their own count apart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpsmith.workers.llm.base import ModelBusy


class Slots:
    """The slots of one endpoint."""

    def __init__(self, home: Path, url: str, count: int) -> None:
        self._directory = home / "model-slots" / hashlib.sha256(url.encode()).hexdigest()[:16]
        self._url = url
        self._count = count

    @contextmanager
    def one(self, *, wait: bool) -> Iterator[None]:
        """Hold a slot.

        Where all are taken: `ModelBusy`, or with `wait` queue for one of them until its call ends (the kernel wakes the
        waiter).
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        # Each process begins elsewhere, so that waiting processes do not all queue for the same slot.
        order = [(os.getpid() + number) % self._count for number in range(self._count)]
        for number in order:
            with self._file(number) as descriptor:
                if _locked(descriptor):
                    yield
                    return
        if not wait:
            raise ModelBusy(f"{self._url} has as many calls from here as are allowed at once ({self._count})")
        with self._file(order[0]) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _file(self, number: int) -> Iterator[int]:
        descriptor = os.open(self._directory / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)  # and with it the lock


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
