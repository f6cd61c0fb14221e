"""Attacks on a sweep: it may choose badly for them, and no figure of the verdict is its own.

The sweep takes a GPU's events at their word, starts several configurations at once and leaves some early. What it finds
decides which configuration is judged and nothing else; each has a process of its own.
"""

from __future__ import annotations

import pytest

from benchmarks.redteam_catalogue.text import HIDDEN, LIBC, cpp
from tests import judging
from tests.judging import tensor
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.sweep_documents import SweptConfiguration
from warpsmith.workers.judge.protocol.client import JudgeClient

pytestmark = pytest.mark.alone

RUN = "def run(x, y, out):\n    kernels.add(x, y, out, out.numel())\n"
ADD = "def run(x, y):\n    return x + y\n"
PLACE = [
    judging.workload("bench", "bench", [tensor("x", (5000,)), tensor("y", (5000,))], [judging.output("out", (5000,))])
]
SLOW = 2000
"""Times that a slow call does its work: some milliseconds, which the exchange with a runner takes on a busy machine."""

FAST_CALLS = 40
"""Calls that decide two of a sweep's three blocks: three before, then a wake-up and 15 at most for each. Of the eleven
blocks and more of a verdict, of five calls at least and ten on average, they are the first few.
"""

MARKS = """
static const char* marks[] = {"mark", "../mark", "/tmp/mark", "/dev/shm/mark", "/var/tmp/mark"};
static void leave_mark() {
    hidden<int>(64) = 1;
    for (const char* mark : marks) close(open(mark, 0102, 0666));
}
static bool is_marked() {
    for (const char* mark : marks) if (access(mark, 0) == 0) return true;
    return hidden<int>(64) == 1;
}
"""


def candidate(name: str, repeats: str, before: str = "") -> str:
    """Add, as often as the expression `repeats` says, with a tunable of 0 and 1."""
    code = f"""{LIBC}{HIDDEN}{MARKS}
extern "C" void add(const float* x, const float* y, float* out, int64_t n) {{
    {before}
    const int repeats = {repeats};
    volatile float* to = out;
    for (int again = 0; again < repeats; again++)
        for (int64_t i = 0; i < n; i++) to[i] = x[i] + y[i];
}}
"""
    return cpp(code, RUN, f'TUNE = {{"{name}": [0, 1]}}', f'("-D{name}=0",)')


def judged(client: JudgeClient, source: str) -> tuple[Verdict, dict[int, SweptConfiguration]]:
    """Screen a candidate; return the verdict and the configurations of its sweep by their value."""
    verdict = client.judge(judging.job(ADD, PLACE, source, time_s=3.0), timeout_s=120.0)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    return verdict, {next(iter(one["values"].values())): one for one in verdict["sweep"]["configurations"]}


def test_a_configuration_that_is_fast_for_as_long_as_a_sweep_lasts_has_its_own_time_in_the_verdict(
    client: JudgeClient,
) -> None:
    fakes = f"FAKES && hidden<int>(0)++ < {FAST_CALLS} ? 1 : {SLOW}"
    verdict, swept = judged(client, candidate("FAKES", fakes))
    assert verdict["sweep"]["chosen"] == {"FAKES": 1}, "the sweep is deceived"
    (timed,) = verdict["workloads"]
    assert timed["time_us"]["candidate"] > 2 * swept[1]["time_us"]["bench"], "the verdict is not"
    assert verdict["score"] is not None
    assert verdict["score"] < 1.0


def test_a_configuration_finds_nothing_of_what_one_before_it_left(client: JudgeClient) -> None:
    finds = f"FINDS && is_marked() ? 1 : FINDS ? {2 * SLOW} : {SLOW // 4}"
    verdict, swept = judged(client, candidate("FINDS", finds, "if (!FINDS) leave_mark();"))
    assert verdict["sweep"]["chosen"] == {"FINDS": 0}
    assert swept[1]["time_us"]["bench"] > 2 * swept[0]["time_us"]["bench"]


def test_a_configuration_that_feigns_slow_first_calls_is_left_and_the_other_judged(client: JudgeClient) -> None:
    feigns = f"FEIGNS && hidden<int>(0)++ < 8 ? {3 * SLOW} : 1"
    verdict, swept = judged(client, candidate("FEIGNS", feigns))
    assert verdict["sweep"]["chosen"] == {"FEIGNS": 0}
    assert swept[1]["time_us"]["bench"] > 1.5 * swept[0]["time_us"]["bench"]
    assert "failure" not in swept[1]
