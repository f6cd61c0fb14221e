"""Requests that lie, smuggle, replay or ask for too much; each says what must not come back."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.door.attack import Finding
from benchmarks.door.server import Bystander, Target
from warpsmith.service.api.submission import ADD_RELU

JSON = {"Content-Type": "application/json"}
EVIL = "https://evil.example"
Outcome = tuple[bool, str]
LONGEST_OTHERS_S = 3.0


def _head(target: Target, *lines: str, method: str = "POST", path: str = "/v1/ops/validate") -> bytes:
    usual = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {target.key}")
    return "\r\n".join((*usual, "Content-Type: application/json", *lines, "", "")).encode()


def _statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


def _smuggle(target: Target, lines: tuple[str, ...], body: bytes) -> Outcome:
    """A proxy and the server must not see different numbers of requests: the inner one is never answered."""
    found = _statuses(target.exchange(_head(target, *lines) + body, 2.0))
    return 200 not in found[1:] and len(found) <= 2, f"answers {found}"


INNER = b"GET /v1/ops HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Inner: 1\r\n\r\n"


def _many_headers(target: Target, head: bytes) -> Outcome:
    found = target.exchange(_head(target, method="GET")[:-2] + head, 3.0)
    return _statuses(found)[:1] in ([400], [431], []), f"answers {_statuses(found)}"


def _bomb(target: Target) -> Outcome:
    before = target.memory_mb()
    body = gzip.compress(bytes(500 * 2**20), 6)
    answer = target.ask("POST", "/v1/ops", body[: 2**20], {**JSON, "Content-Encoding": "gzip"})
    grown = target.memory_mb() - before
    return (
        400 <= answer.status < 500 and grown < 100,
        f"{answer.status} to {len(body) / 2**20:.1f} MiB of 500, {grown:+.0f} MB",
    )


def _traverse(target: Target) -> Outcome:
    paths = (
        "/../../../../etc/passwd",
        "/assets/..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/assets/..%5c..%5cetc%5cpasswd",
        "/assets/%00/etc/passwd",
        "/assets/%c0%ae%c0%ae/etc/passwd",
    )
    answers = [target.exchange(_head(target, "Connection: close", method="GET", path=path), 3.0) for path in paths]
    return not any(b"root:" in answer for answer in answers), f"answers {[_statuses(answer) for answer in answers]}"


def _mark_up(target: Target) -> Outcome:
    hostile = "<script>alert(1)</script>"
    stored = target.ask("POST", "/v1/ops", json.dumps({**ADD_RELU, "description": hostile}).encode(), JSON)
    seen = target.ask("GET", stored.headers.get("location", "/"))
    kinds = (seen.headers.get("content-type", ""), seen.headers.get("x-content-type-options", ""))
    policy = seen.headers.get("content-security-policy", "")
    held = kinds == ("application/json", "nosniff") and "default-src 'none'" in policy
    return held, f"{stored.status}, shown as {', '.join(kinds)}"


def _sign_in(target: Target) -> tuple[str, str]:
    answer = target.ask("POST", "/v1/session", json.dumps({"key": target.key}).encode(), JSON, key=False)
    return answer.headers["set-cookie"].partition(";")[0], json.loads(answer.body)["csrf_token"]


def _replay(target: Target) -> Outcome:
    cookie, token = _sign_in(target)
    session = {"Cookie": cookie, "X-CSRF-Token": token}
    before = target.ask("GET", "/v1/ops", headers=session, key=False).status
    target.ask("DELETE", "/v1/session", headers=session, key=False)
    after = target.ask("GET", "/v1/ops", headers=session, key=False).status
    return (before, after) == (200, 401), f"{before} before the sign-out, {after} after it"


def _forge(target: Target) -> Outcome:
    cookie, token = _sign_in(target)
    body = json.dumps(ADD_RELU).encode()
    tries: tuple[dict[str, str], ...] = (
        {},
        {"X-CSRF-Token": "0" * 64},
        {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"},
        {"Origin": EVIL},
    )
    found = [
        target.ask("POST", "/v1/ops", body, {**JSON, "Cookie": cookie, **more}, key=False).status for more in tries
    ]
    return set(found) == {403}, f"answers {found}"


def _cross_origin(target: Target) -> Outcome:
    asked = {"Origin": EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    answers = [target.ask("OPTIONS", "/v1/ops", headers=asked), target.ask("GET", "/v1/ops", headers={"Origin": EVIL})]
    held = not any("access-control-allow-origin" in answer.headers for answer in answers)
    return held, f"answers {[answer.status for answer in answers]}, no Access-Control-Allow-Origin"


def _upgrade(target: Target) -> Outcome:
    lines = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    found = _statuses(target.exchange(_head(target, *lines, method="GET", path="/v1/searches"), 2.0))
    return 101 not in found, f"answers {found}"


def _expect(target: Target) -> Outcome:
    head = _head(target, "Content-Length: 2000000", "Expect: 100-continue").replace(target.key.encode(), b"wsk_no_key")
    found = _statuses(target.exchange(head, 2.0))
    return found[:1] == [401], f"answers {found}: no body is asked for"


def _count(target: Target, *asked: tuple[str, str, bytes | None, dict[str, str]], allowed: set[int]) -> Outcome:
    found = [target.ask(method, path, body, headers).status for method, path, body, headers in asked]
    return set(found) <= allowed, f"answers {found}"


def _chunks(target: Target) -> Outcome:
    found = _statuses(
        target.exchange(_head(target, "Transfer-Encoding: chunked") + b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n", 8.0)
    )
    return found[:1] in ([200], [408], [413]), f"answers {found} to 200,000 chunks"


def _streams(target: Target) -> Outcome:
    created = target.ask(
        "POST",
        "/v1/searches",
        json.dumps({"op": ADD_RELU, "target": "cpu", "model": {"provider": "agent"}}).encode(),
        JSON,
    )
    path = f"/v1/searches/{json.loads(created.body)['id']}/events"
    head = _head(target, "Accept: text/event-stream", method="GET", path=path)
    with ExitStack() as stack:
        opened = []
        for _ in range(90):
            connection = stack.enter_context(target.connect())
            connection.settimeout(10.0)
            connection.sendall(head)
            opened.append(int(connection.recv(64).split()[1]))
        listed = target.ask("GET", "/v1/ops").status
    found = {status: opened.count(status) for status in set(opened)}
    return found.get(200, 0) <= 64 and listed == 200, f"answers {found}, a list {listed}"


def _endpoints(target: Target) -> Outcome:
    urls = (
        "http://169.254.169.254/latest",
        "http://127.0.0.1:5432",
        "http://[::1]/v1",
        "http://[::ffff:169.254.169.254]/",
        "http://0x7f000001/v1",
        "http://localtest.me/v1",
        "http://metadata.google.internal/v1",
    )
    found = []
    for url in urls:
        body = {"op": ADD_RELU, "target": "cpu", "model": {"provider": "openai", "model": "m", "base_url": url}}
        found.append(target.ask("POST", "/v1/searches", json.dumps(body).encode(), JSON).status)
    return set(found) == {422}, f"answers {found}"


def list_attacks(target: Target) -> dict[str, Callable[[], Finding]]:
    """List the attacks by name."""
    deep = b'{"a":' * 100_000
    ranges = {"Range": "bytes=" + ",".join(f"{n}-" for n in range(5_000))}
    attacks: dict[str, Callable[[], Outcome]] = {
        "smuggling: CL.TE": lambda: _smuggle(
            target, (f"Content-Length: {len(INNER) + 5}", "Transfer-Encoding: chunked"), b"0\r\n\r\n" + INNER
        ),
        "smuggling: TE.TE": lambda: _smuggle(
            target, ("Transfer-Encoding: chunked", "Transfer-Encoding: x", "Content-Length: 4"), b"0\r\n\r\n" + INNER
        ),
        "smuggling: two lengths": lambda: _smuggle(target, ("Content-Length: 2", "Content-Length: 90"), b"{}" + INNER),
        "smuggling: length +2": lambda: _smuggle(target, ("Content-Length: +2",), b"{}" + INNER),
        "smuggling: bare line ends": lambda: _smuggle(
            target, ("X-A: b\nContent-Length: 0", "Content-Length: 2"), b"{}" + INNER
        ),
        "a header of 1 MB": lambda: _many_headers(target, b"X-Long: " + b"a" * 2**20 + b"\r\n\r\n"),
        "50,000 headers": lambda: _many_headers(target, b"X-Many: a\r\n" * 50_000 + b"\r\n"),
        "a query of 30 kB, 5,000 fields": lambda: _count(
            target, ("GET", "/v1/ops?" + "a=1&" * 5_000 + "limit=5", None, {}), allowed={200, 400, 414, 422}
        ),
        "limits and cursors out of range": lambda: _count(
            target,
            *(("GET", f"/v1/ops?limit={n}", None, {}) for n in ("-1", "9" * 400, "1e9", "%00", "%F0%9D%9F%99")),
            *(("GET", f"/v1/ops?after={n}", None, {}) for n in ("'--", "%ff", "x" * 5_000)),
            allowed={400, 422},
        ),
        "path traversal, seven ways": lambda: _traverse(target),
        "a gzip bomb as the body": lambda: _bomb(target),
        "JSON 100,000 levels deep": lambda: _count(
            target, ("POST", "/v1/searches", deep, JSON), ("POST", "/v1/ops", deep, JSON), allowed={400, 422}
        ),
        "JSON with a name twice": lambda: _count(
            target, ("POST", "/v1/searches", b'{"target": "cpu", "target": "cuda"}', JSON), allowed={400}
        ),
        "unicode: NUL, surrogates, not UTF-8": lambda: _count(
            target,
            *(
                ("POST", "/v1/ops", body, JSON)
                for body in (b'{"name": "\\u0000"}', b'{"name": "\\ud800"}', b'{"name": "\xff"}')
            ),
            allowed={400, 422},
        ),
        "stored markup": lambda: _mark_up(target),
        "a session after its sign-out": lambda: _replay(target),
        "forged changes with a cookie": lambda: _forge(target),
        "a page of another origin": lambda: _cross_origin(target),
        "a foreign Host": lambda: _count(
            target,
            ("GET", "/v1/ops", None, {"Host": "evil.example"}),
            ("GET", "/", None, {"Host": ""}),
            allowed={400, 403},
        ),
        "a websocket": lambda: _upgrade(target),
        "a body before the key holds": lambda: _expect(target),
        "TRACE, CONNECT, PROPFIND": lambda: _count(
            target,
            *((method, "/v1/ops", None, {}) for method in ("TRACE", "CONNECT", "PROPFIND")),
            allowed={400, 403, 405},
        ),
        "5,000 ranges of a file": lambda: _count(
            target,
            ("GET", "/", None, {**ranges, "Accept": "text/html"}),
            ("GET", "/v1/ops", None, ranges),
            allowed={200, 206, 400, 416, 503},
        ),
        "200,000 chunks of a byte": lambda: _chunks(target),
        "1,000 requests in one packet": lambda: (
            bool(found := _statuses(target.exchange(_head(target, method="GET", path="/healthz") * 1_000, 8.0)))
            and set(found) == {200},
            f"{len(found)} answers",
        ),
        "TLS, garbage and HTTP/0.9": lambda: (
            all(
                _statuses(target.exchange(data, 2.0))[:1] in ([400], [505], [])
                for data in (
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 300,
                    b"\x00" * 5000,
                    b"GET /\r\n\r\n",
                )
            ),
            "closed with 400",
        ),
        "90 event streams": lambda: _streams(target),
        "SSRF: seven endpoints inside": lambda: _endpoints(target),
    }
    return {name: partial(_run, target, name, attack) for name, attack in attacks.items()}


def _run(target: Target, name: str, attack: Callable[[], Outcome]) -> Finding:
    before, cpu_before, started = target.memory_mb(), target.cpu_s(), time.perf_counter()
    with Bystander(target) as others:
        held, what = attack()
    seconds, cpu_s = time.perf_counter() - started, target.cpu_s() - cpu_before
    held = held and others.longest_s < LONGEST_OTHERS_S
    return Finding(name, held, what, seconds, cpu_s, others.longest_s, target.memory_mb() - before)
