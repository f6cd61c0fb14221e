"""The kinds of faults, each done by one function that returns how it is undone, if it has to be."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.messaging import Producer
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.fleet import APIS, BEATS, LEASE_S, RECONCILERS, TARGET, WORKERS, Fleet
from benchmarks.chaos.postgresql import PostgreSQL
from benchmarks.chaos.services import Broker, Service, signal_all
from warpsmith.workers.queue_names import DUE_TASK, JUDGE_TASK, MODEL_QUEUE, MODEL_TASK, PROFILE_TASK, REVERIFY_TASK
from warpsmith.workers.queue_names import judge_queue as queue_of

LONGEST_JUMP_S = 86_400.0
DISK_MB = 16
Undo = Callable[[], None]


@dataclass
class World:
    """Everything that can be broken."""

    fleet: Fleet
    broker: Broker
    database: PostgreSQL
    luck: random.Random
    mounted: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what it does, and how long it lasts, seconds.

    `service`: the one that it needs, where that must not be away for another fault's sake.
    """

    name: str
    strike: Callable[[World], Undo | None]
    lasts_s: tuple[float, float] = (0.0, 0.0)
    needs_disk: bool = False
    service: str | None = None


def _kill_one(names: tuple[str, ...]) -> Callable[[World], None]:
    def strike(world: World) -> None:
        world.fleet.kill(world.luck.choice(names))

    return strike


def _kill_child(names: tuple[str, ...], word: str) -> Callable[[World], None]:
    def strike(world: World) -> None:
        signal_all(world.fleet.children(world.luck.choice(names), word, world.luck)[:1], signal.SIGKILL)

    return strike


def _freeze_one(names: tuple[str, ...]) -> Callable[[World], Undo]:
    def strike(world: World) -> Undo:
        members = world.fleet.members(world.luck.choice(names))
        signal_all(members, signal.SIGSTOP)
        return lambda: signal_all(members, signal.SIGCONT)

    return strike


def _service(which: str, how: str) -> Callable[[World], Undo]:
    def strike(world: World) -> Undo:
        service: Service = getattr(world, which)
        getattr(service, how)()
        return service.thaw if how == "freeze" else service.start

    return strike


def _fill(world: World) -> Undo:
    """Fill the disk of the judges' caches."""
    ballast = world.fleet.home / "disk" / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    return lambda: ballast.unlink(missing_ok=True)


def _fill_database(world: World) -> Undo:
    """Fill the disk of PostgreSQL, which may end it: it is started again when there is room."""
    ballast = world.database.directory / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()

    def undo() -> None:
        ballast.unlink(missing_ok=True)
        if not world.database.running:
            world.database.start()

    return undo


def _fill_broker(world: World) -> Undo:
    world.broker.fill()
    return world.broker.make_room


def _read_only(world: World) -> Undo:
    world.database.set_read_only(True)
    return lambda: world.database.set_read_only(False)


def _fail_over(world: World) -> Undo:
    """End every connection, and then the server: what comes up has recovered from its log."""
    with suppress(DBAPIError):
        world.database.end_connections()
    world.database.kill()
    return world.database.start


def _jump(world: World) -> Undo:
    """Set the clock of one process off, by a minute up to a day, forwards or back."""
    name = world.luck.choice((*WORKERS, *RECONCILERS, *APIS))
    seconds = world.luck.choice((-1, 1)) * world.luck.uniform(60.0, LONGEST_JUMP_S)
    file = world.fleet.clock(name)
    _write(file, f"{seconds:.3f}")
    return lambda: _write(file, "0")


def _write(file: Path, content: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(content)
    partial.replace(file)


POISON: tuple[tuple[str, str, str, dict[str, object]], ...] = (
    ("this is not JSON", "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    ("\x80\x04N.", "application/x-python-serialize", "binary", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([["at_unknown"], {}, {}]), "application/json", "utf-8", {"task": "warpsmith.unknown", "id": "poison"}),
    (json.dumps([["at_unknown"], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([["at_unknown"], {}, {}]), "application/json", "utf-8", {"task": JUDGE_TASK, "id": "poison"}),
    (json.dumps([["rv_unknown"], {}, {}]), "application/json", "utf-8", {"task": REVERIFY_TASK, "id": "poison"}),
    (json.dumps([["pf_unknown"], {}, {}]), "application/json", "utf-8", {"task": PROFILE_TASK, "id": "poison"}),
    (json.dumps([[], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([["a", "b", 3], {"of": 1}, {}]), "application/json", "utf-8", {"task": JUDGE_TASK, "id": "poison"}),
    (json.dumps([[None], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([[{"id": "\x00" * 10}], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([["at_\x00"], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps([["at_" + "x" * 100_000], {}, {}]), "application/json", "utf-8", {"task": MODEL_TASK, "id": "poison"}),
    (json.dumps({"task": MODEL_TASK}), "application/json", "utf-8", {}),
    (json.dumps([[], {}, {}]), "application/json", "utf-8", {"task": DUE_TASK, "id": "poison", "version": 99}),
    (json.dumps(17), "application/json", "utf-8", {"task": JUDGE_TASK, "id": "poison", "eta": "never"}),
)
"""Messages that no version of Warpsmith sends: body, content type, encoding, headers."""


def _poison(world: World) -> None:
    """Put every poisonous message into a queue."""
    send_poison(world.fleet.broker_url, world.luck.choice((MODEL_QUEUE, queue_of(TARGET))))


def send_poison(broker_url: str, queue: str) -> int:
    """Send every message of `POISON`; returns how many went out."""
    sent = 0
    with suppress(OSError, KombuError), Connection(broker_url, connect_timeout=3) as connection:  # type: ignore[no-untyped-call] # kombu's
        producer = Producer(connection.channel(), routing_key=queue)  # type: ignore[no-untyped-call]
        for body, content_type, encoding, headers in POISON:
            producer.publish(  # type: ignore[no-untyped-call]
                body.encode("utf-8", "surrogateescape"),
                content_type=content_type,
                content_encoding=encoding,
                headers=headers,
                exchange="",
            )
            sent += 1
    return sent


KINDS = (
    Kind("worker killed", _kill_one(WORKERS)),
    Kind("worker's child killed", _kill_child(WORKERS, "benchmarks.chaos")),
    Kind("judge killed", _kill_child(("judge-1", "judge-2"), "benchmarks.chaos.judge")),
    Kind("reconciler killed", _kill_one(RECONCILERS)),
    Kind("API killed", _kill_one(APIS)),
    Kind("beat killed", _kill_one(BEATS)),
    Kind("worker frozen beyond its lease", _freeze_one(WORKERS), (LEASE_S, 3 * LEASE_S)),
    Kind("reconciler frozen", _freeze_one(RECONCILERS), (1.0, 4.0)),
    Kind("broker crashed", _service("broker", "kill"), (0.0, 2.0), service="broker"),
    Kind("broker stopped", _service("broker", "stop"), (0.0, 2.0), service="broker"),
    Kind("broker frozen", _service("broker", "freeze"), (1.0, 5.0), service="broker"),
    Kind("broker full", _fill_broker, (1.0, 5.0), service="broker"),
    Kind("database crashed", _service("database", "kill"), (0.0, 2.0), service="database"),
    Kind("database stopped", _service("database", "stop"), (0.0, 2.0), service="database"),
    Kind("database frozen", _service("database", "freeze"), (1.0, 5.0), service="database"),
    Kind("database failed over", _fail_over, (0.5, 2.0), service="database"),
    Kind("database read-only", _read_only, (1.0, 4.0), service="database"),
    Kind("database's disk full", _fill_database, (1.0, 4.0), needs_disk=True, service="database"),
    Kind("judges' disk full", _fill, (1.0, 4.0), needs_disk=True),
    Kind("clock jumped", _jump, (2.0, 8.0)),
    Kind("poison messages", _poison, service="broker"),
)


def mount(directory: Path, megabytes: int) -> bool:
    """Mount a small file system of memory; False where that takes rights that this process lacks."""
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmount(directory: Path) -> None:
    """Take it away again."""
    command = ["umount", "--lazy", str(directory)]
    subprocess.run(command, check=False, capture_output=True)
