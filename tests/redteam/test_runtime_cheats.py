"""Attacks of native code that need more than one candidate and one verdict. The rest stands in the catalogue."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.redteam_catalogue import cheats_native
from benchmarks.redteam_catalogue.cheats_native import CONTROL, PARENTS, SPIES
from benchmarks.redteam_catalogue.text import ALL, HONEST_ADD, LIBC, add_cpp
from benchmarks.redteam_catalogue.trial import judge_entry
from tests import REPOSITORY, judging
from tests.judging import tensor
from tests.redteam.conftest import PLANTED
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.runtime import cpp
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeDied

TIMEOUT_S = 120.0
ADD = "def run(x, y):\n    return x + y\n"
PLACE = [
    judging.workload("bench", "bench", [tensor("x", (5000,)), tensor("y", (5000,))], [judging.output("out", (5000,))])
]


def _judge(client: JudgeClient, source: str) -> Verdict:
    return client.judge(judging.job(ADD, PLACE, source), timeout_s=TIMEOUT_S)


def test_the_honest_kernel_passes(client: JudgeClient) -> None:
    verdict = _judge(client, HONEST_ADD["cpp"])
    assert verdict["verdict"] == "accepted", verdict["reason"]


@pytest.mark.parametrize("junk", ["{", "\\xff\\xfe", '{\\"error\\": []}', "KK", "Z"])
def test_junk_for_an_answer_costs_a_verdict_and_no_judge(client: JudgeClient, junk: str) -> None:
    """37: what a runner says is read by code that expects anything."""
    pid = client.pid
    body = f'const char junk[] = "{junk}"; send(control(), junk, sizeof junk - 1, 0); {ALL}'
    verdict = _judge(client, add_cpp(body, LIBC + CONTROL))
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("protocol", "raises", "crash")
    assert pid in (None, client.pid)


@pytest.mark.parametrize("whom", ["parent()", "referee()"])
def test_killing_its_parents_gains_nothing(client: JudgeClient, whom: str) -> None:
    """A runner that ends its fork server or its referee costs the caller a judge at most, and never gains a verdict."""
    source = add_cpp(f"int whom = {whom}; if (whom > 1) kill(whom, 9); {ALL}", LIBC + PARENTS)
    try:
        verdict = _judge(client, source)
    except JudgeDied:
        return
    # Accepted is right where the kill had no effect: the result was.
    assert verdict["verdict"] in ("accepted", "rejected", "ambiguous")
    assert _judge(client, HONEST_ADD["cpp"])["verdict"] == "accepted"


WITHOUT_A_JUDGE = [
    "finds a key in its own environment",
    "reads a file of the host",
    "writes the judge's own source",
    "writes outside of its directory",
    "opens a TCP socket",
    "sends a datagram",
    "starts a program",
]
"""Spies whose object every process has."""
PROBE = """
import ctypes, os, sys
found = ctypes.c_int.in_dll(library := ctypes.CDLL(sys.argv[1]), "found")
library.spy()
sys.exit(42 if found.value else 0)
"""


@pytest.mark.parametrize("name", WITHOUT_A_JUDGE)
def test_the_spies_can_tell(tmp_path: Path, name: str) -> None:
    """Outside of the judge a spy finds what it looks for: that it finds nothing inside says something."""
    test = next(test for spy, _, test, _ in SPIES if spy == name).replace("FIND", cheats_native.SOURCE_PATH)
    code = f'{LIBC}{PARENTS}\nextern "C" {{ int found = 0; }}\nextern "C" void spy() {{ found = {test}; }}\n'
    built = cpp.build(code, cache_dir=tmp_path)
    environment = {PLANTED: "planted", "PYTHONPATH": str(REPOSITORY / "src"), "PATH": os.environ["PATH"]}
    ended = subprocess.run([sys.executable, "-c", PROBE, str(built.path)], env=environment, check=False)
    assert ended.returncode == 42


def test_the_spies_of_processes_can_tell(tmp_path: Path) -> None:
    """What they look for, they find in their own process."""
    code = (
        f'{LIBC}{PARENTS}\nextern "C" {{ int found = 0; }}\nextern "C" void spy() {{ '
        'found = opens("/proc/%d/mem", getpid(), 0) && reads("/proc/%d/environ", getpid()) && '
        "parent() == getppid() && referee() > 0; }\n"
    )
    library = ctypes.CDLL(str(cpp.build(code, cache_dir=tmp_path).path))
    library.spy()
    assert ctypes.c_int.in_dll(library, "found").value


def test_a_spy_that_finds_what_it_looks_for_is_accepted(client: JudgeClient) -> None:
    """The other half of the catalogue's spies: what they find decides their verdict."""
    source = add_cpp(f"if (getpid() > 0) {ALL}", LIBC)
    assert _judge(client, source)["verdict"] == "accepted"


def test_an_entry_whose_cheat_does_not_compile_counts_as_missed(client: JudgeClient) -> None:
    spy = next(cheat for cheat in cheats_native.cheats() if cheat.name == "sets the clock")
    broken = type(spy)(spy.name, spy.lines, "cpp", spy.op, add_cpp("no such thing", LIBC), spy.does)
    outcome = judge_entry(client, broken)
    assert (outcome.gate, outcome.good) == ("compile", False)
