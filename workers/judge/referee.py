"""The referee: takes jobs through the gates. It holds the seeds, the expected values, the clock and the verdict, and
runs no code but ours.

Gates, in order; the first that fails ends the job: gate, compile, memory, reference, screen, verify, time. A fork
server or a runner that is killed from outside costs one repetition of the job, not a verdict.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernels_db.job import Job, Verdict
from workers.judge import footprint, host, upkeep
from workers.judge.baselines import ReferenceFault, WarmOps
from workers.judge.candidates import Prepared, prepare
from workers.judge.contender import ContenderFault
from workers.judge.inputs import BadDistribution
from workers.judge.passage import Outcome, Passage
from workers.judge.physics import Peaks, versions
from workers.judge.processes import ForkServer, ForkServerDied
from workers.judge.starters import PROBE, Starter
from workers.judge.verdict import Report, Stopped


@dataclass(frozen=True)
class Ready:
    """A job that has passed the gates before the device, or was stopped by one of them."""

    job: Job
    report: Report
    prepared: Prepared | None
    stopped: Stopped | None


class Referee:
    """Judges jobs one after another. Close it to end every process under it."""

    def __init__(self, cache: Path, cores: int) -> None:
        """Start the fork server. `cache` keeps binaries and peaks. Raises OSError where it cannot be written."""
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        upkeep.prune(cache)
        self._cache = cache
        self._scratch = tempfile.TemporaryDirectory(prefix="warpsmith-judge-")
        scratch = Path(self._scratch.name)
        self._server = ForkServer(cores, scratch)
        self._server.start()
        self._starter = Starter(self._server, scratch, cache, cores)
        self._peaks = Peaks(cache, cores)
        self._warm = WarmOps()

    def prepare(self, job: Job) -> Ready:
        """Take a job through the gates that need no device: gate and compile. May be called from any thread, for
        several jobs at once.
        """
        report = Report(job)
        try:
            return Ready(job, report, prepare(job, report, self._cache), None)
        except Stopped as stopped:
            return Ready(job, report, None, stopped)

    def judge(self, ready: Ready) -> Verdict:
        """The verdict on a prepared job. For one thread alone."""
        outcome: Outcome = "ambiguous", "screen", "", None
        job, report = ready.job, ready.report
        for last in (False, True):
            try:
                outcome = self._judge(ready)
                break
            except ForkServerDied as death:
                self._warm.close()
                self._server.start()
                outcome = "ambiguous", "screen", f"the judge's own processes were killed twice ({death})", None
            except ContenderFault as fault:
                self._warm.close()
                outcome = _ended(fault)
                if last or not fault.external:
                    break
            except OSError as error:
                self._warm.close()
                reason = f"the judge's host refuses what it needs: {error}"
                outcome = "ambiguous", "memory", reason, {"kind": "host", "message": reason}
                break
            ready = self.prepare(job)
            report = ready.report
        word, gate, reason, failure = outcome
        return report.verdict(word, gate, reason, failure, self._peaks.document(), versions())

    def end_idle(self) -> None:
        """End what was kept warm for too long; call it while waiting for jobs."""
        self._warm.end_idle()

    def close(self) -> None:
        """End every process and remove the scratch directory."""
        self._warm.close()
        self._server.close()
        self._scratch.cleanup()

    def _judge(self, ready: Ready) -> Outcome:
        job, report, prepared = ready.job, ready.report, ready.prepared
        try:
            if ready.stopped is not None:
                raise ready.stopped
            with report.gate("memory"):
                workloads = footprint.select(job, prepared)
                allowed = footprint.check_memory(job, workloads)
            runners = self._warm.of(job["op"], lambda: self._starter.op(job, allowed))
            try:
                passage = Passage(
                    job=job,
                    report=report,
                    prepared=prepared,
                    workloads=workloads,
                    runners=runners,
                    peaks=self._peaks,
                    make=lambda source, spec, seed: self._starter.generate(job, allowed, source, spec, seed),
                    start_probe=lambda source: self._starter.probe(source, job),
                    exclusive=lambda: self._exclusive(report),
                )
                passage.reference()
                if prepared is None or job["candidate"] is None:
                    return passage.contest(None)
                source, environment = job["candidate"]["source"], prepared.environment
                return passage.contest(
                    lambda: self._starter.start("candidate", source, job, environment=environment, allowed=allowed)
                )
            finally:
                runners.unbind()
        except Stopped as stopped:
            return stopped.verdict, stopped.gate, str(stopped), stopped.failure
        except ReferenceFault as fault:  # the spec's own generator, after the reference gate
            return "rejected", "reference", f"reference: {fault}", {"kind": fault.kind, "message": str(fault)}
        except BadDistribution as bad:
            failure = {"kind": "distribution", "message": str(bad), "field": bad.field, "found": bad.dist}
            return "rejected", "reference", str(bad), failure  # type: ignore[return-value]  # the literal is a Failure

    @contextmanager
    def _exclusive(self, report: Report) -> Iterator[None]:
        """Hold this host's clock: one judge times at a time. Notes what other processes took meanwhile."""
        with open(self._cache / "timing.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = host.usage(self._server.pid)
            try:
                yield
            finally:
                report.others.append(host.share_of_others(before, host.usage(self._server.pid)))


def _ended(fault: ContenderFault) -> Outcome:
    """The outcome where a runner failed outside of any gate that could say more, or was killed from outside twice."""
    if fault.contender == "candidate":
        return "rejected", "screen", str(fault), {"kind": fault.kind, "message": str(fault)}
    if fault.contender == PROBE:
        return "ambiguous", "time", f"the memory probe failed: {fault}", None
    reason = f"reference: {fault}"
    return "rejected", "reference", reason, {"kind": fault.kind, "message": reason, "field": "reference"}


def cores_available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
