"""Faults of hosts, made with what the kernel has for it: a disk of memory that is full, a network that is cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from benchmarks.chaos.faults import mount, unmount
from benchmarks.chaos.hosts import Host, Missing, Network
from benchmarks.chaos.postgresql import PostgreSQL
from benchmarks.chaos.services import free_port
from tests.services import RedisServer
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from tests.support.searching import Searching
from tests.support.waiting import wait_until
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeUnfit

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and make networks")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB, for one test."""
    directory = tmp_path / "disk"
    if not mount(directory, 16):
        pytest.skip("this process may not mount")
    yield directory
    unmount(directory)


@needs_root
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(240)
def test_the_judge_makes_no_verdict_of_a_full_disk(small_disk: Path) -> None:
    source = scenario.candidate(scenario.LOOP)
    job = build_job(
        scenario.op(), Target.parse(TARGET), level="screen", candidate={"language": "cpp", "source": source}
    )
    with JudgeClient(cache=small_disk / "judge") as judge:
        ballast = small_disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        with pytest.raises(JudgeUnfit) as unfit:
            judge.judge(job, 120)
        assert unfit.value.part == "disk"
        ballast.unlink()
        assert judge.judge(job, 120)["verdict"] == "accepted"


class Apart(Fleet):
    """A fleet whose judge worker is on a host of its own."""

    def __init__(self, host: Host, home: Path, broker_url: str, database_url: str) -> None:
        super().__init__(home, broker_url, database_url)
        self.host = host

    def command(self, name: str) -> list[str]:
        """How process `name` is started."""
        command = super().command(name)
        return self.host.enter(command) if name == "judge" else command


@pytest.fixture
def network() -> Iterator[Network]:
    """This machine and one more host."""
    found = Network(1)
    try:
        found.create()
        yield found
    except Missing as missing:
        pytest.skip(str(missing))
    finally:
        found.remove()


@needs_root
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_worker_that_is_cut_off_loses_its_step_and_comes_back(network: Network, tmp_path: Path) -> None:
    (host,) = network.hosts
    with tempfile.TemporaryDirectory(prefix="ws-cut-") as directory:
        Path(directory).chmod(0o755)  # PostgreSQL runs as another user
        postgres = PostgreSQL(Path(directory) / "postgresql", address=network.address)
        redis = RedisServer(Path(directory))
        postgres.create()
        port = free_port()
        redis.start("--port", str(port), "--bind", network.address, "--protected-mode", "no")
        broker = f"redis://{network.address}:{port}/0"
        searching = Searching.create(postgres.url)
        root = searching.nodes()[0].id

        def attempt() -> AttemptRow:
            with searching.db.reading() as session:
                # The end of the first step opens others.
                first = select(AttemptRow).where(AttemptRow.node_id == root, AttemptRow.kind == "judge")
                return session.scalars(first).one()

        try:
            with Apart(host, tmp_path / "home", broker, postgres.url) as fleet:
                fleet.start("judge", "reconciler")
                searching.begin(broker)
                wait_until(lambda: attempt().state == "running", 90, lambda: f"a claim\n{fleet.logs()}")
                first = attempt().owner
                host.cut_off()
                wait_until(lambda: attempt().state == "pending", 60, lambda: f"the lease to end\n{fleet.logs()}")
                host.plug_in()
                wait_until(
                    lambda: searching.nodes()[0].verdict == "accepted", 150, lambda: f"the verdict\n{fleet.logs()}"
                )
                assert (attempt().state, attempt().tries > 1, attempt().owner != first) == ("succeeded", True, True)
        finally:
            searching.db.dispose()
            redis.stop()
            postgres.stop()
