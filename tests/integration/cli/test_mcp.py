"""`warpsmith mcp` through the SDK's own client, over stdio and over HTTP: every tool, bad arguments, refusals."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from tests.support import scenario
from tests.support.agents import Agent, over_http, over_stdio
from tests.support.api_support import ADD_RELU, SPEC, application, seed, served, settings_for
from tests.support.fleet import TARGET
from tests.support.launching import REPOSITORY, command, environment
from tests.support.steps_support import verdict
from tests.support.tried import FAST, Here
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, KernelRow, NodeRow, SearchRow, VerdictRow
from warpsmith.service.api.auth import create_key, revoke_key
from warpsmith.service.cli import run
from warpsmith.service.client.errors import CommandError
from warpsmith.service.mcp.context import Desk
from warpsmith.service.mcp.server import make_tools
from warpsmith.service.mcp.transport import Address, make_security
from warpsmith.workers import steps
from warpsmith.workers.queue.try_task import perform_try
from warpsmith.workers.settings import Settings

CANDIDATE = scenario.candidate(scenario.LOOP)
ELSEWHERE = "cpu:aarch64" if TARGET == "cpu:x86_64" else "cpu:x86_64"


@contextmanager
def http_server(home: Path, url: str, *options: str) -> Iterator[str]:
    """`warpsmith mcp --http` on a free port; its URL."""
    home.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        command("mcp", "--http", "127.0.0.1:0", "--url", url, "--json", *options),
        env=environment(home, PYTHONUNBUFFERED="1"),
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            text = ""
            for line in process.stdout:
                text += line
                if line == "}\n":
                    break
            yield json.loads(text)["url"]
        finally:
            process.terminate()
            process.wait(30)


@dataclass
class Place:
    """A served API with a seeded database, and an agent at it."""

    db: Database
    url: str
    agent: Agent
    home: Path


@pytest.fixture(scope="module", params=["stdio", pytest.param("http", marks=pytest.mark.nightly)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("mcp")
    app = application(settings_for(home))
    db = app.state.service.db
    seed(db)
    exports = home / "exports"
    with served(app) as url, ExitStack() as stack:
        if request.param == "stdio":
            agent = stack.enter_context(over_stdio(home / "agent", "--url", url, "--exports", str(exports)))
        else:
            where = stack.enter_context(http_server(home / "agent", url, "--exports", str(exports)))
            agent = stack.enter_context(over_http(where))
        yield Place(db, url, agent, home)


@pytest.fixture
def waiting(place: Place) -> AskRow:
    """One open ask of the seeded search, whatever other tests did."""
    with place.db.writing() as session:
        session.get_one(NodeRow, "nd_bad").state = "coding"
        session.get_one(AttemptRow, "at_2").state = "waiting"
        for ask in session.scalars(select(AskRow)):
            session.delete(ask)
        session.flush()
        ask = AskRow(
            id="ak_0",
            search_id="sr_seed",
            node_id="nd_bad",
            attempt_id="at_2",
            kind="code",
            request="b" * 64,
            messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "write code"}],
            state="open",
            created_at=time.time(),
        )
        session.add(ask)
    return ask


def test_the_server_introduces_itself(place: Place) -> None:
    client = place.agent.client
    assert client.server_info is not None
    assert client.server_info.name == "warpsmith"
    for name in ("list_asks", "get_ask", "answer_ask", "export_kernel"):
        assert name in (client.instructions or "")


def test_every_tool_has_complete_schemas_and_says_what_it_is_for(place: Place) -> None:
    found = place.agent.ask("list_tools").tools
    assert [tool.name for tool in found] == [tool.name for tool in make_tools(Desk(lambda: ""))]
    for tool in found:
        assert tool.description, tool.name
        assert len(tool.description) > 80, tool.name
        assert tool.annotations.title
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object"
        for name, field in tool.input_schema.get("properties", {}).items():
            described = field.get("description") or name in (tool.description or "")
            assert described or name in {"state", "limit", "op", "target"}, (tool.name, name)


def test_ops_are_listed_and_read(place: Place) -> None:
    [op] = [item for item in place.agent.call("list_ops")["ops"] if item["id"] == "op_seed"]
    assert op["name"] == "add_relu"
    assert place.agent.call("read_op", op_id="op_seed")["spec"] == SPEC


def test_a_search_is_submitted_by_name_id_object_and_text(place: Place) -> None:
    for op in ("add_relu", "op_seed", SPEC, ADD_RELU, json.dumps(SPEC)):
        created = place.agent.call("submit_search", op=op, budget={"candidates": 4}, policy={"name": "idea_beam"})
        assert created["search"]["op"] == "add_relu"
        assert created["search"]["state"] == "queued" or created["search"]["state"] == "running"
        assert created["search"]["id"] in created["next"]
    with place.db.reading() as session:
        row = session.get_one(SearchRow, created["search"]["id"])
    assert (row.model, row.budget) == ({"provider": "agent"}, {"candidates": 4})
    listed = place.agent.call("list_searches", limit=2)["searches"]
    assert listed[0]["id"] == created["search"]["id"]
    assert len(listed) == 2
    twice = [place.agent.call("submit_search", op="add_relu", idempotency_key="once")["search"]["id"] for _ in range(2)]
    assert twice[0] == twice[1]


def test_an_idea_that_the_search_leaves_out_is_named(place: Place, waiting: AskRow) -> None:
    with place.db.writing() as session:
        session.get_one(AskRow, waiting.id).kind = "ideate"
    good = {"technique": "fusion", "title": "One pass", "mechanism": "Read once."}
    reply = json.dumps([good, good | {"title": "Wide", "technique": "vectorize"}])
    answered = place.agent.call("answer_ask", ask_id=waiting.id, reply=reply)
    [left] = answered["left_out"]
    assert "'Wide' has technique 'vectorize', expected one of memory_access" in left
    assert answered["ideas"] == "1 idea becomes a node"


def test_an_ask_is_listed_read_and_answered(place: Place, waiting: AskRow) -> None:
    listed = place.agent.call("list_asks", search_id="sr_seed")
    assert [item["id"] for item in listed["asks"]] == [waiting.id]
    assert listed["search"]["state"] == "running"
    ask = place.agent.call("get_ask", ask_id=waiting.id)
    assert ask["messages"] == waiting.messages
    assert f"answer_ask(ask_id='{waiting.id}'" in ask["next"]
    answered = place.agent.call("answer_ask", ask_id=waiting.id, reply="code", answered_by="ada")
    assert (answered["state"], answered["node_id"]) == ("answered", "nd_bad")
    assert place.agent.call("answer_ask", ask_id=waiting.id, reply="code") == answered
    assert answered["left_out"] == []
    refused = place.agent.refused("answer_ask", ask_id=waiting.id, reply="other")
    assert "found answered, expected open; the first answer stands, by ada at" in refused
    assert "nothing waits for its answer" in place.agent.call("get_ask", ask_id=waiting.id)["next"]
    assert place.agent.call("list_asks", search_id="sr_seed", wait_s=0.6)["asks"] == []


def test_an_answer_to_an_expired_ask_is_told_which_one_to_answer(place: Place, waiting: AskRow) -> None:
    with place.db.writing() as session:
        session.get_one(AskRow, waiting.id).expires_at = 1.0
    steps.reconcile(place.db, time.time(), Settings(_env_file=None))
    [new] = place.agent.call("list_asks", search_id="sr_seed")["asks"]
    assert new["id"] != waiting.id
    old = place.agent.call("get_ask", ask_id=waiting.id)
    assert (old["state"], old["replaced_by"]) == ("expired", new["id"])
    assert new["id"] in old["next"]
    assert f"expected {new['id']}, which is open" in place.agent.refused("answer_ask", ask_id=waiting.id, reply="late")
    assert place.agent.call("answer_ask", ask_id=new["id"], reply="in time")["state"] == "answered"


def test_the_tree_comes_in_parts(place: Place) -> None:
    tree = place.agent.call("read_tree", search_id="sr_seed")
    assert [(node["seq"], node["parent_seq"], node["best"]) for node in tree["nodes"]] == [
        (0, None, False),
        (1, 0, True),
        (2, 1, False),
    ]
    assert {(node["origin"], node["mark"]) for node in tree["nodes"]} == {("model", None)}
    first = place.agent.call("read_tree", search_id="sr_seed", limit=2)
    assert [node["seq"] for node in first["nodes"]] == [0, 1]
    assert "1 more: call again with after_seq=1" in first["next"]
    assert [node["seq"] for node in place.agent.call("read_tree", search_id="sr_seed", after_seq=1)["nodes"]] == [2]


def test_a_node_comes_with_code_verdict_and_feedback(place: Place) -> None:
    document = verdict("screen", score=2.0)
    document["workloads"].append({**document["workloads"][0], "id": "secret", "role": "holdout"})
    with place.db.writing() as session:
        session.get_one(VerdictRow, "vd_1").document = dict(document)
    node = place.agent.call("read_node", node_id="nd_good")
    assert "eight lanes" in node["source"]
    assert (node["verdict"], node["score"]) == ("accepted", 2.0)
    assert node["feedback"].startswith("Correct. 2.00 times as fast")
    assert [item["id"] for item in node["workloads"]] == ["large"], "hold-out shapes stay hidden"
    assert "secret" not in json.dumps(node)


@pytest.mark.nightly
def test_a_candidate_is_judged_on_this_machine(place: Place) -> None:
    good = place.agent.call("judge_candidate", op=scenario.OP, source=CANDIDATE, level="screen")
    assert (good["verdict"], good["language"], good["op"]) == ("accepted", "cpp", "scale_shift"), good
    assert good["workloads"][0]["time_us"]["candidate"] > 0
    assert good["feedback"].startswith("Correct.")
    bad = place.agent.call("judge_candidate", op=scenario.OP, source=scenario.candidate(scenario.WRONG))
    assert (bad["verdict"], bad["gate"]) == ("rejected", "screen")
    assert "must be written on every call" in bad["feedback"]


def test_a_candidate_is_tried_for_a_node_before_it_is_answered(place: Place, tmp_path: Path) -> None:
    with place.db.writing() as session:
        session.get_one(SearchRow, "sr_seed").state = "running"
    asked = place.agent.call("try_candidate", node_id="nd_bad", source=CANDIDATE, level="screen", wait_s=0)
    assert (asked["state"], asked["verdict"], asked["limit_s"]) == ("pending", None, 300)
    assert f"read_try(try_id={asked['id']!r})" in asked["next"]
    perform_try(Here(place.db, FAST, tmp_path), asked["id"])
    found = place.agent.call("read_try", try_id=asked["id"])
    assert (found["state"], found["verdict"], found["score"], found["spent_s"]) == ("done", "accepted", 2.5, 7.5)
    assert found["feedback"].startswith("Correct. 2.50 times as fast")
    refused = place.agent.refused("try_candidate", node_id="nd_none", source=CANDIDATE)
    assert "nd_none" in refused


def test_prompts_are_fetched_as_a_tool_and_as_resources(place: Place) -> None:
    names = [item["name"] for item in place.agent.call("fetch_prompts")["files"]]
    assert {"ideate.md.j2", "playbook/fusion.md", "languages/cpp.md.j2", "examples/cpp.py"} <= set(names)
    text = (REPOSITORY / "prompts/playbook/fusion.md").read_text()
    assert place.agent.call("fetch_prompts", name="playbook/fusion.md")["text"] == text
    resources = place.agent.ask("list_resources").resources
    assert [str(item.uri) for item in resources] == [f"warpsmith://prompts/{name}" for name in names]
    assert place.agent.ask("read_resource", "warpsmith://prompts/playbook/fusion.md").contents[0].text == text
    [prompt] = place.agent.ask("list_prompts").prompts
    said = place.agent.ask("get_prompt", prompt.name, {"search_id": "sr_seed"}).messages[0].content.text
    assert "list_asks(search_id='sr_seed'" in said


def test_a_kernel_is_exported_and_never_over_something_else(place: Place) -> None:
    [kernel] = place.agent.call("list_kernels", op="add_relu")["kernels"]
    exported = place.agent.call("export_kernel", kernel=kernel["id"], directory="mine")
    root = place.home / "exports" / "mine"
    assert Path(exported["project"]).parent == root
    assert all(Path(path).is_file() for path in exported["files"])
    assert exported["note"] is None
    with place.db.writing() as session:
        session.get_one(KernelRow, kernel["id"]).standing = "slower"
    again = place.agent.call("export_kernel", kernel="add_relu", directory="mine")
    with place.db.writing() as session:
        session.get_one(KernelRow, kernel["id"]).standing = "verified"
    assert again["files"] == exported["files"]
    assert f"{kernel['id']} has drifted (slower)" in again["note"]
    changed = Path(exported["files"][0])
    changed.write_text("# mine")
    assert "with another content" in place.agent.refused("export_kernel", kernel="add_relu", directory="mine")
    assert changed.read_text() == "# mine"
    for outside in ("../elsewhere", str(place.home / "elsewhere")):
        refused = place.agent.refused("export_kernel", kernel="add_relu", directory=outside)
        assert f"directory: found '{outside}', expected a directory below" in refused
    assert not (place.home / "elsewhere").exists()


def test_an_export_has_the_name_that_is_asked_for(place: Place) -> None:
    exported = place.agent.call("export_kernel", kernel="add_relu", directory="mine", name="warpsmith_add_relu")
    assert exported["package"] == "warpsmith_add_relu"
    refused = place.agent.refused("export_kernel", kernel="add_relu", directory="mine", name="torch")
    assert 'query.name: found "torch", expected warpsmith_ and then' in refused


def test_an_op_is_read_and_its_searches_are_listed_by_name(place: Place) -> None:
    assert place.agent.call("read_op", op_id="add_relu")["id"] == "op_seed"
    example = place.agent.call("read_op", op_id="softmax")
    assert (example["id"], example["spec"]["name"]) == (None, "softmax")
    assert "sr_seed" in [each["id"] for each in place.agent.call("list_searches", op="add_relu")["searches"]]
    for tool in ("list_searches", "list_kernels"):
        assert place.agent.call(tool, op="softmax")[tool.removeprefix("list_")] == []
        assert "did you mean add_relu" in place.agent.refused(tool, op="add-relu")


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("get_ask", {}, "ask_id: found None, expected a value: the field is required"),
    ("get_ask", {"ask_id": "ak_none"}, "ak_none"),
    ("get_ask", {"ask_id": "ak_0", "colour": 1}, "colour: found 1, expected one of the fields ask_id"),
    ("get_ask", {"ask_id": 7}, "ask_id: found 7, expected text"),
    ("answer_ask", {"ask_id": "ak_0", "reply": ""}, "reply: found '', expected at least 1 characters"),
    ("list_asks", {"wait_s": 1e9}, "wait_s: found 1000000000.0, expected at most 60"),
    ("list_asks", {"search_id": "sr_none"}, "sr_none"),
    ("list_searches", {"state": "asleep"}, "state: found 'asleep', expected 'queued', 'running'"),
    ("read_tree", {"search_id": "sr_none"}, "sr_none"),
    ("read_node", {"node_id": "nd_none"}, "nd_none"),
    ("read_op", {"op_id": "op_none"}, "op_none"),
    (
        "submit_search",
        {"op": "soft_max"},
        "op: found 'soft_max', expected an op spec, or the id or name of an op; did you mean softmax? stored: add_relu",
    ),
    ("submit_search", {"op": {"name": "x"}}, "reference: found nothing, expected a value: the field is required"),
    ("submit_search", {"op": "add_relu", "budget": {"candidates": 0}}, "budget.candidates: found 0, expected"),
    ("submit_search", {"op": "add_relu", "policy": {"name": "luck"}}, "policy.name: found"),
    ("submit_search", {"op": "add_relu", "target": "tpu"}, "target: found"),
    ("submit_search", {"op": "add_relu", "seeds": 4}, "seeds: found 4, expected"),
    ("get_ask", {"ask_id": "../ops"}, "id: found '../ops', expected one such as sr_"),
    ("read_node", {"node_id": "sr_seed"}, "node: found 'sr_seed', expected the id of one that is stored, nd_..."),
    ("export_kernel", {"kernel": "gelu", "directory": "d"}, "kernel: found 'gelu', expected a kernel's id"),
    ("judge_candidate", {"op": "add_relu", "source": "import torch"}, "source: imports: found 'no kernel language'"),
    ("judge_candidate", {"op": "add_relu", "source": "def ("}, "expected a Python file"),
    ("judge_candidate", {"op": "add_relu", "source": "class ModelNew:\n    pass"}, "was imported from kernelbench"),
    ("judge_candidate", {"op": "add_relu", "source": "{}"}, "a Solution: a JSON object with"),
    ("judge_candidate", {"op": "add_relu", "source": "x", "level": "glance"}, "level: found 'glance'"),
    (
        "judge_candidate",
        {"op": "add_relu", "source": CANDIDATE, "target": "cuda:sm_90"},
        "target: found 'cuda:sm_90', expected cpu for a cpp candidate",
    ),
    (
        "judge_candidate",
        {"op": "add_relu", "source": CANDIDATE, "target": ELSEWHERE},
        f"target: found '{ELSEWHERE}', expected {TARGET}",
    ),
    (
        "judge_candidate",
        {"op": "add_relu", "source": "import triton", "target": "cuda:sm_75"},
        "which the host of this MCP server has; start `warpsmith mcp` on a host that has that device",
    ),
    ("fetch_prompts", {"name": "../settings.py"}, "name: found '../settings.py', expected one of"),
    ("list_kernels", {"limit": 0}, "limit: found 0, expected at least 1"),
    ("export_kernel", {"kernel": "kn_none", "directory": "x"}, "kn_none"),
    ("export_kernel", {"kernel": "soft_max", "directory": "x"}, "add_relu"),
    ("no_such_tool", {}, "no_such_tool"),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"), BAD, ids=[f"{tool}-{index}" for index, (tool, *_) in enumerate(BAD)]
)
def test_bad_arguments_are_named(tool: str, arguments: dict[str, Any], message: str, place: Place) -> None:
    try:
        said = place.agent.refused(tool, **arguments)
    except Exception as error:  # an unknown tool may be an error of the protocol
        said = str(error)
    assert message in said
    assert "Traceback" not in said


def test_without_a_service_every_call_says_how_to_get_one(tmp_path: Path) -> None:
    with over_stdio(tmp_path, "--url", "http://127.0.0.1:9") as agent:
        assert "warpsmith up" in agent.refused("list_asks")
        assert agent.call("fetch_prompts")["files"], "what needs no service works without one"


@pytest.mark.nightly
def test_a_key_is_sent_over_stdio(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, auth="always"))
    key = create_key(app.state.service.db, "an agent")
    with served(app) as url:
        with over_stdio(tmp_path / "a", "--url", url) as agent:
            assert "wsk_" in agent.refused("list_searches")
        with over_stdio(tmp_path / "a", "--url", url, WARPSMITH_API_KEY=key) as agent:
            assert agent.call("list_searches")["searches"] == []


def initialize(url: str, **headers: str) -> httpx.Response:
    """The first request of a client, with headers of its own."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx.post(url, json=body, headers=accept | headers)


def test_over_http_every_caller_brings_a_key_of_their_own_and_no_page_elsewhere_reaches_it(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, auth="always"))
    db = app.state.service.db
    seed(db)
    keys = [create_key(db, name) for name in ("one", "two", "three")]
    with served(app) as url, http_server(tmp_path / "agent", url, "--key", keys[0]) as where:
        for headers in ({}, {"Authorization": "Bearer wsk_no_key"}):
            response = initialize(where, **headers)
            assert response.status_code == 401, "the key of the server's own command line is not lent"
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
            assert response.json()["type"] == "urn:warpsmith:problem:key-required"
        with over_http(where, keys[1]) as agent:
            assert agent.call("list_ops")["ops"][0]["name"] == "add_relu"
            revoke_key(db, keys[1])
        assert initialize(where, Authorization=f"Bearer {keys[1]}").status_code == 401
        one = {"Authorization": f"Bearer {keys[2]}"}
        assert initialize(where, **one).status_code == 200
        assert initialize(where, Host="evil.example", **one).status_code == 421
        assert initialize(where, Origin="http://evil.example", **one).status_code == 403
        assert initialize(where, Origin=where.removesuffix("/mcp"), **one).status_code == 200


@pytest.mark.nightly
def test_a_web_page_elsewhere_reaches_nothing(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path))
    with served(app) as url, http_server(tmp_path / "agent", url) as where:
        assert initialize(where).status_code == 200
        assert initialize(where, Host="evil.example").status_code == 421
        assert initialize(where, Origin="http://evil.example").status_code == 403
        assert initialize(where, Origin=where.removesuffix("/mcp")).status_code == 200


def test_others_cannot_reach_a_service_without_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = application(settings_for(tmp_path))
    with served(app) as url:
        assert run(["mcp", "--http", "0.0.0.0:0", "--url", url]) == 1
    said = capsys.readouterr().err
    assert "found 0.0.0.0, which others can reach, in front of a service that requires no keys" in said


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8421", "127.0.0.1", 8421, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:80", "::1", 80, True),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("gpu.example:8421", "gpu.example", 8421, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.loopback) == (host, port, loopback)


@pytest.mark.parametrize(
    "text", ["", "8421", ":8421", "::1:8421", "host:", "host:http", "host:65536", "host:-1", "host:²"]
)
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"--http: found .* expected HOST:PORT"):
        Address.parse(text)


def test_only_named_hosts_are_served() -> None:
    local = make_security(Address.parse("127.0.0.1:1"), [])
    assert local.enable_dns_rebinding_protection
    assert {"127.0.0.1:*", "localhost:*", "[::1]:*"} <= set(local.allowed_hosts)
    named = make_security(Address.parse("0.0.0.0:1"), ["gpu.example"])
    assert named.allowed_hosts == ["gpu.example", "gpu.example:*"]
    with pytest.raises(CommandError, match="WARPSMITH_ALLOWED_HOSTS"):
        make_security(Address.parse("0.0.0.0:1"), [])
