"""A second host joins over TLS, judges a search, drains in the middle of it and comes back: two network namespaces."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from sqlalchemy import select

from tests.support import scenario
from tests.support.searching import Searching
from tests.support.two_hosts import BROKER_PASSWORD, DATABASE_PASSWORD, TwoHosts, two_hosts
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.tables import AttemptRow, WorkerRow
from warpsmith.service.api import auth
from warpsmith.service.local.joining import KEPT

HOST = "gpu7"


PATIENCE_S = 240.0
"""Starting a command takes half a minute on a machine that does much else."""


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as found:
        yield found


@pytest.fixture
def searching(hosts: TwoHosts) -> Iterator[Searching]:
    """A search in the service's database."""
    found = Searching.create(hosts.own_database)
    yield found
    found.db.dispose()


def attempts(searching: Searching) -> list[AttemptRow]:
    """The judge's steps."""
    with searching.db.reading() as session:
        query = select(AttemptRow).where(AttemptRow.kind.in_(("judge", "verify")))
        return list(session.scalars(query))


def family_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_host_joins_judges_drains_and_loses_nothing(hosts: TwoHosts, searching: Searching) -> None:
    key = auth.create_key(searching.db, "operators", scopes=("admin",))
    with hosts.fleet() as fleet:
        fleet.start("api", "model", "reconciler")

        wait_until(lambda: _answers(hosts, key), PATIENCE_S, f"the API\n{fleet.logs()}")
        token = hosts.warpsmith("workers", "invite", HOST, key=key).strip()
        (hosts.home / "token").write_text(token)
        command = ["--gpu", "none", "--name", HOST, "--join", hosts.url, "--ca", str(hosts.authority)]
        joined = hosts.start_worker(*command, "--token-file", str(hosts.home / "token"))
        log = hosts.home / "gpu.log"
        wait_until(
            lambda: f"judge@{HOST} serves" in log.read_text() and f"compile@{HOST} compiles" in log.read_text(),
            PATIENCE_S,
            f"the host\n{log.read_text()}\n{fleet.logs()}",
        )
        kept = hosts.home / "gpu" / KEPT
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        listed = json.loads(hosts.warpsmith("workers", "list", "--json", key=key))
        worker = next(each for each in listed if each["name"] == f"judge@{HOST}")
        assert (worker["host"], worker["target"]) == (HOST, str(scenario.Target.parse("cpu")))
        assert worker["state"] in ("idle", "working")  # the reconciler begins the search
        assert worker["device"]["memory_bytes"] > 0

        wait_until(
            lambda: any(row.state == "running" for row in attempts(searching)), PATIENCE_S, f"a step\n{fleet.logs()}"
        )
        seen = " ".join(" ".join(process.cmdline()) for process in family_of(joined))
        assert hosts.warpsmith("workers", "drain", HOST, key=key) == f"compile@{HOST} drains\njudge@{HOST} drains\n"
        assert joined.wait(PATIENCE_S) == 0, log.read_text()
        ended = attempts(searching)
        assert not [row.id for row in ended if row.state == "running"]
        assert [row.state for row in ended].count("succeeded") >= 1
        with searching.db.reading() as session:
            assert session.get_one(WorkerRow, f"judge@{HOST}").draining_since is not None

        again = hosts.start_worker(*command)  # without a token: what the first brought is kept
        searching.wait(PATIENCE_S, fleet)
        assert searching.outcome() == scenario.outcome(), searching.describe()
        assert {(row.state, row.tries) for row in attempts(searching)} == {("succeeded", 1)}
        again.terminate()
        assert again.wait(PATIENCE_S) == 0, log.read_text()
        written = log.read_text() + "".join(path.read_text() for path in (hosts.home / "gpu" / "logs").iterdir())
        for secret in (token.split("_")[2], DATABASE_PASSWORD, BROKER_PASSWORD):
            assert secret not in written + seen + fleet.logs()


def _answers(hosts: TwoHosts, key: str) -> bool:
    try:
        hosts.warpsmith("workers", "list", key=key)
    except AssertionError:
        return False
    return True


@pytest.mark.nightly
def test_a_host_that_does_not_know_the_authority_gives_nothing_away(hosts: TwoHosts) -> None:
    with hosts.fleet() as fleet:
        fleet.start("api")
        (hosts.home / "token").write_text("wsj_a_b")
        command = ["--gpu", "none", "--name", HOST, "--join", hosts.url, "--token-file", str(hosts.home / "token")]
        refused = hosts.start_worker(*command)
        assert refused.wait(PATIENCE_S) == 1
        assert "certificate verify failed" in (hosts.home / "gpu.log").read_text()
        clear = hosts.start_worker("--gpu", "none", "--join", "http://10.213.7.1:8420")
        assert clear.wait(PATIENCE_S) == 2
        assert not (hosts.home / "gpu" / KEPT).exists()
