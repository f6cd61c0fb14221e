"""Logs of every process: one configuration, lines that carry search, node and attempt ids, and trace ids.

On a terminal they are for people, elsewhere one JSON object a line. Libraries that log through `logging` come out
alike.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import structlog
from structlog.typing import Processor

from warpsmith.workers import tracing
from warpsmith.workers.settings import Settings

NOISY = ("amqp", "kombu", "celery.redirected", "httpx", "httpcore", "openai", "alembic", "urllib3")
"""Libraries whose routine messages are dropped: only their warnings and errors are logged."""

# Frames without their locals: those may hold keys, prompts and whole replies.
_TRACEBACKS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)


class _CurrentStderr(io.TextIOBase):
    """Standard error as it is when a line is written: who replaces it may have closed the one of before."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def isatty(self) -> bool:
        return sys.stderr.isatty()

    def flush(self) -> None:
        sys.stderr.flush()


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Send `logging` and structlog to `stream`, in the form and from the level of `settings`.

    `stream` defaults to standard error. Idempotent.
    """
    out = _CurrentStderr() if stream is None else stream
    human = settings.log_format == "human" or (settings.log_format == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        *([] if settings.otlp_endpoint is None else [tracing.stamp]),
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if human
        else [structlog.processors.ExceptionRenderer(_TRACEBACKS), structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Celery announces every received and finished task; the steps say it with their ids.
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


@contextmanager
def bound(**ids: object) -> Iterator[None]:
    """Add `ids` to every line that is logged inside the block."""
    with structlog.contextvars.bound_contextvars(**ids):
        yield
