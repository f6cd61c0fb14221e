"""What the servers of `benchmarks.chaos` need, and how a machine that lacks it is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmarks.chaos import rabbitmq, services
from benchmarks.chaos.hosts import Missing
from benchmarks.chaos.services import Redis


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    rabbitmq.find_scripts.cache_clear()
    yield
    rabbitmq.find_scripts.cache_clear()


def install(directory: Path, erl: str | None, *scripts: str) -> None:
    """A RabbitMQ as Debian has it: the program in PATH is a link to a wrapper beside the scripts."""
    lib = directory / "lib"
    lib.mkdir()
    for name in ("rabbitmq-script-wrapper", *scripts):
        (lib / name).touch(mode=0o755)
    (directory / "rabbitmq-server").symlink_to(lib / "rabbitmq-script-wrapper")
    if erl is not None:
        (directory / "erl").write_text(f"#!/bin/sh\n{erl}\n")
        (directory / "erl").chmod(0o755)


@pytest.mark.parametrize(
    ("erl", "scripts", "lacks"),
    [
        (None, ("rabbitmq-server", "rabbitmqctl"), ["erl in PATH"]),
        ("echo '[mnesia,os_mon]'", ("rabbitmq-server", "rabbitmqctl"), ["mnesia of Erlang", "os_mon of Erlang"]),
        ("echo no such boot file; exit 1", ("rabbitmq-server", "rabbitmqctl"), ["an Erlang that runs"]),
        ("echo '[]'", ("rabbitmq-server",), ["rabbitmqctl"]),
        (None, (), ["rabbitmq-server", "rabbitmqctl", "erl in PATH"]),
    ],
)
def test_everything_that_a_node_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erl: str | None, scripts: tuple[str, ...], lacks: list[str]
) -> None:
    install(tmp_path, erl, *scripts)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing) as missing:
        rabbitmq.RabbitMQ(tmp_path).command()
    for lack in lacks:
        assert lack in str(missing.value)


def test_the_scripts_beside_the_wrapper_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "echo '[]'", "rabbitmq-server", "rabbitmqctl")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rabbitmq.RabbitMQ(tmp_path).command() == [str(tmp_path / "lib/rabbitmq-server")]


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Redis(tmp_path)
    monkeypatch.setattr(Redis, "command", lambda _: ["/bin/sh", "-c", "echo no room for it >&2; exit 3"])
    with pytest.raises(TimeoutError, match="no room for it"):
        server.start()


def test_a_broker_that_is_full_takes_no_messages(tmp_path: Path) -> None:
    server = Redis(tmp_path)
    server.start()
    try:
        client = redis.Redis(unix_socket_path=str(tmp_path / "redis.sock"))
        server.fill()
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.lpush("queue", "message")
        server.make_room()
        assert client.lpush("queue", "message") == 1
        client.close()
    finally:
        server.stop()


def test_a_chosen_port_is_none_that_an_outgoing_connection_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice and the start of a service another process may connect to somewhere."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first_outgoing <= services.PORTS.start:
        pytest.skip(f"outgoing connections have ports from {first_outgoing} here")
    assert max(services.free_port() for _ in range(100)) < first_outgoing
    with socket.create_server(("127.0.0.1", services.free_port())) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(services, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match=f"found no free port from {port} to {port}"):
            services.free_port()
    assert services.free_port() == port
