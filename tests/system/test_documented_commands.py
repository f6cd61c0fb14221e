"""The commands in the documents are run as they stand there, in one home, with one service.

`tests/unit/repository/test_cli_docs.py` parses every one of them. Here all are run but those in LEFT_OUT, which says
why. What stands for an id is put in; what a command writes lies in a directory of its own.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.support.launching import command, environment, up, write_scenario
from tests.unit.repository.test_cli_docs import warpsmith_lines

LONGEST_S = 240.0

LEFT_OUT = {
    "up": "the service of this test is one",
    "mcp": "a server, until it is ended: tests/integration/cli/test_mcp.py",
    "worker --": "joins the service of another host: tests/system/test_joining_hosts.py",
    "workers drain": "as worker",
    "workers invite": "as worker",
    "campaign": "searches for every op of a model: tests/system/test_campaign.py",
    "campaigns": "has campaigns to list there",
    "ablate": "needs a model with the kernels of a package: tests/integration/test_optimize.py",
    "apply": "as ablate",
    "profile": "runs a whole model: tests/integration/test_optimize.py",
    "calls": "needs a recording: tests/unit/cli/test_cli_recordings.py",
    "workloads": "as calls",
    "verify-export": "judges a package for minutes: tests/integration/export/test_verify_export.py",
    "ops check": "judges for a minute each: tests/integration/judge",
    "merge": "needs the verdicts of a host: tests/integration/api/test_bundles.py",
    "bundle": "as merge",
    "try": "judges on the service's device: tests/integration/steps/test_tries.py",
    "tell": "needs an answer to the ask that is open: tests/integration/cli/test_cli_asks.py",
    "node": "as tell",
    "search specs/add_rms_norm.yaml": "the spec is made by profile",
    "search rms_norm.mine.yaml": "the spec is made by workloads",
    "search examples/softmax.yaml --target cpu --model replay:softmax.cpu.jsonl": "the pool is of an export",
    "search examples/layer_norm.yaml --target cpu --model replay": "replays for minutes: make run does",
    "judge": "judges for a minute each: tests/integration/judge, and examples/formats in tests/integration/formats",
    "export layer_norm": "needs a kernel of the op",
    "export softmax": "as export layer_norm",
    "export gelu_tanh": "as export layer_norm",
    "export add_rms_norm": "as export layer_norm",
    "export KERNEL KERNEL": "needs several kernels of one op: tests/integration/export",
    "import submission.py": "needs a submission: tests/unit/cli/test_cli_imports.py",
    "reverify": "judges again for minutes: tests/integration/reverification",
    "branch": "needs a node to begin at: tests/integration/cli/test_cli_steer.py",
    "pin": "as branch",
    "ban": "as branch",
    "idea": "as branch",
}
"""By the beginning of the command."""

REFUSED = {
    "search examples/layer_norm.yaml --model openai": "WARPSMITH_OPENAI_API_KEY",
    "search examples/softmax.yaml --model openai --budget": "WARPSMITH_OPENAI_API_KEY",
    "search examples/softmax.yaml --model openai:MODEL": "WARPSMITH_OPENAI_API_KEY",
}
"""What the error of commands says that need what this home has not."""

FIRST = ("teams create", "import", "search", "keys create")
"""Commands that make what others name."""


def documented() -> list[str]:
    """The commands that are run, those first that make what others name."""
    lines = [line for line in warpsmith_lines(inline=False) if not any(line.startswith(each) for each in LEFT_OUT)]
    return sorted(
        lines, key=lambda line: next((n for n, each in enumerate(FIRST) if line.startswith(each)), len(FIRST))
    )


def run(place: Path, home: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=place,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        stdin=subprocess.DEVNULL,
    )


def document_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory as the documents are read in: examples and tests are there."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


def test_what_is_left_out_is_documented() -> None:
    lines = warpsmith_lines(inline=False)
    for beginning in (*LEFT_OUT, *REFUSED):
        assert any(line.startswith(beginning) for line in lines), f"{beginning}: no command begins so any more"
    assert len(documented()) > 30
    for reason in LEFT_OUT.values():
        for path in re.findall(r"tests/[\w/.]+", reason):
            assert (REPOSITORY / path).exists(), path


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_documented_commands_do_what_they_say(place: Path) -> None:
    home = place / "home"
    spec, pool = write_scenario(place / "scenario")
    with up(home):
        done = document_of(run(place, home, ["search", str(spec), "--model", f"replay:{pool}", "--json"]))
        waits = document_of(run(place, home, ["search", "softmax", "--model", "agent", "--detach", "--json"]))
        names = {"SEARCH": waits["id"], "KERNEL": done["search"]["kernels"][0]}
        wrong = []
        for line in documented():
            words = [names.get(word, word) for word in shlex.split(line)]
            if words[0] == "search" and "agent" in words and "--detach" not in words:
                words.append("--detach")  # it would wait for its agent
            if "pool" in words:
                words[1] = done["search"]["id"]
            if words[:2] == ["keys", "revoke"]:
                words[2] = document_of(run(place, home, ["keys", "list", "--json"]))[0]["prefix"]
            found = run(place, home, words)
            said = next((word for beginning, word in REFUSED.items() if line.startswith(beginning)), None)
            good = found.returncode == 0 if said is None else found.returncode == 2 and said in found.stderr
            if not good or "Traceback" in found.stderr:
                wrong.append(f"warpsmith {shlex.join(words)}: exit code {found.returncode}\n{found.stderr[-600:]}")
    assert not wrong, "\n\n".join(wrong)
