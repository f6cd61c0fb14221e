"""The event stream, over a real server: order, resumption, heartbeats, its end, and what it holds while it waits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource

from tests.services import migrate
from tests.support.api_support import add_events, problem, seed, served, settings_for
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.api import auth
from warpsmith.service.server.app import create_app

WAIT_S = 60.0


class Api:
    """A served API whose streams poll quickly."""

    def __init__(self, url: str, db: Database) -> None:
        self.url = url
        self.db = db

    def events(self, after: int | None = None, **parameters: Any) -> list[dict[str, Any]]:
        """Every event until the stream ends."""
        with self.stream(after, **parameters) as response:
            return list(parsed(response))

    @contextmanager
    def stream(self, after: int | None = None, **parameters: Any) -> Iterator[httpx.Response]:
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        path = f"{self.url}/v1/searches/sr_seed/events"
        with httpx.stream("GET", path, headers=headers, params=parameters, timeout=WAIT_S) as response:
            yield response


def parsed(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The events of a stream as EventDocuments, checking that their `id` lines say the same."""
    for event in EventSource(response).iter_sse():
        if event.data:
            document = json.loads(event.data)
            assert event.id == str(document["id"])
            yield document


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = settings_for(tmp_path, stream_poll_s=0.05, stream_heartbeat_s=0.2, max_streams=2, log_level="WARNING")
    app = create_app(settings)
    db: Database = app.state.service.db
    migrate(db)
    seed(db)
    with served(app) as url:
        yield Api(url, db)


def test_events_come_in_order_while_they_happen_and_end_with_the_search(api: Api) -> None:
    with api.stream() as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = parsed(response)
        assert [next(stream)["type"] for _ in range(3)] == ["search.created", "search.started", "round.started"]
        add_events(api.db, "sr_seed", "node.judged")
        live = next(stream)
        assert (live["type"], live["payload"]) == ("node.judged", {"said": "node.judged"})
        add_events(api.db, "sr_seed", "kernel.kept", "search.finished")
        assert [event["type"] for event in stream] == ["kernel.kept", "search.finished"]


def test_a_dropped_stream_is_resumed_without_loss_or_repetition(api: Api) -> None:
    with api.stream() as response:
        first = next(parsed(response))
    add_events(api.db, "sr_seed", "search.finished")
    rest = api.events(after=first["id"])
    assert [event["type"] for event in rest] == ["search.started", "round.started", "search.finished"]
    assert api.events(after=rest[-1]["id"]) == []


def test_more_events_than_a_batch(api: Api) -> None:
    add_events(api.db, "sr_seed", *["node.created"] * 450, "search.finished")
    events = api.events()
    assert len(events) == 454
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})


def test_silence_is_filled_with_comments(api: Api) -> None:
    with api.stream(after=10**6) as response:
        comment = next(line for line in response.iter_lines() if line.startswith(":"))
    assert comment


def test_a_stream_has_a_life(tmp_path: Path) -> None:
    app = create_app(settings_for(tmp_path, stream_poll_s=0.05, stream_life_s=0.3, log_level="WARNING"))
    migrate(app.state.service.db)
    seed(app.state.service.db)
    with served(app) as url:
        assert [event["type"] for event in Api(url, app.state.service.db).events()][-1] == "round.started"


def test_a_stream_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    app = create_app(settings_for(tmp_path, auth="always", stream_poll_s=0.05, log_level="WARNING"))
    db: Database = app.state.service.db
    migrate(db)
    seed(db)
    key, other = (auth.create_key(db, name) for name in ("laptop", "other"))
    with served(app) as url:
        path, header = f"{url}/v1/searches/sr_seed/events", {"Authorization": f"Bearer {key}"}
        with httpx.stream("GET", path, headers=header, timeout=WAIT_S) as response:
            stream = parsed(response)
            assert [next(stream)["type"] for _ in range(3)][-1] == "round.started"
            auth.revoke_key(db, other)
            add_events(db, "sr_seed", "node.judged")
            assert next(stream)["type"] == "node.judged", "another's key ends nothing"
            auth.revoke_key(db, key)
            add_events(db, "sr_seed", "kernel.kept")
            assert list(stream) == []


def test_streams_are_counted_and_given_back(api: Api) -> None:
    with api.stream() as one, api.stream() as two:
        held = [parsed(one), parsed(two)]  # a dropped iterator would close its connection
        assert [next(stream)["type"] for stream in held] == ["search.created"] * 2
        with api.stream() as refused:
            assert refused.status_code == 429
            refused.read()
            problem(refused, 429, "too-many-streams")
        assert httpx.get(f"{api.url}/v1/searches/sr_seed/events", params={"format": "json"}).status_code == 200
    deadline = time.monotonic() + WAIT_S
    while True:
        with api.stream() as response:
            if response.status_code == 200:
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_waiting_streams_hold_no_connection_and_no_thread(tmp_path: Path) -> None:
    app = create_app(settings_for(tmp_path, stream_poll_s=0.5, max_streams=50, log_level="WARNING"))
    migrate(app.state.service.db)
    seed(app.state.service.db)
    with served(app) as url:
        api = Api(url, app.state.service.db)
        opened = threading.Barrier(41)
        closing = threading.Event()

        def listen() -> None:
            with api.stream() as response:
                stream = parsed(response)
                assert next(stream)["type"] == "search.created"
                opened.wait(WAIT_S)
                closing.wait(WAIT_S)

        listeners = [threading.Thread(target=listen, daemon=True) for _ in range(40)]
        for listener in listeners:
            listener.start()
        opened.wait(WAIT_S)
        answers = [httpx.get(f"{url}/v1/searches/sr_seed", timeout=WAIT_S).status_code for _ in range(10)]
        closing.set()
        for listener in listeners:
            listener.join(WAIT_S)
    assert answers == [200] * 10


def test_pages_of_events(api: Api) -> None:
    url = f"{api.url}/v1/searches/sr_seed/events"
    page = httpx.get(url, params={"format": "json", "limit": 2}).json()
    assert [event["type"] for event in page["items"]] == ["search.created", "search.started"]
    page = httpx.get(url, params={"format": "json", "after": page["next_after"]}).json()
    assert [event["type"] for event in page["items"]] == ["round.started"]
    after = page["next_after"]
    page = httpx.get(url, params={"format": "json", "after": after}).json()
    assert (page["items"], page["next_after"]) == ([], after)
    add_events(api.db, "sr_seed", "search.finished")
    page = httpx.get(url, params={"format": "json", "after": after}).json()
    assert [event["type"] for event in page["items"]] == ["search.finished"]
    assert page["next_after"] is None


def test_unreadable_positions_are_refused(api: Api) -> None:
    url = f"{api.url}/v1/searches/sr_seed/events"
    for headers, parameters in (
        ({"Last-Event-ID": "x"}, {}),
        ({}, {"after": "-1"}),
        ({}, {"after": str(2**63)}),
        ({}, {"format": "xml"}),
    ):
        problem(httpx.get(url, headers=headers, params=parameters), 422, "invalid-input")
