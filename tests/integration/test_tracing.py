"""Traces: off they are nothing, on they join a request, its messages and its steps."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.services import RedisServer
from tests.support.api_support import SEARCH, application, client_of, database, served, settings_for
from tests.support.collector import Collector, Seen, collecting
from tests.support.fleet import Fleet
from tests.support.launching import write_scenario
from tests.support.waiting import wait_until
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.service.client.http import Client
from warpsmith.workers import log, steps, tracing
from warpsmith.workers.queue_names import JUDGE_TASK, MODEL_TASK
from warpsmith.workers.settings import Settings

PATIENCE_S = 240.0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    tracing.stop()
    structlog.reset_defaults()


def started(collector: Collector) -> Settings:
    settings = Settings(otlp_endpoint=collector.url, log_format="json")
    tracing.start(settings, "test")
    return settings


def test_off_nothing_of_opentelemetry_is_imported() -> None:
    program = """
import sys
from warpsmith.service.server.app import create_app
from warpsmith.workers import tracing
from warpsmith.workers.queue import reconciler, tasks
create_app()
with tracing.continued({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}), tracing.span("step") as note:
    note(search="sr_1")
    assert tracing.headers() == {} and tracing.traceparent() is None
ours = tuple("opentelemetry." + part for part in ("sdk.trace", "exporter", "instrumentation"))
print(sorted(name for name in sys.modules if name.startswith(ours)))
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_switched_on_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MODULES", ("no_such_package.sdk",))
    with pytest.raises(tracing.TracingUnavailable, match=r"otlp_endpoint: found 'http://x:1' .* 'warpsmith\[otel\]'"):
        tracing.start(Settings(otlp_endpoint="http://x:1"), "test")
    assert not tracing.is_on()


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="address of a collector"):
        Settings(otlp_endpoint="collector:4318")


def test_a_trace_goes_on_by_headers_and_ends_where_there_are_none(collector: Collector) -> None:
    started(collector)
    with tracing.span("request"):
        sent, submitted = tracing.headers(), tracing.traceparent()
    with tracing.continued(sent), tracing.span("run"):
        with tracing.continued({}), tracing.span("send"):
            pass
        with tracing.span("step", link=submitted) as note:
            note(search="sr_1", level=None)
    tracing.stop()
    spans = {span.name: span for span in collector.spans()}
    request, run, send, step = (spans[name] for name in ("request", "run", "send", "step"))
    assert (run.trace, run.parent) == (request.trace, request.id)
    assert (step.trace, step.parent, step.links) == (request.trace, run.id, (request.trace,))
    assert send.trace != request.trace
    assert send.parent == ""
    assert step.attributes == {"warpsmith.search": "sr_1"}
    assert {span.service for span in collector.spans()} == {"warpsmith-test"}


def test_an_error_is_told_by_its_type_alone(collector: Collector) -> None:
    started(collector)
    with pytest.raises(ValueError, match="prompt"), tracing.span("step"):
        raise ValueError("a prompt with sk-secret")
    tracing.stop()
    (span,) = collector.spans()
    assert (span.status, span.events) == ("ValueError", 0)
    assert b"sk-secret" not in b"".join(collector.bodies)


def test_lines_of_the_log_carry_the_trace(collector: Collector) -> None:
    stream = io.StringIO()
    log.configure(started(collector), stream)
    with tracing.span("step"):
        log.get("a").info("inside")
    log.get("a").info("outside")
    tracing.stop()
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    (span,) = collector.spans()
    assert (inside["trace_id"], inside["span_id"]) == (span.trace, span.id)
    assert "trace_id" not in outside


def test_a_request_is_a_trace_with_the_messages_that_it_sends(
    collector: Collector, redis_server: RedisServer, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, broker_url=redis_server.url, otlp_endpoint=collector.url)
    with client_of(settings) as client:
        search_id = client.post("/v1/searches", json=SEARCH).json()["id"]
        client.get("/healthz")
        submitted = steps.find_submission(database(client), search_id)
        with redis_server.client() as redis:
            wait_until(lambda: redis.keys("judge.*"), 10, "the message")
            ((queue, *_),) = [redis.keys("judge.*")]
            headers = json.loads(redis.lrange(queue, 0, -1)[0])["headers"]
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"POST /v1/searches", f"send {JUDGE_TASK}"}
    request, sent = spans["POST /v1/searches"], spans[f"send {JUDGE_TASK}"]
    assert (sent.trace, sent.parent) == (request.trace, request.id)
    assert headers["traceparent"].split("-")[1:3] == [sent.trace, sent.id]
    assert submitted is not None
    assert submitted.split("-")[1:3] == [request.trace, request.id]


@pytest.mark.nightly
def test_a_search_is_traced_from_the_request_to_the_verdict(
    collector: Collector, redis_server: RedisServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'warpsmith.db'}"
    settings = settings_for(
        tmp_path / "api", database_url=url, broker_url=redis_server.url, otlp_endpoint=collector.url
    )
    # On a busy machine no lease ends, and no reconciler sends again: the step of the request's own message is done.
    patient = {"WARPSMITH_LEASE_S": "120", "WARPSMITH_OTLP_ENDPOINT": collector.url}
    fleet = Fleet(tmp_path / "fleet", redis_server.url, url, **patient)
    spec, pool = write_scenario(tmp_path)
    with served(application(settings)) as address, fleet, Client(address) as client:
        fleet.start("model", "judge")
        model = {"provider": "replay", "pool": client.import_pool(pool.read_bytes()).id}
        search = client.create_search({"op": load_op(spec).document(), "target": "cpu", "model": model})
        wanted = {"step judge", "step ideate", "step code"}
        wait_until(lambda: wanted <= {span.name for span in collector.spans()}, PATIENCE_S, "the steps")
        logs = fleet.logs()
    spans = collector.spans()
    (request,) = (span for span in spans if span.name == "POST /v1/searches")
    joined = [span for span in spans if span.trace == request.trace]
    chain = way_down(joined, request, f"send {JUDGE_TASK}", f"run {JUDGE_TASK}", "step judge", "judge job")
    assert [span.service for span in chain] == ["warpsmith-api", *["warpsmith-judge"] * 3]
    assert chain[-1].attributes["warpsmith.verdict"] == "accepted"
    work = [span for span in spans if span.name.startswith("step ")]
    assert all(span.links == (request.trace,) for span in work)
    assert all(span.attributes["warpsmith.search"] == search.id for span in work)
    assert len({span.trace for span in work}) == len(work)  # a trace each
    calls = [span for span in spans if span.name == "model call"]
    ids = {span.id: span for span in spans}
    assert {ids[call.parent].name for call in calls} == {"step ideate", "step code"}
    assert {ids[ids[call.parent].parent].name for call in calls} == {f"run {MODEL_TASK}"}
    assert f'"trace_id": "{request.trace}"' in logs
    sent = b"".join(collector.bodies)
    for line in pool.read_text(encoding="utf-8").splitlines()[1:]:
        assert json.loads(line)["reply"].encode()[:60] not in sent
    assert b"#include" not in sent
    assert b"def run" not in sent


def way_down(spans: list[Seen], top: Seen, *names: str) -> list[Seen]:
    """The spans of these names, each the child of the one before."""
    chain: list[Seen] = []
    for name in names:
        (child,) = (span for span in spans if span.name == name and span.parent == (chain or [top])[-1].id)
        chain.append(child)
    return chain
