"""The HTTP client against a real HTTP server that drops streams, pages lists and answers problems."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from warpsmith.service.client import http as client_module
from warpsmith.service.client.errors import ProblemError, ServiceUnreachableError, describe_problem
from warpsmith.service.client.http import Client

EVENTS = 7


class Handler(BaseHTTPRequestHandler):
    """Streams two events a connection, then drops it without an end; lists two items a page."""

    protocol_version = "HTTP/1.0"
    resumed_after: list[str | None]
    busy: list[int]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path == "/v1/searches/sr_1/events":
            self.stream()
        elif url.path == "/v1/searches/sr_1":
            self.answer(200, search_document("finished" if self.resumed_after[-1] == str(EVENTS) else "running"))
        elif url.path == "/v1/asks":
            start = int(query.get("after", ["0"])[0])
            items = [ask(index) for index in range(start, min(start + 2, 5))]
            self.answer(200, {"items": items, "next": str(start + 2) if start + 2 < 5 else None})
        elif url.path == "/v1/kernels" or url.path.startswith("/v1/searches/sr_2"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")
        else:
            error = {"field": "query.limit", "found": 0, "expected": "1 to 200"}
            self.answer(
                422, {"title": "A field is wrong", "type": "urn:warpsmith:problem:invalid-input", "errors": [error]}
            )

    def stream(self) -> None:
        if self.busy:
            self.answer(self.busy.pop(), {"title": "Too many open event streams"})
            return
        last = self.headers["Last-Event-ID"]
        self.resumed_after.append(last)
        first = int(last or 0) + 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if first <= EVENTS:
            self.send_header("Content-Length", "1000000")  # the connection ends before: a drop, not an end
        self.end_headers()
        self.wfile.write(b": comment\n\n")
        for number in range(first, min(first + 2, EVENTS + 1)):
            document = {"id": number, "type": "node.created", "search_id": "sr_1", "node_id": None}
            data = json.dumps(document | {"payload": {}, "created_at": 0.0})
            self.wfile.write(f"id: {number}\nevent: node.created\ndata: {data}\n\n".encode())

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def ask(index: int) -> dict[str, Any]:
    times = {"created_at": 0.0, "answered_at": None, "answered_by": None}
    place = {
        "search_id": "sr_1",
        "op_name": "softmax",
        "target": "cpu:x86_64",
        "node_id": "nd_1",
        "seq": 1,
        "title": None,
    }
    return {"id": f"ak_{index}", "kind": "code", "state": "open", **place, **times}


def search_document(state: str) -> dict[str, Any]:
    spend = {"candidates": 0, "model_calls": 0, "tokens": 0, "cost_usd": 0.0, "wall_clock_s": 0.0}
    names = {"id": "sr_1", "op_id": "op_1", "op_name": "x", "target": "cpu:x86_64", "language": "cpp", "state": state}
    progress = {"problem": None, "policy": {}, "budget": {}, "model": {}, "round": 0, "nodes": 0, "best": None}
    lists = {"nodes_by_state": {}, "nodes_by_verdict": {}, "baselines": [], "kernels": [], "waiting_for": []}
    rest = {"reason": None, "best_score": None, "spend": spend, "created_at": 0.0, "updated_at": 0.0}
    return names | progress | lists | rest


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setattr(client_module, "RECONNECT_FIRST_S", 0.01)
    monkeypatch.setattr(client_module, "RECONNECT_LONGEST_S", 0.02)
    monkeypatch.setattr(Handler, "resumed_after", [], raising=False)
    monkeypatch.setattr(Handler, "busy", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(server: ThreadingHTTPServer) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.server_address[1]}/") as client:
        yield client


def test_a_dropped_stream_is_resumed_without_loss_or_repetition(client: Client) -> None:
    assert [event.id for event in client.follow("sr_1")] == list(range(1, EVENTS + 1))
    assert Handler.resumed_after == [None, "2", "4", "6", "7"]


def test_a_busy_service_is_asked_again(client: Client) -> None:
    Handler.busy.extend([429, 503])
    assert [event.id for event in client.follow("sr_1")] == list(range(1, EVENTS + 1))


def test_a_stream_of_no_search_is_an_error(client: Client) -> None:
    with pytest.raises(ProblemError):
        list(client.follow("sr_2"))


@pytest.mark.parametrize("text", ["../kernels", "sr_1/events", "sr_1?x=1", "#7", "sr_1%2Ftree", "", "sr 1", "sr_\n"])
def test_an_id_names_no_other_path(client: Client, text: str) -> None:
    for read in (client.search, client.tree, client.ask, client.node, client.export_pool):
        with pytest.raises(ProblemError, match=r"id: found .*, expected one such as sr_") as caught:
            read(text)
        assert caught.value.status == 404


def test_lists_are_read_to_their_last_page(client: Client) -> None:
    assert [item.id for item in client.asks()] == [f"ak_{index}" for index in range(5)]


def test_problems_name_field_found_and_expected(client: Client) -> None:
    with pytest.raises(ProblemError, match=r"query.limit: found 0, expected 1 to 200") as raised:
        client.node("nd_1")
    assert raised.value.status == 422


def test_another_servers_answer_is_told_apart(client: Client) -> None:
    with pytest.raises(ProblemError, match="not JSON"):
        client.kernels()


def test_a_certificate_of_an_unknown_authority_is_told_as_that() -> None:
    why = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate"
    told = str(ServiceUnreachableError("https://kernels.example", ssl.SSLCertVerificationError(1, why)))
    assert "SSL_CERT_FILE" in told
    assert "warpsmith up" not in told


def test_nothing_at_the_url_says_what_to_do() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceUnreachableError, match="warpsmith up"):
        client.ready()


def test_a_service_that_stays_away_is_given_up(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RECONNECT_FOR_S", 0.05)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceUnreachableError):
        list(client.follow("sr_1"))


def test_problems_without_fields_have_a_title() -> None:
    assert describe_problem(404, {"title": "Not found", "detail": "no search sr_9"}) == "Not found: no search sr_9"
    assert describe_problem(500, {}) == "HTTP 500"


def test_a_page_where_a_stream_was_expected_is_not_asked_again(client: Client) -> None:
    with pytest.raises(ProblemError, match="not JSON"):
        list(client.follow("sr_2"))
