"""OpenTelemetry traces of requests, messages and steps; off unless `otlp_endpoint` is set.

A request's trace goes on in the messages that it sends and in the steps that they bring about, down to the verdict.
A step that another step or the reconciler announced has a trace of its own, linked to the request that submitted the
search: a search takes hours, and no trace should. Between processes the context travels as W3C `traceparent`, in the
headers of Celery's messages.

Attributes are ids, names, kinds and numbers. Prompts, sources, replies and texts of errors, which may quote them, are
never in one.

The packages are the extra `otel`; nothing of them is imported while traces are off. The instrumentation of Celery that
OpenTelemetry has is not used: a span of a message that is sent by name never ends there, and stays the parent of all
that follows in its thread.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from warpsmith.workers.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

Kind = Literal["INTERNAL", "PRODUCER", "CONSUMER", "CLIENT"]
Note = Callable[..., None]
"""Adds attributes to a span; those that are None are left out."""

MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "opentelemetry.instrumentation.fastapi")

_provider: TracerProvider | None = None


class TracingUnavailable(Exception):  # noqa: N818 - named for what it is
    """Traces are switched on where their packages are not installed."""


def start(settings: Settings, process: str, exporter: SpanExporter | None = None) -> TracerProvider | None:
    """Send this process's spans to `otlp_endpoint`, as the service `warpsmith-<process>`; None where it is not set.

    After a fork, each child starts its own. The SDK reads its usual variables (OTEL_TRACES_SAMPLER,
    OTEL_EXPORTER_OTLP_HEADERS, ...). Raises TracingUnavailable where the extra is missing.
    """
    global _provider  # noqa: PLW0603 - one per process, as OpenTelemetry's own is
    if settings.otlp_endpoint is None:
        return None
    if not all(map(_is_there, MODULES)):
        raise TracingUnavailable(
            f"otlp_endpoint: found {settings.otlp_endpoint!r} without OpenTelemetry's packages, "
            "expected them installed: pip install 'warpsmith[otel]'"
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({"service.name": f"warpsmith-{process}", "service.version": version("warpsmith")})
    provider = TracerProvider(resource=resource)
    exporter = exporter or OTLPSpanExporter(endpoint=f"{settings.otlp_endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _provider = provider
    return provider


def stop() -> None:
    """Send what is left and end; nothing where traces are off."""
    global _provider  # noqa: PLW0603
    if _provider is not None:
        _provider.shutdown()
        _provider = None


def is_on() -> bool:
    """Whether this process makes spans."""
    return _provider is not None


@contextmanager
def span(name: str, kind: Kind = "INTERNAL", link: str | None = None) -> Iterator[Note]:
    """Make a span of the block; yields what adds attributes (`warpsmith.<name>`) to it.

    `link`: a `traceparent` that it is linked to. An exception that leaves the block marks it as failed, by its type
    alone: its text may quote a prompt or a source.
    """
    if _provider is None:
        yield _ignore
        return
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    found = trace.Link(_context_of(link)) if link is not None else None
    with _provider.get_tracer("warpsmith").start_as_current_span(
        name,
        kind=trace.SpanKind[kind],
        links=[found] if found is not None and found.context.is_valid else [],
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield _noting(made)
        except BaseException as error:
            made.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


@contextmanager
def continued(headers: Mapping[str, Any]) -> Iterator[None]:
    """Go on in the trace of these headers; in none where they have none, whatever surrounds the block."""
    if _provider is None:
        yield
        return
    from opentelemetry import context, propagate  # noqa: PLC0415 - an extra

    token = context.attach(propagate.extract(headers, context=context.Context()))
    try:
        yield
    finally:
        context.detach(token)


def headers() -> dict[str, str]:
    """Return the headers by which another process goes on in this trace; empty where there is none."""
    carrier: dict[str, str] = {}
    if _provider is not None:
        from opentelemetry import propagate  # noqa: PLC0415 - an extra

        propagate.inject(carrier)
    return carrier


def traceparent() -> str | None:
    """Return the W3C `traceparent` of the current span; None where there is none."""
    return headers().get("traceparent")


def stamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add `trace_id` and `span_id` to a line of the log (a processor of structlog)."""
    if _provider is not None:
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        current = trace.get_current_span().get_span_context()
        if current.is_valid:
            event["trace_id"] = trace.format_trace_id(current.trace_id)
            event["span_id"] = trace.format_span_id(current.span_id)
    return event


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _context_of(parent: str) -> Any:
    from opentelemetry import context, propagate, trace  # noqa: PLC0415 - an extra

    extracted = propagate.extract({"traceparent": parent}, context=context.Context())
    return trace.get_current_span(extracted).get_span_context()


def _noting(made: Span) -> Note:
    def note(**attributes: Any) -> None:
        for name, value in attributes.items():
            if value is not None:
                made.set_attribute(f"warpsmith.{name}", value)

    return note


def _ignore(**_: Any) -> None:
    """Take attributes of a span that is not made."""
