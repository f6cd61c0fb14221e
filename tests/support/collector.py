"""A stand-in of an OpenTelemetry collector: takes spans by OTLP over HTTP and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """One span; ids in hexadecimal, `parent` empty for the first of a trace, `links`: the linked spans' traces."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, str]
    status: str
    events: int


@dataclass
class Collector:
    """What came in."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Seen]:
        """Every span so far."""
        found = []
        for body in list(self.bodies):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                (service,) = (a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
                found += [_read(service, span) for scope in resource.scope_spans for span in scope.spans]
        return found


def _read(service: str, span: Any) -> Seen:
    return Seen(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple(link.trace_id.hex() for link in span.links),
        attributes={a.key: str(getattr(a.value, a.value.WhichOneof("value"))) for a in span.attributes},
        status=span.status.message,
        events=len(span.events),
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                collector.bodies.append(body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
