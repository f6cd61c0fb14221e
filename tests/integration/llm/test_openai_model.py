"""The `openai` provider over real HTTP, and every way in which an endpoint can fail."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model_server import KEY, Answer, ModelServer, completion, document, ok, raw, status
from warpsmith.workers.llm.base import ModelReply, ModelRequest, ModelUnavailable
from warpsmith.workers.llm.providers.openai_model import OpenAIModel
from warpsmith.workers.settings import Settings

REQUEST = ModelRequest(
    kind="code",
    identity="0" * 64,
    ordinal=0,
    messages=({"role": "system", "content": "be fast"}, {"role": "user", "content": "write"}),
    summary="code",
    attempt_id="at_1",
)


def settings(url: str | None, **values: Any) -> Settings:
    return Settings(
        _env_file=None,
        **{"openai_base_url": url, "openai_api_key": KEY, "model_retries": 0, "model_timeout_s": 5.0, **values},
    )


def complete(server: ModelServer, **values: Any) -> ModelReply:
    return OpenAIModel(settings(server.url, **values), model=None, base_url=None).complete(REQUEST)


def unavailable(answer: Answer, **values: Any) -> ModelUnavailable:
    with ModelServer([answer]) as server, pytest.raises(ModelUnavailable) as caught:
        complete(server, **values)
    assert KEY not in caught.value.reason
    return caught.value


def test_a_reply_with_tokens_and_cost() -> None:
    with ModelServer([ok("done")], key=KEY) as server:
        reply = complete(server)
    assert (reply.text, reply.finish_reason, reply.model) == ("done", "stop", "gpt-5-2025-08-07")
    assert (reply.prompt_tokens, reply.completion_tokens) == (1000, 500)
    assert reply.cost_usd == pytest.approx((800 * 1.25 + 200 * 0.125 + 500 * 10) / 1e6)
    assert 0 < reply.latency_s < 5
    sent = server.requests[0].body
    assert sent["messages"] == list(REQUEST.messages)
    assert (sent["model"], sent["max_tokens"]) == ("gpt-5", 16384)


def test_an_unknown_model_has_an_unknown_cost() -> None:
    with ModelServer([ok("done", model="local-7b")]) as server:
        assert complete(server, openai_model="local-7b").cost_usd is None


def test_a_price_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('["local-7b"]\nprompt = 1\ncompletion = 2\n')
    with ModelServer([ok("done", model="local-7b")]) as server:
        model = OpenAIModel(settings(server.url, model_prices=path), model="local-7b", base_url=None)
        assert model.complete(REQUEST).cost_usd == pytest.approx(0.002)


def test_a_bad_price_file_is_told_before_any_money_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[")
    with ModelServer([ok("done")]) as server:
        with pytest.raises(ModelUnavailable, match=r"price file prices\.toml: not TOML") as caught:
            complete(server, model_prices=path)
        assert caught.value.final
        assert server.requests == []


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://[::1/v1", "http://host:none/v1"])
def test_an_unusable_address_is_final(url: str) -> None:
    with pytest.raises(ModelUnavailable, match="is not a usable base_url") as caught:
        OpenAIModel(settings(url), model=None, base_url=None).complete(REQUEST)
    assert caught.value.final


def test_a_rate_limit_is_waited_out_by_the_client() -> None:
    with ModelServer([status(429, retry_after="0.01"), ok("done")]) as server:
        assert complete(server, model_retries=2).text == "done"
        assert len(server.requests) == 2


def test_a_server_error_is_retried_as_often_as_set() -> None:
    with ModelServer([status(500, "oops", retry_after="0.01")]) as server:
        with pytest.raises(ModelUnavailable, match=r"failed \(500\): oops"):
            complete(server, model_retries=2)
        assert len(server.requests) == 3


def test_a_lasting_rate_limit_says_when_to_come_back() -> None:
    error = unavailable(status(429, "slow down", retry_after="37"))
    assert error.retry_after_s == 37
    assert not error.final
    assert "over its rate limit (429): slow down" in error.reason


def test_retry_after_may_be_a_date_and_is_bounded() -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    assert unavailable(status(503, retry_after=date)).retry_after_s == pytest.approx(60, abs=5)
    assert unavailable(status(503, retry_after="9" * 9)).retry_after_s == 3600
    assert unavailable(status(503, retry_after="soon")).retry_after_s is None


def test_a_used_up_quota_is_final() -> None:
    error = unavailable(status(429, "pay", code="insufficient_quota"))
    assert error.final
    assert "quota is used up" in error.reason


def test_a_slow_endpoint() -> None:
    error = unavailable(Answer(delay_s=5), model_timeout_s=0.2)
    assert "is slow: no answer in 0.2 s" in error.reason
    assert not error.final


def test_an_endpoint_that_drips_does_not_hold_the_worker() -> None:
    body = json.dumps(completion("x" * 200)).encode()
    error = unavailable(Answer(body=body, chunks=100, pause_s=0.1), model_timeout_s=1.0)
    assert "is slow: its answer was not complete in 1 s" in error.reason  # the whole answer takes ten


def test_an_endpoint_that_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ModelUnavailable, match=f"{url} is down: .*refused"):
            OpenAIModel(settings(url), model=None, base_url=None).complete(REQUEST)


@pytest.mark.parametrize("answer", [Answer(close=True), Answer(body=b'{"choices": []}', cut=True)])
def test_a_closed_connection(answer: Answer) -> None:
    assert "closed the connection without a complete answer" in unavailable(answer).reason


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_final_and_is_not_repeated(code: int) -> None:
    error = unavailable(status(code, f"bad key {KEY}"))
    assert error.final
    assert f"refuses the key ({code}): bad key [key]" in error.reason


def test_a_wrong_key_is_refused_by_the_server() -> None:
    with (
        ModelServer([ok("done")], key="another") as server,
        pytest.raises(ModelUnavailable, match="refuses the key") as caught,
    ):
        complete(server)
    assert KEY not in caught.value.reason


def test_an_unknown_model_is_final() -> None:
    error = unavailable(status(404, "no such model"))
    assert error.final
    assert "does not know model 'gpt-5' (404): no such model" in error.reason


def test_a_refused_request_is_final() -> None:
    error = unavailable(status(400, "context length exceeded"))
    assert error.final
    assert "refuses the request (400): context length exceeded" in error.reason


def uncounted(text: str | None, **kwargs: Any) -> Answer:
    """An answer without usage."""
    return document({name: value for name, value in completion(text, **kwargs).items() if name != "usage"})


@pytest.mark.parametrize(
    "answer",
    [
        raw(b'{"choices": [{"mess'),
        raw(b"<html>gateway</html>"),
        raw(b"[" * 200_000),
        raw(b"\xff\xfe"),
        document([]),
        document({"choices": []}),
        document({"choices": None}),
        document({"choices": [{"finish_reason": "stop"}]}),
        document({"choices": [{"message": None}]}),
        document({"choices": [{"message": {"content": ["a"]}}]}),
        uncounted(None),
        uncounted("  \n"),
        uncounted("", finish_reason="content_filter"),
    ],
)
def test_nonsense(answer: Answer) -> None:
    error = unavailable(answer)
    assert "answered nonsense" in error.reason
    assert not error.final


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_an_empty_answer_that_the_endpoint_bills_is_a_reply(text: str | None) -> None:
    with ModelServer([ok(text)]) as server:
        reply = complete(server)
    assert reply.text.strip() == ""
    assert (reply.completion_tokens or 0) > 0
    assert (reply.cost_usd or 0.0) > 0.0


def test_odd_usage_is_left_uncounted() -> None:
    body = completion("done")
    body["usage"] = {"prompt_tokens": "many", "completion_tokens": -1}
    with ModelServer([document(body)]) as server:
        reply = complete(server)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (None, None, None)


@pytest.mark.parametrize("text", ["```python\ndef run(", None])
def test_a_reply_cut_at_the_limit_is_a_reply(text: str | None) -> None:
    with ModelServer([ok(text, finish_reason="length")]) as server:
        reply = complete(server)
    assert (reply.text, reply.finish_reason) == (text or "", "length")


def test_a_refusal_is_a_reply() -> None:
    with ModelServer([ok(None, refusal="I will not")]) as server:
        assert complete(server).text == "I will not"


def test_a_reply_is_made_fit_for_the_database() -> None:
    with ModelServer([raw(json.dumps(completion("a\x00b\ud800c")).encode())]) as server:
        assert complete(server).text == "a\ufffdb\ufffdc"


def test_the_name_of_the_token_limit_is_found_out() -> None:
    refusal = status(
        400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", param="max_tokens"
    )
    with ModelServer([refusal, ok("done"), ok("again")]) as server:
        model = OpenAIModel(settings(server.url), model=None, base_url=None)
        assert [model.complete(REQUEST).text for _ in range(2)] == ["done", "again"]
        limits = [sorted(body for body in request.body if body.startswith("max_")) for request in server.requests]
    assert limits == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


@pytest.fixture
def configured() -> Iterator[ModelServer]:
    with ModelServer([ok("configured")]) as server:
        yield server


def test_the_key_goes_to_the_configured_endpoint_alone(
    configured: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with ModelServer([ok("elsewhere")]) as other:
        for base_url in (other.url, configured.url, None):
            values = settings(configured.url, model_endpoints=[other.url])
            model = OpenAIModel(values, model="m", base_url=base_url)
            model.complete(REQUEST)
        assert [request.headers["authorization"] for request in other.requests] == ["Bearer none"]
        assert [request.headers["authorization"] for request in configured.requests] == [f"Bearer {KEY}"] * 2


def ask_elsewhere(configured: ModelServer, other: ModelServer) -> None:
    values = settings(configured.url, model_endpoints=[other.url])
    OpenAIModel(values, model="m", base_url=other.url).complete(REQUEST)


def test_an_endpoint_that_wants_a_key_it_may_not_have(configured: ModelServer) -> None:
    with (
        ModelServer([status(401, "key please")]) as other,
        pytest.raises(ModelUnavailable, match="none is configured for it") as caught,
    ):
        ask_elsewhere(configured, other)
    assert caught.value.final


def test_openai_without_a_key_says_so_before_any_call() -> None:
    model = OpenAIModel(settings(None, openai_api_key=None), model=None, base_url=None)
    with pytest.raises(ModelUnavailable, match="set WARPSMITH_OPENAI_API_KEY") as caught:
        model.complete(REQUEST)
    assert caught.value.final
