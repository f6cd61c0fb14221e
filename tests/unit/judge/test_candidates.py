"""The first two gates of a job: what the gate may know of a run's parameters, and what a candidate is run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from tests import judging
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.gates import candidates
from warpsmith.workers.judge.gates.configurations import Configurations, Prepared, Variant
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.machine.kernel_cache import kernel_cache

CUDA = '''
from kernels_db.runtime import cuda
kernels = cuda.compile(r"""
extern "C" __global__ void f(const float* x, float* y, int n, float scale) {}
""")
def run(x, scale, y):
    kernels.f[1, 32](ARGUMENTS)
'''
TRITON = """
import triton
@triton.jit
def f(x, y, n, scale):
    pass
def run(x, scale, y):
    f[(1,)](x, y, y.numel(), scale)
"""
ARGUMENTS = "x, y, y.numel(), scale"


def job(
    source: str,
    language: Literal["cuda", "triton"],
    level: Literal["screen", "verify"] = "verify",
    dtype: str = "float32",
) -> Job:
    """A job of two workloads, one of them timed."""
    inputs = [judging.tensor("x", (4, 4), dtype=dtype), judging.scalar("scale", 0.5)]
    outputs = [judging.output("y", (4, 4))]
    workloads = [
        judging.workload("bench", "bench", inputs, outputs),
        judging.workload("ragged", "test", inputs, outputs),
    ]
    return judging.job("", workloads, source, level=level, language=language, target="cuda:sm_90")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the languages are asked to prepare; they prepare nothing."""
    seen: list[dict[str, Any]] = []

    def prepare(source: str, language: str, **options: Any) -> languages.Prepared:
        seen.append({"language": language, **options})
        return {"seconds": 0.0, "log": "", "cached": False, "kernels": [], "binaries": []}

    monkeypatch.setattr(languages, "prepare", prepare)
    return seen


def prepare(asked_job: Job, cache: Path, interpreted: bool) -> Prepared:
    """The candidate's way through both gates."""
    prepared = candidates.prepare(asked_job, Report(asked_job), cache, interpreted=interpreted)
    assert prepared is not None
    return prepared


def test_a_device_runs_what_was_compiled(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    for source, language in ((CUDA.replace("ARGUMENTS", ARGUMENTS), "cuda"), (TRITON, "triton")):
        prepared = prepare(job(source, language), tmp_path, False)  # type: ignore[arg-type]
        directory = kernel_cache(tmp_path, source)
        assert not prepared.interpreted
        assert prepared.environment[CACHE_VARIABLE] == str(directory)
        assert Path(prepared.environment["TRITON_CACHE_DIR"]).parent == directory
        assert "TRITON_INTERPRET" not in prepared.environment


def test_without_a_device_triton_is_interpreted_and_cuda_goes_no_further(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    prepared = prepare(job(TRITON, "triton"), tmp_path, True)
    assert prepared.interpreted
    assert prepared.environment["TRITON_INTERPRET"] == "1"
    with pytest.raises(Stopped, match="no CUDA device: compiled for sm_90, not run") as caught:
        prepare(job(CUDA.replace("ARGUMENTS", ARGUMENTS), "cuda"), tmp_path, True)
    assert (caught.value.verdict, caught.value.gate) == ("ambiguous", "screen")


def test_what_a_screen_does_not_run_is_not_compiled_for(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    prepare(job(TRITON, "triton", "screen"), tmp_path, False)
    prepare(job(TRITON, "triton", "verify"), tmp_path, False)
    prepare(job(TRITON, "triton", "screen"), tmp_path, True)  # the interpreter runs them all
    assert [[workload["id"] for workload in call["workloads"]] for call in asked] == [
        ["bench"],
        ["bench", "ragged"],
        ["bench", "ragged"],
    ]


@pytest.mark.parametrize(
    ("arguments", "dtype", "said"),
    [
        ("x, y, y.numel(), y", "float32", "line 7: parameter 'scale' (float) of 'f': found `y`, a tensor of float32"),
        ("scale, y, y.numel(), scale", "float32", "parameter 'x' (float*) of 'f': found `scale`, a float"),
        ("x, y, scale, scale", "float32", "parameter 'n' (int) of 'f': found `scale`, a float"),
        (
            ARGUMENTS,
            "float16",
            "parameter 'x' (float*) of 'f': found `x`, a tensor of float16, expected a tensor of float32",
        ),
        ("x, y, scale", "float32", "f takes 4 arguments (x, y, n, scale), found 3"),
    ],
)
def test_the_gate_knows_what_the_op_declares(
    arguments: str, dtype: str, said: str, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(Stopped) as caught:
        prepare(job(CUDA.replace("ARGUMENTS", arguments), "cuda", dtype=dtype), tmp_path, False)
    assert (caught.value.verdict, caught.value.gate) == ("rejected", "gate")
    assert said in str(caught.value)
    assert asked == []


TUNED = 'TUNE = {"BLOCK": [32, 64, 128]}\nBLOCK = 64\n' + CUDA.replace("1, 32", "1, BLOCK").replace(
    "ARGUMENTS", ARGUMENTS
)


def variants(cache: Path, level: Literal["screen", "verify"] = "screen", most: int = 9) -> list[Variant]:
    """The configurations of a CUDA candidate with three, as a sweep takes them that can time `most`."""
    found = prepare(job(TUNED, "cuda", level), cache, False).configurations
    return [] if found is None else taken(found, most)


def taken(found: Configurations, most: int) -> list[Variant]:
    """What a sweep takes that can time `most`."""
    some: list[Variant] = []
    while len(some) < most and (one := found.take(most - len(some))) is not None:
        some.append(one)
    return some


@pytest.mark.usefixtures("asked")
def test_a_screening_on_its_device_has_every_configuration(tmp_path: Path) -> None:
    found = variants(tmp_path)
    assert found[0].values == {"BLOCK": 64}, "the default comes first"
    assert {one.values["BLOCK"] for one in found} == {64, 32, 128}
    assert [variant.source.count(f"BLOCK = {variant.values['BLOCK']}\n") for variant in found] == [1, 1, 1]
    directories = {(variant.prepared or Prepared()).environment[CACHE_VARIABLE] for variant in found}
    assert len(directories) == 3, "each is built by itself"
    assert variants(tmp_path, "verify") == [], "the numbers in the file count"
    triton = 'TUNE = {"BLOCK": [1, 2]}\nBLOCK = 1\n' + TRITON
    swept = prepare(job(triton, "triton", "screen"), tmp_path, False).configurations
    assert swept is not None
    assert len(taken(swept, 9)) == 2
    assert prepare(job(triton, "triton", "screen"), tmp_path, True).configurations is None, "nothing would be timed"


def test_one_that_does_not_compile_is_out_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(source: str, language: str, **options: Any) -> languages.Prepared:
        del language, options
        if "BLOCK = 64\n" in source:
            raise languages.CompileError("line 3: no")
        return {"seconds": 0.0, "log": "", "cached": False, "kernels": [], "binaries": []}

    monkeypatch.setattr(languages, "prepare", prepare)
    found = variants(tmp_path)
    assert [variant.prepared is None for variant in found] == [True, False, False]
    assert str(found[0].refused) == "line 3: no"


def test_a_sweep_of_few_device_seconds_has_few_compiled(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    screening = job(TUNED, "cuda", "screen")
    screening["limits"]["sweep_s"] = 0.5
    found = prepare(screening, tmp_path, False).configurations
    assert found is not None
    assert (found.declared, found.compiled, len(asked)) == (3, 1, 1)
