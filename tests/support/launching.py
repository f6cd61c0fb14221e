"""The `warpsmith` command as a real process, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import REPOSITORY
from tests.services import die_with_parent
from tests.support import scenario
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.store.pool_file import dump_pool
from warpsmith.workers.search.policy import policy_document

PATIENCE_S = 90.0
NODES, REPLIES = 5, 5
FAST = {
    "WARPSMITH_ATTACK_S": "0",  # seconds a verification
    "WARPSMITH_JUDGE_AT_START": "false",  # most of these services judge nothing, or little
    "WARPSMITH_JUDGE_COMPILES": "true",  # and need no worker more
    "WARPSMITH_LEASE_S": "3",
    "WARPSMITH_RECONCILE_INTERVAL_S": "0.3",
    "WARPSMITH_RESEND_AFTER_S": "1",
}


def command(*arguments: str) -> list[str]:
    """The command line of `warpsmith`."""
    return [sys.executable, "-m", "warpsmith.service.cli", *arguments]


def environment(home: Path, **settings: str) -> dict[str, str]:
    """An environment with settings of its own; what was lost comes back within seconds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WARPSMITH_", "OPENAI_"))}
    return kept | FAST | {"WARPSMITH_HOME": str(home), "COLUMNS": "200"} | settings


def warpsmith(
    home: Path, *arguments: str, code: int = 0, patience_s: float = 2 * PATIENCE_S, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its exit code is checked, and a traceback is never right."""
    result = subprocess.run(
        command(*arguments),
        env=environment(home, **settings),
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=patience_s,
    )
    assert result.returncode == code, f"{arguments}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr, result.stderr
    return result


@contextmanager
def up(home: Path, *arguments: str, **settings: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`warpsmith up` on a free port, with the document that it announces itself by."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "launcher.log").open("a") as log:
        process = subprocess.Popen(
            command("up", "--port", "0", "--json", *arguments),
            env=environment(home, **settings),
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
        )
    try:
        yield process, announced(process, home)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def announced(process: subprocess.Popen[str], home: Path) -> dict[str, Any]:
    """The document on standard output; it ends with the line `}`."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)  # type: ignore[no-any-return]
    pytest.fail(f"warpsmith up ended:\n{(home / 'launcher.log').read_text()}")


def family(pid: int) -> list[psutil.Process]:
    """A process and everything under it."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def living(processes: list[psutil.Process]) -> list[str]:
    """Those that still run, as text; zombies that wait for their new parent do not."""
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
        except psutil.NoSuchProcess:
            continue
    return found


def write_scenario(directory: Path) -> tuple[Path, Path]:
    """A spec and the recorded pool of a small search of two rounds, as files laid out like `examples/`.

    round 1   on the reference: `loop` (good), `unrolled` (wrong, without a repair), `unheard` (without code)
    round 2   on `loop`: `restrict` (good)
    """
    (directory / "pools").mkdir(parents=True, exist_ok=True)
    spec, pool = directory / "scale_shift.yaml", directory / "pools" / "scale_shift.cpu.jsonl"
    spec.write_text(scenario.OP, encoding="utf-8")
    record = scenario.Recorder(load_op(scenario.OP), Target.parse("cpu"))
    loop, unrolled, _ = record.ideas(None, "loop", "unrolled", "unheard")
    plain = record.code(None, loop, scenario.candidate(scenario.LOOP))
    record.code(None, unrolled, scenario.candidate(scenario.WRONG))
    (restrict,) = record.ideas(plain, "restrict")
    record.code(plain, restrict, scenario.candidate(scenario.RESTRICT))
    recorded = record.pool()
    policy = policy_document(replace(scenario.POLICY, repairs=1))
    pool.write_text(dump_pool(replace(recorded, header=replace(recorded.header, policy=policy))), encoding="utf-8")
    return spec, pool
