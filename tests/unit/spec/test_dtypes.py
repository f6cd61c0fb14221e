"""Named dtypes of an op: what a workload says of them, what is refused, and the jobs that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from warpsmith.kernels_db.spec.op import Op, SpecErrors, Target, parse_op
from warpsmith.kernels_db.spec.resolve import build_job, resolve_workload
from warpsmith.workers.llm.prompt import facts

CPU = Target.parse("cpu")
FLOAT, HALF = {"elem": "float32"}, {"elem": "bfloat16"}
SPEC: dict[str, Any] = {
    "schema_version": 1,
    "name": "scale_rows",
    "axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}},
    "dtypes": {"elem": ["float32", "bfloat16"]},
    "inputs": [
        {"name": "x", "shape": ["rows", "columns"], "dtype": "elem"},
        {"name": "scale", "shape": ["rows"], "dtype": "float32"},
        {"name": "shift", "dtype": "float32", "value": 0.5},
    ],
    "outputs": [{"name": "y", "shape": ["rows", "columns"], "dtype": "elem"}],
    "reference": "def run(x, scale, shift):\n    return (x * scale[:, None] + shift).to(x.dtype)\n",
    "workloads": [
        {"id": "wide", "role": "bench", "axes": {"rows": 64, "columns": 512}, "dtypes": FLOAT},
        {"id": "wide_half", "role": "bench", "axes": {"rows": 64, "columns": 512}, "dtypes": HALF},
        {"id": "odd", "role": "test", "axes": {"rows": 7, "columns": 51}, "dtypes": FLOAT},
        {"id": "odd_half", "role": "test", "axes": {"rows": 5, "columns": 33}, "dtypes": HALF},
    ],
}


def op(**changes: Any) -> Op:
    return parse_op({**SPEC, **changes})


def with_item(field: str, position: int, **changes: Any) -> dict[str, Any]:
    """The spec with one item of a list changed."""
    items = [dict(item) for item in SPEC[field]]
    items[position] |= changes
    return {field: items}


def test_a_workload_gives_each_tensor_its_dtype() -> None:
    single, half, *_ = (resolve_workload(op(), workload) for workload in op().workloads)
    assert [item["dtype"] for item in (*single["inputs"], *single["outputs"])] == ["float32"] * 4
    assert [item["dtype"] for item in (*half["inputs"], *half["outputs"])] == [
        "bfloat16",
        "float32",
        "float32",
        "bfloat16",
    ]
    assert half["min_bytes"] == 2 * 2 * 64 * 512 + 4 * 64
    assert single["min_bytes"] == 2 * half["min_bytes"] - 4 * 64
    assert (single.get("dtypes"), half.get("dtypes")) == (FLOAT, HALF)


def test_the_document_reads_back_and_names_are_part_of_what_is_computed() -> None:
    assert parse_op(op().document()) == op()
    assert op().semantic_digest != op().with_dtypes(FLOAT).semantic_digest
    assert "dtypes" not in op().with_dtypes(FLOAT).semantic_document()


def test_hold_outs_are_derived_for_every_dtype() -> None:
    candidate: Any = {"language": "cpp", "source": "def run(x, scale, shift, y): pass"}
    job = build_job(op(), CPU, level="verify", candidate=candidate, seed=1)
    derived = [workload for workload in job["workloads"] if workload.get("derived")]
    for dtypes in (FLOAT, HALF):
        assert sum(workload.get("dtypes") == dtypes for workload in derived) >= 3
    ids = [workload["id"] for workload in job["workloads"]]
    assert len(set(ids)) == len(ids)
    screened = build_job(op(), CPU, level="screen", candidate=candidate)
    assert [workload["id"] for workload in screened["workloads"]] == ["wide", "wide_half"]


def test_an_op_of_one_choice_has_its_workloads_alone() -> None:
    assert op().dtypes_for(CPU) == [FLOAT, HALF]
    half = op().with_dtypes(HALF)
    assert [item.dtype for item in half.inputs] == ["bfloat16", "float32", "float32"]
    assert [item.dtype for item in half.outputs] == ["bfloat16"]
    assert [workload.id for workload in half.workloads] == ["wide_half", "odd_half"]
    assert half.with_dtypes({}) is half
    assert parse_op(half.document()) == half
    with pytest.raises(ValueError, match="workloads"):
        op().with_dtypes({"elem": "float64"})


def test_workloads_of_a_target_keep_their_dtypes() -> None:
    small = [{**workload, "axes": {"rows": 4, "columns": 8}} for workload in SPEC["workloads"][:2]]
    both = op(targets={"cpu": {"workloads": small}})
    assert [workload.axes["rows"] for workload in both.with_dtypes(HALF).workloads_for(CPU)] == [4]
    assert [workload.axes["rows"] for workload in both.with_dtypes(HALF).workloads] == [64, 5]


def test_a_list_without_a_bench_workload_of_the_choice_is_dropped() -> None:
    pair = [{**one, "dtypes": {**one["dtypes"], "out": one["dtypes"]["elem"]}} for one in SPEC["workloads"][:2]]
    tested = {"id": "mixed", "role": "test", "axes": {"rows": 5, "columns": 33}, "dtypes": {**FLOAT, "out": "bfloat16"}}
    timed = {**tested, "role": "bench"}
    names = {"dtypes": {**SPEC["dtypes"], "out": SPEC["dtypes"]["elem"]}, **with_item("outputs", 0, dtype="out")}
    on_cpu = op(**names, workloads=[*pair, tested], targets={"cpu": {"workloads": [*pair, timed]}})
    mixed = on_cpu.with_dtypes(tested["dtypes"])
    assert parse_op(mixed.document()) == mixed
    assert [workload.role for workload in mixed.workloads] == ["bench"]
    in_common = op(**names, workloads=[*pair, timed], targets={"cpu": {"workloads": [*pair, tested]}})
    mixed = in_common.with_dtypes(tested["dtypes"])
    assert parse_op(mixed.document()) == mixed
    assert mixed.targets.cpu is None
    with pytest.raises(ValueError, match="workloads"):
        op(**names, workloads=[*pair, tested]).with_dtypes(tested["dtypes"])


def test_prompts_say_which_dtypes_a_parameter_has() -> None:
    workloads = [resolve_workload(op(), workload) for workload in op().workloads]
    x, scale, _, y = facts.parameter_lines(op(), workloads)
    assert x.startswith("`x`: float32 or bfloat16 tensor")
    assert scale.startswith("`scale`: float32 tensor")
    assert y.startswith("`y`: float32 or bfloat16 tensor")
    assert "elem=bfloat16" in facts.workload_lines(op(), workloads)[1]


WORKLOADS = SPEC["workloads"]


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        (with_item("inputs", 0, dtype="elm"), "inputs[0].dtype", "or one of dtypes: elem; did you mean elem?"),
        (with_item("inputs", 1, dtype="fp32"), "inputs[1].dtype", "did you mean float32?"),
        (with_item("inputs", 2, dtype="elem"), "inputs[2].dtype", "for the input is a scalar"),
        ({"dtypes": {"elem": ["float32", "bf16"]}}, "dtypes.elem[1]", "did you mean bfloat16?"),
        ({"dtypes": {"elem": ["float32", "bfloat16", "float32"]}}, "dtypes.elem[2]", "each dtype once"),
        ({"dtypes": {"elem": ["float32", "bfloat16", "float16"]}}, "dtypes.elem[2]", "a bench workload of workloads"),
        ({"dtypes": {**SPEC["dtypes"], "other": ["int8"]}}, "dtypes.other", "the dtype of some tensor"),
        ({"dtypes": {**SPEC["dtypes"], "int8": ["int8"]}}, "dtypes.int8", "a name that no dtype has"),
        ({"dtypes": {"elem": []}}, "dtypes.elem", "at least 1 items"),
        (with_item("workloads", 2, dtypes={}), "workloads[2].dtypes.elem", "one of float32, bfloat16"),
        (with_item("workloads", 2, dtypes={"elem": "float16"}), "workloads[2].dtypes.elem", "one of float32, bfloat16"),
        (
            with_item("workloads", 2, dtypes={**FLOAT, "elme": "float32"}),
            "workloads[2].dtypes.elme",
            "a name of dtypes: one of elem; did you mean elem?",
        ),
        (
            with_item("outputs", 0, check={"kind": "indices"}),
            "outputs[0]",
            "an integer dtype for the check 'indices', not elem",
        ),
        (
            {"targets": {"cpu": {"workloads": WORKLOADS[:1]}}},
            "dtypes.elem[1]",
            "a dtype that a bench workload of targets.cpu.workloads has",
        ),
    ],
)
def test_what_does_not_agree_is_named(changes: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        op(**changes)
    (error,) = (error for error in refused.value.errors if error.field == field)
    assert expected in error.expected


def test_an_integer_input_of_several_dtypes_is_drawn_in_each() -> None:
    dist = {"kind": "randint", "low": 0, "high": 200}
    changes = with_item("inputs", 0, dtype="index", dist=dist)
    names = {**SPEC["dtypes"], "index": ["int32", "int8"]}
    rows = [{**row, "dtypes": {**row["dtypes"], "index": "int32"}} for row in WORKLOADS]
    rows[0]["dtypes"]["index"] = "int8"
    with pytest.raises(SpecErrors, match="values of int8: -128 to 127"):
        op(dtypes=names, workloads=rows, **changes)
    dist["high"] = 100
    both = op(dtypes=names, workloads=rows, **changes)
    assert resolve_workload(both, both.workloads[0])["inputs"][0]["dtype"] == "int8"
