"""Requests that two parsers may read differently: the door refuses them, whatever parses its HTTP.

A proxy and a server that disagree about where a request ends let one hide in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.api.test_door import LIMITS, connect, door, everything

HOST = b"Host: 127.0.0.1\r\n"
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
"""What would be answered beside the request, were it to end too early; then the server closes."""


def get(*lines: bytes, first: bytes = b"GET /healthz HTTP/1.1") -> bytes:
    """A request without a body."""
    return b"\r\n".join((first, HOST.rstrip(), *lines, b"", b""))


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """A request with a body."""
    return get(*lines, first=b"POST /v1/pools HTTP/1.1") + body


CHUNKED = b"Transfer-Encoding: chunked"
REFUSED = {
    "a folded first header": b"GET /healthz HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n",
    "a space before a colon": get(b"X-A : b"),
    "a tab before a colon": get(b"Content-Length\t: 0"),
    "a header without a colon": get(b"X-A"),
    "a header without a name": get(b": b"),
    "a name with a space": get(b"X A: b"),
    "a name that is not ASCII": get(b"X-\xc3\xa4: b"),
    "a NUL in a value": get(b"X-A: b\x00c"),
    "a return in a value": get(b"X-A: b\rc"),
    "a form feed in a value": get(b"X-A: b\x0cc"),
    "two lengths": post(b"Content-Length: 2", b"Content-Length: 90", body=b"{}" + HIDDEN),
    "two lengths in one": post(b"Content-Length: 2, 90", body=b"{}" + HIDDEN),
    "a length with a sign": post(b"Content-Length: +2", body=b"{}" + HIDDEN),
    "a negative length": post(b"Content-Length: -2", body=b"{}" + HIDDEN),
    "a length in hexadecimal": post(b"Content-Length: 0x2", body=b"{}" + HIDDEN),
    "a length with a space": post(b"Content-Length: 1 0", body=b"{}" + HIDDEN),
    "a length with an underscore": post(b"Content-Length: 1_0", body=b"{}" + HIDDEN),
    "an empty length": post(b"Content-Length:", body=HIDDEN),
    "a length of other digits": post(b"Content-Length: \xd9\xa2", body=b"{}" + HIDDEN),
    "a length of 21 digits": post(b"Content-Length: " + b"9" * 21, body=b"{}" + HIDDEN),
    "two encodings": post(CHUNKED, CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "chunks within gzip": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + HIDDEN),
    "an unknown encoding": post(b"Transfer-Encoding: x", body=b"0\r\n\r\n" + HIDDEN),
    "chunks, and a mark of another encoding": post(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n" + HIDDEN),
    "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": get(b"Host: evil.example"),
    "a NUL in Host": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\x00\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2.0 in words": get(first=b"GET /healthz HTTP/2.0x"),
    "two spaces in the line": get(first=b"GET  /healthz HTTP/1.1"),
    "a tab in the line": get(first=b"GET\t/healthz HTTP/1.1"),
    "a space in the target": get(first=b"GET /heal thz HTTP/1.1"),
    "a target that is not ASCII": get(first=b"GET /\xff HTTP/1.1"),
    "a method with a colon": get(first=b"GE:T /healthz HTTP/1.1"),
    "a small protocol": get(first=b"GET /healthz http/1.1"),
    "an empty line first": b"\r\n" + get(),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 64 + b"\r\n\r\n",
    "a head above the limit": get(b"X-A: " + b"a" * 2**17),
}
"""Heads that are answered with 400, and the connection closed."""

BAD_CHUNKS = {
    "a size with a sign": b"+2\r\n{}\r\n0\r\n\r\n",
    "a size in other digits": b"0x2\r\n{}\r\n0\r\n\r\n",
    "a size after a space": b" 2\r\n{}\r\n0\r\n\r\n",
    "no size": b"\r\n{}\r\n0\r\n\r\n",
    "a size of 21 digits": b"0" * 20 + b"2\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": b"2\r\n{}x\r\n0\r\n\r\n",
    "a chunk shorter than its size": b"3\r\n{}\r\n0\r\n\r\n",
    "an extension that holds a line": b"2;a=\n{}\r\n0\r\n\r\n",
}
"""Bodies that break off where they are wrong: what follows them is no request."""


SERVED = {
    "a folded header": (200, get(b"X-A: b", b" c")),
    "line ends without a return": (200, b"GET /healthz HTTP/1.1\nHost: 127.0.0.1\n\n"),
    "an absolute target": (404, get(first=b"GET http://127.0.0.1/healthz HTTP/1.1")),
    "the same length twice": (415, post(b"Content-Length: 2", b"Content-Length: 2", body=b"{}")),
    "chunks and a length": (415, post(b"Content-Length: 90", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n")),
    "chunks in capitals": (415, post(b"Transfer-Encoding: CHUNKED", body=b"2\r\n{}\r\n0\r\n\r\n")),
    "a chunk's extension": (415, post(CHUNKED, body=b"2;a=b\r\n{}\r\n0\r\n\r\n")),
    "trailers": (415, post(CHUNKED, body=b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n")),
}
"""Requests that are answered with this status, and end where HIDDEN begins."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), LIMITS) as found:
        yield found


def statuses(port: int, sent: bytes) -> list[int]:
    """The statuses of all answers to what is sent, until the server closes."""
    with connect(port) as connection:
        connection.sendall(sent)
        return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", everything(connection))]


@pytest.mark.parametrize("name", REFUSED)
def test_a_head_that_can_be_read_in_two_ways_is_refused(port: int, name: str) -> None:
    assert statuses(port, REFUSED[name] + HIDDEN) == [400]


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_nothing_follows_a_body_whose_chunks_are_wrong(port: int, name: str) -> None:
    assert 200 not in statuses(port, post(CHUNKED, body=BAD_CHUNKS[name]) + HIDDEN)


@pytest.mark.parametrize("name", SERVED)
def test_what_follows_a_request_is_the_next_one(port: int, name: str) -> None:
    status, sent = SERVED[name]
    assert statuses(port, sent + HIDDEN) == [status, 200]
