"""Calls of installed libraries as baselines: right ones are timed, all others are left out with the reason."""

from __future__ import annotations

import socket
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks.jobs import job
from tests import judging
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.experts import expert_source
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judge.sandbox.sandbox import detect

INPUTS = ("x", "weight", "bias")
NUMPY = """
import numpy as np
import torch

def run(x, weight, bias):
    found = x.numpy()
    centred = found - found.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return torch.from_numpy((scaled * weight.numpy() + bias.numpy()).astype(np.float32))
"""
NORM = "torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)"
TIRES = f"""
import torch

calls = 0

def run(x, weight, bias):
    global calls
    calls += 1
    if calls > 5:
        raise ValueError("tired")
    return {NORM}
"""


def module(body: str) -> str:
    return f"import os, socket\nimport torch\n\ndef run(x, weight, bias):\n{body}\n"


RIGHT = {
    "aten": expert_source("torch:native_layer_norm(x, weight.shape, weight, bias, 1e-5)[0]", INPUTS),
    "numpy": NUMPY,
}
WRONG = {
    "sloppy": expert_source("torch:native_layer_norm(x, weight.shape, weight, bias, 1e-2)[0]", INPUTS),
    "writes": module(f"    result = {NORM}\n    x[0, 1] = 0\n    return result"),
    "transposed": module(f"    return {NORM}.t()"),
    "absent": expert_source("liger.layer_norm(x, weight, bias)", INPUTS).replace("liger_kernel", "no_such_kernels"),
    "ends": module("    os._exit(3)"),
    "tires": TIRES,  # when it was asked, and before the clock has run
}
REASONS = {
    "sloppy": "is wrong: y[",
    "writes": "is wrong: writes its input x, first at x[0, 1]",
    "transposed": "does not run: shape: output 0 has shape [64, 32]",
    "absent": "does not run: not_installed: No module named 'no_such_kernels'",
    "ends": "does not run: crash: the process ended with exit code 3",
    "tires": "does not run: raises: ValueError: tired",
}


def small(experts: dict[str, str], source: str | None = judging.GOOD_NORM) -> Job:
    place = judging.layer_norm_workload("bench", "bench", 32, 64)
    return job(judging.LAYER_NORM, [place], source, experts=experts, time_s=0.05)


@pytest.mark.alone
def test_experts_that_are_right_are_baselines_and_no_other_ends_the_job(judge: JudgeClient) -> None:
    verdict = judge.judge(small({**RIGHT, **WRONG}), timeout_s=120)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    (timed,) = verdict["workloads"]
    assert timed["time_us"].keys() == {"eager", "candidate", *RIGHT}
    assert timed["speedup"].keys() == timed["ci95"].keys() == {"eager", *RIGHT}
    fastest = min({"eager", *RIGHT}, key=lambda name: timed["time_us"][name])
    assert verdict["score"] == pytest.approx(timed["speedup"][fastest])
    for name, reason in REASONS.items():
        assert timed["not_timed"][name].startswith(reason), timed["not_timed"][name]
    assert timed["not_timed"].keys() == REASONS.keys()
    assert verdict["experts"]["numpy"] == {"numpy": metadata.version("numpy")}
    assert "baseline sloppy is wrong on bench (y[" in verdict["reason"]
    assert "baseline absent does not run on bench (not_installed: " in verdict["reason"]


@pytest.mark.alone
@pytest.mark.skipif(not detect().landlock or not detect().seccomp, reason="this kernel cannot confine a process")
def test_an_expert_is_confined_and_an_op_is_admitted_beside_it(judge: JudgeClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        experts = {
            "reads": module(f"    open({str(secret)!r}).close()\n    return {NORM}"),
            "calls": module(
                f"    socket.create_connection(('127.0.0.1', {listening.getsockname()[1]}), 1)\n    return {NORM}"
            ),
            "sloppy": WRONG["sloppy"],
            "broken": "def run(x, weight, bias:\n",
        }
        verdict = judge.judge(small(experts, None), timeout_s=120)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    (timed,) = verdict["workloads"]
    assert timed["time_us"].keys() == {"eager"}
    assert timed["not_timed"]["reads"].startswith("does not run: raises: PermissionError")
    assert timed["not_timed"]["calls"].startswith("does not run: raises: ")
    assert timed["not_timed"]["sloppy"].startswith("is wrong: ")
    assert timed["not_timed"]["broken"].startswith("does not run: raises: SyntaxError")
