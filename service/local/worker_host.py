"""`warpsmith worker`: one judge worker for each device of this host, restarted where it dies, drained where it is told.

    judge                a Celery worker for this host's processor
    compile              beside it, one for tries that only compile
    judge-gpuN           one for each CUDA GPU; it sees that GPU alone
    judge-gpuN-migM      one for each MIG slice

They pull steps of their target, so the idle one takes the next. All end with this process, however it ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.local.launcher import (
    DEATHS_BEFORE_GIVING_UP,
    GPU_CONCURRENCY,
    LEFT_TO_COMPILE_WORKER,
    StartError,
    build_compile_command,
    build_worker_command,
    has_compile_worker,
)
from warpsmith.service.local.supervisor import ChildSpec, Supervisor
from warpsmith.workers.judging import machine
from warpsmith.workers.queue.heartbeat import drain
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.settings import ALIVE_AFTER_S, Settings

# A drain has no limit of time; this is for the second signal, which does not wait for steps.
STOP = ((signal.SIGQUIT, 3.0),)


@dataclass(frozen=True)
class Device:
    """A device that a worker serves; `visible` is its value of CUDA_VISIBLE_DEVICES, None of the processor.

    `compiles`: by tries that only compile, which need no more of the device than a compiler does.
    """

    worker: str
    target: str
    name: str
    visible: str | None
    compiles: bool = False


def cpu_device() -> Device:
    """Return this host's processor."""
    target = machine.cpu_target()
    described = machine.describe_device(target) or {}
    return Device("judge", target, str(described.get("name", "processor")), None)


def compile_device(device: Device) -> Device:
    """Return what the compile worker beside a processor's judge serves."""
    return replace(device, worker="compile", compiles=True)


def gpu_device(gpu: machine.Gpu) -> Device:
    """Return a GPU, or a slice of one."""
    return Device(f"judge-{gpu.label}", gpu.target, gpu.name, gpu.uuid)


class WorkerHost:
    """The workers of this host. Use it from the main thread: start, poll until it says that all have ended."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        devices: Sequence[Device],
        host: str,
        report: Callable[[str], None],
    ) -> None:
        home = settings.home.expanduser().resolve()
        self._devices = [*devices]
        if has_compile_worker(settings):
            self._devices += [compile_device(device) for device in devices if device.visible is None]
        self._host = host
        self._report = report
        self._environment = {**environment, "WARPSMITH_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        self._supervisor = Supervisor(home / "logs", report)
        self._db = Database(settings.database)
        self._started_at = 0.0
        self._silent = {device.worker: device for device in self._devices}
        self._leaves_compiling = len(self._devices) > len(devices)

    def start(self) -> None:
        """Start a worker for each device."""
        self._started_at = time.time()
        for device in self._devices:
            self._supervisor.start(self._make_spec(device))

    def poll(self) -> bool:
        """Restart workers that died; return whether any is left. Call it several times a second.

        Raises StartError where one dies again and again before it has reported once.
        """
        self._supervisor.poll()
        if self._silent:
            self._await_reports()
        return not self._supervisor.has_ended()

    def drain(self) -> None:
        """Have every worker end what it has in hand, and take nothing more."""
        now = time.time()
        try:
            with self._db.writing() as session:
                for device in self._devices:
                    drain(session, self._name(device), now - ALIVE_AFTER_S, now)
        except (SQLAlchemyError, StorageFull) as error:
            # Lists will call them silent in place of drained.
            self._report(f"the database was not told of the drain: {str(error).splitlines()[0]}")
        self._supervisor.end(signal.SIGTERM)

    def stop(self) -> None:
        """End every worker now; returns when none is left. Unfinished steps return to the queue as leases end."""
        self._supervisor.stop(*self._supervisor.names())
        self._db.dispose()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the workers that run now, by name."""
        return self._supervisor.pids()

    def _make_spec(self, device: Device) -> ChildSpec:
        if device.compiles:
            command = build_compile_command(device.target, host=self._host)
            return ChildSpec(device.worker, command, self._environment, STOP, may_end=True)
        queue = judge_queue(device.target)
        if device.visible is None:
            command = build_worker_command(queue, device.worker, 1, host=self._host)
            environment = self._environment | (LEFT_TO_COMPILE_WORKER if self._leaves_compiling else {})
            return ChildSpec(device.worker, command, environment, STOP, may_end=True)
        command = build_worker_command(queue, device.worker, GPU_CONCURRENCY, "threads", host=self._host)
        environment = {**self._environment, "CUDA_VISIBLE_DEVICES": device.visible}
        return ChildSpec(device.worker, command, environment, STOP, may_end=True)

    def _name(self, device: Device) -> str:
        return f"{device.worker}@{self._host}"

    def _await_reports(self) -> None:
        """Tell of workers that have reported for the first time."""
        names = {self._name(device): device for device in self._silent.values()}
        query = select(WorkerRow.name).where(WorkerRow.name.in_(names), WorkerRow.started_at >= self._started_at)
        try:
            with self._db.reading() as session:
                reported = session.scalars(query).all()
        except SQLAlchemyError:
            reported = []  # the workers wait for it as well
        for name in reported:
            device = self._silent.pop(names[name].worker)
            serves = f"compiles on {device.target}" if device.compiles else f"serves {device.target}"
            self._report(f"{name} {serves}: {device.name}")
        for worker in self._silent:
            deaths = self._supervisor.failures(worker)
            if deaths >= DEATHS_BEFORE_GIVING_UP:
                log = self._supervisor.log_path(worker)
                raise StartError(
                    f"{worker} died {deaths} times; the end of its log ({log}):\n{self._supervisor.log_tail(worker)}"
                )


def choose_devices(wanted: str, found: Sequence[machine.Gpu]) -> list[Device]:
    """Return the devices that `--gpu` names: all, none (the processor), or GPUs and slices by index or UUID.

    Raises ValueError, with what was expected.
    """
    if wanted == "none":
        return [cpu_device()]
    listed = ", ".join(f"{gpu.uuid} ({gpu.label}, {gpu.name})" for gpu in found)
    if not found:
        fault = machine.driver_fault() or "no CUDA GPU is found"
        raise ValueError(f"GPUs on this host, where {fault}; without one: --gpu none judges on the processor")
    if wanted == "all":
        return [gpu_device(gpu) for gpu in found]
    names = [name.strip() for name in wanted.split(",")]
    chosen = machine.select_visible(found, wanted)
    if len(chosen) != len(set(names)):
        raise ValueError(f"all, none, or some of {listed}, by index or UUID with a comma between")
    return [gpu_device(gpu) for gpu in chosen]


def clear_environment(environment: os._Environ[str], dropped: Sequence[str]) -> dict[str, str]:
    """Return the environment for workers: without keys and tokens, which none of them needs."""
    return {name: value for name, value in environment.items() if name not in dropped}
