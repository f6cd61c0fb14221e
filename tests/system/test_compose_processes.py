"""The processes of docker-compose.yml, started as that file says, against a real PostgreSQL and a real Redis."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from benchmarks.chaos.services import free_port
from tests import compose
from tests.services import die_with_parent
from tests.support.launching import REPOSITORY, write_scenario
from tests.support.waiting import wait_until
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.service.client.http import Client

VARIABLES = {
    "WARPSMITH_DB_PASSWORD": "db-secret",
    "WARPSMITH_REDIS_PASSWORD": "redis-secret",
    "WARPSMITH_OPENAI_API_KEY": "model-secret",
    "WARPSMITH_CPU_ARCH": os.uname().machine,
    "WARPSMITH_REVERIFY_INTERVAL_S": "1",
}
STARTED = ("api", "worker-model", "worker-judge-cpu", "worker-compile-cpu", "reconciler", "beat")
PATIENCE_S = 90.0


class Deployment:
    """The services of the compose file as processes of this machine; only addresses are replaced."""

    def __init__(self, home: Path, database_url: str, broker_url: str) -> None:
        self.services: dict[str, Any] = compose.load(VARIABLES)["services"]
        self.home = home
        self.database_url = database_url
        self.broker_url = broker_url
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        home.mkdir()

    def environment(self, name: str) -> dict[str, str]:
        """The environment that the file gives `name`, and nothing of this test's own."""
        given = dict(self.services[name]["environment"])
        assert given["WARPSMITH_DATABASE_URL"].startswith("postgresql+psycopg://")
        assert given["WARPSMITH_BROKER_URL"].startswith("redis://")
        given |= {"WARPSMITH_DATABASE_URL": self.database_url, "WARPSMITH_BROKER_URL": self.broker_url}
        given["WARPSMITH_URL"] = given["WARPSMITH_URL"].replace("//api:8420", f"//127.0.0.1:{self.port}")
        if "WARPSMITH_PORT" in given:
            given["WARPSMITH_PORT"] = str(self.port)
        mounts = (volume.split(":") for volume in self.services[name].get("volumes", []))
        places = {inside: outside for outside, inside, *_ in mounts if outside.startswith("/")}
        given = {key: places.get(value, value) for key, value in given.items()}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return given | {"PATH": path, "HOME": str(self.home), "WARPSMITH_HOME": str(self.home / name)}

    def run(self, name: str, *command: str, **more: str) -> str:
        """`docker compose run --rm NAME COMMAND`, with more variables: its standard output."""
        words = list(command) or self.services[name]["command"]
        environment = self.environment(name) | more
        result = subprocess.run(words, env=environment, cwd=REPOSITORY, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def start(self, name: str) -> None:
        """Start a service by the file's command."""
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.services[name]["command"],
                env=self.environment(name),
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
            )

    def stop(self) -> dict[str, int]:
        """End every service as Docker does, by SIGTERM; the exit codes by name."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        self.processes.clear()
        return codes

    def logs(self) -> str:
        """The end of every service's log."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.home.glob("*.log")))


@pytest.fixture
def deployment(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path / "deployment", postgres_url, redis_url)
    yield deployment
    deployment.stop()


def healthcheck(deployment: Deployment) -> int:
    """The exit code of the file's own health check, at the port of this test."""
    program = deployment.services["api"]["healthcheck"]["test"][3].replace("8420", str(deployment.port))
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=30).returncode


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_deployment_comes_up_and_searches(deployment: Deployment, tmp_path: Path) -> None:
    # Before the migration the API lives, but is not healthy: nobody sends it work.
    deployment.start("api")
    alive = f"http://127.0.0.1:{deployment.port}/healthz"
    wait_until(lambda: answers(alive), PATIENCE_S, "the API")
    assert healthcheck(deployment) != 0
    deployment.run("migrate")
    assert "already" in deployment.run("migrate")  # a second time does no harm
    assert healthcheck(deployment) == 0

    key = json.loads(deployment.run("migrate", "warpsmith", "keys", "create", "a test", "--json"))["key"]
    url = f"http://127.0.0.1:{deployment.port}"
    # Bound to every address, as the file says: no request without a key.
    assert httpx.get(f"{url}/v1/searches").status_code == 401
    for name in STARTED[1:]:
        deployment.start(name)

    spec, pool = write_scenario(tmp_path)
    with Client(url, key) as client:
        roles = {"model", "judge", "compile", "reconciler", "beat"}
        wait_until(
            lambda: {worker.role for worker in client.workers() if worker.alive} == roles, PATIENCE_S, "the workers"
        )
        model = {"provider": "replay", "pool": client.import_pool(pool.read_bytes()).id}
        search = client.create_search({"op": load_op(spec).document(), "target": "cpu", "model": model})
        for name in STARTED:  # a command in any container asks the API
            listed = deployment.run(name, "warpsmith", "searches", "--json", WARPSMITH_API_KEY=key)
            assert search.id in listed, name
        deadline = time.monotonic() + PATIENCE_S
        while (found := client.search(search.id)).state not in {"finished", "failed", "paused"}:
            assert time.monotonic() < deadline, deployment.logs()
            time.sleep(0.2)
        assert found.state == "finished", f"{found}\n{deployment.logs()}"
        assert found.kernels
        assert client.export(found.kernels[0])[:2] == b"PK"
        # Kept long ago, it is due: beat says when to look, the model worker looks, the judge judges.
        make_older(deployment.database_url)
        wait_until(lambda: standing(client, found.kernels[0]) != "verified", PATIENCE_S, "the beat")
        assert standing(client, found.kernels[0]) == "holds", deployment.logs()
        assert [each.cause for each in client.reverifications(found.kernels[0])] == ["schedule"]

    logs = deployment.logs()
    assert "model-secret" not in logs
    assert search.id in logs  # logs carry the search's id ...
    for line in (deployment.home / "worker-judge-cpu.log").read_text().splitlines():
        if search.id in line:
            json.loads(line)  # ... and are JSON in production
    assert deployment.stop() == dict.fromkeys(STARTED, 0)


def make_older(database_url: str) -> None:
    """Every kernel was kept in 1970."""
    db = Database(database_url)
    with db.writing() as session:
        session.execute(update(KernelRow).values(verified_at=0.0))
    db.dispose()


def standing(client: Client, kernel_id: str) -> str:
    """What the API says of whether a kernel still holds."""
    again = client.kernel(kernel_id).reverification
    assert again is not None
    return again.state


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False
