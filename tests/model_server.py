"""A small OpenAI-compatible server for tests: real HTTP on a free port, answering from a script.

    with ModelServer([ok("hello"), status(429, retry_after="0"), raw(b"{")]) as server:
        ... base_url=server.url ...
        server.requests[0].body["messages"]

Each request takes the next answer of the script; the last answer repeats. A `default` function may answer by the
request instead.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "sk-test-0123456789"


@dataclass(frozen=True)
class Answer:
    """One scripted answer. `delay_s` passes before the head; `pause_s` between the chunks of the body.

    `close` hangs up unanswered.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    chunks: int = 1
    pause_s: float = 0.0
    close: bool = False
    cut: bool = False  # hang up after half of the body


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def completion(
    text: str | None, *, finish_reason: str = "stop", model: str = "gpt-5-2025-08-07", **message: Any
) -> dict[str, Any]:
    """A chat completion's document. Usage: 1,000 prompt tokens, of them 200 cached, and 500 completion tokens."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 500,
            "total_tokens": 1500,
            "prompt_tokens_details": {"cached_tokens": 200},
        },
    }


def ok(text: str | None, **kwargs: Any) -> Answer:
    """A completion with `text`; keywords as for `completion`."""
    return document(completion(text, **kwargs))


def document(value: Any, **kwargs: Any) -> Answer:
    """Any JSON document."""
    return Answer(body=json.dumps(value).encode(), headers={"Content-Type": "application/json"}, **kwargs)


def raw(body: bytes, **kwargs: Any) -> Answer:
    """Bytes that call themselves JSON."""
    return Answer(body=body, headers={"Content-Type": "application/json"}, **kwargs)


def status(number: int, message: str = "no", *, retry_after: str | None = None, **error: Any) -> Answer:
    """An error in OpenAI's form."""
    headers = {"Content-Type": "application/json"} | ({"Retry-After": retry_after} if retry_after is not None else {})
    return Answer(number, json.dumps({"error": {"message": message, "type": "test", **error}}).encode(), headers)


class ModelServer:
    """The server; a context manager. `url` is its base_url, `requests` what it was asked, in order."""

    def __init__(
        self,
        script: Sequence[Answer] = (),
        *,
        default: Callable[[Request], Answer] | None = None,
        key: str | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self._script = list(script)
        self._default = default
        self._key = key
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base_url."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Answer:
        """The next answer, and note of the request."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
            return status(401, f"Incorrect API key provided: {request.headers.get('authorization', '')}")
        if self._script:
            return self._script[min(number, len(self._script) - 1)]
        if self._default is not None:
            return self._default(request)
        return status(500, "the test gave no script")


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.answer(Request(self.path, headers, body))
            if self.path != "/v1/chat/completions":
                answer = status(404, f"no such path: {self.path}")
            server.stopping.wait(answer.delay_s)
            self.close_connection = True
            if answer.close:
                return
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the client has hung up: that is what some tests want
                self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            body = answer.body[: len(answer.body) // 2] if answer.cut else answer.body
            step = max(1, -(-len(body) // answer.chunks))
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                self.wfile.flush()
                if answer.pause_s:
                    time.sleep(answer.pause_s)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
