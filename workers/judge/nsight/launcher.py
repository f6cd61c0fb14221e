"""`python -m warpsmith.workers.judge.nsight.launcher CONTROL SPEC OUTPUT` holds one `ncu`.

It keeps all that `ncu` starts, and ends with it.

A process of its own, with one thread, so that it can enter a network namespace before it forks, adopts whatever `ncu`
and what runs under it leave behind, and dies with the judge: when the descriptor CONTROL closes, everything here is
killed. SPEC is a file: {"command", "directory", "limits", "network", "keep", "limit_s"}. What the command prints goes
to the descriptor OUTPUT. Exit status: 0 where the command ended, however it did; TIMED_OUT where it was ended.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.sandbox import network

TIMED_OUT = 124
"""As timeout(1) has it."""


def _become(spec: dict[str, Any], parent: int, output: int) -> None:
    process_control.begin_session(parent, output)
    os.chdir(spec["directory"])
    process_control.set_limits(spec["limits"])
    process_control.drop_privileges(spec["keep"])
    os.execv(spec["command"][0], spec["command"])  # noqa: S606 - what the judge composed


def _hold(spec: dict[str, Any], control: int, output: int) -> int:
    here = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(spec, here, output)
        except BaseException:  # noqa: BLE001 - a child must not run its parent's code
            traceback.print_exc()
        finally:
            os._exit(70)  # EX_SOFTWARE: exec does not return
    try:
        poller = select.poll()
        ended = os.pidfd_open(pid)
        poller.register(ended, select.POLLIN)
        poller.register(control, select.POLLIN)
        deadline = time.monotonic() + spec["limit_s"]
        ready = {fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000)}
        return 0 if ended in ready else TIMED_OUT
    finally:
        process_control.kill_session(pid)
        process_control.kill_children(here, spare=())


def main() -> int:
    """Run the command of SPEC until it ends, its time is over, or no process waits for it."""
    control, output = int(sys.argv[1]), int(sys.argv[3])
    spec = json.loads(Path(sys.argv[2]).read_text())
    process_control.adopt_orphans()
    network.leave(spec["network"])
    if spec["network"] != "none":
        network.raise_loopback()  # ncu and what it profiles talk over it
    return _hold(spec, control, output)


if __name__ == "__main__":
    sys.exit(main())
