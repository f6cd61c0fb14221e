"""Experts of an op: what a spec may write, and what the judge is given to run."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.baselines import MAX_EXPERTS
from warpsmith.kernels_db.spec.experts import LIBRARIES, NotACall, expert_source, presets, read_call
from warpsmith.kernels_db.spec.op import Op, SpecErrors, load_op, parse_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.kernels_db.spec.target import Target

CPU = Target.parse("cpu:x86_64")
DOCUMENT: dict[str, Any] = yaml.safe_load(
    """
schema_version: 1
name: rms_norm
axes: {rows: {kind: var}, n: {kind: var}}
inputs:
  - {name: x, shape: [rows, n], dtype: float32}
  - {name: weight, shape: [n], dtype: float32}
outputs:
  - {name: out, shape: [rows, n], dtype: float32}
reference: |
  import torch
  def run(x, weight):
      return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)
workloads:
  - {id: a, role: bench, axes: {rows: 4, n: 16}}
"""
)


def op_with(experts: dict[str, str], baselines: list[str] | None = None) -> Op:
    listed = ["eager", *experts] if baselines is None else baselines
    return parse_op({**DOCUMENT, "objective": {"baselines": listed, "experts": experts}})


def run_of(source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(source, "expert.py", "exec"), namespace)
    return namespace["run"]


@pytest.mark.parametrize(
    "text",
    [
        "torch.nn.functional:rms_norm(x, weight.shape, weight, 1e-6)",
        "torch.nn:functional.rms_norm(x, weight.shape, weight, eps=1e-6)",
        "import torch\n\ndef run(a, b):\n    return torch.nn.functional.rms_norm(a, b.shape, b, 1e-6)\n",
    ],
)
def test_every_form_runs_as_the_reference_does(text: str) -> None:
    job = build_job(op_with({"mine": text}), CPU, level="baseline")
    x, weight = torch.randn(4, 16), torch.rand(16)
    wanted = run_of(job["op"]["reference"])(x, weight)
    torch.testing.assert_close(run_of(job["op"]["experts"]["mine"])(x, weight), wanted)
    assert job["op"]["baselines"] == ["eager", "mine"]


def test_an_input_may_bear_the_name_of_what_is_called() -> None:
    x = torch.randn(3, 5)
    assert torch.equal(run_of(expert_source("torch:softmax(softmax, -1)", ["softmax"]))(x), x.softmax(-1))


def test_a_job_holds_a_preset_as_it_stands() -> None:
    source = build_job(op_with({"liger": "liger.rms_norm(x, weight, eps=1e-6)"}), CPU, level="baseline")["op"][
        "experts"
    ]["liger"]
    assert "LigerRMSNormFunction.apply(x, weight, eps, 0.0, casting, False)" in source
    assert callable(run_of(source)), "loading it needs no library"


def test_experts_are_part_of_the_spec_and_not_of_the_computation() -> None:
    plain, with_one = parse_op(DOCUMENT), op_with({"liger": "liger.rms_norm(x, weight)"})
    assert "objective" not in plain.document()
    assert "experts" not in build_job(plain, CPU, level="baseline")["op"]
    assert plain.digest != with_one.digest
    assert plain.semantic_digest == with_one.semantic_digest
    assert parse_op(with_one.document()) == with_one


MODULE = "import torch\ndef run(x):\n    return x\n"


@pytest.mark.parametrize(
    ("experts", "baselines", "field", "expected"),
    [
        ({}, ["eager", "liger"], "objective.baselines[1]", "in objective.experts, such as liger.rms_norm(x, weight"),
        ({}, ["eager", "compiled"], "objective.baselines[1]", "did you mean compile?"),
        ({"a": "liger.softmax(x)"}, ["a"], "objective.baselines", "at least one of eager, compile, max_autotune"),
        ({"a": "liger.softmax(x)"}, ["eager", "a", "a"], "objective.baselines[2]", "each expert once"),
        ({"a": "liger.softmax(x)"}, ["eager"], "objective.experts.a", "a name among objective.baselines"),
        ({"a": "liger.softmacs(x)"}, None, "objective.experts.a", "did you mean liger.softmax"),
        ({"a": "liger.softmax(y)"}, None, "objective.experts.a", "an input of the op: one of x, weight"),
        ({"a": "liger.rms_norm(x)"}, None, "objective.experts.a", "liger.rms_norm(x, weight, eps=1e-06"),
        ({"a": "liger.rms_norm(x, weight, eps_=1)"}, None, "objective.experts.a", "liger.rms_norm(x, weight, eps"),
        ({"a": "torch.softmax(x, -1)"}, None, "objective.experts.a", "or MODULE:NAME(...), to call anything else"),
        ({"a": "softmax(x, -1)"}, None, "objective.experts.a", "softmax is in no module"),
        ({"a": "torch:softmax(x, -1) * weight"}, None, "objective.experts.a", "MODULE:NAME(...)"),
        ({"a": "torch:softmax"}, None, "objective.experts.a", "MODULE:NAME(...)"),
        ({"a": "liger.softmax(" + "-" * 900 + "x)"}, None, "objective.experts.a", "nested less deeply"),
        ({"a": "torch:softmax(x, -1"}, None, "objective.experts.a", "MODULE:NAME(...)"),
        ({"a": MODULE}, None, "objective.experts.a", "a function run with 2 positional parameters"),
        ({"a": "import torch\ndef f(x, weight): pass\n"}, None, "objective.experts.a", "a function run"),
        ({"candidate": "liger.softmax(x)"}, None, "objective.experts.candidate", "another name"),
        ({f"e{n}": "liger.softmax(x)" for n in range(MAX_EXPERTS + 1)}, None, "objective.experts", "at most 8 items"),
    ],
)  # fmt: skip
def test_a_bad_expert_says_what_is_wrong(
    experts: dict[str, str], baselines: list[str] | None, field: str, expected: str
) -> None:
    with pytest.raises(SpecErrors) as refused:
        op_with(experts, baselines)
    told = [error for error in refused.value.errors if error.field == field]
    assert any(expected in error.expected for error in told), str(refused.value)


def test_a_spec_names_the_line_of_a_bad_expert() -> None:
    document = {**DOCUMENT, "objective": {"baselines": ["eager", "a"], "experts": {"a": "liger.nothing(x)"}}}
    with pytest.raises(SpecErrors, match=r"objective\.experts\.a \(line \d+\)"):
        load_op(yaml.safe_dump(document))


@pytest.mark.parametrize("name", presets())
def test_a_preset_needs_nothing_but_its_library(name: str) -> None:
    preset = presets()[name]
    (function,) = ast.parse(preset.source).body
    assert isinstance(function, ast.FunctionDef)
    assert preset.summary.endswith((".", '"')), "a user reads what it computes"
    bound = {*preset.parameters, *dir(builtins)}
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom | ast.Import):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    assert {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} <= bound
    assert name.partition(".")[0] in LIBRARIES


@given(st.one_of(st.text(max_size=60), st.from_regex(r"[a-z]{1,4}[:.][a-z.]{1,5}\([xy,=1 ]{0,6}\)?(\[0\])?")))
def test_any_text_is_a_call_or_a_module_or_refused(text: str) -> None:
    try:
        call = read_call(text)
    except NotACall:
        return
    if call is not None and call.module:
        compile(expert_source(text, ["x"]), "expert.py", "exec")
