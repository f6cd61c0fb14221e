"""Ops and workloads as jobs: sizes, bytes, distributions, sources."""

from __future__ import annotations

import ast
import importlib.util
import json
from typing import Any

import pytest

from tests.services import absent
from tests.unit.spec.specs import SPEC, spec
from warpsmith.kernels_db.job.documents import JobCandidate, ResolvedInput, ResolvedWorkload
from warpsmith.kernels_db.spec.binding import bind_axes, cyclic_axes
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors, Target, parse_op
from warpsmith.kernels_db.spec.resolve import (
    DEFAULT_LIMITS,
    LIBRARY_CALLS,
    arguments,
    build_job,
    limits_with,
    reference_source,
    resolve_workload,
    workload_bytes,
)

CPU = Target.parse("cpu:x86_64")
CANDIDATE: JobCandidate = {"language": "cpp", "source": "def run(x, rows, m, y):\n    pass\n"}


def resolved(index: int = 0, **fields: Any) -> ResolvedWorkload:
    op = parse_op(spec(**fields))
    return resolve_workload(op, op.workloads[index])


def with_input(**changes: Any) -> list[dict[str, Any]]:
    return [SPEC["inputs"][0] | changes, *SPEC["inputs"][1:]]


def test_a_workload_with_every_axis_bound() -> None:
    assert resolved() == {
        "id": "decode",
        "role": "bench",
        "axes": {"tokens": 64, "hidden": 16, "twice": 32},
        "inputs": [
            {
                "name": "x",
                "shape": [64, 32],
                "strides": None,
                "dtype": "float32",
                "dist": {"kind": "normal", "mean": 0.0, "std": 1.0},
                "value": None,
                "mutated": True,
            },
            {
                "name": "rows",
                "shape": [64],
                "strides": None,
                "dtype": "int64",
                "dist": {"kind": "randint", "low": 0, "high": 64},
                "value": None,
                "mutated": False,
            },
            {
                "name": "m",
                "shape": None,
                "strides": None,
                "dtype": "float32",
                "dist": {},
                "value": 0.5,
                "mutated": False,
            },
        ],
        "outputs": [{"name": "y", "shape": [64, 3], "dtype": "bfloat16", "tolerance": None}],
        "min_bytes": 2 * 64 * 32 * 4 + 64 * 8 + 64 * 3 * 2,
        "flops": 192,
    }


def test_bytes_of_all_buffers_count_a_mutated_input_once() -> None:
    assert workload_bytes(resolved()) == 64 * 32 * 4 + 64 * 8 + 64 * 3 * 2


def test_limits_replace_the_least_bytes() -> None:
    assert resolved(limits={"bytes": "tokens * 5"})["min_bytes"] == 320
    assert resolved(limits={"bytes": 17})["min_bytes"] == 17
    assert resolved(limits={})["flops"] is None


def test_a_workload_changes_inputs() -> None:
    assert resolved(index=1)["inputs"][2]["value"] == -1.5
    workloads = [SPEC["workloads"][0] | {"inputs": {"x": {"dist": {"kind": "uniform", "high": 2}}}}]
    dist = {"kind": "uniform", "low": 0.0, "high": 2.0}
    assert resolved(workloads=workloads)["inputs"][0]["dist"] == dist


def test_an_omitted_input_is_none() -> None:
    workloads = [SPEC["workloads"][0] | {"inputs": {"x": {"omit": True}}}]
    inputs = with_input(optional=True, alignment=64)
    found = resolved(workloads=workloads, inputs=inputs)
    absent: ResolvedInput = {
        "name": "x",
        "shape": None,
        "strides": None,
        "dtype": "float32",
        "dist": {},
        "value": None,
        "mutated": False,
    }
    assert found["inputs"][0] == absent
    assert workload_bytes(found) == 64 * 8 + 64 * 3 * 2


def test_strides_take_room_and_broadcast_axes_do_not() -> None:
    padded = resolved(inputs=with_input(strides=["twice + 8", 1], alignment=64))
    assert padded["inputs"][0]["strides"] == [40, 1]
    assert padded["inputs"][0]["alignment"] == 64
    assert padded["min_bytes"] == resolved()["min_bytes"]
    assert workload_bytes(padded) - workload_bytes(resolved()) == 63 * 8 * 4
    broadcast = resolved(inputs=with_input(strides=[0, 1], mutated=False))
    assert workload_bytes(broadcast) == 32 * 4 + 64 * 8 + 64 * 3 * 2
    assert broadcast["min_bytes"] == 32 * 4 + 64 * 8 + 64 * 3 * 2


def test_a_tensor_without_axes_has_one_element() -> None:
    outputs = [{"name": "y", "shape": [], "dtype": "float32"}]
    found = resolved(outputs=outputs)
    assert found["outputs"][0]["shape"] == []
    assert workload_bytes(found) == 64 * 32 * 4 + 64 * 8 + 4


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("bool", True, True), ("int32", 7, 7), ("float32", 2, 2.0), ("bfloat16", 0.5, 0.5)],
)
def test_scalars_are_numbers_of_their_type(dtype: str, value: Any, expected: Any) -> None:
    inputs = [*SPEC["inputs"][:2], {"name": "m", "dtype": dtype, "value": value}]
    workloads = SPEC["workloads"][:1]
    found = resolved(inputs=inputs, workloads=workloads)["inputs"][2]["value"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        ("int32", {"kind": "permutation"}, {"kind": "permutation"}),
        ("int64", {"kind": "indptr", "total": "tokens * 3"}, {"kind": "indptr", "total": 192}),
        ("int32", {"kind": "ends", "total": "tokens * 3"}, {"kind": "ends", "total": 192}),
        ("int8", {"kind": "randint", "low": "0 - hidden", "high": 5}, {"kind": "randint", "low": -16, "high": 5}),
        ("bool", None, {"kind": "bernoulli", "p": 0.5}),
        ("float64", None, {"kind": "normal", "mean": 0.0, "std": 1.0}),
        ("float16", {"kind": "constant", "value": 1}, {"kind": "constant", "value": 1.0}),
    ],
)
def test_distributions_are_worked_out(dtype: str, given: Any, expected: dict[str, Any]) -> None:
    inputs = [
        SPEC["inputs"][0],
        {"name": "rows", "shape": ["tokens"], "dtype": dtype, "dist": given},
        SPEC["inputs"][2],
    ]
    assert resolved(inputs=inputs)["inputs"][1]["dist"] == expected


def test_tolerances_and_exact_checks() -> None:
    own = [SPEC["outputs"][0] | {"tolerance": {"rtol": 0.1, "atol": 0}}]
    exact = [SPEC["outputs"][0] | {"check": {"kind": "exact"}}]
    assert resolved(outputs=own)["outputs"][0]["tolerance"] == {"rtol": 0.1, "atol": 0.0}
    assert resolved(outputs=exact)["outputs"][0]["tolerance"] == {"rtol": 0.0, "atol": 0.0}


def test_a_tolerance_and_an_exact_check_contradict() -> None:
    both = [SPEC["outputs"][0] | {"tolerance": {"rtol": 0.1, "atol": 0}, "check": {"kind": "exact"}}]
    with pytest.raises(SpecErrors, match=r"^outputs\[0\]: .* not both"):
        resolved(outputs=both)


INDICES: dict[str, Any] = {**SPEC["outputs"][0], "dtype": "int64"}


@pytest.mark.parametrize(
    ("check", "resolved_check"),
    [
        ({"kind": "indices"}, {"ties": "any", "of": None, "axis": -1}),
        ({"kind": "indices", "ties": "first", "of": "x", "axis": 0}, {"ties": "first", "of": "x", "axis": 0}),
        ({"kind": "derived"}, None),
    ],
)
def test_a_check_of_indices_reaches_the_job(check: dict[str, Any], resolved_check: dict[str, Any] | None) -> None:
    assert resolved(outputs=[INDICES | {"check": check}])["outputs"][0].get("indices") == resolved_check


@pytest.mark.parametrize(
    ("dtype", "check", "complaint"),
    [
        ("int64", {"of": "nothing"}, r"^outputs\[0\]\.check\.of: found 'nothing', expected a floating input: one of"),
        ("int64", {"of": "x", "axis": 9}, r"^outputs\[0\]\.check\.axis: found 9, expected an axis of x"),
        ("int64", {"axis": 0}, r"^outputs\[0\]\.check\.axis: found 0, expected nothing without `of`"),
        ("int64", {"ties": "last"}, r"^outputs\[0\]\.check\.ties: found 'last', expected 'any' or 'first'"),
        ("float32", {}, r"^outputs\[0\]: .* an integer dtype for the check 'indices', not float32"),
    ],
)
def test_a_check_of_indices_names_what_it_lacks(dtype: str, check: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecErrors, match=complaint):
        resolved(outputs=[INDICES | {"dtype": dtype, "check": {"kind": "indices", **check}}])


@pytest.mark.parametrize(
    ("position", "values", "held"),
    [
        (0, {}, None),
        (0, {"finite": False}, None),
        (0, {"finite": True}, {"finite": True}),
        (0, {"range": [-10, 10]}, {"range": [-10.0, 10.0]}),
        (1, {"range": [0, 2000]}, {"range": [0, 2000]}),
        (2, {"range": [-2, 2], "finite": True}, {"finite": True, "range": [-2.0, 2.0]}),
    ],
)
def test_what_an_input_may_hold_reaches_the_job(position: int, values: dict[str, Any], held: Any) -> None:
    inputs = [item | ({"values": values} if at == position else {}) for at, item in enumerate(SPEC["inputs"])]
    op = parse_op(spec(inputs=inputs))
    found = [resolve_workload(op, workload)["inputs"][position].get("values") for workload in op.workloads]
    assert found == [held, held]
    # An op of before keeps its identity; one that promises more computes less.
    same = held is None
    assert (op.digest == parse_op(spec()).digest) is same
    assert (op.semantic_digest == parse_op(spec()).semantic_digest) is same


def test_values_of_a_kind_that_never_changes_are_not_promised() -> None:
    source = "def make(shape, dtype, generator):\n    return None\n"
    given = spec(inputs=with_input(dist={"kind": "code", "source": source}, values={"finite": True}))
    with pytest.raises(SpecErrors, match="values of kind code are never changed"):
        parse_op(given)


def test_the_measure_of_errors_is_part_of_what_is_computed() -> None:
    default, normwise = parse_op(spec(accuracy="componentwise")), parse_op(spec(accuracy="normwise"))
    assert default.digest == parse_op(spec()).digest
    assert normwise.semantic_digest != default.semantic_digest
    job = build_job(normwise, CPU, level="verify", candidate=CANDIDATE)
    assert job["op"]["accuracy"] == "normwise"


@pytest.mark.parametrize(
    ("level", "given", "expected"),
    [("verify", None, 5.0), ("verify", 0.0, 0.0), ("verify", 0.5, 0.5), ("screen", None, None)],
)
def test_a_verification_searches_for_counterexamples(level: Any, given: float | None, expected: float | None) -> None:
    limits = limits_with(None, given)
    job = build_job(parse_op(spec()), CPU, level=level, candidate=CANDIDATE, limits=limits)
    assert job["limits"].get("attack_s") == expected
    assert DEFAULT_LIMITS.get("attack_s") is None


def test_a_foreign_workload_is_refused() -> None:
    op = parse_op(spec())
    foreign = op.workloads[0].model_copy(update={"axes": {}})
    with pytest.raises(SpecErrors, match=r"axes\.tokens"):
        resolve_workload(op, foreign)


def test_jobs() -> None:
    op = parse_op(spec(objective={"baselines": ["eager"]}))
    baseline = build_job(op, CPU, level="baseline")
    assert baseline["op"] == {
        "name": "scaled_add",
        "digest": op.digest,
        "reference": SPEC["reference"],
        "math": "ieee",
        "library_calls": [],
        "baselines": ["eager"],
        "accuracy": "componentwise",
    }
    assert baseline["target"] == "cpu:x86_64"
    assert baseline["candidate"] is None
    assert baseline["limits"] == DEFAULT_LIMITS == {"compile_s": 60, "call_s": 10, "time_s": 3, "memory_bytes": None}
    assert baseline["limits"] is not DEFAULT_LIMITS
    declared = [workload["id"] for workload in baseline["workloads"] if not workload.get("derived")]
    assert declared == ["decode", "ragged"]
    screen = build_job(op, CPU, level="screen", candidate=CANDIDATE)
    assert [workload["id"] for workload in screen["workloads"]] == ["decode"]
    assert screen["candidate"] == CANDIDATE
    verify = build_job(op, CPU, level="verify", candidate=CANDIDATE, workloads=op.workloads[1:])
    assert [workload["id"] for workload in verify["workloads"]] == ["ragged"]
    assert len({baseline["id"], screen["id"], verify["id"]}) == 3
    assert json.loads(json.dumps(verify, allow_nan=False)) == verify


def test_limits_of_a_job() -> None:
    limits = DEFAULT_LIMITS | {"time_s": 0.5}
    assert build_job(parse_op(spec()), CPU, level="baseline", limits=limits)["limits"]["time_s"] == 0.5


def test_level_and_candidate_belong_together() -> None:
    op = parse_op(spec())
    with pytest.raises(ValueError, match="'screen' needs a candidate"):
        build_job(op, CPU, level="screen")
    with pytest.raises(ValueError, match="'baseline' takes no candidate"):
        build_job(op, CPU, level="baseline", candidate=CANDIDATE)


def test_library_calls_are_named() -> None:
    job = build_job(parse_op(spec(library_calls=True)), CPU, level="baseline")
    assert job["op"]["library_calls"] == list(LIBRARY_CALLS)
    assert "torch.mm" in LIBRARY_CALLS


def test_coded_checks_are_kept_but_not_judged() -> None:
    check = {"kind": "code", "source": "def check(inputs, expected, found):\n    return True\n"}
    op = parse_op(spec(outputs=[SPEC["outputs"][0] | {"check": check}]))
    assert parse_op(op.document()) == op
    with pytest.raises(SpecErrors, match=r"outputs\[0\]\.check\.kind: found 'code'"):
        build_job(op, CPU, level="baseline")


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, features, bias):
        super().__init__()
        self.linear = torch.nn.Linear(features, 2, bias=bias)

    def forward(self, x):
        return self.linear(x)
"""


def module_op() -> Op:
    return parse_op(
        {
            "schema_version": 1,
            "name": "module",
            "axes": {"n": {"kind": "var"}},
            "inputs": [{"name": "x", "shape": ["n", 4], "dtype": "float32"}],
            "init": [4, False],
            "state": [{"name": "w", "attribute": "linear.weight", "shape": [2, 4], "dtype": "float32"}],
            "outputs": [{"name": "y", "shape": ["n", 2], "dtype": "float32"}],
            "reference": MODEL,
            "workloads": [{"id": "a", "role": "bench", "axes": {"n": 3}}],
        }
    )


def test_state_becomes_arguments() -> None:
    op = module_op()
    assert [(item.name, item.role) for item in arguments(op)] == [("x", "input"), ("w", "weight")]
    assert [item["name"] for item in resolve_workload(op, op.workloads[0])["inputs"]] == ["x", "w"]
    tree = ast.parse(reference_source(op))
    (run,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run")
    assert [argument.arg for argument in run.args.args] == ["x", "w"]


def test_a_model_runs_with_the_state_it_is_given() -> None:
    if importlib.util.find_spec("torch") is None:
        absent("torch is not installed")
    import torch  # noqa: PLC0415  only this test needs it

    namespace: dict[str, Any] = {}
    exec(reference_source(module_op()), namespace)
    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(namespace["run"](x, w), x @ w.T)


def test_derived_axes_in_any_order() -> None:
    axes = parse_op(
        spec(
            axes=SPEC["axes"]
            | {"a": {"kind": "expr", "expr": "b + tokens"}, "b": {"kind": "expr", "expr": "twice // 4"}}
        )
    ).axes
    assert bind_axes(axes, {"tokens": 5}) == {"tokens": 5, "hidden": 16, "twice": 32, "b": 8, "a": 13}
    assert cyclic_axes(axes) == []
    with pytest.raises(SpecError, match=r"axes\.tokens: found nothing"):
        bind_axes(axes, {})


def test_a_job_has_the_weights_that_say_something() -> None:
    document = spec()
    assert "weight" not in resolve_workload(parse_op(document), parse_op(document).workloads[0])
    document["workloads"][0]["weight"] = 2.5
    op = parse_op(document)
    assert resolve_workload(op, op.workloads[0])["weight"] == 2.5
