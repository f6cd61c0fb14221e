"""`warpsmith up` with real processes: ready, watched over, stopped in order, and without orphans when killed."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.launching import NODES, PATIENCE_S, family, living, up, warpsmith, write_scenario
from tests.support.waiting import wait_until
from warpsmith.service.local.home import find_running_service
from warpsmith.service.local.launcher import Launcher, StartError
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine

CHILDREN = {"redis", "api", "reconciler", "model", "judge", "compile"}


def test_it_is_ready_watched_over_and_stopped_in_order(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with up(home, WARPSMITH_OPENAI_API_KEY="sk-secret", WARPSMITH_JUDGE_COMPILES="") as (process, document):
        url = document["url"]
        assert {name for name in document["children"] if not name.startswith("judge-gpu")} == CHILDREN
        assert httpx.get(f"{url}/readyz").status_code == 200
        roles = {worker["role"] for worker in httpx.get(f"{url}/v1/workers").json()["items"]}
        assert roles == {"model", "judge", "compile", "reconciler"}
        assert find_running_service(home) == {"pid": process.pid, "url": url}
        # Other commands on this home find it without being told where.
        assert json.loads(warpsmith(home, "searches", "--json").stdout) == []

        second = warpsmith(home, "up", "--port", "0", code=1)
        assert f"process {process.pid} at {url}" in second.stderr
        assert "WARPSMITH_HOME" in second.stderr

        holders = {name for name, pid in document["children"].items() if "sk-secret" in environ(pid)}
        assert holders == {"model"}

        os.kill(document["children"]["api"], signal.SIGKILL)
        os.kill(document["children"]["judge"], signal.SIGKILL)
        # The launcher holds the socket: a request made meanwhile waits for the new API.
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        wait_until(
            lambda: "judge died (killed by SIGKILL)" in (home / "launcher.log").read_text(), PATIENCE_S, "the report"
        )
        wait_until(
            lambda: any("judge.cpu" in line for line in living(family(process.pid))), PATIENCE_S, "another judge"
        )

        everyone = family(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert living(everyone) == []
        assert find_running_service(home) is None
    log = (home / "launcher.log").read_text()
    assert log.rstrip().endswith("stopped")
    assert "Traceback" not in log


@pytest.mark.nightly
def test_killed_in_the_midst_of_a_search_it_leaves_no_orphan_and_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spec, pool = write_scenario(tmp_path)
    with up(home) as (process, _):
        submitted = warpsmith(home, "search", str(spec), "--model", f"replay:{pool}", "--detach", "--json")
        search = json.loads(submitted.stdout)["id"]
        wait_until(
            lambda: any("warpsmith.workers.judge" in line for line in living(family(process.pid))),
            PATIENCE_S,
            "the judge at work",
        )
        everyone = family(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda: living(everyone) == [], PATIENCE_S, "every child to die")
    with up(home):

        def ended() -> bool:
            found = json.loads(warpsmith(home, "searches", "--json").stdout)
            return bool(found[0]["state"] not in {"queued", "running"})

        wait_until(ended, PATIENCE_S, "the search to end")
        shown = json.loads(warpsmith(home, "tree", search, "--json").stdout)
    assert shown["search"]["state"] == "finished", shown["search"]
    assert [node["seq"] for node in shown["nodes"]] == list(range(len(shown["nodes"])))
    assert len(shown["nodes"]) == NODES


def test_a_port_that_is_taken_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = warpsmith(tmp_path / "home", "up", "--port", str(port), code=1)
    assert f"port: found 127.0.0.1:{port}, which cannot be bound" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize(
    ("below", "settings", "said"),
    [
        ("home", {"broker_url": "redis://:secret@127.0.0.1:9/0"}, "WARPSMITH_BROKER_URL: found redis://"),
        (
            "home",
            {"database_url": "postgresql+psycopg://nobody:secret@127.0.0.1:9/none"},
            "WARPSMITH_DATABASE_URL: found postgresql",
        ),
        ("x" * 100, {}, "expected at most 107; set WARPSMITH_HOME"),
    ],
    ids=["broker", "database", "home too long for a socket"],
)
def test_what_cannot_be_used_is_said_without_its_secret(
    tmp_path: Path, below: str, settings: dict[str, str], said: str
) -> None:
    launcher = Launcher(ServiceSettings(home=tmp_path / below, port=0, **settings), print)
    with pytest.raises(StartError, match=said) as refused:
        launcher.start()
    assert "secret" not in str(refused.value)
    assert launcher.pids() == {}


def test_gpus_are_read_from_the_drivers_listing() -> None:
    listing = (
        "0, NVIDIA H200, 9.0, GPU-aa11, 143771, Disabled\n1, NVIDIA RTX A6000, 8.6, GPU-ab22, [N/A], [N/A]\n"
        "no devices were found\n2, broken, [N/A], [N/A], [N/A], [N/A]\n"
    )
    found = [(gpu.index, gpu.target, gpu.uuid, gpu.memory_bytes) for gpu in machine.parse_gpus(listing)]
    assert found == [(0, "cuda:sm_90", "GPU-aa11", 143771 * 2**20), (1, "cuda:sm_86", "GPU-ab22", None)]


@pytest.mark.parametrize(
    ("named", "indices"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("GPU-ab", [1]),
        ("GPU-cc33,1,1", [2, 1]),
        ("0,7,1", [0]),
        ("-1", []),
        ("", []),
        ("MIG-aa11", []),
    ],
)
def test_cuda_visible_devices_chooses_gpus(named: str | None, indices: list[int]) -> None:
    gpus = [machine.Gpu(n, "NVIDIA H200", "9.0", uuid) for n, uuid in enumerate(("GPU-aa11", "GPU-ab22", "GPU-cc33"))]
    assert [gpu.index for gpu in machine.select_visible(gpus, named)] == indices


def environ(pid: int) -> str:
    return " ".join(psutil.Process(pid).environ().values())
