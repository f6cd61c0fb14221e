"""Decisions that ship: a kernel stands without having been timed here, and only where it is right here."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import warpsmith
from benchmarks.known import keep
from tests.exporting import exported
from tests.integration.test_optimize_kernels import NORM, NORM_CPP, Norm
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize.compiled import choice, choices, inductor, known, seams

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
GOOD = choice.Decision("", "", True, 1.0, 2.0, (1.9, 2.1))
CPU = torch.device("cpu")


class _TimedError(AssertionError):
    """Something was timed, though it is known."""


def _never(*_: Any) -> Any:
    raise _TimedError


def _start(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin as another user: no cache has anything."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(directory / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of what ships, in place of the package's own."""
    monkeypatch.setattr(known, "DIRECTORY", tmp_path / "known")
    monkeypatch.setattr(seams, "gain", lambda *_: seams.Gain(9.0, 1.0))
    return tmp_path / "known"


def _found_elsewhere(model: Norm, x: torch.Tensor, package: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let another machine find that a kernel is faster, and ship that; returns the region's key."""
    _start(place, monkeypatch)
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(choice, "load", lambda *_: None)
        patch.setattr(choice, "decide", lambda *_: GOOD)
        patch.setattr(inductor, "compile_graph", _aborted(inductor.compile_graph))
        with pytest.raises(Exception, match="_AbortedError"):
            warpsmith.optimize(model, kernels=[package])(x)
    files = keep(place, ["default"], CPU, known.DIRECTORY)
    known._references.cache_clear()  # a process reads what ships once
    assert [file.name.partition(".")[0] for file in files] == ["decisions", "references"]
    (key,) = json.loads(files[0].read_text("utf-8"))["decisions"]
    return str(key)


class _AbortedError(Exception):
    pass


def _aborted(compile_graph: Any) -> Any:
    """Compile a graph until its places are decided: the code is not wanted."""

    def compiling(graph: Any, inputs: Any, patches: Any, attempts: Any = None) -> Any:
        def once(attempt: Any) -> Any:
            attempts(attempt)
            raise _AbortedError("_AbortedError")

        return compile_graph(graph, inputs, patches, None if attempts is None else once)

    return compiling


def test_a_kernel_that_ships_as_faster_is_compared_and_not_timed(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = build(exported(NORM, NORM_CPP), tmp_path / "package")
    model, x = Norm(32, 1e-5).eval(), torch.randn(2, 9, 32)
    key = _found_elsewhere(model, x, package, tmp_path / "there", monkeypatch)
    _start(tmp_path / "here", monkeypatch)
    monkeypatch.setattr(choice, "decide", _never)
    traced = importlib.import_module("warpsmith.workers.optimize.compiled.served").Served
    monkeypatch.setattr(traced, "_traced", _never)
    compared: list[str] = []
    compare = choice.compare
    monkeypatch.setattr(choice, "compare", lambda region: compared.append(region.key) or compare(region))
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[package])
        torch.testing.assert_close(fast(x), model(x))
    assert "1 of 1 places of kernels taken" in fast.report(), fast.report()
    assert "1.0 us for Inductor's 2.0" in fast.report()
    assert compared == [key]
    assert importlib.import_module(package.name).status()["watch"]["every"] == 10_000, "the watch is on again"
    (file,) = (file for file in (tmp_path / "here" / "choices").glob("*.json"))
    assert list(json.loads(file.read_text("utf-8"))) == [key], "it is found here now"


def test_a_kernel_that_ships_as_faster_and_is_wrong_here_stays_out(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = NORM_CPP.replace("squares / n + eps", "squares / n + 0.5")
    package = build(exported(NORM, wrong), tmp_path / "package")
    model, x = Norm(32, 1e-5).eval(), torch.randn(2, 9, 32)
    _found_elsewhere(model, x, package, tmp_path / "there", monkeypatch)
    _start(tmp_path / "here", monkeypatch)
    monkeypatch.setattr(choice, "decide", _never)
    for _ in range(2):  # another process has Inductor's cache, in which is the code with the kernel as well
        torch._dynamo.reset()
        with torch.no_grad():
            fast = warpsmith.optimize(model, kernels=[package])
            torch.testing.assert_close(fast(x), model(x))
        assert "0 of 1 places of kernels taken" in fast.report(), fast.report()
        assert "the kernel's result is wrong" in fast.report()


def test_code_that_a_process_left_before_its_kernels_were_compared_is_not_taken(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = NORM_CPP.replace("squares / n + eps", "squares / n + 0.5")
    package = build(exported(NORM, wrong), tmp_path / "package")
    model, x = Norm(32, 1e-5).eval(), torch.randn(2, 9, 32)
    _found_elsewhere(model, x, package, tmp_path / "there", monkeypatch)
    _start(tmp_path / "here", monkeypatch)
    with monkeypatch.context() as ended, torch.no_grad():
        ended.setattr(choices.Choices, "compared", _killed)
        with pytest.raises(Exception, match="_AbortedError"):
            warpsmith.optimize(model, kernels=[package])(x)
    torch._dynamo.reset()
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[package])
        torch.testing.assert_close(fast(x), model(x))
    assert "the kernel's result is wrong" in fast.report(), fast.report()


def _killed(own: choices.Choices) -> bool:
    own._meanwhile.end()
    raise _AbortedError("_AbortedError")


def test_a_kernel_that_ships_as_faster_and_does_not_load_here_stays_out_of_this_process(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = build(exported(NORM, NORM_CPP), tmp_path / "package")
    model, x = Norm(32, 1e-5).eval(), torch.randn(2, 9, 32)
    _found_elsewhere(model, x, package, tmp_path / "there", monkeypatch)
    _start(tmp_path / "here", monkeypatch)
    asked: list[str] = []
    absent = choice.Decision("the kernel did not load", lasting=False)
    monkeypatch.setattr(choice, "compare", lambda region: asked.append(region.key) or absent)
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[package])
        torch.testing.assert_close(fast(x), model(x))
    assert "stays: the kernel did not load" in fast.report(), fast.report()
    assert len(asked) == 1


def test_the_inputs_of_a_region_are_drawn_once_to_load_its_kernel(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = build(exported(NORM, NORM_CPP), tmp_path / "package")
    _start(tmp_path, monkeypatch)
    drawn: list[Any] = []
    draw = choice._drawn
    monkeypatch.setattr(choice, "_drawn", lambda *given: drawn.append(given[1:]) or draw(*given))
    monkeypatch.setattr(choice, "decide", lambda *_: GOOD)
    monkeypatch.setattr(inductor, "compile_graph", _aborted(inductor.compile_graph))
    served = importlib.import_module(package.name).status()["served"]["kernel"] if package.name in sys.modules else 0
    with torch.no_grad(), pytest.raises(Exception, match="_AbortedError"):
        warpsmith.optimize(Norm(32, 1e-5).eval(), kernels=[package])(torch.randn(2, 9, 32))
    assert drawn == [("normal",)]
    assert importlib.import_module(package.name).status()["served"]["kernel"] == served + 1, "it is loaded"
