"""Keep the lease of a step under way, from a thread beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import StorageFull
from warpsmith.workers import log

RENEWALS_PER_LEASE = 3

logger = log.get(__name__)


class LeaseLost(Exception):  # noqa: N818 - no error: another worker has the step
    """Raised while a judge works, so that its time goes to a step that is still wanted."""


class LeaseKeeper:
    """Renews a lease while its block runs: `with LeaseKeeper(renew, lease_s) as lease: ...`.

    `renew` returns False where another process has the lease or the step was cancelled; then, or when the database has
    not been reached for a whole lease, `lost` is true and the step may be cut short. Its late commits are refused by
    the database, not by this class.
    """

    def __init__(self, renew: Callable[[], bool], lease_s: float) -> None:
        self._renew = renew
        self._lease_s = lease_s
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    @property
    def lost(self) -> bool:
        """True when the lease was lost: the result is no longer wanted."""
        return self._lost.is_set()

    def check(self) -> None:
        """Raise LeaseLost where the lease is lost."""
        if self.lost:
            raise LeaseLost

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        held_until = time.monotonic() + self._lease_s
        while not self._ended.wait(self._lease_s / RENEWALS_PER_LEASE):
            asked = time.monotonic()
            try:
                if not self._renew():
                    break
                held_until = asked + self._lease_s
            except (SQLAlchemyError, StorageFull) as error:
                logger.warning("the lease could not be renewed", error=str(error).splitlines()[0])
                if time.monotonic() >= held_until:
                    break
        else:
            return
        self._lost.set()
        logger.warning("the lease was lost; the step's result will be dropped")
