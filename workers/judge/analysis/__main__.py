"""`python -m warpsmith.workers.judge.analysis`: answer requests.

It reads a request a line from standard input and writes an answer a line to standard output, in the same order, until
the end of input. Its scratch files are in the current directory.

A request is {"id", "minimum": level or null, "seconds": number, "request": {...}}; an answer {"id", "answer": {...},
"sandbox": level} or {"id", "failed": {"kind", "message"}}. A file runs in a runner as a spec's own generator does: a
fresh process of the fork server, confined as this machine can, for so many seconds and under a limit of memory.

`--die-with-parent PID`: be killed when the thread of process PID that started this one ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.garbage import imports_kept

if TYPE_CHECKING:
    from warpsmith.workers.judge.runner.fork_server_client import ForkServer

MEMORY_BYTES = 4 << 30
SOURCE = """from warpsmith.workers.judge.analysis.inside import answer

REQUEST = {request!r}


def make(shape, dtype, generator):
    return answer(REQUEST)
"""


def analysed(lines: Iterable[str], scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request."""
    # Imported late: the process hides its memory before it has any of this; the fork server imports torch meanwhile.
    from warpsmith.workers.judge.machine.host import cores_available  # noqa: PLC0415
    from warpsmith.workers.judge.runner.fork_server_client import ForkServer  # noqa: PLC0415

    cores = cores_available()
    server = ForkServer(cores, scratch)
    try:
        server.preload(("warpsmith.workers.judge.analysis.inside",))
        for line in lines:
            asked = json.loads(line)
            yield {"id": asked["id"]} | _answer(asked, scratch, cores, server)
    finally:
        server.close()


def _answer(asked: dict[str, Any], scratch: Path, cores: int, server: ForkServer) -> dict[str, Any]:
    with imports_kept():
        import torch  # noqa: PLC0415

        from warpsmith.workers.judge.analysis.inside import ANSWER_BYTES  # noqa: PLC0415
        from warpsmith.workers.judge.machine.buffers import TensorSpec  # noqa: PLC0415
        from warpsmith.workers.judge.preloaded.client import ForkServerDied  # noqa: PLC0415
        from warpsmith.workers.judge.runner.faults import RunnerFault  # noqa: PLC0415
        from warpsmith.workers.judge.runner.runner_handle import RunnerHandle  # noqa: PLC0415
        from warpsmith.workers.judge.sandbox.sandbox import NotConfined  # noqa: PLC0415

    try:
        handle = RunnerHandle(
            server,
            name="file",
            mode="generate",
            source=SOURCE.format(request=json.dumps(asked["request"])),
            arithmetic="ieee",
            directory=Path(tempfile.mkdtemp(dir=scratch)) / "runner",  # a file may leave what cannot be removed
            environment={},
            memory_bytes=MEMORY_BYTES,
            cores=cores,
            device=torch.device("cpu"),
        )
        try:
            reached = handle.confinement
            if asked["minimum"] is not None and not reached.reaches(asked["minimum"]):
                expected = f"at least {asked['minimum']}"
                return _failed("sandbox", f"this machine confines at level {reached.level}, expected {expected}")
            handle.bind([], [TensorSpec("answer", (ANSWER_BYTES,), (1,), torch.uint8)], 1)
            handle.command({"command": "generate", "seed": 0}, asked["seconds"])
            raw = bytes(handle.slots[0].tensor(0).numpy())
        finally:
            handle.close()
        return {"answer": json.loads(raw), "sandbox": reached.level}
    except RunnerFault as fault:
        return _failed(fault.kind, str(fault))
    except NotConfined as refused:
        return _failed("sandbox", str(refused))
    except ForkServerDied as death:
        server.start()
        return _failed("crash", str(death))
    except ValueError as error:  # the file wrote over its own answer
        return _failed("crash", str(error))


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"failed": {"kind": kind, "message": message}}


def main() -> int:
    """Answer requests until the end of input; returns the exit status."""
    arguments = argparse.ArgumentParser(prog="python -m warpsmith.workers.judge.analysis")
    arguments.add_argument("--die-with-parent", type=int, metavar="PID")
    given = arguments.parse_args()
    if given.die_with_parent is not None:
        process_control.die_with_parent(given.die_with_parent)
    process_control.hide_memory()
    process_control.adopt_orphans()
    door = os.dup(1)
    os.dup2(2, 1)  # whatever prints, the door carries the answer alone
    # Here, in the caller's directory: the caller removes that, and this process may be killed.
    with (
        tempfile.TemporaryDirectory(prefix="scratch-", dir=Path.cwd()) as scratch,
        os.fdopen(door, "w", encoding="utf-8") as stream,
    ):
        for answer in analysed(sys.stdin, Path(scratch)):
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
