"""FlashInfer-Bench: Definitions with their workloads as specs; what is refused, and by which field."""

from __future__ import annotations

import contextlib
import copy
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats_support import DEFINITIONS, errors_of, files_of
from warpsmith.kernels_db.formats.flashinfer import safetensors
from warpsmith.kernels_db.formats.flashinfer.made_workload import made_workload
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op, wanted
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.spec.op import Op, SpecErrors, Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job

BY_NAME = {path.stem: path for path in DEFINITIONS}
DEFINITION: dict[str, Any] = {
    "name": "scale",
    "op_type": "pointwise",
    "axes": {"n": {"type": "var"}, "k": {"type": "const", "value": 8}},
    "inputs": {"x": {"shape": ["n", "k"], "dtype": "float32"}, "by": {"shape": None, "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "k"], "dtype": "float32"}},
    "reference": "def run(x, by):\n    return x * by\n",
}
WORKLOAD: dict[str, Any] = {
    "uuid": "a",
    "axes": {"n": 4},
    "inputs": {"x": {"type": "random"}, "by": {"type": "scalar", "value": 2.0}},
}


def imported(name: str) -> Op:
    """An example as an op."""
    return import_op(files_of(BY_NAME[name]), None, None).op


def made(definition: Any, *workloads: Any, blobs: tuple[RawFile, ...] = ()) -> ImportedOp:
    """What comes of these objects."""
    lines = "".join(json.dumps(item) + "\n" for item in workloads).encode()
    files = [RawFile("d.json", json.dumps(definition).encode()), RawFile("w.jsonl", lines), *blobs]
    return import_op(files, "flashinfer-bench", None)


def changed(document: Any, path: str, value: Any) -> Any:
    """A copy with another value at a dotted path; None takes it out."""
    found = inner = copy.deepcopy(document)
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return found


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_a_definition_becomes_a_job_without_being_run(path: Path) -> None:
    found = import_op(files_of(path), None, None)
    assert found.sandbox is None
    assert found.op.origin is not None
    assert raw_files(found.op.origin) == files_of(path)
    assert load_op(json.dumps(found.op.document())) == found.op
    job = build_job(found.op, Target.parse("cpu"), level="baseline")
    assert all(workload["min_bytes"] > 0 for workload in job["workloads"])


def test_axes_types_and_workloads_are_the_definitions() -> None:
    op = imported("rmsnorm_h1024")
    assert (op.name, op.family) == ("rmsnorm_h1024", "rmsnorm")
    assert [(name, axis.kind) for name, axis in op.axes.items()] == [("batch_size", "var"), ("hidden_size", "const")]
    assert [(item.name, item.shape, item.dtype) for item in op.inputs] == [
        ("hidden_states", ("batch_size", "hidden_size"), "bfloat16"),
        ("weight", ("hidden_size",), "bfloat16"),
    ]
    assert [(item.role, dict(item.axes)) for item in op.workloads] == [
        ("bench", {"batch_size": 16}),
        ("bench", {"batch_size": 512}),
    ]


def test_a_scalar_has_the_workloads_value_and_an_order_of_its_own_is_kept() -> None:
    op = imported("scaled_silu")
    assert [item.inputs["scale"].value for item in op.workloads] == [0.5, 2.0]
    space: dict[str, Any] = {}
    exec(op.reference.replace("import torch", "").replace("torch.nn.functional.silu(x)", "x"), space)
    assert space["run"](3.0, 0.5) == 1.5, "inputs come by position: x, then scale"


def test_a_dict_that_run_returns_becomes_a_tuple_in_the_outputs_order() -> None:
    op = imported("add_layer_norm_h512")
    assert [item.name for item in op.outputs] == ["y", "summed"]
    space: dict[str, Any] = {}
    plain = op.reference.replace("import torch", "").replace(
        "torch.nn.functional.layer_norm(summed, (summed.shape[-1],))", "-summed"
    )
    exec(plain, space)
    assert space["run"](1, 2) == (-3, 3)


def test_constraints_over_axes_are_the_specs_and_others_stay_in_the_file() -> None:
    assert imported("gemm_n256_k512").constraints == ("M <= 4096",)
    found = import_op(files_of(BY_NAME["paged_mean_d64"]), None, None)
    assert found.op.constraints == ("num_pages >= 1",)
    assert found.notes == [
        "constraint kept in origin alone, for it speaks of more than axes: num_indices == indptr[-1].item()"
    ]


def test_integers_are_drawn_from_the_formats_own_range() -> None:
    definition = changed(DEFINITION, "inputs.x.dtype", "int8")
    (dist,) = [item.dist for item in made(definition, WORKLOAD).op.inputs if item.shape]
    assert dist is not None
    assert dist.model_dump() == {"kind": "randint", "low": -128, "high": 128}


def test_a_trace_has_its_workload_once() -> None:
    trace = {"definition": "scale", "solution": "mine", "workload": WORKLOAD, "evaluation": {"status": "PASSED"}}
    other = {**WORKLOAD, "uuid": "b c/d"}
    op = made(DEFINITION, WORKLOAD, trace, other).op
    assert [item.id for item in op.workloads] == ["a", "b-c-d"]


def test_more_workloads_than_a_spec_has_are_refused_before_they_are_read() -> None:
    bad = [{**WORKLOAD, "uuid": str(n), "inputs": {"absent": {}}} for n in range(1025)]
    with pytest.raises(SpecErrors, match="workloads: found '1025 Workloads', expected at most 1024"):
        made(DEFINITION, *bad)


def test_a_solution_is_kept_and_said_to_be_no_part_of_the_op() -> None:
    solution = {"name": "s", "definition": "scale", "author": "me", "sources": [], "spec": {}}
    found = made(DEFINITION, WORKLOAD, solution)
    assert found.notes == ["kept in origin, and not part of the op: Solution"]


BAD_DEFINITIONS = [
    ("reference", None, "d.json: reference: found nothing, expected the source of a Python module"),
    ("reference", "x = 1", "d.json: reference: found 'no function run, but none'"),
    ("reference", "def run(", "d.json: reference: found"),
    ("reference", "def run(z):\n    return x", "reference: found 'run(z) in line 1'"),
    ("axes.n.type", "free", "d.json: axes.n.type: found 'free', expected const, var or expr"),
    ("axes.k.value", 0, "axes.k.value: found 0"),
    ("axes.n", 3, "d.json: axes.n: found 3, expected an object"),
    ("inputs.x.shape", ["n", "m"], "inputs[0].shape[1]: found 'm', expected an axis"),
    ("inputs.x.shape", None, "d.json: inputs.x.shape: found nothing"),
    ("inputs.x.dtype", "float4_e2m1", "inputs[0].dtype: found 'float4_e2m1'"),
    ("outputs", [], "d.json: outputs: found '[]', expected an object"),
    ("name", None, "d.json: name: found nothing, expected a text"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD_DEFINITIONS, ids=lambda value: str(value)[:24])
def test_a_bad_definition_is_refused_by_its_field(path: str, value: Any, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(changed(DEFINITION, path, value), WORKLOAD)
    assert message in "\n".join(errors_of(caught.value))


BAD_WORKLOADS = [
    (
        [],
        "found 'no Workload', expected a file with Workloads as JSON lines, which give sizes for n and values for by",
    ),
    ([changed(WORKLOAD, "axes.n", None)], "workloads[0].axes.n: found nothing, expected a size"),
    ([changed(WORKLOAD, "inputs.by", None)], "inputs[1]"),
    (
        [changed(WORKLOAD, "inputs.z", {"type": "random"})],
        "w.jsonl: line 1: inputs.z: found 'z', expected an input of the",
    ),
    ([changed(WORKLOAD, "inputs.x.type", "file")], "w.jsonl: line 1: inputs.x.type"),
    ([{"definition": "other", "workload": WORKLOAD}], "w.jsonl: line 1: definition: found 'other', expected scale"),
    ([{"definition": "scale", "workload": 1}], "w.jsonl: line 1: workload: found 1"),
]


@pytest.mark.parametrize(("workloads", "message"), BAD_WORKLOADS, ids=lambda value: str(value)[:24])
def test_a_bad_workload_is_refused_by_line_and_field(workloads: list[Any], message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(DEFINITION, *workloads)
    assert message in "\n".join(errors_of(caught.value))


def stored(name: str, dtype: str, shape: list[int], data: bytes) -> bytes:
    """A safetensors file with one tensor."""
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    return len(header).to_bytes(8, "little") + header + data


VALUES = struct.pack("<32f", *range(32))
SAFETENSORS = changed(WORKLOAD, "inputs.x", {"type": "safetensors", "path": "./blob/x.safetensors", "tensor_key": "x"})


def test_stored_values_become_part_of_the_spec() -> None:
    torch = pytest.importorskip("torch", reason="a distribution by code makes a tensor")
    blob = RawFile("set/blob/x.safetensors", stored("x", "F32", [4, 8], VALUES))
    (workload,) = made(DEFINITION, SAFETENSORS, blobs=(blob,)).op.workloads
    dist = workload.inputs["x"].dist
    assert dist is not None
    assert dist.kind == "code"
    space: dict[str, Any] = {}
    exec(dist.source, space)
    found = space["make"]([4, 8], torch.float32, None)
    assert torch.equal(found, torch.arange(32, dtype=torch.float32).reshape(4, 8))


def test_stored_values_that_are_used_too_often_are_refused_as_the_text_is_made() -> None:
    blob = RawFile("blob/x.safetensors", stored("x", "F32", [2000, 8], bytes(64_000)))
    used = [changed(changed(SAFETENSORS, "uuid", str(n)), "axes.n", 2000) for n in range(13)]
    with pytest.raises(SpecErrors, match=r"files: .*its sources repeat them for each tensor"):
        made(DEFINITION, *used, blobs=(blob,))


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (None, "no such file ./blob/x.safetensors"),
        (
            stored("y", "F32", [4, 8], VALUES),
            "inputs.x.tensor_key: found 'x', expected a tensor of blob/x.safetensors: one of y",
        ),
        (stored("x", "F32", [32], VALUES), "x: [32] of float32', expected [4, 8] of float32"),
        (stored("x", "I32", [4, 8], VALUES), "[4, 8] of int32"),
        (stored("x", "F32", [4, 9], VALUES), "128 bytes for [4, 9] of float32"),
        (stored("x", "F4", [4, 8], VALUES), "x of dtype 'F4'"),
        (stored("x", "F32", [4, 8], VALUES).replace(b"[4, 8]", b"[4,-8]"), "a shape and two data_offsets"),
        (stored("x", "F32", [10**3000, 10**3000], bytes(16)), "lists of sizes of at most 281474976710656"),
        (stored("x", "F32", [1 << 20], bytes(16)), "at most 65536 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\xff" * 20, "which has no readable header"),
        (b"", "which has no readable header"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_that_are_not_at_hand_are_refused_by_name(blob: bytes | None, message: str) -> None:
    blobs = () if blob is None else (RawFile("blob/x.safetensors", blob),)
    with pytest.raises(SpecErrors) as caught:
        made(DEFINITION, SAFETENSORS, blobs=blobs)
    (found,) = errors_of(caught.value)
    assert "w.jsonl: line 1: inputs.x" in found
    assert message in found


@given(st.binary(max_size=200))
def test_any_bytes_are_a_stored_tensor_or_refused(data: bytes) -> None:
    with pytest.raises(SpecErrors):
        safetensors.read(RawFile("x", data), "x", "field")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([path for path, _, _ in BAD_DEFINITIONS] + ["inputs", "axes", "constraints", "description"]), JSON
)
def test_any_value_of_a_definitions_field_is_read_or_refused(path: str, value: Any) -> None:
    """Nothing but SpecErrors comes of a field, whatever stands in it."""
    definition = {**copy.deepcopy(DEFINITION), "constraints": [], "description": ""}
    try:
        found = made(changed(definition, path, "" if value is None else value), WORKLOAD)
    except SpecErrors:
        return
    assert load_op(json.dumps(found.op.document())) == found.op


@given(st.sampled_from(["axes", "inputs", "inputs.x", "inputs.by", "inputs.by.value", "uuid", "axes.n"]), JSON)
def test_any_value_of_a_workloads_field_is_read_or_refused(path: str, value: Any) -> None:
    try:
        found = made(DEFINITION, changed(WORKLOAD, path, "" if value is None else value))
    except SpecErrors:
        return
    assert load_op(json.dumps(found.op.document())) == found.op


CUSTOM = {
    **DEFINITION,
    "axes": {**DEFINITION["axes"], "twice": {"type": "expr", "expression": "2 * n"}},
    "custom_inputs_entrypoint": "draw",
    "reference": "import torch\n\n\ndef draw(sizes, device):\n"
    "    assert sizes == {'n': 4, 'k': 8, 'twice': 8, 'by': 2.0}\n"
    "    return {'x': torch.full((sizes['n'], sizes['k']), sizes['by'], device=device)}\n\n\n"
    "def run(x, by):\n    return x * by\n",
}


def test_custom_inputs_are_made_by_the_definitions_own_function() -> None:
    found = made(CUSTOM, changed(WORKLOAD, "inputs.x.type", "custom"))
    dist = found.op.workloads[0].inputs["x"].dist
    assert dist is not None
    assert dist.kind == "code"
    names: dict[str, Any] = {}
    exec(compile(dist.source, "source", "exec"), names)
    drawn = names["make"]((4, 8), torch.float32, torch.Generator())
    assert drawn.shape == (4, 8)
    assert bool((drawn == 2.0).all())


@pytest.mark.parametrize("entry", [None, "nobody", 3])
def test_custom_inputs_without_their_function_are_refused(entry: Any) -> None:
    with pytest.raises(SpecErrors) as caught:
        made({**CUSTOM, "custom_inputs_entrypoint": entry}, changed(WORKLOAD, "inputs.x.type", "custom"))
    assert errors_of(caught.value)[0].startswith("d.json: custom_inputs_entrypoint")


def test_a_problem_of_sol_execbench_reads_its_workloads_along() -> None:
    file = RawFile("rmsnorm/definition.json", json.dumps(DEFINITION).encode())
    assert "rmsnorm/workload.jsonl" in wanted([file], None)
    with_tolerance = {**WORKLOAD, "tolerance": {"max_atol": 1e-3, "max_rtol": 1e-3}}
    assert any("tolerances are kept in origin" in note for note in made(DEFINITION, with_tolerance).notes)


def with_sizes(definition: Any, sizes: dict[str, float]) -> tuple[Op, dict[str, Any]]:
    """A Definition with a Workload of these sizes, and what was chosen for it."""
    file = RawFile("d.json", json.dumps(definition).encode())
    workload = made_workload([file], sizes)
    return import_op([file, workload.file], None, None).op, workload.chosen


def test_a_definition_without_workloads_gets_one_of_given_sizes() -> None:
    op, chosen = with_sizes(DEFINITION, {"n": 3, "by": 0.5})
    (workload,) = op.workloads
    assert (workload.id, workload.axes, workload.inputs["by"].value) == ("axes", {"n": 3}, 0.5)
    assert chosen == {}
    op, chosen = with_sizes(DEFINITION, {})
    assert (op.workloads[0].axes, op.workloads[0].inputs["by"].value, chosen) == ({"n": 64}, 1.0, {"n": 64, "by": 1.0})


PAGED: dict[str, Any] = {
    "name": "paged",
    "op_type": "attention",
    "axes": {
        "batch_size": {"type": "var"},
        "num_pages": {"type": "var"},
        "len_indptr": {"type": "var"},
        "num_kv_indices": {"type": "var"},
        "topk": {"type": "const", "value": 100},
        "head_dim": {"type": "const", "value": 16},
    },
    "constraints": ["len_indptr == batch_size + 1", "num_kv_indices == kv_indptr[-1].item()", "topk <= num_pages"],
    "inputs": {
        "q": {"shape": ["batch_size", "head_dim"], "dtype": "float32"},
        "cache": {"shape": ["num_pages", "head_dim"], "dtype": "float32"},
        "kv_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "kv_indices": {"shape": ["num_kv_indices"], "dtype": "int32"},
        "sm_scale": {"shape": None, "dtype": "float32"},
        "expert_offset": {"shape": None, "dtype": "int32"},
    },
    "outputs": {"y": {"shape": ["batch_size", "head_dim"], "dtype": "float32"}},
    "reference": "def run(q, cache, kv_indptr, kv_indices, sm_scale, expert_offset):\n    return q\n",
}


def test_sizes_that_are_not_given_are_those_of_the_constraints_and_indices_stay_within_bounds() -> None:
    op, chosen = with_sizes(PAGED, {"batch_size": 8})
    sizes = {"len_indptr": 9, "num_pages": 128, "num_kv_indices": 64}
    assert chosen == {**sizes, "sm_scale": 0.25, "expert_offset": 0}
    assert op.workloads[0].axes == {"batch_size": 8, **sizes}
    dists = {name: item.dist for name, item in op.workloads[0].inputs.items() if item.dist is not None}
    assert {name: dist.model_dump() for name, dist in dists.items()} == {
        "kv_indptr": {"kind": "indptr", "total": "num_kv_indices"},
        "kv_indices": {"kind": "randint", "low": 0, "high": "num_pages"},
    }
    assert with_sizes(PAGED, {"len_indptr": 5})[1]["batch_size"] == 4  # solved for the other axis


def test_offsets_of_one_batch_are_in_even_steps() -> None:
    definition = changed(PAGED, "inputs.qo_indptr", {"shape": ["len_indptr"], "dtype": "int32"})
    definition["axes"]["total_q"] = {"type": "var"}
    definition["constraints"].append("total_q == qo_indptr[-1].item()")
    definition["reference"] = definition["reference"].replace("expert_offset)", "expert_offset, qo_indptr)")
    op, _ = with_sizes(definition, {"batch_size": 4, "total_q": 8})
    found = {}
    for name in ("qo_indptr", "kv_indptr"):
        dist = op.workloads[0].inputs[name].dist
        assert dist is not None
        assert dist.kind == "code"
        space: dict[str, Any] = {}
        exec(compile(dist.source, "source", "exec"), space)
        found[name] = space["make"]((5,), torch.int32, torch.Generator()).tolist()
    assert found == {"qo_indptr": [0, 2, 4, 6, 8], "kv_indptr": [0, 16, 32, 48, 64]}


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"m": 3}, "one of batch_size, num_pages"),
        ({"batch_size": 0}, "a whole number above 0"),
        ({"batch_size": 2.5}, "a whole number above 0"),
        ({"num_pages": 64}, "topk <= num_pages"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, float], said: str) -> None:
    with pytest.raises(SpecErrors, match=said):
        with_sizes(PAGED, sizes)


@given(
    st.sampled_from(["axes", "constraints", "inputs", "inputs.q.shape", "axes.batch_size", "inputs.kv_indptr"]), JSON
)
def test_a_workload_for_any_definition_is_made_or_refused(path: str, value: Any) -> None:
    with contextlib.suppress(SpecErrors):  # anything else is a defect
        assert with_sizes(changed(PAGED, path, value), {})[0].workloads


WRITES = [
    "x[0] = x[1] * by",
    "x[0][1] += by",
    "x.mul_(by)",
    "x += by",
    "by += 1; x *= by",
    "x.view(-1)[0] = by",
    "x.data[0] = by",
    "x.T[0] = by",
    "x[x > 0] = by",
    "out = x; out += by",
    "w = x[0]; w += 1",
    "torch.add(x, by, out=x)",
    "torch.relu_(x)",
    "x[0], z = by, 1",
    "x[0] = by; x = x * 2",
    "y, z = x, by; y[0] = z",
    "y = x.mul_(by)",
    "for i in range(2): x[i][0] = by",
    "for row in x: row += by",
    "set_to = lambda value: x.fill_(value); set_to(by)",
    "if by is None: return x.clone()\n    x[0] = by",
    "with torch.no_grad(): x[0] = by",
]


@pytest.mark.parametrize("write", WRITES)
def test_an_input_that_the_reference_writes_to_is_mutated_and_not_copied_on_the_clock(write: str) -> None:
    body = f"def run(x, by):\n    {write}\n    return x + 0\n"
    found = made(changed(DEFINITION, "reference", body), WORKLOAD)
    assert [item.mutated for item in found.op.inputs] == [True, False]
    assert found.op.reference == body
    assert any("the reference writes to x:" in note for note in found.notes)


def test_a_written_input_is_told_by_its_place_where_run_has_other_names() -> None:
    body = "def run(table, by):\n    table[0] = by\n    return table + 0\n"
    assert [item.mutated for item in made(changed(DEFINITION, "reference", body), WORKLOAD).op.inputs] == [True, False]


READS = [
    "x = x * 2; x[0] = by",
    "y = x.clone(); y[0] = by",
    "x.size()",
    "x.__len__()",
    "double = lambda x: x.mul_(2); z = double(x.clone())",
    "add = lambda: None\n    def add(x): x += 1\n    add(x.clone())",
    "z = [x.mul_(2) for x in (by.clone(),)]",
    "x.requires_grad_(False)",
    "x.detach_()",
    "w = x[by]; w += 1",
    "w = x[[0]]; w += 1",
    "x, z = x.clone(), by; x[0] = z",
    "x @= by",
    "y = x; y = y + 1; y += by",
    "for i in range(2): x = x + i; x[0] = by",
]


@pytest.mark.parametrize("write", READS)
def test_an_input_that_the_reference_only_reads_is_not_mutated(write: str) -> None:
    body = f"def run(x, by):\n    {write}\n    return x + 0\n"
    assert not any(item.mutated for item in made(changed(DEFINITION, "reference", body), WORKLOAD).op.inputs)


def test_a_reference_too_deep_to_follow_is_read_all_the_same() -> None:
    body = f"def run(x, by):\n    return x{' + by' * 1500}\n"
    assert not any(item.mutated for item in made(changed(DEFINITION, "reference", body), WORKLOAD).op.inputs)


@pytest.mark.parametrize(
    "constraint", ["batch_size % none == 0", "batch_size * 2 ** 63 > 0", "1 // none == batch_size"]
)
def test_a_constraint_that_has_no_value_is_one_that_is_not_met(constraint: str) -> None:
    definition = changed(PAGED, "axes.none", {"type": "const", "value": 0})
    definition["constraints"].append(constraint)
    with pytest.raises(SpecErrors, match="sizes that meet the constraint"):
        with_sizes(definition, {})


def test_a_constant_axis_that_is_no_size_is_refused_by_its_field() -> None:
    with pytest.raises(SpecErrors, match=r"axes\.head_dim"):
        with_sizes(changed(PAGED, "axes.head_dim", {"type": "const", "value": -16}), {})


def test_a_size_may_stand_in_a_shape_as_a_number() -> None:
    definition = changed(changed(DEFINITION, "inputs.x.shape", ["n", "1"]), "outputs.y.shape", ["n", 1])
    op = made(definition, WORKLOAD).op
    assert op.inputs[0].shape == ("n", 1)
    assert op.outputs[0].shape == ("n", 1)


def test_an_axis_that_nobody_declares_has_the_size_that_workloads_say() -> None:
    definition = changed(DEFINITION, "outputs.y.shape", ["n", "half"])
    with pytest.raises(SpecErrors, match="half"):
        made(definition, WORKLOAD)
    sized = changed(WORKLOAD, "axes.half", 4)
    with pytest.raises(SpecErrors, match="half"):
        made(definition, sized, {**WORKLOAD, "uuid": "other"})
    assert made(definition, sized).op.workloads[0].axes["half"] == 4
    op, chosen = with_sizes(definition, {"n": 3, "by": 0.5, "half": 4})
    assert (op.outputs[0].shape, op.workloads[0].axes, chosen) == (("n", "half"), {"n": 3, "half": 4}, {})
    with pytest.raises(SpecErrors, match="half"):
        with_sizes(definition, {"n": 3})


def test_a_size_may_be_worked_out_from_constant_axes() -> None:
    op = made(changed(DEFINITION, "inputs.x.shape", ["n", "k / 2"]), WORKLOAD).op
    assert op.inputs[0].shape == ("n", 4)
    with pytest.raises(SpecErrors, match="n / 2"):
        made(changed(DEFINITION, "inputs.x.shape", ["n", "n / 2"]), WORKLOAD)
