"""Faults of hosts, made with what the kernel has for it: a disk of memory that is full, a network that is cut."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from benchmarks.chaos.faults import mount, unmount
from benchmarks.chaos.services import PostgreSQL, free_port
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


NAMESPACE = "ws-partition"
HERE, THERE = "10.213.7.1", "10.213.7.2"


class Apart(Fleet):
    """A fleet whose judge worker is on a network of its own."""

    def command(self, name: str) -> list[str]:
        """How process `name` is started."""
        command = super().command(name)
        return ["ip", "netns", "exec", NAMESPACE, *command] if name == "judge" else command


class Reachable(PostgreSQL):
    """A PostgreSQL on the address that both networks have."""

    def command(self) -> list[str]:
        """The command line, listening there as well."""
        hba = self.data / "pg_hba.conf"
        if THERE not in hba.read_text():
            with hba.open("a") as file:
                file.write(f"host all all {THERE}/32 trust\nhost all all {HERE}/32 trust\n")
        return [word.replace("=127.0.0.1", f"=127.0.0.1,{HERE}") for word in super().command()]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[str]:
    """A link between this network and `NAMESPACE`; its name here."""
    try:
        ip("netns", "add", NAMESPACE)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        ip("link", "add", "ws-here", "type", "veth", "peer", "name", "ws-there", "netns", NAMESPACE)
        ip("addr", "add", f"{HERE}/30", "dev", "ws-here")
        ip("link", "set", "ws-here", "up")
        ip("-n", NAMESPACE, "addr", "add", f"{THERE}/30", "dev", "ws-there")
        ip("-n", NAMESPACE, "link", "set", "ws-there", "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield "ws-here"
    finally:
        ip("netns", "del", NAMESPACE)


@needs_root
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_worker_that_is_cut_off_loses_its_step_and_comes_back(network: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ws-cut-") as directory:
        Path(directory).chmod(0o755)  # PostgreSQL runs as another user
        postgres, redis = Reachable(Path(directory) / "postgresql"), RedisServer(Path(directory))
        postgres.create()
        port = free_port()
        redis.start("--port", str(port), "--bind", HERE, "--protected-mode", "no")
        url = postgres.url.replace("127.0.0.1", HERE)
        broker = f"redis://{HERE}:{port}/0"
        searching = Searching.create(url)

        def attempt() -> AttemptRow:
            with searching.db.reading() as session:
                return session.scalars(select(AttemptRow)).one()

        try:
            with Apart(tmp_path / "home", broker, url) as fleet:
                fleet.start("judge", "reconciler")
                searching.begin(broker)
                wait_until(lambda: attempt().state == "running", 90, f"a claim\n{fleet.logs()}")
                first = attempt().owner
                ip("link", "set", network, "down")
                wait_until(lambda: attempt().state == "pending", 60, f"the lease to end\n{fleet.logs()}")
                ip("link", "set", network, "up")
                wait_until(lambda: searching.nodes()[0].verdict == "accepted", 150, f"the verdict\n{fleet.logs()}")
                assert (attempt().state, attempt().tries > 1, attempt().owner != first) == ("succeeded", True, True)
        finally:
            searching.db.dispose()
            redis.stop()
            postgres.stop()
