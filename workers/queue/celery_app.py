"""The Celery application: delivery settings, and the hooks of a worker's life.

    python -P -m warpsmith.workers.queue worker -Q model -n model@%h -c 4
    python -P -m warpsmith.workers.queue worker -Q judge.cpu-x86_64 -n judge@%h -c 1
    python -P -m warpsmith.workers.queue worker -Q compile.cpu-x86_64 -n compile@%h --pool threads -c 2
    python -P -m warpsmith.workers.queue worker -Q judge.cuda-sm_90 -n judge-gpu0@%h --pool threads -c 8
    python -P -m warpsmith.workers.queue beat

A worker of a GPU has several steps in flight, in threads that share one judge: their candidates compile beside the one
that is timed. On a CPU compilers would disturb the clock, so its worker has one. Tries that only compile have a worker
and a judge of their own there, which keeps out of the timings (`judge.machine.clock_lease`).

A message carries an attempt's id and nothing else; the database knows the rest. A message may come twice, late or
never: claiming an attempt is a conditional update, and the reconciler sends again what is still pending. So nothing
here depends on the broker keeping a promise, and any broker of Celery's will do: redis://, redis+socket://, amqp://.
"""

from __future__ import annotations

import socket
import ssl
import warnings
from typing import Any

from celery import Celery
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.exceptions import CPendingDeprecationWarning
from celery.signals import (
    beat_init,
    celeryd_after_setup,
    setup_logging,
    task_revoked,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
)

from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import log, tracing
from warpsmith.workers.queue import amqp_transport, process, redis_transport
from warpsmith.workers.queue.heartbeat import Heartbeat, Worker
from warpsmith.workers.queue.schema import await_schema
from warpsmith.workers.queue_names import DUE_TASK, MODEL_QUEUE, compile_queue, role_of, target_of
from warpsmith.workers.settings import Settings, get_settings, split_addresses
from warpsmith.workers.settings_errors import told

CONNECT_TIMEOUT_S = 4.0
BROKER_HEARTBEAT_S = 6.0
"""Seconds between heartbeats on a worker's connection to RabbitMQ, of which two may be missed.

A node that is frozen or cut off closes no connection, so nothing else tells its workers to go to another. Of Celery's
own 120 s and RabbitMQ's 60 s the lesser counts, so they stayed for two minutes; below 5 s a busy host misses some by
itself.
"""

ANSWER_TIMEOUT_S = 10.0
"""Seconds that a worker or the reconciler waits for RabbitMQ's answer, to a declaration for instance.

No heartbeat is looked for meanwhile.
"""

VISIBILITY_TIMEOUT_S = 3600.0
"""Seconds after which Redis gives an unacknowledged message to another worker.

That worker's claim then finds the step done.
"""

LOOK_WAITS_S = 86400.0
"""Expiry of a beat message in seconds; the worker that finds one expired logs the drop."""

amqp_transport.install()
redis_transport.install()

logger = log.get(__name__)


def make_app(settings: Settings, *, answer_timeout_s: float | None = None) -> Celery:
    """Make a Celery application on the broker of `settings`.

    Tasks join it from `workers.queue.tasks` when a worker starts. `answer_timeout_s` is how long a process that only
    sends waits for the broker's answers, by default ANSWER_TIMEOUT_S on RabbitMQ; a worker waits for messages as long
    as it takes.
    """
    app = Celery("warpsmith", broker=settings.broker, include=["warpsmith.workers.queue.tasks"], set_as_current=False)
    step_limit = _longest_step_s(settings)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # A message is acknowledged when its step has ended; a worker that dies leaves it to the reconciler.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_default_queue=MODEL_QUEUE,
        # Both: the queues that a worker serves, and those that a sender makes because no worker has yet.
        task_default_queue_type=settings.queue_type,
        task_create_missing_queue_type=settings.queue_type,
        task_time_limit=step_limit,
        worker_prefetch_multiplier=1,
        # A step's commits are safe whether or not the broker is there.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_consumer="warpsmith.workers.queue.consumer:Consumer",
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A Redis without memory, or that cannot write its disk, answers commands with errors: they end no worker.
        broker_channel_error_retry=settings.broker.startswith("redis"),
        broker_connection_timeout=CONNECT_TIMEOUT_S,
        broker_heartbeat=BROKER_HEARTBEAT_S,
        broker_use_ssl=_tls_options(settings),
        broker_transport_options=_transport_options(settings, answer_timeout_s),
        timezone="UTC",
        beat_schedule=_schedule(settings),
        # It remembers nothing: the due kernels are in the database, so a new beat loses no more than time.
        beat_scheduler="celery.beat:Scheduler",
    )
    return app


def _schedule(settings: Settings) -> dict[str, Any]:
    """Return the messages that Celery beat sends, and how often."""
    interval_s = settings.reverify_interval_s
    if interval_s == 0:
        return {}
    # It waits for the model steps before it. Where no worker serves that queue, old messages do not fill the broker.
    options = {"queue": MODEL_QUEUE, "expires": max(LOOK_WAITS_S, interval_s), "ignore_result": True}
    return {"reverify": {"task": DUE_TASK, "schedule": interval_s, "options": options}}


def _longest_step_s(settings: Settings) -> float:
    """Bound the seconds of any step, beyond which its process is killed.

    Each part has its own, shorter limit.
    """
    model = 3 * settings.model_timeout_s * (settings.model_retries + 1)
    return max(model, settings.judge_job_timeout_s) + 60.0


def _tls_options(settings: Settings) -> dict[str, Any] | None:
    """Return how the broker's certificate is checked: always and by name, where the address asks for TLS."""
    authority = None if settings.tls_ca is None else str(settings.tls_ca)
    if settings.broker.startswith("rediss:"):
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, "ssl_ca_certs": authority}
    if settings.broker.startswith("amqps:"):
        # None: the name of the address is the one that the certificate must have.
        return {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None, "ca_certs": authority}
    return None


def _transport_options(settings: Settings, answer_timeout_s: float | None) -> dict[str, Any]:
    broker = settings.broker
    if not broker.startswith("redis"):
        limits = dict.fromkeys(("read_timeout", "write_timeout"), answer_timeout_s or ANSWER_TIMEOUT_S)
        # A quorum queue confirms a message when most of its nodes have it; before, a node's death may lose it.
        confirm = {"confirm_publish": True} if settings.queue_type == "quorum" else {}
        # A node that is cut off keeps a process from the next one no longer than its part of the time.
        return {"connect_timeout": CONNECT_TIMEOUT_S / len(split_addresses(broker)), **limits, **confirm}
    return {
        **({} if answer_timeout_s is None else {"socket_timeout": answer_timeout_s}),
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": broker.startswith(("redis://", "rediss://")),
        "health_check_interval": 10,
    }


with told():  # here, for whoever imports it
    app = make_app(get_settings())


def _configure_logging(**_: Any) -> None:
    # Celery announces at every lost connection that Celery 6 will cancel running tasks; the choice is made above.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
    log.configure(get_settings())


def _set_up_worker(sender: str, instance: Any, **_: Any) -> None:
    """Set up the worker's own process, before there is a pool.

    Its role follows from the queues that it serves. A judge serves its target's compile queue as well, where these
    tries are not left to workers of their own.
    """
    served = instance.app.amqp.queues
    first = next(iter(served.consume_from))
    role, target = role_of(first), target_of(first)
    compiles = target is not None and (role == "compile" or get_settings().judge_compiles is not False)
    process.worker = Worker(sender, role, target, slots=instance.concurrency, compiles=compiles)
    if target is not None and compiles and role == "judge":
        served.select_add(served.new_missing(compile_queue(target)))
    database = Database(get_settings().database)
    await_schema(database)
    database.dispose()  # before the pool forks
    if issubclass(instance.pool_cls, ThreadPool):
        _start_tracing()
        process.open_worker(get_settings())


def _start_tracing() -> None:
    tracing.start(get_settings(), process.worker.role)


def _note_consumer(sender: Any, **_: Any) -> None:
    if issubclass(sender.controller.pool_cls, ThreadPool):
        process.consumer = sender


def _open_child(**_: Any) -> None:
    _start_tracing()
    process.open_child(get_settings())


def _close_process(**_: Any) -> None:
    process.close_process()
    tracing.stop()


def _tell_late(sender: Any, expired: bool, **_: Any) -> None:
    if expired:
        logger.warning("a message lay too long in its queue and was dropped", task=sender.name)


def _report_beat(**_: Any) -> None:
    """Report beat as alive until it dies, as every process does; it does no step."""
    beat = Worker(f"beat@{socket.gethostname()}", "beat")
    Heartbeat(Database(get_settings().database), beat).start()


setup_logging.connect(_configure_logging)
celeryd_after_setup.connect(_set_up_worker)
worker_ready.connect(_note_consumer)
worker_process_init.connect(_open_child)
worker_process_shutdown.connect(_close_process)
worker_shutdown.connect(_close_process)
beat_init.connect(_report_beat)
task_revoked.connect(_tell_late)
