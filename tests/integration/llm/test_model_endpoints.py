"""Several endpoints: who gets which key, which model answers, and how many calls a host has under way at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.integration.llm.test_openai_model import REQUEST, settings
from tests.model_server import KEY, Answer, ModelServer, completion, document, ok, status
from tests.support.waiting import wait_until
from warpsmith.workers.llm.base import ModelBusy, ModelUnavailable
from warpsmith.workers.llm.providers.endpoints import concurrency_of
from warpsmith.workers.llm.providers.openai_model import OpenAIModel
from warpsmith.workers.llm.providers.shared_model import SharedModel
from warpsmith.workers.llm.providers.shares import Choice, choose
from warpsmith.workers.llm.providers.slots import Slots
from warpsmith.workers.settings import Settings

OTHER_KEY = "sk-other-9876543210"

HOLD = """
import sys, time
from pathlib import Path
from warpsmith.workers.llm.providers.slots import Slots
with Slots(Path(sys.argv[1]), "http://h/v1", 1).one(wait=False):
    print("held", flush=True)
    time.sleep(600)
"""


def test_each_request_goes_to_the_model_it_draws_with_that_endpoints_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_ENDPOINT_KEY", OTHER_KEY)
    with (
        ModelServer([ok("big", model="big")], key=KEY) as big,
        ModelServer([ok("s", model="small")], key=OTHER_KEY) as small,
    ):
        choices = [Choice("big", share=1), Choice("small", small.url, share=2)]
        model = SharedModel(settings(big.url, model_keys={f"{small.url}/": "OTHER_ENDPOINT_KEY"}), choices)
        asked = [replace(REQUEST, identity=f"{number:064x}") for number in range(12)]
        answered = [model.complete(request).model for request in asked]
        assert answered == [choose(choices, "code", request.identity, 0).model for request in asked]
        assert len(big.requests) + len(small.requests) == 12
        assert big.requests
        assert small.requests
        assert {request.body["model"] for request in small.requests} == {"small"}


def test_a_call_is_found_at_the_endpoint_by_its_request() -> None:
    with ModelServer([ok("done")]) as server:
        OpenAIModel(settings(server.url), model=None, base_url=None).complete(REQUEST)
        assert server.requests[0].headers["x-client-request-id"] == f"at_1.{'0' * 64}.0"


def test_a_key_that_is_named_and_not_set_is_final() -> None:
    with ModelServer([ok("done")]) as server:
        model = OpenAIModel(settings(server.url, model_keys={server.url: "NO_SUCH_KEY"}), model="m", base_url=None)
        with pytest.raises(ModelUnavailable, match="should stand in NO_SUCH_KEY, which is not set") as caught:
            model.complete(REQUEST)
        assert (caught.value.final, caught.value.model) == (True, "m")
        assert server.requests == []


def test_a_key_in_place_of_a_name_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_MODEL_KEYS", '{"https://h/v1": "sk-secret-1"}')
    with pytest.raises(ValidationError, match="not the name of an environment variable") as caught:
        Settings(_env_file=None)
    assert "sk-secret-1" not in str(caught.value)


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_MODEL_CONCURRENCY", "3")
    monkeypatch.setenv("WARPSMITH_MODEL_CONCURRENCY_BY_ENDPOINT", '{"http://h/v1/": 1}')
    found = Settings(_env_file=None)
    assert concurrency_of("http://h/v1", found) == 1
    assert concurrency_of("http://other/v1", found) == 3


def test_no_more_calls_at_once_than_allowed() -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def answer(_: Any) -> Answer:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.2)
        with lock:
            under_way -= 1
        return document(completion("done"))

    outcomes: list[str] = []
    with ModelServer(default=answer) as server:
        values = settings(server.url, model_concurrency=2)

        def call(follows: bool) -> None:
            try:
                OpenAIModel(values, model="m", base_url=None).complete(replace(REQUEST, follows=follows))
                outcomes.append("answered")
            except ModelBusy:
                outcomes.append("busy")

        threads = [threading.Thread(target=call, args=(number >= 4,)) for number in range(6)]
        for thread in threads[:4]:
            thread.start()
        wait_until(lambda: bool(server.requests))  # one of the four has a slot, so three calls at least are answered
        for thread in threads[4:]:
            thread.start()
        for thread in threads:
            thread.join()
        assert most <= 2
        assert len(server.requests) == outcomes.count("answered") >= 3, "later calls of a step wait for a slot instead"
        assert OpenAIModel(values, model="m", base_url=None).complete(REQUEST).text == "done", "slots are given back"


def test_a_failed_call_gives_its_slot_back() -> None:
    with ModelServer([status(500), ok("done")]) as server:
        model = OpenAIModel(settings(server.url, model_concurrency=1), model="m", base_url=None)
        with pytest.raises(ModelUnavailable):
            model.complete(REQUEST)
        assert model.complete(REQUEST).text == "done"


def test_the_slot_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ))
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        slots = Slots(tmp_path, "http://h/v1", 1)
        with (
            pytest.raises(ModelBusy, match=r"as many calls from here as are allowed at once \(1\)"),
            slots.one(wait=False),
        ):
            pytest.fail("the slot is taken")
        with Slots(tmp_path, "http://other/v1", 1).one(wait=False):
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        with slots.one(wait=False):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
