"""A place with secrets, servers and a kernel cache around runners that try to reach them."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from pathlib import Path

import torch

from tests import escapes, judging
from warpsmith.kernels_db.runtime import cpp
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV}
"""EXDEV: Landlock's answer where a link would give more rights."""


class Field:
    """A place with secrets, servers and a kernel cache, and the fork server whose runners try to reach them."""

    def __init__(self, directory: Path, device: torch.device, preload: list[str]) -> None:
        self.directory = directory
        self.device = device
        self.cache = directory / "cache"
        self.own = self.cache / "own"
        home = directory / "home"
        for place in (self.own, home, directory / "runners"):
            place.mkdir(parents=True)
        for path in (directory / "secret", self.own / "victim", self.cache / "other"):
            path.write_text("secret\n")
            path.chmod(0o600)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.path_server, self.abstract_server = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        # Its path must fit into an address.
        server = f"/tmp/ws-{uuid.uuid4().hex[:12]}"
        abstract = f"warpsmith-{uuid.uuid4().hex}"
        self.path_server.bind(server)
        self.abstract_server.bind(f"\0{abstract}")
        for listening in (self.path_server, self.abstract_server):
            listening.listen()
        self.server_path = Path(server)
        self.places = {
            "SECRET": str(directory / "secret"),
            "VICTIM": str(self.own / "victim"),
            "OTHER": str(self.cache / "other"),
            "CACHE": str(self.cache),
            "OWN": str(self.own),
            "HOME": str(home),
            "TEST": str(os.getpid()),
            "PORT": str(self.listener.getsockname()[1]),
            "SERVER": server,
            "ABSTRACT": abstract,
        }
        code = escapes.library(self.places)
        self.library = cpp.build(code, cache_dir=self.own).path
        self.source = judging.cpp(code, "def run(which, out):\n    kernels.probe(which, out)\n")
        self.server = ForkServer(2, directory)
        self.server.preload(preload)
        self.number = 0

    def close(self) -> None:
        """End the runners and the servers."""
        self.server.close()
        for listening in (self.listener, self.path_server, self.abstract_server):
            listening.close()
        self.server_path.unlink()

    def runner(
        self,
        source: str,
        mode: Mode = "candidate",
        language: str | None = "cpp",
        memory_bytes: int = 1 << 30,
        *,
        wait: bool = True,
    ) -> RunnerHandle:
        """A runner with `source` loaded, or about to be, which may use `memory_bytes` besides its buffers."""
        self.number += 1
        return RunnerHandle(
            self.server,
            name=mode,
            mode=mode,
            source=source,
            arithmetic="ieee",
            directory=self.directory / "runners" / str(self.number),
            environment={CACHE_VARIABLE: str(self.own)},
            memory_bytes=memory_bytes,
            cores=2,
            device=self.device,
            language=language if mode == "candidate" else None,
            wait=wait,
        )
