"""RabbitMQ of the run's own: a node alone, or three that form a cluster."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from benchmarks.chaos.hosts import HERE, Host, Missing, Network
from benchmarks.chaos.services import PAUSE_S, Broker, free_port

NODES = 3
CONTROL_TIMEOUT_S = 60.0
WHOLE_TIMEOUT_S = 300.0
"""A node that comes back is started again by the others, which took 86 s on a busy machine."""
DEBIAN = Path("/usr/lib/rabbitmq/bin")
APPLICATIONS = (
    "compiler",
    "crypto",
    "inets",
    "mnesia",
    "os_mon",
    "public_key",
    "ssl",
    "syntax_tools",
    "tools",
    "xmerl",
)
"""Of Erlang, those that RabbitMQ's own name as theirs; distributions package each by itself."""
ASK_ERLANG = (
    "Lost = [A || A <- [{applications}], code:lib_dir(A) =:= {{error, bad_name}}],"
    'Epmd = [epmd || filelib:wildcard(code:root_dir() ++ "/erts-*/bin/epmd") =:= []],'
    'io:format("~p", [Lost ++ Epmd]), halt().'
)


@cache
def find_scripts() -> Path:
    """Find the directory of RabbitMQ's own scripts, and see whether its nodes can run here.

    Raises Missing, which names everything that they need and this machine lacks.
    """
    found = shutil.which("rabbitmq-server")
    # Debian's in PATH is a link to a wrapper that changes the user; what it calls lies beside that wrapper.
    scripts = DEBIAN if found is None else Path(found).resolve().parent
    missing = [str(path) for name in ("rabbitmq-server", "rabbitmqctl") if not (path := scripts / name).exists()]
    missing += find_lacks_of_erlang()
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        missing.append("an address of the name localhost")
    if missing:
        raise Missing(f"RabbitMQ needs {', '.join(missing)}")
    return scripts


def find_lacks_of_erlang() -> list[str]:
    """List what RabbitMQ needs of Erlang and this machine lacks."""
    erl = shutil.which("erl")
    if erl is None:
        return ["erl in PATH"]
    ask = ASK_ERLANG.format(applications=",".join(APPLICATIONS))
    command = [erl, "-noinput", "-boot", "start_clean", "-eval", ask]
    try:
        asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        return [f"an Erlang that runs ({error})"]
    return [f"{name} of Erlang" for name in asked.stdout.strip().strip("[]").split(",") if name]


class RabbitMQ(Broker):
    """A RabbitMQ node of its own name, ports and files."""

    def __init__(self, directory: Path, host: Host = HERE) -> None:
        super().__init__(directory, host)
        self.port, self.distribution = free_port(), free_port()
        self.node = f"chaos{secrets.token_hex(4)}@{'localhost' if host == HERE else host.address}"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host.address}:{self.port}//"

    def command(self) -> list[str]:
        return [str(find_scripts() / "rabbitmq-server")]

    def environment(self) -> Mapping[str, str]:
        (self.directory / "enabled_plugins").write_text("[].\n")
        return os.environ | {
            "HOME": str(self.directory),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": self.host.address,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "none"),
        }

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host.address, self.port), timeout=2.0) as probe:
            probe.settimeout(2.0)
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(probe.recv(1))
        return False

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl` on this node and return what it prints. Raises subprocess.SubprocessError."""
        program = [str(find_scripts() / "rabbitmqctl"), "--quiet", "--node", self.node, *command]
        found = subprocess.run(
            self.host.enter(program),
            env=self.environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=CONTROL_TIMEOUT_S,
        )
        return found.stdout

    def fill(self) -> None:
        self.control("set_vm_memory_high_watermark", "0")  # it has more in use than that: the alarm blocks publishers

    def make_room(self) -> None:
        self.control("set_vm_memory_high_watermark", "0.4")


class RabbitNode(RabbitMQ):
    """A node of a `RabbitCluster`: it finds the others by its configuration, and shares their cookie."""

    def join(self, first: RabbitMQ, cookie: str) -> None:
        """Write what has this node form a cluster with `first` when it starts."""
        settings = (
            "cluster_formation.peer_discovery_backend = classic_config",
            f"cluster_formation.classic_config.nodes.1 = {first.node}",
            # Nodes wait so long for one that is frozen or cut off; their default is a minute.
            "net_ticktime = 15",
            # It comes back by itself. `pause_minority` leaves one out that was frozen: it never saw that it was alone.
            "cluster_partition_handling = autoheal",
            # The user guest from other hosts of the run's own network.
            "loopback_users = none",
        )
        (self.directory / "cluster.conf").write_text("\n".join(settings) + "\n")
        secret = self.directory / ".erlang.cookie"
        secret.write_text(cookie)
        secret.chmod(0o400)

    def environment(self) -> Mapping[str, str]:
        return {
            **super().environment(),
            "RABBITMQ_USE_LONGNAME": "false" if self.host == HERE else "true",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "cluster.conf"),
            # Three nodes share few cores: one scheduler each, which does not spin while it waits.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }


class RabbitCluster:
    """Three nodes of RabbitMQ; its queues are quorum queues where their users declare them so.

    `network`: the hosts that the nodes run on, one each; by default all run on this one.
    """

    def __init__(self, directory: Path, network: Network | None = None) -> None:
        self.nodes: list[RabbitNode] = []
        cookie = secrets.token_hex(16).upper()
        for number in range(NODES):
            (directory / f"node-{number}").mkdir(parents=True)
            self.nodes.append(
                RabbitNode(directory / f"node-{number}", HERE if network is None else network.hosts[number])
            )
        for node in self.nodes:
            node.join(self.nodes[0], cookie)

    @property
    def url(self) -> str:
        """The addresses of all nodes."""
        return ";".join(node.url for node in self.nodes)

    def start(self) -> None:
        """Start the first node, then the others; returns when they have formed a cluster. Raises TimeoutError."""
        self.nodes[0].start()
        for node in self.nodes[1:]:
            node.launch()
        for node in self.nodes[1:]:
            node.await_answer()
        self.await_whole()

    def await_whole(self) -> None:
        """Return when every node sees all others. Raises TimeoutError."""
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        for node in self.nodes:
            found: list[str] = []
            while len(found) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{node.node} sees {found}, expected {len(self.nodes)} nodes")
                time.sleep(PAUSE_S)
                with suppress(subprocess.SubprocessError):  # it starts again
                    found = json.loads(node.control("cluster_status", "--formatter", "json"))["running_nodes"]

    def list_queues(self) -> dict[str, tuple[str, RabbitNode | None]]:
        """Return the type of every queue, and the leader of a quorum queue. All nodes must be there."""
        listed = json.loads(self.nodes[0].control("list_queues", "name", "type", "leader", "--formatter", "json"))
        nodes = {node.node: node for node in self.nodes}
        return {one["name"]: (one["type"], nodes.get(one["leader"])) for one in listed}

    def stop(self) -> None:
        """End every node; by force where it does not end in order."""
        for node in self.nodes:  # all at once: one that waits for the others would wait for nothing
            if node.process is not None:
                node.thaw()
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.stop()
