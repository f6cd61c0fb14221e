"""Reference runners that stay warm between jobs, as compiling baselines takes seconds."""

from __future__ import annotations

import json
import time

from warpsmith.kernels_db.job.documents import JobOp
from warpsmith.workers.judge.reference import expert_packages
from warpsmith.workers.judge.reference.baselines import OpRunners

KEEP_OPS, KEEP_S = {"cpu": 2, "cuda": 8}, 120.0
"""Ops whose runners stay warm, and for how many seconds.

Few where they share the cores and the memory with a timed workload.
"""


class WarmOps:
    """The last KEEP_OPS ops of a device, each kept for KEEP_S after its last job."""

    def __init__(self) -> None:
        self._ops: dict[str, OpRunners] = {}

    def __len__(self) -> int:
        return len(self._ops)

    def find(self, op: JobOp) -> OpRunners | None:
        """Return the runners of an op, where they are warm, for another job."""
        found = self._ops.get(_warm_key(op))
        if found is not None:
            found.forget_passing()
        return found

    def keep(self, op: JobOp, runners: OpRunners) -> None:
        """Keep the runners of an op in use; the least recently used beyond KEEP_OPS end."""
        key = _warm_key(op)
        self._ops.pop(key, None)
        self._ops[key] = runners
        runners.used_at = time.monotonic()
        while len(self._ops) > KEEP_OPS[runners.device.type]:
            self._ops.pop(next(iter(self._ops))).close()

    def drop_broken(self) -> None:
        """Run `OpRunners.drop_broken` on all."""
        for runners in self._ops.values():
            runners.drop_broken()

    def end_others(self, op: JobOp) -> None:
        """End the runners of every other op: their contexts hold memory that this one needs."""
        own = _warm_key(op)
        for key in [key for key in self._ops if key != own]:
            self._ops.pop(key).close()

    def forget(self, runners: OpRunners) -> None:
        """End an op's runners now."""
        self._ops = {key: kept for key, kept in self._ops.items() if kept is not runners}
        runners.close()

    def end_idle(self) -> None:
        """End runners that were idle for KEEP_S."""
        for runners in [kept for kept in self._ops.values() if time.monotonic() - kept.used_at > KEEP_S]:
            self.forget(runners)

    def close(self) -> None:
        """End all."""
        for runners in list(self._ops.values()):
            self.forget(runners)


def _warm_key(op: JobOp) -> str:
    kept = [op["digest"], op["reference"], op["math"], op.get("experts"), expert_packages.versions(op)]
    return json.dumps(kept, sort_keys=True)
