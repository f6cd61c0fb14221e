"""GPU MODE tasks with objects of their own classes as data, and with more elements than there is memory for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.formats.test_formats_sandbox import analysed_here
from warpsmith.kernels_db.formats.gpu_mode import submission
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.file_analysis import Analysis, AnalysisFailed
from warpsmith.kernels_db.spec.op import SpecErrors

pytest.importorskip("torch", reason="the files are run")

import torch

TASK = """files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "reference.py", "source": "reference.py"}
benchmarks:
"""
WITH_OBJECTS = """from dataclasses import dataclass

import torch


class Cache(torch.nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.register_buffer("kept", torch.zeros(rows, width))
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.filled = 0


@dataclass(frozen=True)
class Config:
    weight: torch.Tensor
    name: str
    sizes: tuple


def generate_input(rows, seed):
    cache = Cache(2 * rows, 3).to("cuda")
    cache.kept[:rows] = torch.randn(rows, 3)
    cache.filled = rows
    return Config(torch.randn(3, 3), "plain", (rows, 3)), torch.randn(rows, 3), cache


def ref_kernel(data):
    config, x, cache = data
    assert isinstance(cache, torch.nn.Module) and list(dict(cache.named_buffers())) == ["kept"]
    found = x @ config.weight * cache.scale
    cache.kept[cache.filled : cache.filled + config.sizes[0]] = found
    return found, cache.kept
"""
SUBMISSION = """import torch
from reference import Config


def custom_kernel(data):
    config, x, cache = data
    assert isinstance(config, Config)
    found = x @ config.weight * cache.scale
    cache.kept[cache.filled : cache.filled + config.sizes[0]] = found
    return found, cache.kept
"""


def files_of(reference: str, *calls: str) -> list[RawFile]:
    task = TASK + "".join(f"  - {{{call}}}\n" for call in calls)
    return [RawFile("task.yml", task.encode()), RawFile("reference.py", reference.encode())]


def made(reference: str, *calls: str) -> ImportedOp:
    return import_op(files_of(reference, *calls), None, analysed_here)


def test_objects_of_the_tasks_own_classes_are_taken_apart_and_put_together_again() -> None:
    op = made(WITH_OBJECTS, '"rows": 4, "seed": 1', '"rows": 6, "seed": 2').op
    shown = [(item.name, item.shape, item.mutated) for item in op.inputs]
    assert shown == [
        ("config_weight", (3, 3), False),
        ("config_sizes_0", None, False),
        ("config_sizes_1", None, False),
        ("x", ("rows", 3), False),
        ("cache_filled", None, False),
        ("cache_scale", (3,), False),
        ("cache_kept", ("cache_kept_0", 3), True),
    ]
    assert [item.name for item in op.outputs] == ["out"]  # what it writes to the cache is seen there
    space: dict[str, Any] = {}
    exec(compile(op.reference.replace("kernels_db.formats.", "warpsmith.kernels_db.job."), "spec", "exec"), space)
    weight, x, scale, kept = torch.randn(3, 3), torch.randn(4, 3), torch.randn(3), torch.zeros(8, 3)
    found = space["run"](weight, 4, 3, x, 4, scale, kept)
    assert torch.equal(found, x @ weight * scale)
    assert torch.equal(kept[4:], found)
    cache = op.inputs[-1].dist
    assert cache is not None
    assert cache.kind == "code"
    assert "**{'rows': 6, 'seed': seed})[2].kept.contiguous()" in cache.source


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a candidate import its files, and forget them afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("reference", "_imported_files"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_modules")
def test_a_submission_gets_the_objects(tmp_path: Path) -> None:
    op = made(WITH_OBJECTS, '"rows": 4, "seed": 1').op
    adapted = submission.adapt(RawFile("submission.py", SUBMISSION.encode()), op)
    space: dict[str, Any] = {"__file__": str(tmp_path / "submission.py")}
    exec(compile(adapted.source, "submission", "exec"), space)
    weight, x, scale = torch.randn(3, 3), torch.randn(4, 3), torch.ones(3)
    kept, out = torch.zeros(8, 3), torch.zeros(4, 3)
    space["run"](weight, 4, 3, x, 4, scale, kept, out)
    assert torch.equal(out, x @ weight)
    assert torch.equal(kept[4:], out)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("self.filled = 0", "self.inner = torch.nn.Linear(3, 3)", "a module with a module of its own, inner"),
        ("@dataclass(frozen=True)", "@dataclass(slots=True)", "Config with slots"),
        ('"plain"', "torch.nn.Linear(3, 3)", r"\.name: found Linear, expected a tensor, .*, or an object of a class"),
    ],
)
def test_an_object_that_cannot_be_made_again_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(SpecErrors, match=message):
        made(WITH_OBJECTS.replace(old, new), '"rows": 4, "seed": 1')


WRITES = """import torch


def generate_input(rows, seed):
    return torch.randn(rows, 8), torch.ones(rows, 8) * 2, torch.rand(rows, 8)


def ref_kernel(data):
    data, out, more = data
    STATEMENT
    return out
"""


@pytest.mark.parametrize(
    ("statement", "zeros"),
    [
        ("out[...] = data + more", ["out"]),
        ("out.view(-1)[:] = (data + more).flatten()", ["out"]),
        ("out = data + 1", ["out", "more"]),
        ("out[1:] = (data + more)[1:]", []),
        ("out[...] = out + data + more", []),
        ("out[...] = data + torch.tensor(more.tolist())", ["out"]),
    ],
)
def test_what_is_overwritten_before_it_is_read_is_zeros(statement: str, zeros: list[str]) -> None:
    found = made(WRITES.replace("STATEMENT", statement), '"rows": 4, "seed": 1', '"rows": 6, "seed": 2')
    dists = {item.name: item.dist for item in found.op.inputs}
    constant = [name for name, dist in dists.items() if dist is not None and getattr(dist, "value", None) == 0]
    assert constant == zeros
    note = f"ref_kernel does not read {', '.join(zeros)}: "
    assert any(each.startswith(note) for each in found.notes) == bool(zeros)


@pytest.mark.parametrize("values", ["torch.ones(rows, 8)", "torch.ones(rows, 8, dtype=torch.bool)"])
def test_ones_that_are_read_as_a_list_stay_ones(values: str) -> None:
    text = WRITES.replace("STATEMENT", "out[...] = data * torch.tensor(more.tolist())")
    found = made(text.replace("torch.rand(rows, 8)", values), '"rows": 4, "seed": 1', '"rows": 6, "seed": 2')
    note = "ref_kernel does not read out: "
    assert any(each.startswith(note) for each in found.notes), found.notes


NEEDS_VALUES = """import torch


def generate_input(rows, inner, count, seed):
    return torch.randn(rows, inner), [torch.randn(inner, inner // 2) for _ in range(count)]


def ref_kernel(data):
    x, weights = data
    chosen = int(x[0, 0] > 0)
    return x @ weights[chosen], x.sum(0)
"""
LARGE = '"rows": 16384, "inner": 8192, "count": 6, "seed": 1'


def test_results_of_much_data_that_need_values_have_sizes_as_smaller_calls_show() -> None:
    found = made(NEEDS_VALUES, LARGE, '"rows": 32768, "inner": 8192, "count": 6, "seed": 2')
    assert [item.shape for item in found.op.outputs] == [("rows", 4096), (8192,)]
    assert len(found.op.inputs) == 7  # how many tensors there are is no size: it was not lowered
    said = "too large to compute here: the sizes of their results are those that smaller calls show: benchmark-0"
    assert any(note.startswith(said) for note in found.notes)
    assert found.small is not None
    assert (found.sizes["count"], found.sizes["rows"] < 64, found.sizes["inner"] < 64) == (6, True, True)
    assert found.small.outputs[0].shape == (found.sizes["rows"], found.sizes["inner"] // 2)


def test_a_result_whose_size_smaller_calls_leave_open_is_not_made_up() -> None:
    ragged = NEEDS_VALUES.replace("x.sum(0)", "x[x[:, 0] > 0]")

    def without_memory(request: dict[str, Any]) -> Analysis:
        if request["values"]:
            raise AnalysisFailed("memory", "uses too much")
        return analysed_here(request)

    with pytest.raises(SpecErrors, match="uses too much"):
        import_op(files_of(ragged, LARGE), None, without_memory)


def test_a_task_of_little_data_has_no_smaller_call() -> None:
    found = made(NEEDS_VALUES, '"rows": 16, "inner": 8, "count": 2, "seed": 1')
    assert (found.small, found.sizes) == (None, {})


def test_a_smaller_call_that_does_not_end_leaves_the_op_with_its_own_sizes() -> None:
    def slow(request: dict[str, Any]) -> Analysis:
        if request["task"] == "smaller":
            raise AnalysisFailed("timeout", "did not return")
        return analysed_here(request)

    assert import_op(files_of(NEEDS_VALUES, LARGE), None, slow).small is None
