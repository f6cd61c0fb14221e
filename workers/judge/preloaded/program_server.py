"""The program server: it becomes, in a confined child for each request, one program that is no Python.

A compiler that reads a candidate's text, a sanitized kernel. Such a program needs nothing that this process could
import for it, so the server is ready at once. A request names the command with its whole environment, its limits and
its profile (`sandbox.Profile`); the child takes these on and executes the command.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.preloaded import server
from warpsmith.workers.judge.sandbox import sandbox

_NICENESS = 10
_MORE_TASKS = 256
NOT_STARTED = 127
"""The exit status of a child whose command could not be executed, as a shell has it."""


def _become_program(ability: sandbox.Ability, request: dict[str, Any], fds: list[int]) -> int:
    command, environment = list(request["command"]), dict(request["environment"])
    os.nice(_NICENESS)  # programs yield to processes that are timed
    limits = {**request["limits"], "NPROC": process_control.user_tasks() + _MORE_TASKS}
    process_control.drop_privileges()
    if request["fixed_addresses"]:
        process_control.fix_addresses()
    sandbox.confine(sandbox.Profile.of(request["profile"]), ability)
    process_control.set_limits(limits)
    try:
        os.execve(command[0], command, environment)  # noqa: S606 - no shell, and the command is the judge's own
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        return NOT_STARTED


def main() -> None:
    control, ability = server.begin()
    server.serve(control, ability, functools.partial(_become_program, ability))


if __name__ == "__main__":
    main()
