"""Which endpoints a search may have asked, and what comes back of those that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.model_server import Answer, ModelServer, ok, status
from tests.support.api_support import SEARCH, client_of, problem, settings_for
from tests.support.model_rows import REQUEST
from warpsmith.workers.llm.base import ModelUnavailable
from warpsmith.workers.llm.providers import public_addresses
from warpsmith.workers.llm.providers.openai_model import OpenAIModel
from warpsmith.workers.llm.providers.public_addresses import PrivateAddressError, PublicTransport, is_public
from warpsmith.workers.settings import Settings

SECRET = "ami-id iam/security-credentials root:x:0:0"
INSIDE = (
    "http://169.254.169.254/latest/meta-data",
    "http://127.0.0.1:5432",
    "http://localhost:6379/v1",
    "http://[::1]:8420/v1",
    "http://[::ffff:10.0.0.1]/v1",
    "http://postgres:5432/v1",
    "http://2130706433/v1",
    "https://api.openai.com.evil.example/v1",
)


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, model_retries=0, model_timeout_s=5.0, openai_api_key=None, **values)


def reason(base_url: str, **values: Any) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        OpenAIModel(settings(**values), model="m", base_url=base_url).complete(REQUEST)
    return caught.value


@pytest.mark.parametrize("url", INSIDE)
def test_a_search_names_no_endpoint_of_its_own(url: str, tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path)) as client:
        for model, field in (
            ({"provider": "openai", "model": "m", "base_url": url}, "model.base_url"),
            ({"provider": "openai", "models": [{"model": "m", "base_url": url}]}, "model.models[0].base_url"),
        ):
            for path in ("/v1/searches", "/v1/searches/estimate"):
                refused = problem(client.post(path, json={**SEARCH, "model": model}), 422, "invalid-input")
                assert [error["field"] for error in refused["errors"]] == [field]
    assert "is no endpoint that the settings name" in reason(url).reason


@pytest.mark.parametrize("url", INSIDE[:5])
def test_where_any_public_endpoint_may_be_asked_an_inner_one_may_not(url: str) -> None:
    error = reason(url, model_endpoints=["public"])
    assert error.final
    assert "is at an address that no search may reach" in error.reason


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        *((address, False) for address in ("10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254")),
        *((address, False) for address in ("0.0.0.0", "127.8.8.8", "224.0.0.1", "255.255.255.255", "nonsense")),
        *(
            (address, False)
            for address in ("::", "::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1")
        ),
        *((address, False) for address in ("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:7f00:1::")),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_name_is_looked_up_once_and_one_inner_address_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    def rebind(_host: str, _port: int) -> list[str]:
        return answers.pop(0)

    with ModelServer([ok("done")]) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        with monkeypatch.context() as patched, httpx2.Client(transport=PublicTransport(rebind)) as client:
            patched.setattr(public_addresses, "is_public", lambda _address: True)  # the server is on this machine
            answer = client.post(
                f"http://rebind.example:{port}/v1/chat/completions", json={"model": "m", "messages": []}
            )
        assert answer.status_code == 200
        assert answers == [["10.0.0.1"]]
        assert server.requests[0].headers["host"] == f"rebind.example:{port}"
    mixed = PublicTransport(lambda _host, _port: ["8.8.8.8", "10.0.0.1"])
    with httpx2.Client(transport=mixed) as client, pytest.raises(PrivateAddressError):
        client.get("http://mixed.example/")


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(code: int) -> None:
    with ModelServer([ok("inside")]) as inner:
        away = Answer(status=code, headers={"Location": f"{inner.url}/chat/completions"})
        with ModelServer([away]) as outer:
            error = reason(outer.url, model_endpoints=[outer.url])
        assert inner.requests == []
    assert f"({code})" in error.reason


@pytest.mark.parametrize("code", [200, 400, 403, 404, 500])
def test_what_is_no_answer_of_a_model_is_not_repeated(code: int) -> None:
    with ModelServer([Answer(status=code, body=SECRET.encode())]) as server:
        error = reason(server.url, model_endpoints=[server.url])
    assert not any(word in error.reason for word in SECRET.split())


def test_an_unnamed_endpoint_is_quoted_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_addresses, "is_public", lambda _address: True)
    with ModelServer([status(400, SECRET)]) as server:
        error = reason(server.url, model_endpoints=["public"])
    assert "refuses the request (400)" in error.reason
    assert not any(word in error.reason for word in SECRET.split())
