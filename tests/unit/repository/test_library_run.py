"""A run of `benchmarks.library` over several GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import library
from benchmarks.library import Kernel, judged
from benchmarks.showcase import Shown, write_verdicts
from warpsmith.kernels_db.library import entries
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.workers.judging import machine
from warpsmith.workers.judging.machine import Gpu


def test_each_gpu_of_the_first_ones_kind_has_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Gpu(number, name, "9.0", f"GPU-{number}") for number, name in enumerate(["H200", "H100", "H200"])]
    monkeypatch.setattr(machine, "gpus", lambda: found)
    assert library.devices() == ["GPU-0", "GPU-2"]
    monkeypatch.setattr(machine, "gpus", list)
    assert library.devices() == [None]


def test_every_kernel_is_judged_once_and_those_of_an_op_by_one_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No judge starts here: what a GPU would answer is not the subject."""
    asked: dict[str, set[int]] = {}
    reports: list[int] = []

    def answer(client: object, job: dict[str, dict[str, str]]) -> Shown:
        asked.setdefault(job["op"]["name"], set()).add(id(client))
        return Shown(job["op"]["name"], "triton", 0.0, None, "not asked")

    monkeypatch.setattr(library, "ask", answer)
    monkeypatch.setattr(library, "devices", lambda: ["GPU-0", "GPU-1"])
    one = next(iter(entries()))
    ops = {name: parse_op(one.op.document() | {"name": name}) for name in "abc"}
    kernels = [Kernel(ops[name], one.target, one.language, one.source) for name in ("a", "b", "a", "c", "b")]
    shown = judged(kernels, tmp_path, ["eager"], 1.0, "verify", lambda so_far: reports.append(len(so_far)))
    assert [each.op for each in shown] == ["a", "b", "a", "c", "b"], "in the order of the kernels"
    assert reports == [1, 2, 3, 4, 5], "and each is told of as it comes"
    assert all(len(clients) == 1 for clients in asked.values())


def test_a_kernel_is_screened_on_its_bench_workloads_alone() -> None:
    kernel = next(iter(entries()))
    full, screened = (library.job_of(kernel, ["eager"], 1.0, level) for level in ("verify", "screen"))
    assert (full["level"], screened["level"]) == ("verify", "screen")
    benches = [each["id"] for each in full["workloads"] if each["role"] == "bench" and not each.get("derived")]
    assert [each["id"] for each in screened["workloads"]] == benches
    assert len(benches) < len(full["workloads"])


def read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["benchmarks.library", "--read", str(file), *more])
    return library.main(), capsys.readouterr().out


def test_an_earlier_run_is_read_with_the_kernels_that_had_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, file = library.stored(next(iter(entries()))), tmp_path / "verdicts.json"
    write_verdicts(file, [good, Shown("softmax", "cuda", 3.0, None, "JudgeDied: gone")])
    status, printed = read_again(file, monkeypatch, capsys)
    assert (status, printed.splitlines()[-1]) == (1, "1 of 2 accepted, 0 compiled and not timed, as stored")
    assert "softmax cuda: no verdict: JudgeDied: gone" in printed
    status, printed = read_again(file, monkeypatch, capsys, "--markdown")
    assert (status, printed.splitlines()[-1]) == (1, f"| softmax | cuda |{' - |' * (len(library.MARKDOWN) - 2)}")
    write_verdicts(file, [good])
    assert read_again(file, monkeypatch, capsys)[0] == 0


def test_a_null_of_an_earlier_version_counts_as_a_kernel_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(json.dumps([None]))
    status, printed = read_again(file, monkeypatch, capsys)
    assert (status, printed.splitlines()[-1]) == (1, "0 of 1 accepted, 0 compiled and not timed, as stored")
