"""Exports of a kernel alone: what benchmarks refuse is not in them, and what has no such form is refused by name."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, SCALED_ADD_TRITON, exported
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.spec.op import SpecErrors

BARE = {"gpu-mode-bare": "submission.py", "kernelbench-bare": "solution.py"}
COMMENT = re.compile("#.*")
STRICT = [r"\btry\s*:", r"\bexcept\b", r"\bpass\b", "threading", "concurrent", "_make_subclass", r"\(torch\.Tensor\)"]
"""What KernelBench's static checker calls an error, outside of comments."""
BEGIN = "    n = out.numel()"
DOCSTRING = '    """Pass over it once; except for the tail."""\n' + f"{BEGIN}  # the stream ends here"
WORDY = '"""A stream of tiles: try this."""\n' + SCALED_ADD_TRITON.replace(BEGIN, DOCSTRING)


def in_triton(source: str = SCALED_ADD_TRITON, spec: dict[str, Any] = SCALED_ADD) -> ExportedKernel:
    return exported(spec, source, "triton", target="cuda:sm_90")


def texts(form: str, kernel: ExportedKernel, directory: Path) -> dict[str, str]:
    project = registry.named(form).build(kernel, directory)
    return {path.name: path.read_text("utf-8") for path in project.iterdir()}


@pytest.mark.parametrize("form", BARE)
def test_nothing_that_a_benchmark_refuses_is_in_it(form: str, tmp_path: Path) -> None:
    title = {"idea": {"title": "one pass, try streams\x1b[31m"}}
    kernel = in_triton(WORDY, SCALED_ADD | {"description": 'A stream """ of rows\nhostile()'})
    kernel = replace(kernel, lineage=[kernel.lineage[0] | title])
    text = texts(form, kernel, tmp_path)[BARE[form]]
    code = COMMENT.sub("", text)
    assert not [pattern for pattern in STRICT if re.search(pattern, code)]
    assert form != "gpu-mode-bare" or "stream" not in text.lower()
    assert "hostile" not in ast.unparse(ast.parse(text))
    assert "\x1b" not in text
    for said in ("Apache-2.0", kernel.id, kernel.source_digest, "a test", "2.13.0", "a-model", "0" * 64):
        assert said in text, said


def test_an_axis_that_a_multiple_alone_tells_is_solved(tmp_path: Path) -> None:
    axes = {"rows": {"kind": "var"}, "hidden": {"kind": "var"}, "both": {"kind": "expr", "expr": "2 * hidden + 1"}}
    spec = SCALED_ADD | {
        "axes": axes,
        "inputs": [{"name": "x", "shape": ["rows", "both"], "dtype": "float32"}],
        "outputs": [{"name": "out", "shape": ["rows", "hidden"], "dtype": "float32"}],
        "reference": "def run(x):\n    return x[:, : x.shape[1] // 2]\n",
        "workloads": [{"id": "small", "role": "bench", "axes": {"rows": 3, "hidden": 8}}],
    }
    text = texts("gpu-mode-bare", in_triton(spec=spec), tmp_path)["submission.py"]
    assert "hidden_ = 1 + (arguments[0].shape[1] - 3) // 2" in text


@pytest.mark.parametrize("derived", ["hidden * hidden", "hidden // 2", "(hidden + 15) // 16", "hidden % 70"])
def test_an_axis_that_a_derived_one_does_not_tell_is_refused(derived: str, tmp_path: Path) -> None:
    spec = SCALED_ADD | {
        "axes": {"rows": {"kind": "var"}, "hidden": {"kind": "var"}, "both": {"kind": "expr", "expr": derived}},
        "inputs": [{"name": "x", "shape": ["rows", "both"], "dtype": "float32"}],
        "outputs": [{"name": "out", "shape": ["rows", "hidden"], "dtype": "float32"}],
        "reference": "def run(x):\n    return x\n",
        "workloads": [{"id": "small", "role": "bench", "axes": {"rows": 3, "hidden": 32}}],
    }
    with pytest.raises(SpecErrors) as caught:
        texts("gpu-mode-bare", in_triton(spec=spec), tmp_path)
    assert [error.field for error in caught.value.errors] == ["axes.hidden"]


def test_a_problem_stands_apart_from_its_solution(tmp_path: Path) -> None:
    found = texts("kernelbench-bare", in_triton(), tmp_path)
    assert sorted(found) == ["problem.py", "solution.py"]
    assert "class Model(" in found["problem.py"]
    assert "def get_inputs" in found["problem.py"]
    assert "class ModelNew(torch.nn.Module)" in found["solution.py"]


def test_a_kernels_own_names_are_no_obstacle(tmp_path: Path) -> None:
    text = texts("gpu-mode-bare", in_triton(ITS_NAMES), tmp_path)["submission.py"]
    assert "flow_2 = n > 0" in text
    assert "tl.load(x + i, flow_2)" in text


OTHER_NAME = SCALED_ADD_TRITON.replace("def run", "custom_kernel = ModelNew = 3\n\n\ndef run")
ITS_NAMES = SCALED_ADD_TRITON.replace("i < n)", "Stream_2)").replace("    i = ", "    Stream_2 = n > 0\n    i = ")
ITS_WORDS = SCALED_ADD_TRITON.replace("    n = ", "    assert out is not None, 'no stream'\n    n = ")


@pytest.mark.parametrize(
    ("form", "kernel", "field", "found"),
    [
        ("gpu-mode-bare", exported(SCALED_ADD, SCALED_ADD_CPP), "language", "cpp"),
        ("kernelbench-bare", exported(SCALED_ADD, SCALED_ADD_CPP), "language", "cpp"),
        ("gpu-mode-bare", in_triton(OTHER_NAME), "source", "custom_kernel"),
        ("kernelbench-bare", in_triton(OTHER_NAME), "source", "ModelNew"),
        ("gpu-mode-bare", in_triton(ITS_WORDS), "source", "the word stream"),
        ("kernelbench-bare", in_triton(SCALED_ADD_TRITON + "    if n < 0:\n        pass\n"), "source", "pass"),
    ],
)
def test_what_has_no_such_form_is_refused_by_name(
    form: str, kernel: ExportedKernel, field: str, found: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecErrors) as caught:
        registry.named(form).build(kernel, tmp_path / "out")
    assert [(error.field, error.found) for error in caught.value.errors] == [(field, found)]
    assert not (tmp_path / "out").exists()
