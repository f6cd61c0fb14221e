"""A candidate with tunables: its configurations are compiled, checked and timed, and the fastest is judged."""

from __future__ import annotations

from typing import Any

import pytest

from tests import judging
from warpsmith.kernels_db.job.documents import Level, Verdict
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.judge.protocol.client import JudgeClient

# Repeats its work: how often is a constant of the module, and a row more or less a flag. -DOFF=1 is wrong, -DOFF=2 does
# not compile.
SOURCE = '''
from kernels_db.runtime import cpp

TUNE = {"TIMES": [1, 200], "OFF": [0, 1, 2]}
TIMES = 200
kernels = cpp.compile(r"""
#if OFF == 2
#error no such thing
#endif
extern "C" void norm(const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n, int64_t times) {
    for (int64_t t = 0; t < times; t++)
    for (int64_t r = 0; r < rows; r++) {
        const float* in = x + r * n;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) sum += in[i];
        const double mean = sum / n;
        for (int64_t i = 0; i < n; i++) squares += (in[i] - mean) * (in[i] - mean);
        const double scale = 1.0 / std::sqrt(squares / n + 1e-5);
        for (int64_t i = 0; i < n; i++) y[r * n + i] = (float)((in[i] - mean) * scale * w[i] + b[i] + OFF);
    }
}
""", flags=("-DOFF=0",))


def run(x, weight, bias, y):
    n = weight.numel()
    kernels.norm(x, weight, bias, y, x.numel() // n, n, TIMES)
'''
WORKLOADS = [judging.layer_norm_workload("bench", "bench", 64, 128), judging.layer_norm_workload("odd", "test", 3, 17)]


def judged(judge: JudgeClient, source: str, level: Level = "screen", **more: Any) -> Verdict:
    asked = judging.job(judging.LAYER_NORM, WORKLOADS, source, level=level)
    return judge.judge({**asked, **more}, timeout_s=280)  # type: ignore[typeddict-item]  # known_binaries


def test_the_fastest_right_configuration_is_judged(judge: JudgeClient) -> None:
    verdict = judged(judge, SOURCE)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    sweep = verdict["sweep"]
    assert sweep["chosen"] == {"TIMES": 1, "OFF": 0}
    by_values = {(entry["values"]["TIMES"], entry["values"]["OFF"]): entry for entry in sweep["configurations"]}
    assert sweep["configurations"][0] is by_values[1, 0]
    for times in (1, 200):
        assert "elements are wrong" in by_values[times, 1]["failure"]
        assert "no such thing" in by_values[times, 2]["failure"]
        assert by_values[times, 1]["time_us"] == by_values[times, 2]["time_us"] == {}
    assert verdict["compile"] is not None
    again = judged(judge, SOURCE, known_binaries={verdict["compile"]["digest"]: 3})
    assert again["reason"].startswith("duplicate of node #3 (same binary)")


def test_without_device_seconds_for_it_nothing_is_swept_and_the_verdict_says_so(judge: JudgeClient) -> None:
    limits = judging.job(judging.LAYER_NORM, WORKLOADS, SOURCE)["limits"]
    verdict = judged(judge, SOURCE, limits={**limits, "sweep_s": 0})
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert "sweep" not in verdict
    assert "sweep_seconds" not in verdict
    assert "limits.sweep_s is 0: not swept, judged at TIMES=200, OFF=0" in verdict["reason"]


def test_a_sweep_ends_at_its_device_seconds_with_the_default_timed_first(judge: JudgeClient) -> None:
    limits = judging.job(judging.LAYER_NORM, WORKLOADS, SOURCE)["limits"]
    verdict = judged(judge, SOURCE, limits={**limits, "sweep_s": 1e-9})
    assert verdict["verdict"] == "accepted", verdict["reason"]
    sweep = verdict["sweep"]
    assert (sweep["chosen"], sweep["limit_s"]) == ({"TIMES": 200, "OFF": 0}, 1e-9)
    assert [entry["values"] for entry in sweep["configurations"]] == [sweep["chosen"]]
    assert (sweep["left_out"], sweep["not_compiled"]) == (5, 5)
    assert 0.0 < verdict["sweep_seconds"] <= verdict["seconds"]["exclusive"]
    assert "5 of 6 configurations not timed, 5 of them not compiled" in verdict["reason"]


@pytest.mark.nightly
def test_a_verification_is_of_what_the_file_says(judge: JudgeClient) -> None:
    swept = judged(judge, SOURCE)
    plain = judged(judge, specialise(SOURCE, swept["sweep"]["chosen"]), "verify")
    assert plain["verdict"] == "accepted", plain["reason"]
    assert "sweep" not in plain
    assert plain["compile"] is not None
    assert swept["compile"] is not None
    assert plain["compile"]["digest"] == swept["compile"]["digest"], "the chosen configuration was judged"


def test_where_no_configuration_is_right_the_default_says_why(judge: JudgeClient) -> None:
    wrong = SOURCE.replace('"OFF": [0, 1, 2]', '"OFF": [1, 2]').replace("-DOFF=0", "-DOFF=1")
    verdict = judged(judge, wrong)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "screen")
    assert "elements are wrong" in verdict["reason"]
    broken = SOURCE.replace('"OFF": [0, 1, 2]', '"OFF": [2]').replace("-DOFF=0", "-DOFF=2")
    verdict = judged(judge, broken)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "compile")
    assert "no such thing" in verdict["reason"]


def test_tunables_that_cannot_be_read_are_refused_at_the_gate(judge: JudgeClient) -> None:
    verdict = judged(judge, SOURCE.replace("TIMES = 200", "TIMES = 199"))
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "gate")
    assert "TIMES: found 199, expected the same number everywhere, one of [1, 200]" in verdict["reason"]
