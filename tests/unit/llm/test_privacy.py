"""No secret, path or name of the machine leaves with a prompt, wherever it was planted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.golden import DIRECTORY
from tests.support.prompt_scenarios import FAILING, IDEA, LEDGER, PARENT, SPEC, context, op, rejected, workloads
from tests.support.prompt_scenarios_gpu import COMPILE_ERROR
from warpsmith.workers.llm.prompt.privacy import REMOVED, Private
from warpsmith.workers.llm.prompt.requests import build, reask
from warpsmith.workers.settings import Settings

KEY = "sk-live-4f9a8b7c6d5e"
ENVIRONMENT = {
    "WARPSMITH_OPENAI_API_KEY": KEY,
    "WARPSMITH_DATABASE_URL": "postgresql://ada:hunter2-hunter2@db.lab.example/warpsmith",
    "HOSTNAME": "gpu-box-17.lab.example",
    "HOME": "/cluster/people/ada",
    "PATH": "/usr/local/bin:/usr/bin",
    "DEBUG_KEY": "1",
}
PLANTED = (
    f"{KEY} hunter2-hunter2 gpu-box-17 gpu-box-17.lab.example node-8.lab.example /home/ada /home/ada/secret/plan.py "
    "/cluster/people/ada/op.py file:///tmp/job_1/kernel.cu /root/.netrc /var/lib/warpsmith/"
)
LEAKS = re.compile(r"sk-live|hunter2|gpu-box|node-8|/home|/cluster|/people|/tmp/|/root|/var/|secret/|\bada\b")


NODES = "amqp://a:first-word@h1//;amqp://b:other-word@h2//"
HOSTS = "postgresql://w@/w?host=h1&host=h2&password=third-word&user=me@x"


@pytest.fixture
def private() -> Private:
    return Private.of(ENVIRONMENT, ["node-8.lab.example"])


def test_what_is_planted_is_found_at_all() -> None:
    assert len(set(LEAKS.findall(PLANTED))) > 8


@pytest.mark.parametrize("kind", ["reflect", "ideate", "code", "repair"])
def test_what_others_wrote_takes_nothing_along(private: Private, kind: str) -> None:
    """Planted in the op's description and source, in ideas, code, logs, the ledger, lessons and an unreadable reply."""
    spec = SPEC.replace("description: Residual", f'description: "{PLANTED} Residual').replace("spec.\n", 'spec."\n', 1)
    spec = spec.replace("  import torch\n", f"  import torch  # {PLANTED}\n")
    idea = {**IDEA, "mechanism": PLANTED, "sketch": f"// {PLANTED}", "title": f"t {PLANTED}"}
    planted = op(spec)
    log = {**COMPILE_ERROR, "message": PLANTED, "log": f"{COMPILE_ERROR['log']}\nerror: {PLANTED}\n"}
    failing = replace(FAILING, source=f"# {PLANTED}\n{FAILING.source}", verdict=rejected("compile", log))  # type: ignore[arg-type]
    asked = context(
        kind,
        op=planted,
        workloads=workloads(planted),
        parent=replace(PARENT, idea=idea, source=f"# {PLANTED}\n{PARENT.source}"),
        ledger=(replace(LEDGER[0], title=PLANTED, cause=PLANTED),),
        lessons=({"lesson": PLANTED, "evidence": PLANTED},),
        **({} if kind in ("reflect", "ideate") else {"idea": idea}),
        **({"failing": failing} if kind == "repair" else {}),
    )
    for request in (build(asked), build(reask(asked, f"I looked at {PLANTED}", f"No list: {PLANTED}"))):
        text = "\n".join(message["content"] for message in request.messages)
        assert LEAKS.search(text), "the test plants nothing"
        sent = private.request(request)
        text = "\n".join(message["content"] for message in sent.messages)
        assert not LEAKS.search(text), LEAKS.search(text)
        assert REMOVED in text
        assert (sent.identity, sent.summary.split(" ")[0]) == (request.identity, request.summary.split(" ")[0])


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.md")), ids=lambda path: path.stem)
def test_no_golden_prompt_has_anything_to_take_out(private: Private, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert private.without(text) == text
    assert Private.here(Settings(_env_file=None)).without(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see /home/ada/x/y.py:3", "see y.py:3"),
        ("/home/ada is full", "~ is full"),
        ("-I/usr/include/c++/13", "-I13"),
        ("a / home / b", "a / home / b"),
        ("x = a /b/c", "x = a /b/c"),
        ("https://example.com/home/page", "https://example.com/home/page"),
        ("gpu-box-170", "gpu-box-170"),
        ("gpu-box-17: down", f"{REMOVED}: down"),
        ("key=" + KEY + "x", f"key={REMOVED}x"),
        ("1", "1"),
    ],
)
def test_what_is_taken_out(private: Private, text: str, left: str) -> None:
    assert private.without(text) == left


def test_a_host_named_like_a_word_stays_one() -> None:
    assert Private.of({"HOSTNAME": "hopper"}, ["localhost"]).without("hopper localhost") == "hopper localhost"


def test_this_process_s_secrets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_ENDPOINT", "a-key-of-the-lab")
    monkeypatch.setenv("SOME_TOKEN", "another-secret")
    changes: dict[str, Any] = {
        "openai_api_key": SecretStr("from-a-file-123"),
        "model_keys": {"http://lab/v1": "LAB_ENDPOINT"},
        "database_url": "postgresql://u:p%40ssw0rd!@h/db",
        "broker_url": "redis://:broker-word@h/0",
    }
    private = Private.here(Settings(_env_file=None).model_copy(update=changes))
    several = Private.here(Settings(_env_file=None, broker_url=NODES, database_url=HOSTS))
    for secret in ("first-word", "other-word", "third-word"):
        assert several.without(f"<{secret}>") == f"<{REMOVED}>"
        assert Private.of({"NODES": NODES, "HOSTS": HOSTS}).without(f"<{secret}>") == f"<{REMOVED}>"
    for secret in ("a-key-of-the-lab", "another-secret", "from-a-file-123", "p@ssw0rd!", "broker-word"):
        assert private.without(f"<{secret}>") == f"<{REMOVED}>"


@given(st.text(max_size=200), st.dictionaries(st.sampled_from([*ENVIRONMENT, "X_TOKEN"]), st.text(max_size=30)))
def test_no_text_and_no_environment_surprises_it(text: str, environment: dict[str, str]) -> None:
    private = Private.of(environment, [environment.get("X_TOKEN", "")])
    left = private.without(text)
    assert "/" in text or not any(secret in left for secret in private.secrets)
