"""What is known of an op's baselines on a device, kept beyond the process that measured it.

A screen times the candidate beside one baseline, the fastest; which that is shows only when all are timed together.
That is done once for an op, a workload and a device, and again when it is a day old or a later run of the fastest one
no longer fits it. So a fresh judge need not compile and time every baseline before it can screen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.documents import JobOp
from warpsmith.workers.judge.machine import cache_pruning
from warpsmith.workers.judge.reference import expert_packages

STALE_S = 24 * 3600.0
DRIFT = 0.2
"""Relative change of the fastest baseline's time beyond which all are timed again."""


@dataclass(frozen=True)
class Standing:
    """The baselines of one op on one workload, timed together.

    median_us: by baseline; unavailable: why one does not run; measured_at: seconds since the epoch.
    """

    median_us: dict[str, float]
    unavailable: dict[str, str]
    measured_at: float

    def fastest(self, wanted: Sequence[str]) -> str:
        """Return the one of `wanted` with the smallest median."""
        return min((name for name in wanted if name in self.median_us), key=lambda name: self.median_us[name])


class BaselineStore:
    """Standings on one device.

    Files are written atomically; several judges may share the directory.
    """

    def __init__(
        self,
        directory: Path,
        device: Mapping[str, Any],
        versions: Mapping[str, str],
        now: Callable[[], float] = time.time,
        *,
        protocol: int,
    ) -> None:
        """Open the store of a device.

        `device`, `versions` and the judge's `protocol`: together everything that a time depends on besides the op.
        """
        self.directory = directory
        self.now = now
        self._device = [dict(device), dict(versions), protocol]

    def of(self, op: JobOp) -> OpStandings:
        """Return the standings of one op: of its digest, reference, math, and experts with the versions of each."""
        experts = op.get("experts")
        installed = [experts, expert_packages.versions(op)] if experts else []
        return OpStandings(self, [op["digest"], op["reference"], op["math"], self._device, *installed])


class OpStandings:
    """Standings of one op, by workload key."""

    def __init__(self, store: BaselineStore, identity: list[Any]) -> None:
        self._store = store
        self._identity = identity

    def find(self, workload: str, wanted: Sequence[str]) -> Standing | None:
        """Return what is known of all `wanted` baselines on a workload.

        None where not all of it is known, or it is stale.
        """
        file = self._file(workload)
        try:
            document = json.loads(file.read_text())
            standing = Standing(
                {str(name): float(value) for name, value in document["median_us"].items()},
                {str(name): str(reason) for name, reason in document["unavailable"].items()},
                float(document["measured_at"]),
            )
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None  # absent or damaged: measured again
        age = self._store.now() - standing.measured_at
        known = standing.median_us.keys() | standing.unavailable.keys()
        if not 0 <= age <= STALE_S or not known >= set(wanted) or not standing.median_us.keys() & set(wanted):
            return None
        return standing

    def keep(self, workload: str, median_us: Mapping[str, float], unavailable: Mapping[str, str]) -> None:
        """Note medians of baselines that were timed together, which are all that run.

        Raises OSError.
        """
        standing = Standing(dict(median_us), dict(unavailable), self._store.now())
        self._store.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._store.directory, prefix=".new-", delete=False) as file:
            json.dump(asdict(standing), file)
        os.replace(file.name, self._file(workload))

    def compare(self, workload: str, name: str, median_us: float) -> None:
        """Note a later median of one baseline: where it no longer fits, the record is forgotten."""
        standing = self.find(workload, [name])
        if standing is None or name not in standing.median_us:
            return
        before = standing.median_us[name]
        if abs(median_us - before) > DRIFT * before:
            with contextlib.suppress(FileNotFoundError):  # another judge was first
                self._file(workload).unlink()
        else:
            cache_pruning.touch(self._file(workload))

    def _file(self, workload: str) -> Path:
        identity = json.dumps([*self._identity, workload], sort_keys=True)
        return self._store.directory / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
